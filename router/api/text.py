"""The typed fields of request bodies, and the text in them."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct

from router.classify.decoders import LEAST_PAYLOAD, MOST_DECODED, document, inline
from router.classify.views import passages_in
from router.errors import wrong
from router.types.attempt import LONGEST_WORD, SMALL_LETTERS
from router.types.price import nano_from_usd
from router.types.request import NO_LIMITS, Function, Limits, Message, MessageCall, MessagePart, Modality, Passage, Path
from router.types.tables import table
from router.types.target import Task

M = TypeVar("M")

# The few fields of a body that decisions need, as msgspec types: a wrong type is refused with its path.


class SentPart(MessagePart, frozen=True, forbid_unknown_fields=True):
    refusal: str | None = None


class SentFunction(Function, frozen=True, forbid_unknown_fields=True):
    """A called function without unknown fields."""


class SentToolCall(MessageCall, frozen=True, forbid_unknown_fields=True, kw_only=True):
    function: SentFunction
    id: str = ""
    type: str = ""


class SentMessage(Message, frozen=True, forbid_unknown_fields=True):
    """A message of texts and calls with documented fields only, so that all of its text is known."""

    content: str | Sequence[SentPart] | None = None
    tool_calls: Sequence[SentToolCall] | None = None
    refusal: str | None = None
    name: str | None = None
    tool_call_id: str | None = None


class LooseMessage(Struct, frozen=True):
    """The fields that every message must have; a client may add others."""

    role: str
    content: str | list[MessagePart] | None = None
    name: str | None = None


class StreamOptions(Struct, frozen=True):
    include_usage: bool | None = None


class ResponseFormat(Struct, frozen=True):
    type: str = "text"


class Metadata(Struct, frozen=True):
    session_id: str | None = None
    tags: str | list[str] | None = None
    lowpass_task: str | None = None


class Fields(Struct, frozen=True):
    """Fields common to all endpoints."""

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    user: str | None = None
    service_tier: str | None = None
    metadata: Metadata | None = None


class Chat(Fields, Generic[M], frozen=True):
    messages: list[M] = []
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    tools: list[Raw] | None = None
    functions: list[Raw] | None = None
    response_format: ResponseFormat | None = None
    logprobs: bool | None = None
    reasoning_effort: str | None = None


class Reasoning(Struct, frozen=True):
    effort: str | None = None


class Responses(Fields, frozen=True):
    input: str | list[Raw] | None = None
    max_output_tokens: int | None = None
    reasoning: Reasoning | None = None


class Completion(Fields, frozen=True):
    prompt: str | list[str | int | list[int]] | None = None
    max_tokens: int | None = None
    suffix: str | None = None
    best_of: int | None = None
    logprobs: int | None = None


class EmbeddingFields(Fields, frozen=True):
    input: str | list[str | int | list[int]] | None = None
    dimensions: int | None = None


# `x-lowpass-*` headers and the equivalent `metadata` → Limits. Unknown names and wrong values are refused.

PREFIX = b"x-lowpass-"
_LONGEST = 256


def limits(headers: Iterable[tuple[bytes, bytes]], metadata: Metadata | None) -> Limits:
    """Returns the limits that a request states; headers win over metadata. Raises `ClientError` 400."""
    values = dict[str, Any]()
    if metadata is not None:
        tags = metadata.tags if isinstance(metadata.tags, str) else ",".join(metadata.tags or ())
        twins = ("session_id", b"session", metadata.session_id), ("lowpass_task", b"task", metadata.lowpass_task)
        for twin, header, value in (*twins, ("tags", b"tags", tags)):
            if value:
                values[_HEADERS[header][0]] = _limit(f"metadata.{twin}", header, value)
    stated = set[bytes]()
    for header, sent in headers:
        if not header.startswith(PREFIX):
            continue
        name = header.decode("latin-1")
        if header in stated:
            # A repeated header would lose one of its values, perhaps a class that a proxy in front has set.
            raise wrong(name, "send it once.")
        stated.add(header)
        if (known := header[len(PREFIX) :]) not in _HEADERS:
            names = ", ".join(sorted((PREFIX + header).decode() for header in _HEADERS))
            raise wrong(name, f"lowpass knows no such header. Known: {names}.")
        values[_HEADERS[known][0]] = _limit(name, known, sent.decode("latin-1").strip())
    return Limits(**values) if values else NO_LIMITS


def _limit(name: str, header: bytes, value: str) -> object:
    _, convert, remedy = _HEADERS[header]
    try:
        return convert(value)
    except (ValueError, ArithmeticError):
        raise wrong(name, remedy) from None


def _text(value: str) -> str:
    if not value or len(value) > _LONGEST or not value.isprintable():
        raise ValueError
    return value


def _number(value: str, least: int = 0) -> int:
    if not value.isascii() or not value.isdigit() or len(value) > 9 or int(value) < least:
        raise ValueError
    return int(value)


def _usd(value: str) -> int:
    if not 0 < (amount := Decimal(value)) < 1_000_000:
        raise ValueError
    return nano_from_usd(amount)


def _share(value: str) -> float:
    if not 0 < (share := float(value)) < 1:
        raise ValueError
    return share


_NAME = (_text, f"send 1 to {_LONGEST} printable characters.")
_AMOUNT = (_usd, "send an amount in USD above 0 and below 1000000, such as 0.05.")
_HEADERS: dict[bytes, tuple[str, Callable[[str], object], str]] = {
    b"session": ("session", *_NAME),
    b"app": ("app", *_NAME),
    b"task": ("task", Task, f"lowpass knows no such task. Known: {', '.join(Task)}."),
    b"data-class": ("data_class", *_NAME),
    b"region": ("region", *_NAME),
    b"budget": ("budget", *_NAME),
    b"budget-usd": ("budget_nano", *_AMOUNT),
    b"thinking-budget": ("thinking_budget", _number, "send a whole number from 0 to 999999999."),
    b"deadline-ms": ("deadline_ms", partial(_number, least=1), "send a whole number from 1 to 999999999."),
    b"failure-cost-usd": ("failure_cost_nano", *_AMOUNT),
    b"min-pass-rate": ("min_pass_rate", _share, "send a share above 0 and below 1, such as 0.9."),
    b"tags": ("tags", lambda value: tuple(_text(tag.strip()) for tag in value.split(",")), _NAME[1]),
    b"explain": ("explain", lambda value: ("0", "1").index(value) == 1, "send 1 or 0."),
}


# What of a request is text, and what can't be read: images, sound, documents, and content stored elsewhere.

_NAMES = table("api/data/media.yaml")
_LINKS, _LINKED, _PAYLOADS, _WORDS, _STORED = (
    msgspec.convert(_NAMES[name], dict[str, Modality]) for name in ("links", "linked", "payloads", "kinds", "stored")
)
_KNOWN = frozenset((*_NAMES["textual"], *_NAMES["documents"], "type"))
_DOCUMENTED, _FORMAL = frozenset(_NAMES["documented"]), frozenset(_NAMES["formal"])
_LISTS = ("content", "parts", "output")


class ReadableContent(Struct):
    """Content of a request. `passages` holds its text, `documents` text in base64, `unscannable` what can't be read.

    `bare` holds base64 without a data: prefix, which a provider may count as text. `kinds`: types of content parts;
    `images`, `low_images`: all, and those at low detail; `seconds`: at most, of audio; `files`: bytes, None if unknown.
    """

    kinds: set[str] = set()
    images: int = 0
    low_images: int = 0
    seconds: int = 0
    files: int | None = 0
    passages: list[Passage] = []
    documents: list[Passage] = []
    bare: list[str] = []
    unscannable: set[Modality] = set()
    left: int = MOST_DECODED
    """Characters of base64 that may still be decoded."""

    def payload(self, path: Path, text: str, role: str, modality: Modality, least: int = 1) -> bool:
        """Adds `text` as media if it is base64 of at least `least` characters; else as a passage, and returns False."""
        media = inline(text, least)
        if media is None:
            self.passages.append(Passage(path, text, role))
            return False
        if len(media.payload) == len(text) and least == LEAST_PAYLOAD:
            self.bare.append(text)
        read = document(media.payload) if len(media.payload) <= self.left else None
        if read is None:
            self.unscannable.add(_KINDS.get(media.media_type.partition("/")[0], modality))
            return True
        self.left -= len(media.payload)
        self.documents.append(Passage(path, text, role))
        if "base64," in read:
            self.unscannable.add(Modality.FILE)
        return True


def of_messages(passages: Sequence[Passage], readable: ReadableContent) -> None:
    """Adds the strings of messages or items that hold media, or fields that not every provider knows."""
    for passage in passages:
        path, text, role = passage.path, passage.text, passage.role
        name, holder = path[-1], path[-2] if len(path) > 1 else ""
        formal = name in _FORMAL and len(text) <= 20 and text.islower() and text.replace("_", "").isalnum()
        if not text or formal or (text == name and name in _DOCUMENTED):
            continue
        if text == name:
            readable.passages.append(passage)
            continue
        modality = _LINKED.get(str(holder)) or _PAYLOADS.get(str(name), Modality.FILE)
        if text.startswith("data:") or len(text) >= LEAST_PAYLOAD or name in _PAYLOADS:
            least = 1 if name in _PAYLOADS else LEAST_PAYLOAD
            # A long URL is not base64 and is checked below.
            if readable.payload(path, text, role, modality, least) or text[:5] == "data:":
                continue
        else:
            readable.passages.append(passage)
        if name in _LINKS:
            readable.unscannable.add(_LINKS[str(name)])
        elif holder in _LINKED and (name in ("url", "uri") or (holder == "audio" and name == "id")):
            readable.unscannable.add(modality)
    # Parts that hold nothing but a document.
    whole = {document.path[:depth] for document in readable.documents for depth in range(len(document.path))}
    whole -= {
        passage.path[:depth] for passage in readable.passages for depth in range(len(passage.path) if whole else 0)
    }
    readable.unscannable |= _of_kinds(passages, whole)


def _of_kinds(passages: Sequence[Passage], whole: Container[Path]) -> set[Modality]:
    """Returns the modalities that the parts' types name, except for parts in `whole`. A part of an unknown type is text
    only if it has no other fields."""
    unscannable: set[Modality] = set()
    unknown: set[Path] = set()
    for passage in passages:
        if passage.text == "item_reference":
            unscannable.add(Modality.FILE)
        path = passage.path
        part = len(path) > 2 and isinstance(path[-2], int) and path[-3] in _LISTS
        if path[-1] != "type" or passage.text in _KNOWN or not part or path[:-1] in whole:
            continue
        modality = next((kind for word, kind in _WORDS.items() if word in passage.text), None)
        if modality is None:
            unknown.add(path[:-1])
        else:
            unscannable.add(modality)
    members = (
        (path[:depth], path[depth]) for path in (passage.path for passage in passages) for depth in range(len(path))
    )
    if unknown and any(part in unknown and name not in ("type", "text") for part, name in members):
        unscannable.add(Modality.FILE)
    return unscannable


_SHORTEST = len("data:;base64,")
_KINDS = {"image": Modality.IMAGE, "audio": Modality.AUDIO}


# Everything in a body that would leave as text, which is what the classifiers look at.

AUDIO_BYTES_PER_SECOND = {"wav": 8_000}
"""Minimum bytes per second of audio, by format: telephone quality in WAV."""
AUDIO_BYTES_PER_SECOND_ELSE = 1_000
"""Minimum bytes per second of audio in all other formats, which are compressed: 8 kbit/s."""
BASE64 = (3, 4)
"""Number of bytes, and of the base64 characters that encode them."""
_HOLDS_TEXT = b'"[{'


def dense(data: bytes) -> int:
    """Returns the number of bytes outside words in small letters; all of them if there are few words, as in base64."""
    others = data.translate(None, SMALL_LETTERS)
    blanks = others.count(b" ")
    if blanks * LONGEST_WORD < len(data):
        return len(data)
    # A blank belongs to the word after it; before digits it is a token of its own.
    return len(others) - min(blanks, len(data) - len(others))


def loose_content(messages: list[LooseMessage], raw: Raw) -> ReadableContent:
    """Returns the content of messages with media or undocumented fields (thinking blocks, signatures …): every string
    of `raw`, their bytes, counts, since it leaves with the request."""
    kinds = [part.type for message in messages if isinstance(message.content, list) for part in message.content]
    passages = list(passages_in(msgspec.json.decode(raw), ("messages",)))
    read = ReadableContent()
    of_messages(passages, read)
    _measure(read, passages, kinds)
    read.kinds.update(kinds)
    return read


def others(body: Mapping[str, Raw], skipped: str, read: ReadableContent) -> None:
    """Adds the strings of all fields but `skipped` and the model: tools, schemas, metadata, unknown fields."""
    for name, raw in body.items():
        if name not in ("model", skipped) and memoryview(raw)[0] in _HOLDS_TEXT:
            for passage in passages_in(msgspec.json.decode(raw), (name,)):
                # These fields don't state a media type, so only base64 is told from text.
                if len(passage.text) < _SHORTEST:
                    read.passages.append(passage)
                else:
                    read.payload(passage.path, passage.text, passage.role, Modality.FILE, LEAST_PAYLOAD)
    for name in body.keys() & _STORED.keys():
        if bytes(body[name]) not in _ABSENT:
            read.unscannable.add(_STORED[name])


def content(messages: list[SentMessage]) -> ReadableContent:
    read = ReadableContent()
    for number, message in enumerate(messages):
        if isinstance(message.content, str):
            read.passages.append(Passage(("messages", number, "content"), message.content, message.role))
        elif message.content:
            read.kinds |= {part.type for part in message.content}
            for index, part in enumerate(message.content):
                for name in ("text", "refusal"):
                    if text := getattr(part, name):
                        read.passages.append(Passage(("messages", number, "content", index, name), text, message.role))
        if message.name or message.refusal or message.tool_calls or message.tool_call_id:
            read.passages += _beside(("messages", number), message)
    return read


def _beside(path: Path, message: SentMessage) -> Iterator[Passage]:
    """Yields the strings of a message besides its content."""
    for name in ("name", "refusal", "tool_call_id"):
        if text := getattr(message, name):
            yield Passage((*path, name), text, message.role)
    for number, call in enumerate(message.tool_calls or ()):
        place = (*path, "tool_calls", number)
        yield Passage((*place, "id"), call.id, message.role)
        yield Passage((*place, "function", "name"), call.function.name, message.role)
        yield Passage((*place, "function", "arguments"), call.function.arguments, message.role)


def _measure(read: ReadableContent, passages: list[Passage], kinds: list[str]) -> None:
    """Counts images by the types of parts; measures audio and files by their size."""
    formats = {passage.path[:-1]: passage.text for passage in passages if passage.path[-1] == "format"}
    sizes = list[int]()
    for passage in passages:
        place, text = passage.path[-2:], passage.text
        if place == ("image_url", "detail"):
            read.low_images += text == "low"
        elif place == ("input_audio", "data") and text != "data":
            rate = AUDIO_BYTES_PER_SECOND.get(formats.get(passage.path[:-1], ""), AUDIO_BYTES_PER_SECOND_ELSE)
            read.seconds += 1 + _decoded(text) // rate
        elif (place == _FILE_DATA and text != "file_data") or (text[:5] == "data:" and text[5:10] != "image"):
            sizes.append(_decoded(text))
    read.images = sum("image" in kind for kind in kinds)
    files = sum(kind in _LINKED_KINDS or kind.rpartition("_")[0] in _LINKED_KINDS for kind in kinds)
    read.files = None if len(sizes) < files else sum(sizes)


_ABSENT = (b"null", b'""')
_FILE_DATA = ("file", "file_data")
_LINKED_KINDS = ("file", "input_file", "document", "video", "input_video")


def _decoded(base64: str) -> int:
    return len(base64) * BASE64[0] // BASE64[1]
