"""Everything in a body that would leave as text: what the classifiers look at."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from router.api.shape import LooseMessage, LoosePart, Message, Part, Source
from router.types.request import Passage, Path

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
    """`count` of messages; `passages` decoded from JSON; `kinds` of content parts; what is beside the texts."""

    count: int
    passages: list[Passage]
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
        passages = [one for one in strings(raw, ("messages",)) if not one.text.startswith("data:")]
        return Content(len(loose), passages, kinds, _loose_media(raw, parts))


def others(body: Mapping[str, Raw], read: str) -> list[Passage]:
    """The strings of all fields but `read` and the model: tools, schemas, metadata, whatever the client added."""
    return [
        passage
        for name, raw in body.items()
        if name not in ("model", read) and memoryview(raw)[0] in _TEXTUAL
        for passage in strings(raw, (name,))
    ]


def strings(raw: Raw, path: Path = ()) -> Iterator[Passage]:
    """Every string in a JSON value, keys included; a key's passage ends with the key itself."""
    waiting: list[tuple[Path, Any]] = [(path, msgspec.json.decode(raw))]
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, str):
            yield Passage(place, value)
        elif isinstance(value, dict):
            yield from (Passage((*place, key), key) for key in value)
            waiting += [((*place, key), item) for key, item in value.items()]
        elif isinstance(value, list):
            waiting += [((*place, number), item) for number, item in enumerate(value)]


def _read(known: list[Message]) -> Content:
    passages: list[Passage] = []
    parts: list[Part] = []
    for number, message in enumerate(known):
        if isinstance(message.content, str):
            passages.append(Passage(("messages", number, "content"), message.content, message.role))
        elif message.content:
            parts += message.content
            for place, part in enumerate(message.content):
                passages += _of_part(("messages", number, "content", place), part, message.role)
        passages += _of_message(("messages", number), message)
    kinds = frozenset(part.type for part in parts)
    return Content(len(known), passages, kinds, _media(parts) if parts else NO_MEDIA)


def _of_message(path: Path, message: Message) -> Iterator[Passage]:
    """What it says beside its content."""
    for name in ("name", "refusal", "tool_call_id"):
        if text := getattr(message, name):
            yield Passage((*path, name), text, message.role)
    for number, call in enumerate(message.tool_calls or ()):
        place = (*path, "tool_calls", number)
        yield Passage((*place, "id"), call.id, message.role)
        yield Passage((*place, "function", "name"), call.function.name, message.role)
        yield Passage((*place, "function", "arguments"), call.function.arguments, message.role)


def _of_part(path: Path, part: Part, role: str) -> Iterator[Passage]:
    """A part's texts: what is inline is none."""
    for name in ("text", "refusal"):
        if text := getattr(part, name):
            yield Passage((*path, name), text, role)
    for name in ("image_url", "input_audio", "file"):
        one = getattr(part, name)
        if isinstance(one, Source):
            yield Passage((*path, name, "filename"), one.filename, role)
        link = one.url if isinstance(one, Source) else one or ""
        if link and not link.startswith("data:"):
            yield Passage((*path, name, "url") if isinstance(one, Source) else (*path, name), link, role)


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
    found = [passage.text for passage in strings(raw)]
    inline = [text for text in found if text.startswith("data:") and not text.startswith("data:image")]
    images = sum("image" in kind for kind in kinds)
    linked = not inline and any(kind.rpartition("_")[0] in _LINKED or kind in _LINKED for kind in kinds)
    size = None if linked else sum(map(_decoded, inline))
    return Media(images, 0, size) if images or size != 0 else NO_MEDIA


_LINKED = ("file", "input_file", "document", "video", "input_video")


def _seconds(sound: Source) -> int:
    return 1 + _decoded(sound.data) // AUDIO_BYTES_PER_SECOND.get(sound.format, AUDIO_BYTES_PER_SECOND_ELSE)


def _decoded(base64: str) -> int:
    return len(base64) * BASE64[0] // BASE64[1]
