"""Everything in a body that would leave as text: what the classifiers look at."""

from collections.abc import Iterator, Mapping

import msgspec
from msgspec import Raw, Struct

from router.api.readable import Readable, of_fields, of_messages
from router.api.shape import LooseMessage, LoosePart, Message, Part, Source
from router.classify.views import strings
from router.types.request import Modality, Passage, Path

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
    """`count` of messages; `read`: their texts; `kinds` of content parts; what is beside the texts."""

    count: int
    read: Readable
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
        found = list(strings(msgspec.json.decode(raw), ("messages",)))
        read = Readable()
        of_messages(found, read)
        return Content(len(loose), read, kinds, _loose_media(found, parts))


def others(body: Mapping[str, Raw], skipped: str, read: Readable) -> None:
    """The strings of all fields but `skipped` and the model: tools, schemas, metadata, whatever the client added."""
    for name, raw in body.items():
        if name not in ("model", skipped) and memoryview(raw)[0] in _TEXTUAL:
            of_fields(strings(msgspec.json.decode(raw), (name,)), read)
    for name in body.keys() & _STORED.keys():
        if bytes(body[name]) not in _ABSENT:
            read.unscannable.add(_STORED[name])


def items(raw: Raw, read: Readable) -> None:
    """The strings of a Responses input."""
    of_messages(list(strings(msgspec.json.decode(raw), ("input",))), read)


def _read(known: list[Message]) -> Content:
    read = Readable()
    parts: list[Part] = []
    for number, message in enumerate(known):
        if isinstance(message.content, str):
            read.passages.append(Passage(("messages", number, "content"), message.content, message.role))
        elif message.content:
            parts += message.content
            for place, part in enumerate(message.content):
                _part(("messages", number, "content", place), part, message.role, read)
        if message.name or message.refusal or message.tool_calls or message.tool_call_id:
            read.passages += _beside(("messages", number), message)
    kinds = frozenset(part.type for part in parts)
    return Content(len(known), read, kinds, _media(parts) if parts else NO_MEDIA)


def _beside(path: Path, message: Message) -> Iterator[Passage]:
    """What it says beside its content."""
    for name in ("name", "refusal", "tool_call_id"):
        if text := getattr(message, name):
            yield Passage((*path, name), text, message.role)
    for number, call in enumerate(message.tool_calls or ()):
        place = (*path, "tool_calls", number)
        yield Passage((*place, "id"), call.id, message.role)
        yield Passage((*place, "function", "name"), call.function.name, message.role)
        yield Passage((*place, "function", "arguments"), call.function.arguments, message.role)


def _part(path: Path, part: Part, role: str, read: Readable) -> None:
    for name in ("text", "refusal"):
        if text := getattr(part, name):
            read.passages.append(Passage((*path, name), text, role))
    for name, modality in _SOURCES:
        one = getattr(part, name)
        if isinstance(one, str):
            _link((*path, name), one, role, modality, read)
        elif one is not None:
            _source((*path, name), one, role, modality, read)


def _source(path: Path, source: Source, role: str, modality: Modality, read: Readable) -> None:
    if source.filename:
        read.passages.append(Passage((*path, "filename"), source.filename, role))
    for name, payload in (("file_data", source.file_data), ("data", source.data)):
        if payload:
            read.payload((*path, name), payload, role, modality)
    if source.url:
        _link((*path, "url"), source.url, role, modality, read)
    if source.file_id:
        read.passages.append(Passage((*path, "file_id"), source.file_id, role))
        read.unscannable.add(modality)


def _link(path: Path, link: str, role: str, modality: Modality, read: Readable) -> None:
    """An address, of what is elsewhere; or all of it, as a data URL."""
    if link.startswith("data:"):
        read.payload(path, link, role, modality, least=len(link) + 1)
    else:
        read.passages.append(Passage(path, link, role))
        read.unscannable.add(modality)


def _media(parts: list[Part]) -> Media:
    sounds = [part.input_audio for part in parts if part.input_audio is not None]
    files = [part.file for part in parts if part.file is not None]
    images = sum(part.image_url is not None for part in parts)
    if not (images or sounds or files):
        return NO_MEDIA
    sizes = [_decoded(file.file_data) for file in files]
    return Media(images, sum(map(_seconds, sounds)), sum(sizes) if all(sizes) else None)


def _loose_media(found: list[Passage], parts: list[LoosePart]) -> Media:
    """Of parts whose form is not known: images by their kind, all else that is inline by its size."""
    kinds = [part.type for part in parts]
    texts = [passage.text for passage in found]
    inline = [text for text in texts if text.startswith("data:") and not text.startswith("data:image")]
    images = sum("image" in kind for kind in kinds)
    linked = not inline and any(kind.rpartition("_")[0] in _LINKED or kind in _LINKED for kind in kinds)
    size = None if linked else sum(map(_decoded, inline))
    return Media(images, 0, size) if images or size != 0 else NO_MEDIA


_SOURCES = (("image_url", Modality.IMAGE), ("input_audio", Modality.AUDIO), ("file", Modality.FILE))
_STORED = {
    **dict.fromkeys(("previous_response_id", "conversation"), Modality.FILE),
    **dict.fromkeys(("prompt_token_ids", "input_ids"), Modality.TOKENS),
}
"""Fields of a body: what the provider keeps is part of the prompt; so are a tokenizer's numbers."""
_ABSENT = (b"null", b'""')
_LINKED = ("file", "input_file", "document", "video", "input_video")


def _seconds(sound: Source) -> int:
    return 1 + _decoded(sound.data) // AUDIO_BYTES_PER_SECOND.get(sound.format, AUDIO_BYTES_PER_SECOND_ELSE)


def _decoded(base64: str) -> int:
    return len(base64) * BASE64[0] // BASE64[1]
