"""Decoders of disguised text: base64 and the like, escapes, lookalikes, wide spacing."""

import base64
import binascii
import html
import re  # patterns begin with one literal or class and match in one way only: faster here than RE2's calls
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from typing import NamedTuple

from router.classify.detector import CharacterOffsets, Pattern
from router.types.tables import patterns, table

_PATTERNS = patterns("classify/data/disguises.yaml")

SEPARATOR = "\n\0\n"
"""Separates unrelated texts: no pattern has a NUL, and most end with their line."""
Piece = tuple[int, int, str, bool]
"""(start, end, text, hidden): what characters start:end stand for. A tuple, as there may be a million of them.

If `text` has the same length, each character stands for one. A `hidden` text is decoded from them.
"""

# Documents in a request as base64: data URLs and payloads.

MOST_DECODED = 256 * 1024
"""Maximum number of base64 characters that are decoded in all documents of a request; the rest is treated as images."""
LEAST_PAYLOAD = 1024
"""Length from which a string of base64 alone is a payload, whatever stands before it."""
_LONGEST_HEADER = 256
_SNIFFED = 4096
"""Number of characters that tell a text from other data; a multiple of 4."""
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=\r\n"
_CONTROL_BYTES = bytes(code for code in range(32) if code not in b"\t\n\r") + b"\x7f"
_TO_STANDARD = str.maketrans("-_", "+/", "\r\n ")
_UTF_8 = "utf-8-sig"
_BYTE_ORDER = (b"\xff\xfe", b"\xfe\xff")
"""Byte order marks of UTF-16."""
_GZIP, _ZIP = b"\x1f\x8b\x08", b"PK\3\4"
_MOST_MEMBERS = 64
_GROWTH, _GROWTH_LEAST = 8, 256
"""An archive is read up to `_GROWTH` times its size plus `_GROWTH_LEAST` bytes."""


class InlineData(NamedTuple):
    """Base64 data in a text. `media_type` is empty if it is not stated."""

    media_type: str
    payload: str


def inline(text: str, least: int = LEAST_PAYLOAD) -> InlineData | None:
    """Returns the data of a base64 string, with or without the header of a data URL; None for all other text."""
    if text.startswith("data:"):
        comma = text.find(",", 0, _LONGEST_HEADER)
        if comma > 0 and text[:comma].endswith(";base64") and is_base64(text[comma + 1 :]):
            return InlineData(text[len("data:") : comma].partition(";")[0].lower(), text[comma + 1 :])
    return InlineData("", text) if len(text) >= least and is_base64(text) else None


def is_base64(text: str) -> bool:
    """Returns whether a text is base64. The first 64 characters of most other texts show that they are not."""
    return text.isascii() and not _not_base64(text[:64]) and not _not_base64(text)


def document(payload: str, *, unpack: bool = False) -> str | None:
    """Returns the text of a base64 payload, or with `unpack` the texts in an archive; None if there is none."""
    if len(payload) > _SNIFFED and not begins_as_text(unbase64(payload[:_SNIFFED])):
        return None
    data = unbase64(payload)
    return _document_text(data) if unpack else text_of(data)


def _document_text(data: bytes | None) -> str | None:
    """Returns bytes as text, or the texts in a gzip or zip archive; None if there is none."""
    if not data or not data.startswith((_GZIP, _ZIP)):
        return text_of(data)
    most_bytes = _GROWTH * len(data) + _GROWTH_LEAST
    try:
        if data.startswith(_GZIP):
            return text_of(zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(data, most_bytes))
        with zipfile.ZipFile(BytesIO(data)) as archive:
            names = archive.namelist()[:_MOST_MEMBERS]
            texts = [text_of(archive.open(name).read(most_bytes // len(names))) for name in names]
    except (zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError):
        return None  # broken, encrypted, or packed in another way
    return "\n".join(filter(None, texts)) or None


def begins_as_text(data: bytes | None) -> bool:
    """Returns whether data that may be cut within a character (up to four bytes in UTF-8) is a text or an archive."""
    if not data or data.startswith((_GZIP, _ZIP)):
        return bool(data)
    if _encoding(data) != _UTF_8:
        return text_of(data[: len(data) & -2]) is not None
    if len(data.translate(None, _CONTROL_BYTES)) != len(data):
        return False
    return data.isascii() or len(data) - len(data.decode("utf-8", "ignore").encode()) < 4


def text_of(data: bytes | None) -> str | None:
    """Returns bytes decoded as UTF-8 or UTF-16; None if that fails or they have control characters."""
    if not data:
        return None
    try:
        text = data.decode(_encoding(data))
    except UnicodeDecodeError:
        return None
    plain = text.encode()
    return text if len(plain.translate(None, _CONTROL_BYTES)) == len(plain) else None


def _encoding(data: bytes) -> str:
    """Returns the encoding. UTF-16 has a mark, or nearly every other byte is 0, as in commands for Windows shells."""
    if data.startswith(_BYTE_ORDER):
        return "utf-16"
    first = data[: _BLOBS_SNIFFED & -2]
    for start, name in ((1, "utf-16-le"), (0, "utf-16-be")):
        if first[start::2].count(0) * 4 > len(first[start::2]) * 3:
            return name
    return _UTF_8


def unbase64(text: str) -> bytes | None:
    """Decodes standard or URL-safe base64, wrapped or padded or not; drops a surplus character. None if invalid."""
    bare = text.translate(_TO_STANDARD).rstrip("=")
    bare = bare[:-1] if len(bare) % 4 == 1 else bare
    try:
        return binascii.a2b_base64(bare + "=" * (-len(bare) % 4))
    except binascii.Error:
        return None


def _not_base64(text: str) -> bytes:
    return text.encode().translate(None, _BASE64)


# Texts encoded as base64, base32 or hexadecimal digits.

LEAST_ENCODED = 16
"""Minimum number of characters: 16 of base64 are 12 bytes, a short e-mail address; words are rarely as long."""
_BLOBS_SNIFFED = 64
_RUN = Pattern(_PATTERNS["run"])
_TO_BLANKS = str.maketrans("/-_+\r\n\t", "       ")
_BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567="
_HEX = "0123456789abcdefABCDEF"
_HEX_BYTES = _HEX.encode()
_DIGITS_RUN = re.compile(b"[0-9a-f]{8}")
_RULE_BYTES = b"-_/+= \t\r\n"
_PREFIXES = ("0x", "0X")
_ASCII_BELOW = 18
"""Number of bytes below which only ASCII counts as a text: other short data often decode by accident."""
_END_WORDS = bytes(code if (chr(code).isalnum() and code < 128) or code in b"/-_+" else 32 for code in range(256))
_END_PARTS = _END_WORDS.translate(bytes.maketrans(b"/-_+", b"    "))
"""What ends a word becomes a space: all that base64 lacks, and in `_END_PARTS` what it shares with paths and names."""


def encodings(encoded: bytes, offsets: CharacterOffsets, tried: set[bytes]) -> Iterator[Piece]:
    """Yields encoded texts. `tried`: runs that were tried in vain; new ones are added."""
    for start, end in _RUN.spans(encoded):
        run = encoded[start:end]
        if run in tried or not run.strip(_RULE_BYTES):
            continue
        if run.islower() and b"\n" not in run and not _DIGITS_RUN.search(run):
            continue  # a name in lower case, no part of which may be hexadecimal digits of a text
        if len(run) < LEAST_ENCODED and not (encoded[max(0, start - 1) : start] + encoded[end : end + 1]).isascii():
            continue  # part of a longer word, in lookalike letters
        # The whole run, its lines, and their parts.
        parts = () if run.isalnum() else (*run.translate(_END_WORDS).split(), *run.translate(_END_PARTS).split())
        if any(map(_may_be_encoded, {b"".join(run.split()), *(part for part in parts if len(part) >= LEAST_ENCODED)})):
            yield from _decoded_run(run.decode(), offsets.of(start))
        else:
            tried.add(run)


def _may_be_encoded(word: bytes) -> bool:
    """Returns whether a word begins as an encoded text; in whole groups, as it may go on in the next line."""
    if word.islower() and word.removeprefix(b"0x").strip(_HEX_BYTES):
        return False
    data = _decoded_bytes(word[: min(len(word) & -8, _BLOBS_SNIFFED)].decode())
    return begins_as_text(data) and _is_plausible(data)


def _decoded_run(run: str, start: int) -> Iterator[Piece]:
    """Yields the whole run decoded, or all but its last line, else its parts, as paths and words may stand around it.
    Spaces around a decoded text separate it from its surroundings."""
    for stop in (len(run), run.rfind("\n")):
        if stop > 0 and (text := _decoded_text(run[:stop].rstrip())) is not None:
            yield start, start + stop, f" {text} ", True
            return
    at = 0
    for part in run.translate(_TO_BLANKS).split(" "):
        if LEAST_ENCODED <= len(part) < len(run) and (text := _decoded_text(part)) is not None:
            yield start + at, start + at + len(part), f" {text} ", True
        at += len(part) + 1


def _decoded_text(run: str) -> str | None:
    bare = "".join(run.split()) if "\n" in run else run
    if len(bare) > _BLOBS_SNIFFED and not begins_as_text(_decoded_bytes(bare[:_BLOBS_SNIFFED])):
        return None
    data = _decoded_bytes(bare)
    return _document_text(data) if _is_plausible(data) else None


def _decoded_bytes(run: str) -> bytes | None:
    try:
        if not run.strip(_HEX) or run.startswith(_PREFIXES):
            return bytes.fromhex(run if not run.strip(_HEX) else run[2:])
        if run.isupper() and not run.strip(_BASE32):
            bare = run.rstrip("=")
            return base64.b32decode(bare + "=" * (-len(bare) % 8))
    except ValueError:
        return None
    # Letters of one case are a path, a word or a name: base64 of a text has both cases.
    return None if run.islower() or run.isupper() else unbase64(run)


def _is_plausible(data: bytes | None) -> bool:
    return data is not None and (len(data) >= _ASCII_BELOW or data.isascii())


# Bytes as numbers: 0x6d, 0x61; 109, 97; 6d 61.

_NUMBERS, _NUMBER = Pattern(_PATTERNS["numbers"]), re.compile("[0-9A-Fa-fxX]+")


def byte_numbers(encoded: bytes, offsets: CharacterOffsets) -> Iterator[Piece]:
    for start, end in _NUMBERS.spans(encoded):
        written = _NUMBER.findall(encoded[start:end].decode().rpartition("(")[2])
        hexadecimal = all(len(number.removeprefix("0x").removeprefix("0X")) == 2 for number in written)
        decimal = all(map(str.isdigit, written))
        codes = [[int(number, base) for number in written] for base, fits in ((16, hexadecimal), (10, decimal)) if fits]
        texts = [f'"{text}"' for row in codes if max(row) < 256 and (text := text_of(bytes(row))) is not None]
        if texts:
            yield offsets.of(start), offsets.of(start) + end - start, SEPARATOR.join(texts), True


# What stands within a value and is not part of it: emphasis, tags, quotes of two literals, the end of a line.

SPLIT, _WITHIN, _BROKEN = (Pattern(_PATTERNS[name]) for name in ("apart", "amid", "wrapped"))
"""`SPLIT` matches a text with letters or numbers that stand apart, or with anything that the other two match."""
_BREAK = re.compile(r"[ \t]*\\?\r?\n[ \t]*")
_BEFORE_BREAK = re.compile(r"([0-9A-Z]+)([ -])([0-9]+)$")
_NEW_LINE = re.compile(r"[A-Za-z_][\w.-]*[=:](?=[^=\s])|[0-9]{1,3}[.)] |[0-9]{4}-[0-9]{2}-|[0-9]{2}:[0-9]{2}|- ")
"""Begins a line that does not continue a value: a name and its value, a number in a list, a date, a time."""
_NUMERIC = "0123456789 \t\r,;.-"
_MOST_TABLE_LINES = 2
_AROUND_BREAK = 80


def marks_within(text: str, encoded: bytes, offsets: CharacterOffsets) -> Iterator[Piece]:
    start, end = _WITHIN.search(encoded)
    while start >= 0:
        first, last = offsets.span(start, end)
        inner = text[first + 1 : last - 1]
        first += 1 + len(inner) - len(inner.lstrip(" "))
        yield first, first + len(inner.strip(" ")), "", False
        start, end = _WITHIN.search(encoded, end - 1)


def breaks(text: str, encoded: bytes, offsets: CharacterOffsets) -> Iterator[Piece]:
    """Yields the line breaks within values, which are removed, or replaced by a separator."""
    start, end = _BROKEN.search(encoded)
    while start >= 0:
        line_break = _BREAK.search(text, offsets.of(start))
        if line_break and not _NEW_LINE.match(text, line_break.end()):
            before = text[max(0, line_break.start() - _AROUND_BREAK) : line_break.start()]
            neighbours = f"{before}\n{text[line_break.end() : line_break.end() + _AROUND_BREAK]}".split("\n")
            # The lines of a table hold nothing but numbers, and are more than a value has.
            if sum(line != "" and not line.strip(_NUMERIC) for line in neighbours) <= _MOST_TABLE_LINES:
                groups = _BEFORE_BREAK.search(before)
                is_whole = groups and len(groups[1]) == len(groups[3]) and text[line_break.end()].isalnum()
                yield *line_break.span(), groups[2] if groups and is_whole else "", False
        start, end = _BROKEN.search(encoded, end - 1)


# Escaped characters: percent signs, plus signs in forms, HTML, backslashes, quoted-printable.

_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "0": "\0"}
"""Escapes of JSON and of most languages; before any other character the backslash is dropped."""
_LAST_CODE, _SURROGATES, _REPLACEMENT = 0x10FFFF, range(0xD800, 0xE000), "\ufffd"


def escapes(text: str) -> list[Piece]:
    pieces: list[Piece] = []
    for mark, name, meaning in _ESCAPE_KINDS:
        meanings: dict[str, str] = {}  # the same few escapes occur many times
        for match in _ESCAPES[name].finditer(text) if mark in text else ():
            if match.lastindex:
                continue  # a class of a regular expression
            escape = match.group()
            if escape not in meanings:
                meanings[escape] = meaning(escape)
            if meanings[escape] != escape:  # an unknown entity: &Name; is C++
                pieces.append((match.start(), match.end(), meanings[escape], False))
    return pieces


def _percent(escape: str) -> str:
    if escape[1] == "u":
        return _character(int(escape[2:], 16))
    return bytes.fromhex(escape.replace("%", "")).decode("utf-8", "replace")


def _backslash(escape: str) -> str:
    kind = escape[1]
    if kind == "\\":
        return "\\"  # however many: each level of quoting doubles them
    if kind in "uU" and len(escape) > 2:  # one character, or a surrogate pair
        first, _, second = escape[2:].strip("{}").partition("\\")
        units = [int(digits, 16) for digits in (first, second.lstrip("\\u")) if digits]
        halves = b"".join(unit.to_bytes(2, "big") for unit in units) if len(units) == 2 else b""
        return halves.decode("utf-16-be", "replace") or _character(units[0])
    if kind == "x" and len(escape) > 2:
        return chr(int(escape[2:], 16))
    if len(escape) == 4:
        return chr(int(escape[1:], 8))
    return _ESCAPED.get(kind, kind)


def _character(code: int) -> str:
    """Returns a character; U+FFFD for half of a surrogate pair, which can't be encoded."""
    return _REPLACEMENT if code in _SURROGATES or code > _LAST_CODE else chr(code)


_ESCAPE_KINDS: tuple[tuple[str, str, Callable[[str], str]], ...] = (
    ("%", "percent", _percent),
    ("&", "entity", html.unescape),
    ("\\", "backslash", _backslash),
    ("=", "quoted", lambda run: "" if run[1] in "\r\n" else bytes.fromhex(run.replace("=", "")).decode("ascii")),
    ("+", "plus", lambda escape: " "),
)
_ESCAPES = {name: re.compile(_PATTERNS[name]) for _, name, _ in _ESCAPE_KINDS}


# Lookalike characters are replaced by what they look like; invisible ones are dropped.

_LOOKALIKE_TABLE = table("classify/data/lookalikes.yaml")
_TAG_CODES = range(0xE0020, 0xE007F)
"""Tag characters: an invisible copy of ASCII, which models read."""


def _codes(listed: str) -> Iterator[int]:
    for span in listed.split():
        first, _, last = span.partition("-")
        yield from range(int(first, 16), int(last or first, 16) + 1)


def _never_prose() -> Iterator[tuple[int, str]]:
    """Yields characters that are never prose, and the ASCII text that they read as."""
    for code in _codes(_LOOKALIKE_TABLE["compatible"]):
        text = unicodedata.normalize("NFKC", chr(code))
        if text != chr(code) and text.isascii():
            yield code, text
    for zero in _codes(_LOOKALIKE_TABLE["digit_zeros"]):
        yield from ((zero + digit, str(digit)) for digit in range(10))
    # Circled digits have a value, but no compatibility decomposition.
    yield from ((first + digit, str(digit + 1)) for first in (0x2776, 0x2780, 0x278A) for digit in range(9))
    yield from ((code, chr(code - _TAG_CODES.start + 0x20)) for code in _TAG_CODES)


ASCII_OF = dict(_never_prose())
"""Code point of a character that is never prose → ASCII."""
ASCII_OF_LETTER = {code: letter for letter, listed in _LOOKALIKE_TABLE["letters"].items() for code in _codes(listed)}
INVISIBLE = frozenset((*_codes(_LOOKALIKE_TABLE["invisible"]), *_codes(_LOOKALIKE_TABLE["combining"])))
"""Invisible characters and combining marks."""
_ALL_ASCII = ASCII_OF_LETTER | ASCII_OF | dict.fromkeys(INVISIBLE, "")
_REPLACED = frozenset(map(chr, _ALL_ASCII))
_ASCII = bytes(code for code in range(128) if code not in _ALL_ASCII)


def lookalikes(text: str, encoded: bytes, offsets: CharacterOffsets) -> Iterator[Piece]:
    """Yields characters that are never prose, and words that mix ASCII with lookalikes."""
    if _REPLACED.isdisjoint(encoded.replace(SEPARATOR.encode(), b"").translate(None, _ASCII).decode()):
        return
    for first, last in _DISGUISED.spans(encoded):
        for match in _ONE_KIND.finditer(text, *offsets.span(first, last)):
            yield *match.span(), match.group().translate(_ALL_ASCII), False


_USUAL_ASCII = "".join([f"\\x{code:02x}" for code in _ASCII])
SUSPECT = Pattern(rf"{_PATTERNS['run']}|{_PATTERNS['apart']}|[%&\\=+]|[^{_USUAL_ASCII}]")
"""Matches a text, without `SEPARATOR`, that may contain disguised text; most texts do not match."""


def _class_inside(codes: Iterable[int]) -> str:
    """Returns the inside of a character class, as ranges."""
    ranges: list[str] = []
    ordered = sorted(codes)
    first = last = ordered[0]
    for code in (*ordered[1:], -1):
        if code != last + 1:
            ranges.append(chr(first) if first == last else f"{chr(first)}-{chr(last)}")
            first = code
        last = code
    return "".join(ranges)


_LOOKALIKE = _class_inside(ASCII_OF_LETTER.keys() | INVISIBLE)
_ALIKE_RUN = f"[{_class_inside(code for code, to in ASCII_OF_LETTER.items() if to.isalnum())}]+"
_NEAR_ASCII = "0-9A-Za-z@"
_WORD = f"[{_NEAR_ASCII}._%+{_LOOKALIKE}]*"
_MIXED = f"{_WORD}(?:[{_NEAR_ASCII}][{_LOOKALIKE}]|[{_LOOKALIKE}][{_NEAR_ASCII}]){_WORD}"
_LINK = "[ :=_/-]{1,2}"
_DIGITS = "[0-9](?:[ .-]?[0-9])"
_CAPITALS = f"[{_class_inside(code for code, to in ASCII_OF_LETTER.items() if to.isupper())}]{{1,3}}"
_DISGUISED = Pattern(
    f"[{_class_inside(ASCII_OF)}]+|(?:(?:{_ALIKE_RUN}|[0-9]+){_LINK}){{0,6}}{_MIXED}(?:{_LINK}(?:{_MIXED}|{_ALIKE_RUN}|[0-9]+))*"
    f"|{_CAPITALS}[ -]?{_DIGITS}{{4,}}(?:[ -]{_CAPITALS})?|{_DIGITS}{{5,}}[ -]{_CAPITALS}"
)
"""A word of lookalikes alone counts only beside a mixed word or the digits of an identifier."""
_ONE_KIND = re.compile(
    f"[{_class_inside(code for code, to in _ALL_ASCII.items() if len(to) == 1)}]+|[{_class_inside(INVISIBLE)}]+"
    f"|[{_class_inside(code for code, to in _ALL_ASCII.items() if len(to) > 1)}]"
)


# Words with spaces between their letters: "j o e @ x . i o".

_SPACED = Pattern(_PATTERNS["spaced"])
LONGEST_SPACED = 4_096
"""Length from which a run is one piece: millions of pieces would block every step for long."""


def spaced_words(text: str, encoded: bytes, offsets: CharacterOffsets) -> Iterator[Piece]:
    for first_byte, end_byte in _SPACED.spans(encoded):
        start = offsets.of(first_byte)
        end = start + end_byte - first_byte
        # The first and the last character may belong to words.
        first = start + 3 if text[max(start - 1, 0) : start].isalnum() else start + 1
        last = end - 2 if text[end : end + 1].isalnum() else end
        if last - first > LONGEST_SPACED:
            yield first, last, text[first + 1 : last : 2], False
        else:
            yield from ((blank, blank + 1, "", False) for blank in range(first, last, 2))
