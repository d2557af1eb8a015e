"""Every reading of a body that detectors look at."""

import base64
import binascii
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple

import msgspec

from router.classify.detector import Characters, Pattern
from router.classify.rewritten import Piece, Place, TooMuch, View, escapes, folds, rewritten, spaced
from router.types.request import Passage, Path

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
            first = place.of(start)
            yield from _decoded(run.decode(), first, first + end - start)
        else:
            dull.add(run)


def pairs(encoded: bytes, place: Characters) -> Iterator[Piece]:
    for start, end in _PAIRS.spans(encoded):
        if (found := _text(encoded[start:end].decode().translate(_BETWEEN))) is not None:
            first = place.of(start)
            yield first, first + end - start, _apart(found), True


def _words(run: bytes) -> set[bytes]:
    """Its lines, and their parts."""
    return {word for word in (*run.translate(_WHOLE).split(), *run.translate(_PARTS).split()) if len(word) >= LEAST}


def _promising(word: bytes) -> bool:
    """It begins as a text would: whole groups of characters, as it may go on in the next line."""
    if word.islower() and word.removeprefix(b"0x").strip(_HEX_BYTES):
        return False
    data = _bytes(word[: min(len(word) & -8, _BLOBS_SNIFFED)].decode())
    return begins_as_text(data) and _believed(data)


def _decoded(run: str, start: int, end: int) -> Iterator[Piece]:
    """The whole run, or all but its last line, else its parts: paths and words may stand around it."""
    for until in (len(run), run.rfind("\n")):
        if until > 0 and (found := _text(run[:until].rstrip())) is not None:
            yield start, start + until, _apart(found), True
            return
    at = 0
    for part in run.translate(_SEPARATORS).split(" "):
        if LEAST <= len(part) < len(run) and (found := _text(part)) is not None:
            yield start + at, start + at + len(part), _apart(found), True
        at += len(part) + 1


def _apart(text: str) -> str:
    """The characters around it belong to something else."""
    return f" {text} "


def _text(run: str) -> str | None:
    bare = "".join(run.split()) if "\n" in run else run
    if len(bare) > _BLOBS_SNIFFED and not begins_as_text(_bytes(bare[:_BLOBS_SNIFFED])):
        return None
    data = _bytes(bare)
    return text_of(data) if _believed(data) else None


def _bytes(run: str) -> bytes | None:
    if not run.strip(_HEX):
        return _unhex(run)
    if run.startswith(_PREFIXES):
        return _unhex(run[2:])
    if run.isupper() and not run.strip(_BASE32):
        return _unbase32(run.rstrip("="))
    if run.islower() or run.isupper():
        return None  # a path, a word, a name: base64 of a text has both
    return unbase64(run)


def _believed(data: bytes | None) -> bool:
    return data is not None and (len(data) >= _FEW or data.isascii())


def _unbase32(bare: str) -> bytes | None:
    try:
        return base64.b32decode(bare + "=" * (-len(bare) % 8))
    except ValueError:
        return None


def _unhex(bare: str) -> bytes | None:
    try:
        return bytes.fromhex(bare)
    except ValueError:
        return None


# All texts of a request as one, so that one scan sees them; what is inline is decoded.

BETWEEN = "\n\0\n"
"""Stands between texts that have nothing to do with each other: no pattern has a NUL, most end with their line."""


class Segment(NamedTuple):
    """`text` is what stands at `start` of the passage at `path`; with `hides` it is what so many characters hide.

    With `seam` it is there once more, beside its neighbours: only hits that lie in several such segments count.
    """

    text: str
    path: Path
    start: int = 0
    hides: int = 0
    seam: bool = False


def joined(groups: Iterable[Sequence[Segment]]) -> View:
    """The segments of a group touch each other; groups are apart."""
    segments: list[Segment] = []
    texts: list[str] = []
    for group in groups:
        segments += group
        texts.append(group[0].text if len(group) == 1 else "".join([segment.text for segment in group]))
        segments.append(_APART)
    return View(BETWEEN.join(texts), _Places(segments).locate)


def segments(passages: Iterable[Passage]) -> list[Sequence[Segment]]:
    """Of pictures and the like only the heading: whoever read the request has marked them as unscannable."""
    left = MOST_DECODED
    found: list[Sequence[Segment]] = []
    for passage in passages:
        path, text = passage.path, passage.text
        media = inline(text) if not path or path[-1] in _PAYLOADS else None
        if media is None:
            found.append((Segment(text, path),))
            continue
        found.append((Segment(text[: len(text) - len(media.payload)], path),))
        if len(media.payload) <= left and (decoded := document(media.payload)) is not None:
            left -= len(media.payload)
            found.append((Segment(decoded, path, hides=len(text)),))
    return found


_PAYLOADS = frozenset({"data", "file_data", "url", "image_url", "uri", "b64_json", "result"})
"""Names that base64 has in all wires; under any other it is text, whatever it holds."""


class _Places:
    """Where segments begin is counted up only when something was found."""

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._starts: list[int] = []

    def locate(self, start: int, end: int) -> Place | None:
        if not self._starts:
            self._starts = list(accumulate((len(one.text) for one in self._segments), initial=0))
        first, last = self._number(start), self._number(end - 1)
        while first < last and self._segments[first] is _APART:
            first += 1
        while first < last and self._segments[last] is _APART:
            last -= 1
        segment = self._segments[first]
        offset = max(start - self._starts[first], 0)
        until = min(end - self._starts[first], len(segment.text))
        if segment.seam and first == last:
            return None
        if segment.hides:
            return Place(segment.path, 0, segment.hides, exact=False)
        exact = first == last and segment.path != () and not segment.seam
        return Place(segment.path, segment.start + _whole(segment.text, offset), segment.start + until, exact)

    def _number(self, at: int) -> int:
        return bisect_right(self._starts, at, hi=len(self._segments)) - 1


def _whole(text: str, start: int) -> int:
    """An escape is all in or all out: what follows a backslash may have been taken for the first letter of a word."""
    before = text[max(start - _MOST_QUOTED, 0) : start]
    if (len(before) - len(before.rstrip("\\"))) % 2 == 0:
        return start
    return start + _ESCAPES.get(text[start], 0)


_MOST_QUOTED = 64
_ESCAPES = dict.fromkeys("nrtbf", 1) | dict.fromkeys("ux01234567", -1)
"""Letters behind a backslash: a blank, which is no part of the value, or the beginning of its first character."""
_APART = Segment(BETWEEN, ())


# What of a body stands in none of its passages: numbers, keys that stand twice, roles, whatever was not read.

_encode = msgspec.json.encode
_HEAD = 32
"""Bytes of a passage that are looked for; the rest is compared. A long needle is slow to prepare."""
_TRIES = 4
_EFFORT = 8
"""So many times the body is searched at most: texts that are not where they are expected stay in the residue."""
_EMPTY = b'""'


def residue(raw: bytes, passages: Sequence[Passage]) -> Iterator[Passage]:
    """The body with empty strings in the place of the passages; long strings of base64 apart, as they are media.

    Whatever is cut out is, letter by letter, one of the passages.
    """
    kept: list[bytes] = []
    end = 0
    for start, until in sorted(_found(raw, passages)):
        if start >= end:
            kept.append(raw[end:start])
            end = until
    kept.append(raw[end:])
    text = _EMPTY.join(kept).decode("utf-8", "replace")
    return _residue_apart(text) if len(text) >= LEAST_BARE else iter((Passage((), text),))


def _residue_apart(text: str) -> Iterator[Passage]:
    rest: list[str] = []
    for string in text.split('"'):
        bare = string.replace("\\/", "/") if len(string) >= LEAST_BARE else ""
        if bare and inline(bare):
            yield Passage((), bare)
        else:
            rest.append(string)
    yield Passage((), '"'.join(rest))


def _found(raw: bytes, passages: Sequence[Passage]) -> Iterator[tuple[int, int]]:
    """Where the passages stand: those of one field in their order, wherever that field is."""
    ends: dict[str | int, int] = {}
    left = _EFFORT * len(raw)
    ascii_only = raw.isascii()
    for passage in passages:
        sent = _encode(passage.text)
        if ascii_only and not sent.isascii():
            sent = encode_basestring_ascii(passage.text).encode()
        root = passage.path[0] if passage.path else ""
        start = ends.get(root, 0)
        at = _find(raw, sent, start)
        left -= (len(raw) if at < 0 else at) - start
        if left < 0:
            return
        if at >= 0:
            ends[root] = at + len(sent)
            yield at, ends[root]


def _find(raw: bytes, sent: bytes, start: int) -> int:
    """Some texts begin alike."""
    head = sent[:_HEAD]
    for _ in range(_TRIES):
        start = raw.find(head, start)
        if start < 0 or raw.startswith(sent, start):
            return start
        start += 1
    return -1


# Texts that were taken apart: the end of one passage beside the beginning of the next.

REACH = 64
"""Characters on either side of a seam; a shorter passage is joined whole, with both its neighbours."""
_SAID = frozenset({"content", "text", "arguments", "output", "input"})
"""What a message says stands under these names."""


def seams(passages: Sequence[Passage]) -> Iterator[Sequence[Segment]]:
    """Of passages as they follow each other, and of those of one role, whoever spoke in between.

    Top-level lists (inputs of an embedding) are texts of their own.
    """
    if len(passages) < 2:
        return
    said = list(filter(joins, passages))
    yield from _chains(said)
    if len(said) < 3:
        return
    by_role: dict[str, list[int]] = {}
    for number, passage in enumerate(said):
        by_role.setdefault(passage.role, []).append(number)
    for own in by_role.values():
        if own[-1] - own[0] >= len(own):  # others spoke in between
            yield from _chains([said[number] for number in own])


def joins(passage: Passage) -> bool:
    """It may go on in another."""
    return len(passage.path) > 1 and passage.path[-1] in _SAID


def _chains(passages: Sequence[Passage]) -> Iterator[Sequence[Segment]]:
    """A chain ends where a passage is so long that its end and its beginning are apart."""
    chain: list[Segment] = []
    for before, after in pairwise(passages):
        if not chain:
            chain.append(_tail(before))
        short = len(after.text) <= REACH
        chain.append(Segment(after.text[:REACH], after.path, 0, 0, True))
        if not short:
            yield chain
            chain = []
    if chain:
        yield chain


def _tail(passage: Passage) -> Segment:
    start = max(len(passage.text) - REACH, 0)
    return Segment(passage.text[start:], passage.path, start, 0, True)


# Every string in a JSON value, with its path.


def strings(value: Any, path: Path = (), *, keys: bool = True) -> Iterator[Passage]:
    """In the order of the document; a key's passage ends with the key itself, its value's follows.

    Their role is that of the nearest object around with one. Depth is bounded by the parser of the JSON.
    """
    waiting: list[tuple[Path, Any, str, bool]] = [(path, value, "", False)]
    while waiting:
        place, one, by, named = waiting.pop()
        if named:
            yield Passage(place, str(place[-1]), by)
        if isinstance(one, str):
            yield Passage(place, one, by)
        elif isinstance(one, dict):
            own = one.get("role")
            by = own if isinstance(own, str) else by
            waiting += [((*place, key), item, by, keys) for key, item in reversed(one.items())]
        elif isinstance(one, list):
            waiting += [((*place, number), one[number], by, False) for number in range(len(one) - 1, -1, -1)]


# The texts in which a request is looked at: its passages as they are, and as what evasions hide.
#
# The first view has every passage once, what of the body is in none of them, and the seams between passages. What is
# written otherwise than it is read is replaced, and what stands near it is a second view; and so on, until nothing is
# left to replace. Ordinary text has one view.

MOST_LAYERS = 6
"""Base64 of base64 and so on: whoever wraps more often has something to hide."""


def views(passages: Sequence[Passage], raw: bytes) -> Iterator[View]:
    """Everything to scan of one request. `raw`: its whole body, for what no passage shows.

    Hits in what no passage shows have the path () and are not exact. Raises `TooMuch`.
    """
    rest = residue(raw, passages) if raw else ()
    view = joined([*segments([*passages, *rest]), *seams(passages)])
    yield view
    dull: set[bytes] = set()
    for _ in range(MOST_LAYERS):
        pieces = _pieces(view.text, dull)
        if not pieces:
            return
        view = rewritten(view, pieces)
        yield view
    if _pieces(view.text, dull):
        raise TooMuch(f"More than {MOST_LAYERS} layers of encodings.")


def body_views(body: bytes) -> Iterator[View]:
    """Everything to scan of a body that is about to be sent. Keys are no passages, and so part of what is left."""
    try:
        passages = list(strings(msgspec.json.decode(body), keys=False))
    except (msgspec.DecodeError, UnicodeDecodeError):
        passages = []
    return views(passages, body)


def _pieces(text: str, dull: set[bytes]) -> list[Piece]:
    encoded = text.encode("utf-8", "replace")
    place = Characters(text, encoded)
    found = [*escapes(text), *folds(text, encoded, place), *blobs(encoded, place, dull)]
    if _VIEWS_APART.search(encoded)[0] >= 0:
        found += (*pairs(encoded, place), *spaced(text, encoded, place))
    found.sort()
    return found


_VIEWS_APART = Pattern(r"(?:\s[!-~]){8}|(?:[ :][0-9A-Fa-f]{2}){11}")
"""Letters that stand apart, or pairs of digits."""
