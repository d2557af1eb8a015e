"""Everything in a body that would leave as text: what the classifiers look at."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from router.api.shape import LooseMessage, Message, Part, Source

MEDIA_BYTES = 4_096
"""What an image or a file counts for in place of its own size: about 1,000 tokens."""
_KNOWN = msgspec.json.Decoder(list[Message])
_LOOSE = msgspec.json.Decoder(list[LooseMessage])
_TEXTUAL = b'"[{'


class Content(Struct, frozen=True):
    """`count` of messages; `texts` decoded from JSON; `media` in bytes; `kinds` of content parts."""

    count: int
    texts: list[str]
    media: int
    kinds: frozenset[str]


def messages(raw: Raw) -> Content:
    """Raises `msgspec.ValidationError` for messages that are not OpenAI's."""
    try:
        return _read(_KNOWN.decode(raw))
    except msgspec.ValidationError:
        # Fields beyond OpenAI's own (reasoning, thinking blocks, signatures …) leave too: every string counts.
        loose = _LOOSE.decode(raw)
        parts = [part for message in loose if isinstance(message.content, list) for part in message.content]
        kinds = frozenset(part.type for part in parts)
        texts = [text for text in strings(raw) if not text.startswith("data:")]
        return Content(len(loose), texts, MEDIA_BYTES * sum(kind != "text" for kind in kinds), kinds)


def others(body: Mapping[str, Raw], read: str) -> list[str]:
    """The strings of all fields but `read` and the model: tools, schemas, metadata, whatever the client added."""
    return [
        text
        for name, raw in body.items()
        if name not in ("model", read) and memoryview(raw)[0] in _TEXTUAL
        for text in strings(raw)
    ]


def strings(raw: Raw) -> Iterator[str]:
    """Every string in a JSON value, keys included."""
    waiting: list[Any] = [msgspec.json.decode(raw)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            yield from value
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def _read(known: list[Message]) -> Content:
    texts: list[str] = []
    media, kinds = 0, set()
    for message in known:
        if isinstance(message.content, str):
            texts.append(message.content)
        elif message.content:
            kinds |= {part.type for part in message.content}
            media += sum(_add(part, texts) for part in message.content)
        texts += [text for text in (message.name, message.refusal, message.tool_call_id) if text]
        for call in message.tool_calls or ():
            texts += (call.function.name, call.function.arguments)
    return Content(len(known), texts, media, frozenset(kinds))


def _add(part: Part, texts: list[str]) -> int:
    """Collects a part's texts; returns the size of its media."""
    media = [one for one in (part.image_url, part.input_audio, part.file) if one is not None]
    links = [one if isinstance(one, str) else one.url for one in media]
    names = [one.filename for one in media if isinstance(one, Source)]
    texts += [text for text in (part.text, part.refusal, *names) if text]
    texts += [link for link in links if link and not link.startswith("data:")]
    return MEDIA_BYTES * len(media)
