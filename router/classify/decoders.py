"""Text that is written otherwise than it is read: base64 and its like, escapes, lookalikes, wide spacing."""

import base64
import binascii
import html
import re  # one literal or class begins each pattern, and nothing can match in two ways: faster here than RE2's calls
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from router.classify.detector import Characters, Pattern
from router.tables import table

Piece = tuple[int, int, str, bool]
"""(start, end, text, hidden): what characters start:end of a text stand for. Plain, as there may be a million of them.

As many characters as before stand for one each. What is found in a `hidden` text is not these characters.
"""

# Documents that stand in a request as base64: data URLs and payloads.

MOST_DECODED = 256 * 1024
"""Characters of base64 that are decoded of all documents of a request; the rest is as good as a picture."""
LEAST_BARE = 1024
"""A string of nothing but so much base64 is a payload, whatever stands before it."""
_LONGEST_HEADER = 256
_SNIFFED = 4096
"""Characters that tell a text from other data: a multiple of 4."""
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=\r\n"
_CONTROL = bytes(code for code in range(32) if code not in b"\t\n\r") + b"\x7f"
_STANDARD = str.maketrans("-_", "+/", "\r\n ")
_UTF_8 = "utf-8-sig"
_MARKS = (b"\xff\xfe", b"\xfe\xff")
"""Of UTF-16."""


class Inline(NamedTuple):
    """`media_type` is empty where nothing says it."""

    media_type: str
    payload: str


def inline(text: str, least: int = LEAST_BARE) -> Inline | None:
    """The base64 that a string is; None for all other text."""
    if text.startswith("data:"):
        comma = text.find(",", 0, _LONGEST_HEADER)
        if comma > 0 and text[:comma].endswith(";base64") and is_base64(text[comma + 1 :]):
            return Inline(text[len("data:") : comma].partition(";")[0].lower(), text[comma + 1 :])
    return Inline("", text) if len(text) >= least and is_base64(text) else None


def is_base64(text: str) -> bool:
    """Most texts show in their first word that they are not."""
    return text.isascii() and not _beyond(text[:64]) and not _beyond(text)


def document(payload: str) -> str | None:
    """The text that a payload is; None where it is none."""
    if len(payload) > _SNIFFED and not begins_as_text(unbase64(payload[:_SNIFFED])):
        return None
    return text_of(unbase64(payload))


def begins_as_text(data: bytes | None) -> bool:
    """Of a piece, whose last character may be cut: UTF-8 has at most four bytes. Cheap where it is none."""
    if not data:
        return False
    if _encoding(data) != _UTF_8:
        return text_of(data[: len(data) & -2]) is not None
    if len(data.translate(None, _CONTROL)) != len(data):
        return False
    return data.isascii() or len(data) - len(data.decode("utf-8", "ignore").encode()) < 4


def text_of(data: bytes | None) -> str | None:
    """Bytes as UTF-8 or UTF-16, without control characters; None where they are none."""
    if not data:
        return None
    try:
        text = data.decode(_encoding(data))
    except UnicodeDecodeError:
        return None
    plain = text.encode()
    return text if len(plain.translate(None, _CONTROL)) == len(plain) else None


def _encoding(data: bytes) -> str:
    """UTF-16 has a mark, or every other byte of it is 0, as in what shells on Windows take."""
    if data.startswith(_MARKS):
        return "utf-16"
    if data[1:2] == b"\0" and not data[1::2].strip(b"\0"):
        return "utf-16-le"
    return _UTF_8


def unbase64(text: str) -> bytes | None:
    """Standard or URL-safe, wrapped or not, padded or not; a single character too many is left out."""
    bare = text.translate(_STANDARD).rstrip("=")
    bare = bare[:-1] if len(bare) % 4 == 1 else bare
    try:
        return binascii.a2b_base64(bare + "=" * (-len(bare) % 4))
    except binascii.Error:
        return None


def _beyond(text: str) -> bytes:
    return text.encode().translate(None, _BASE64)


# Texts written as base64, base32 or hexadecimal digits.

LEAST = 16
"""Characters: twelve bytes of base64 are a short e-mail address; words are rarely as long."""
_BLOBS_SNIFFED = 64
_RUN = Pattern(r"[0-9A-Za-z+/_-]{16,}(?:\r?\n[0-9A-Za-z+/_-]+)*={0,6}")
_PAIRS = Pattern(r"\b(?:[0-9A-Fa-f]{2}[ :]){11,}[0-9A-Fa-f]{2}\b")
_BETWEEN = str.maketrans("", "", " :")
_SEPARATORS = str.maketrans("/-_+\r\n", "      ")
_BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567="
_HEX = "0123456789abcdefABCDEF"
_HEX_BYTES = _HEX.encode()
_PREFIXES = ("0x", "0X")
_FEW = 18
"""Fewer bytes are believed to be a text in ASCII only: others often decode by accident."""
_WHOLE = bytes(code if (chr(code).isalnum() and code < 128) or code in b"/-_+" else 32 for code in range(256))
_PARTS = _WHOLE.translate(bytes.maketrans(b"/-_+", b"    "))
"""What ends a word: everything that base64 does not have, or also what it has in common with paths and names."""


def blobs(encoded: bytes, place: Characters, dull: set[bytes]) -> Iterator[Piece]:
    """`dull`: runs that have been tried in vain; they are added."""
    for start, end in _RUN.spans(encoded):
        run = encoded[start:end]
        if run in dull:
            continue
        if _promising(run) if run.isalnum() else any(map(_promising, _words(run))):
            yield from _decoded(run.decode(), place.of(start))
        else:
            dull.add(run)


def pairs(encoded: bytes, place: Characters) -> Iterator[Piece]:
    for start, end in _PAIRS.spans(encoded):
        if (text := _text(encoded[start:end].decode().translate(_BETWEEN))) is not None:
            first = place.of(start)
            yield first, first + end - start, f" {text} ", True


def _words(run: bytes) -> set[bytes]:
    """Its lines, and their parts."""
    return {word for word in (*run.translate(_WHOLE).split(), *run.translate(_PARTS).split()) if len(word) >= LEAST}


def _promising(word: bytes) -> bool:
    """It begins as a text would: whole groups of characters, as it may go on in the next line."""
    if word.islower() and word.removeprefix(b"0x").strip(_HEX_BYTES):
        return False
    data = _bytes(word[: min(len(word) & -8, _BLOBS_SNIFFED)].decode())
    return begins_as_text(data) and _believed(data)


def _decoded(run: str, start: int) -> Iterator[Piece]:
    """The whole run, or all but its last line, else its parts: paths and words may stand around it. Blanks around what
    is decoded keep it apart from what it stands in."""
    for until in (len(run), run.rfind("\n")):
        if until > 0 and (text := _text(run[:until].rstrip())) is not None:
            yield start, start + until, f" {text} ", True
            return
    at = 0
    for part in run.translate(_SEPARATORS).split(" "):
        if LEAST <= len(part) < len(run) and (text := _text(part)) is not None:
            yield start + at, start + at + len(part), f" {text} ", True
        at += len(part) + 1


def _text(run: str) -> str | None:
    bare = "".join(run.split()) if "\n" in run else run
    if len(bare) > _BLOBS_SNIFFED and not begins_as_text(_bytes(bare[:_BLOBS_SNIFFED])):
        return None
    data = _bytes(bare)
    return text_of(data) if _believed(data) else None


def _bytes(run: str) -> bytes | None:
    try:
        if not run.strip(_HEX) or run.startswith(_PREFIXES):
            return bytes.fromhex(run if not run.strip(_HEX) else run[2:])
        if run.isupper() and not run.strip(_BASE32):
            bare = run.rstrip("=")
            return base64.b32decode(bare + "=" * (-len(bare) % 8))
    except ValueError:
        return None
    if run.islower() or run.isupper():
        return None  # a path, a word, a name: base64 of a text has both
    return unbase64(run)


def _believed(data: bytes | None) -> bool:
    return data is not None and (len(data) >= _FEW or data.isascii())


# Characters written as others: percent signs and forms, HTML, backslashes, quoted-printable.

_HEX_DIGIT = "[0-9A-Fa-f]"
_PERCENT = re.compile(
    rf"%(?:[2-7]{_HEX_DIGIT}|0[9AaDd]|[89A-Fa-f]{_HEX_DIGIT}(?:%[89A-Fa-f]{_HEX_DIGIT})*|u{_HEX_DIGIT}{{4}})"
)
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[Xx][0-9A-Fa-f]{1,6}|[A-Za-z][0-9A-Za-z]{1,31}(?=;));?")
_CLASS = r"(?<![\w.@\\]\\)([bBdDsSwWAzZ](?:\\[bBdDsSwW])?)(?![\w.@\\])"
"""Of a regular expression, with nothing beside it that it could be a letter of."""
_BACKSLASH = re.compile(
    rf"\\(?:{_CLASS}|\\+|u{_HEX_DIGIT}{{4}}(?:\\+u[Dd][C-Fc-f]{_HEX_DIGIT}{{2}})?|u\{{{_HEX_DIGIT}{{1,6}}\}}|U{_HEX_DIGIT}{{8}}|x{_HEX_DIGIT}{{2}}|[0-3][0-7]{{2}}|.)"
)
_QUOTED = re.compile(r"=(?:40|\r?\n|[2-7][0-9A-F](?:=[2-7][0-9A-F])+)")
_PLUS = re.compile(r"\+(?<=[0-9A-Za-z]{4}\+)(?<![0-9][Ee]\+)(?=[0-9A-Za-z]{2})")
"""A blank in a form, between groups of digits or words; not in 6.932e+14."""
_LETTERS = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "0": "\0"}
"""Escapes of JSON and of most languages; before any other character the backslash is left out."""
_MOST, _HALVES, _UNKNOWN = 0x10FFFF, range(0xD800, 0xE000), "\ufffd"


def escapes(text: str) -> list[Piece]:
    pieces: list[Piece] = []
    for mark, pattern, meaning in _KINDS:
        if mark in text:
            known = _Meanings(meaning)
            pieces += [
                (match.start(), match.end(), plain, False)
                for match in pattern.finditer(text)
                if not match.lastindex and (plain := known[match.group()]) != match.group()  # &Name; is C++
            ]
    return pieces


class _Meanings(dict[str, str]):
    """Few escapes are many."""

    def __init__(self, meaning: Callable[[str], str]) -> None:
        self._meaning = meaning

    def __missing__(self, escape: str) -> str:
        self[escape] = meaning = self._meaning(escape)
        return meaning


def _percent(escape: str) -> str:
    if escape[1] == "u":
        return _character(int(escape[2:], 16))
    return bytes.fromhex(escape.replace("%", "")).decode("utf-8", "replace")


def _backslash(escape: str) -> str:
    kind = escape[1]
    if kind == "\\":
        return "\\"  # however many: each level of quoting doubles them
    if kind in "uU" and len(escape) > 2:
        return _unicode(escape)
    if kind == "x" and len(escape) > 2:
        return chr(int(escape[2:], 16))
    if len(escape) == 4:
        return chr(int(escape[1:], 8))
    return _LETTERS.get(kind, kind)


def _unicode(escape: str) -> str:
    """One character, or the two halves of one beyond 16 bits."""
    first, _, second = escape[2:].strip("{}").partition("\\")
    units = [int(digits, 16) for digits in (first, second.lstrip("\\u")) if digits]
    if len(units) == 2:
        return b"".join(unit.to_bytes(2, "big") for unit in units).decode("utf-16-be", "replace")
    return _character(units[0])


def _character(code: int) -> str:
    """Half of a character is none, and can't be encoded."""
    return _UNKNOWN if code in _HALVES or code > _MOST else chr(code)


_KINDS: tuple[tuple[str, "re.Pattern[str]", Callable[[str], str]], ...] = (
    ("%", _PERCENT, _percent),
    ("&", _ENTITY, html.unescape),
    ("\\", _BACKSLASH, _backslash),
    ("=", _QUOTED, lambda run: "" if run[1] in "\r\n" else bytes.fromhex(run.replace("=", "")).decode("ascii")),
    ("+", _PLUS, lambda escape: " "),
)


# Characters that are read as others, as those others; what is not seen is left out.

_LOOKALIKES = table("classify/data/lookalikes.yaml")
_TAGS = range(0xE0020, 0xE007F)
"""ASCII once more, invisible: models read it."""


def _codes(listed: str) -> Iterator[int]:
    for span in listed.split():
        first, _, last = span.partition("-")
        yield from range(int(first, 16), int(last or first, 16) + 1)


def _plain() -> Iterator[tuple[int, str]]:
    """What is no prose wherever it stands."""
    for code in _codes(_LOOKALIKES["compatible"]):
        text = unicodedata.normalize("NFKC", chr(code))
        if text != chr(code) and text.isascii():
            yield code, text
    for zero in _codes(_LOOKALIKES["digit_zeros"]):
        yield from ((zero + digit, str(digit)) for digit in range(10))
    # Dingbats of digits have a value, but no compatible character.
    yield from ((first + digit, str(digit + 1)) for first in (0x2776, 0x2780, 0x278A) for digit in range(9))
    yield from ((code, chr(code - _TAGS.start + 0x20)) for code in _TAGS)


PLAIN = dict(_plain())
"""Code point → ASCII."""
BESIDE_ASCII = {code: letter for letter, listed in _LOOKALIKES["letters"].items() for code in _codes(listed)}
UNSEEN = frozenset((*_codes(_LOOKALIKES["invisible"]), *_codes(_LOOKALIKES["combining"])))
"""Invisible characters and combining marks."""
_TABLE = BESIDE_ASCII | PLAIN | dict.fromkeys(UNSEEN, "")
_ANY = frozenset(map(chr, _TABLE))
_ASCII = bytes(code for code in range(128) if code not in _TABLE)


def folds(text: str, encoded: bytes, place: Characters) -> Iterator[Piece]:
    """Where something stands that is never prose, and words that mix ASCII with its lookalikes."""
    if _ANY.isdisjoint(encoded.translate(None, _ASCII).decode()):
        return
    for first, last in _ODD.spans(encoded):
        for match in _ONE_KIND.finditer(text, place.of(first), place.of(last)):
            yield *match.span(), match.group().translate(_TABLE), False


def _set(codes: Iterable[int]) -> str:
    """The inside of a class of characters: ranges."""
    parts: list[str] = []
    ordered = sorted(codes)
    first = last = ordered[0]
    for code in (*ordered[1:], -1):
        if code != last + 1:
            parts.append(chr(first) if first == last else f"{chr(first)}-{chr(last)}")
            first = code
        last = code
    return "".join(parts)


_BESIDE = _set(BESIDE_ASCII.keys() | UNSEEN)
_ALIKE = f"[{_set(code for code, to in BESIDE_ASCII.items() if to.isalnum())}]+"
_NEAR = "0-9A-Za-z@"
_WORD = f"[{_NEAR}._%+{_BESIDE}]*"
_MIXED = f"{_WORD}(?:[{_NEAR}][{_BESIDE}]|[{_BESIDE}][{_NEAR}]){_WORD}"
_LINK = "[ :=_/-]{1,2}"
_DIGITS = "[0-9](?:[ .-]?[0-9])"
_CAPITALS = f"[{_set(code for code, to in BESIDE_ASCII.items() if to.isupper())}]{{1,3}}"
_ODD = Pattern(
    f"[{_set(PLAIN)}]+|(?:(?:{_ALIKE}|[0-9]+){_LINK}){{0,6}}{_MIXED}(?:{_LINK}(?:{_MIXED}|{_ALIKE}|[0-9]+))*"
    f"|{_CAPITALS}[ -]?{_DIGITS}{{4,}}(?:[ -]{_CAPITALS})?|{_DIGITS}{{5,}}[ -]{_CAPITALS}"
)
"""Words of lookalikes alone belong to what is mixed beside them, or to the digits of an identifier."""
_ONE_KIND = re.compile(
    f"[{_set(code for code, to in _TABLE.items() if len(to) == 1)}]+|[{_set(UNSEEN)}]+"
    f"|[{_set(code for code, to in _TABLE.items() if len(to) > 1)}]"
)


# Words whose letters stand apart: "j o e @ x . i o".

_SPACED = Pattern(r"[!-~](?:[ \t\n][!-~]){9,}")
"""Ten single characters: no prose, hardly a table."""
LONGEST_APART = 4_096
"""Characters of such a run from which it is one piece: of millions of pieces each step is one long call."""


def spaced(text: str, encoded: bytes, place: Characters) -> Iterator[Piece]:
    for begin, until in _SPACED.spans(encoded):
        start = place.of(begin)
        end = start + until - begin
        # The first and the last may belong to words.
        first = start + 3 if text[max(start - 1, 0) : start].isalnum() else start + 1
        last = end - 2 if text[end : end + 1].isalnum() else end
        if last - first > LONGEST_APART:
            yield first, last, text[first + 1 : last : 2], False
        else:
            yield from ((blank, blank + 1, "", False) for blank in range(first, last, 2))
