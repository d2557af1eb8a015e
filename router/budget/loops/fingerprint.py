"""What a request adds to its conversation, as numbers: nothing of its text is kept."""

import re
from zlib import crc32

import msgspec
from msgspec import Struct

from router.types.request import Endpoint, Request

SLICE = 64
"""Characters looked at in the beginning, the middle and the end of a text."""
ENDS = 6
"""Words at either end by which an answer is recognised in a later prompt."""
PLACES = 4096
"""Bits of a set of words: among 800 words that are known, one new word in five is missed."""

_FOLDED = bytes.maketrans(
    bytes(range(65, 91)) + b",.;!?\"'()[]{}<>|*#`\\", bytes(range(97, 123)) + b" " * len(b",.;!?\"'()[]{}<>|*#`\\")
)
_DIGITS = b"0123456789"
_CLOCKS = re.compile(r"\d+(?:[-:/.T]\d+){2,}\S*|\d\d?:\d\d\S*|\d{9,}")
"""Dates, times of day and counts of seconds since 1970."""
_NUMBERS = re.compile(r"\d+(?:[.,]\d+)?")
_LAST = PLACES - 1
_BIT = [1 << place for place in range(PLACES)]
_UNSPACED = 20
"""Bytes a word from which a text is taken to be in a script that puts no blanks between words."""
_RULES = ("system", "developer")


class _Part(Struct, frozen=True):
    type: str = ""
    text: str | None = None


class _Function(Struct, frozen=True):
    name: str = ""
    arguments: str = ""


class _Call(Struct, frozen=True):
    function: _Function = _Function()


class _Message(Struct, frozen=True):
    role: str
    content: str | list[_Part] | None = None
    tool_calls: list[_Call] | None = None


_MESSAGES = msgspec.json.Decoder(list[_Message])


class Turn(Struct, frozen=True, kw_only=True):
    """A conversation grows by turns: what the model said last, and what was answered to it."""

    key: int
    """Of this turn, for its caller; the next request of the conversation has it as `previous`."""
    previous: int | None
    """None in the first turn."""
    size: int
    """Bytes of the whole conversation: tells a turn that says the same again from the same request sent again."""
    said: str
    """The arguments of the model's tool calls; else its words."""
    acts: bool
    """They are arguments: they get on when they are new as arguments, wherever their words came from."""
    heard: str
    """What the user or the tools said then."""
    media: bool
    """Images, sounds or files are in it, at which nobody looks here."""


def read(request: Request, caller: str) -> Turn | None:
    """None where there is nothing to compare."""
    if request.endpoint is Endpoint.EMBEDDINGS:
        return None
    body = request.chat or request.body
    raw, seed = body.get("messages"), crc32(caller.encode())
    if raw is None:
        return _single(request.text, seed)
    try:
        messages = _MESSAGES.decode(raw)
    except msgspec.ValidationError:
        return _single(request.text, seed)
    return _turn(messages, len(raw), seed)


class Words(Struct, frozen=True):
    """The words of a turn, as sets of bits. Computed only where they are compared."""

    said: int
    """With their numbers: a model that tries one number after another gets on."""
    heard: int
    """Without."""
    numbers: int
    """Those that were heard, but for clocks."""


def words(turn: Turn) -> Words:
    said = _bits(_words(turn.said, b""), 12 if turn.acts else 0) if turn.said else 0
    numbers = [found.encode() for found in _NUMBERS.findall(_CLOCKS.sub(" ", _shortened(turn.heard)))]
    return Words(said, _bits(_words(turn.heard, _DIGITS), 0), _bits(numbers, 24))


def ends(text: str) -> tuple[int, int] | None:
    """Opening and closing words of an answer, or of a prompt that may quote one; None for one too short to tell."""
    found = _words(text, _DIGITS)
    return _ends(found) if len(found) >= ENDS else None


def new_ends(answer: str, heard: str) -> tuple[int, int] | None:
    """Those of an answer; None, too, for one that only repeats what was heard."""
    found = _words(answer, _DIGITS)
    if len(found) < ENDS or not {*found[:ENDS], *found[-ENDS:]} - set(_words(heard, _DIGITS)):
        return None
    return _ends(found)


def _ends(found: list[bytes]) -> tuple[int, int]:
    return crc32(b" ".join(found[:ENDS])), crc32(b" ".join(found[-ENDS:])) << 32


def _turn(messages: list[_Message], size: int, seed: int) -> Turn:
    last = _assistant(messages, len(messages))
    before = _assistant(messages, last)
    heard = messages[last + 1 :]
    return Turn(
        key=_key(messages[max(last, 0) :], seed),
        previous=_key(messages[max(before, 0) : last], seed) if last >= 0 else None,
        size=size,
        said=_said(messages[last]) if last >= 0 else "",
        acts=last >= 0 and bool(messages[last].tool_calls),
        heard="\n".join([_content(message) for message in heard if message.role not in _RULES]),
        media=any(part.type != "text" for message in heard for part in _parts(message)),
    )


def _single(text: str, seed: int) -> Turn:
    data = text.encode("utf-8", "replace")
    return Turn(
        key=crc32(data, seed) << 32 | len(data),
        previous=None,
        size=len(data),
        said="",
        acts=False,
        heard=text,
        media=False,
    )


def _assistant(messages: list[_Message], end: int) -> int:
    """Place of the last message before `end` that the model wrote; -1: none."""
    place = end - 1
    while place >= 0 and messages[place].role != "assistant":
        place -= 1
    return place


def _key(block: list[_Message], seed: int) -> int:
    text = "\n".join([_whole(message) for message in block if message.role not in _RULES])
    data = text.encode("utf-8", "replace")
    return crc32(data, seed) << 32 | len(data) & 0xFFFFFFFF


def _whole(message: _Message) -> str:
    return _content(message) + _arguments(message) if message.tool_calls else _content(message)


def _said(message: _Message) -> str:
    return _arguments(message) if message.tool_calls else _content(message)


def _content(message: _Message) -> str:
    content = message.content
    return content if isinstance(content, str) else " ".join([part.text or "" for part in content or ()])


def _arguments(message: _Message) -> str:
    return " ".join([f"{call.function.name} {call.function.arguments}" for call in message.tool_calls or ()])


def _parts(message: _Message) -> list[_Part]:
    return message.content if isinstance(message.content, list) else []


def _shortened(text: str) -> str:
    if len(text) <= 3 * SLICE:
        return text
    middle = len(text) // 2
    return f"{text[:SLICE]} {text[middle : middle + SLICE]} {text[-SLICE:]}"


def _words(text: str, without: bytes) -> list[bytes]:
    text = _shortened(text)
    data = text.encode("utf-8", "replace").translate(_FOLDED, without)
    found = data.split()
    return found if len(data) < _UNSPACED * (len(found) + 1) else _pairs(text)


def _pairs(text: str) -> list[bytes]:
    """Neighbouring characters, of a text in a script without blanks."""
    places = range(0, len(text) - 1, max(1, len(text) // 60))
    return [text[place : place + 2].encode("utf-8", "replace") for place in places]


def _bits(found: list[bytes], shift: int) -> int:
    bits = 0
    for number in map(hash, found):
        bits |= _BIT[number >> shift & _LAST]
    return bits
