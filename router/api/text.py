"""Everything in a body that would leave as text: what the classifiers look at."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from router.api.shape import LooseMessage, LoosePart, Message, Part, Source

AUDIO_BYTES_PER_SECOND = {"wav": 8_000}
"""The fewest that a recording has: telephone quality in WAV …"""
AUDIO_BYTES_PER_SECOND_ELSE = 1_000
"""… and 8 kbit/s in everything that is compressed."""
BASE64 = (3, 4)
"""Bytes for so many characters."""
_SMALL = bytes(range(97, 123))
_WORDS = 12
"""Words are so long at most, on average: a text with fewer blanks is something else."""
_ASCII = bytes(range(128))
_KNOWN = msgspec.json.Decoder(list[Message])
_LOOSE = msgspec.json.Decoder(list[LooseMessage])
_TEXTUAL = b'"[{'


class Media(Struct, frozen=True):
    """`seconds` of sound at most; size of `files`, or None where one is linked."""

    images: int = 0
    seconds: int = 0
    files: int | None = 0


NO_MEDIA = Media()


class Content(Struct, frozen=True):
    """`count` of messages; `texts` decoded from JSON; `kinds` of content parts; what is beside the texts."""

    count: int
    texts: list[str]
    kinds: frozenset[str]
    media: Media = NO_MEDIA


def dense(data: bytes) -> int:
    """Bytes that are not of words in small letters: all of them where there are hardly any words, as in base64."""
    others = data.translate(None, _SMALL)
    blanks = others.count(b" ")
    if blanks * _WORDS < len(data):
        return len(data)
    # A blank is part of the word behind it; before digits it is a token of its own.
    return len(others) - min(blanks, len(data) - len(others))


def wide(data: bytes) -> int:
    """Bytes beyond ASCII."""
    return 0 if data.isascii() else len(data.translate(None, _ASCII))


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
        return Content(len(loose), texts, kinds, _loose_media(raw, parts))


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
    parts: list[Part] = []
    for message in known:
        if isinstance(message.content, str):
            texts.append(message.content)
        elif message.content:
            parts += message.content
            for part in message.content:
                _add(part, texts)
        texts += [text for text in (message.name, message.refusal, message.tool_call_id) if text]
        for call in message.tool_calls or ():
            texts += (call.function.name, call.function.arguments)
    return Content(len(known), texts, frozenset(part.type for part in parts), _media(parts) if parts else NO_MEDIA)


def _add(part: Part, texts: list[str]) -> None:
    """Collects a part's texts: what is inline is none."""
    media = [one for one in (part.image_url, part.input_audio, part.file) if one is not None]
    links = [one if isinstance(one, str) else one.url for one in media]
    names = [one.filename for one in media if isinstance(one, Source)]
    texts += [text for text in (part.text, part.refusal, *names) if text]
    texts += [link for link in links if link and not link.startswith("data:")]


def _media(parts: list[Part]) -> Media:
    sounds = [part.input_audio for part in parts if part.input_audio is not None]
    files = [part.file for part in parts if part.file is not None]
    images = sum(part.image_url is not None for part in parts)
    if not (images or sounds or files):
        return NO_MEDIA
    sizes = [_decoded(file.file_data) for file in files]
    return Media(images, sum(map(_seconds, sounds)), sum(sizes) if all(sizes) else None)


def _loose_media(raw: Raw, parts: list[LoosePart]) -> Media:
    """Of parts whose form is not known: images by their kind, all else that is inline by its size."""
    kinds = [part.type for part in parts]
    inline = [text for text in strings(raw) if text.startswith("data:") and not text.startswith("data:image")]
    images = sum("image" in kind for kind in kinds)
    linked = not inline and any(kind.rpartition("_")[0] in _LINKED or kind in _LINKED for kind in kinds)
    size = None if linked else sum(map(_decoded, inline))
    return Media(images, 0, size) if images or size != 0 else NO_MEDIA


_LINKED = ("file", "input_file", "document", "video", "input_video")


def _seconds(sound: Source) -> int:
    return 1 + _decoded(sound.data) // AUDIO_BYTES_PER_SECOND.get(sound.format, AUDIO_BYTES_PER_SECOND_ELSE)


def _decoded(base64: str) -> int:
    return len(base64) * BASE64[0] // BASE64[1]
