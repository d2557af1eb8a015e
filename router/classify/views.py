"""Every reading of a body that detectors look at, and where in the body its characters come from."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from router.classify import decoders
from router.classify.decoders import BETWEEN, LEAST_BARE, Piece, inline
from router.classify.detector import CharacterOffsets
from router.types.request import Passage, Path

# A text to scan, and where in the request its characters come from.


class HitPlace(NamedTuple):
    """`exact`: characters start:end of the text at `path` are the value itself, as written; else it hides there."""

    path: Path
    start: int
    end: int
    exact: bool = True


Locate = Callable[[int, int], HitPlace | None]


class TextView(NamedTuple):
    """`locate` turns (start, end) of `text` into a place; None: this hit says nothing, another view has all of it."""

    text: str
    locate: Locate


class NestedTooDeep(Exception):
    """Something is wrapped more often than anybody looks. Its text never quotes."""


# A text in which pieces were replaced, and the way back to where they stood.

AROUND = 160
"""Characters around a piece that are looked at again: a value and the words that tell what it is."""
_CUT = "\n\0\n"


class _Replacement(NamedTuple):
    """Characters start:end of the old text, and what is written for them: None for the same."""

    start: int
    end: int
    text: str | None = None
    hidden: bool = False

    @property
    def cut(self) -> bool:
        return self.text is _CUT

    @property
    def each(self) -> bool:
        """Character by character."""
        return self.text is None or (len(self.text) == self.end - self.start and not self.hidden)


def replaced(view: TextView, pieces: Sequence[Piece]) -> TextView:
    """Only what is near a piece: all else has been looked at. `pieces` in order; of two that overlap, the first."""
    old = view.text
    text = "".join([old[start:end] if new is None else new for start, end, new, _ in _runs(len(old), pieces)])
    return TextView(text, _OffsetMap(view, pieces).locate)


def _runs(length: int, pieces: Sequence[Piece]) -> Iterator[tuple[int, int, str | None, bool]]:
    last = 0
    reach = 0  # before the first piece nothing is behind another
    for piece in pieces:
        start = piece[0]
        if start < last:
            continue
        if start - last > reach + AROUND:
            yield last, last + reach, None, False
            yield last, last, _CUT, False
            yield start - AROUND, start, None, False
        elif start > last:
            yield last, start, None, False
        yield piece
        last, reach = piece[1], AROUND
    yield last, min(last + AROUND, length), None, False
    if last + AROUND < length:
        yield last, last, _CUT, False


class _Starts(Struct, kw_only=True):
    starts: Sequence[int] = ()
    """Where runs begin, and the last of them ends: counted up only when something was found."""

    def _number(self, at: int) -> int:
        return bisect_right(self.starts, at, hi=len(self.starts) - 1) - 1


class _OffsetMap(_Starts):
    view: TextView
    pieces: Sequence[Piece]
    runs: list[_Replacement] = []

    def locate(self, start: int, end: int) -> HitPlace | None:
        if not self.runs:
            self.runs = [
                _Replacement(*run) for run in _runs(len(self.view.text), self.pieces) if run[0] < run[1] or run[2]
            ]
            lengths = (run.end - run.start if run.text is None else len(run.text) for run in self.runs)
            self.starts = list(accumulate(lengths, initial=0))
        first, last = self._number(start), self._number(end - 1)
        while first < last and self.runs[first].cut:
            first += 1
        while first < last and self.runs[last].cut:
            last -= 1
        return self._place(start, end, first, last)

    def _place(self, start: int, end: int, first: int, last: int) -> HitPlace | None:
        severed = any(run.cut for run in self.runs[self._number(max(start - 1, 0)) : self._number(end) + 1])
        begin, until = self.runs[first], self.runs[last]
        if severed and first == last and begin.text is None:
            return None  # nothing was replaced in it, so that it was found whole before
        inside, before = max(start - self.starts[first], 0), max(self.starts[last + 1] - end, 0)
        place = self.view.locate(
            begin.start + inside if begin.each else begin.start, until.end - before if until.each else until.end
        )
        whole = (begin.each or not inside) and (until.each or not before) and not severed
        if place is None or (whole and not any(run.hidden for run in self.runs[first : last + 1])):
            return place
        return place._replace(exact=False)


# All texts of a request as one, so that one scan sees them; what is inline is decoded.


class Segment(NamedTuple):
    """`text` is what stands at `start` of the passage at `path`; with `hides` it is what so many characters hide.

    With `join` it is there once more, beside its neighbours: only hits that lie in several such segments count.
    """

    text: str
    path: Path
    start: int = 0
    hides: int = 0
    join: bool = False


def joined(groups: Iterable[Sequence[Segment]]) -> TextView:
    """The segments of a group touch each other; groups are apart."""
    segments: list[Segment] = []
    texts: list[str] = []
    for group in groups:
        segments += group
        texts.append(group[0].text if len(group) == 1 else "".join([segment.text for segment in group]))
        segments.append(_APART)
    return TextView(BETWEEN.join(texts), _SegmentPlaces(segments).locate)


def segments(passages: Iterable[Passage]) -> list[Sequence[Segment]]:
    """Of pictures and the like only the heading: the request's parser has marked them as unscannable."""
    left = decoders.MOST_DECODED
    groups: list[Sequence[Segment]] = []
    for passage in passages:
        path, text = passage.path, passage.text
        media = inline(text) if (path[-1] in _PAYLOADS if path else '"' not in text) else None
        if media is None:
            groups.append((Segment(text, path),))
            continue
        groups.append((Segment(text[: len(text) - len(media.payload)], path),))
        if len(media.payload) <= left and (decoded := decoders.document(media.payload, unpack=True)) is not None:
            left -= max(len(media.payload), len(decoded))
            groups.append((Segment(decoded, path, hides=len(text)),))
    return groups


_PAYLOADS = frozenset({"data", "file_data", "url", "image_url", "uri", "b64_json", "result"})
"""Names that base64 has in all wires; under any other it is text, whatever it holds."""


class _SegmentPlaces(_Starts):
    segments: list[Segment]

    def locate(self, start: int, end: int) -> HitPlace | None:
        if not self.starts:
            self.starts = list(accumulate((len(segment.text) for segment in self.segments), initial=0))
        first, last = self._number(start), self._number(end - 1)
        while first < last and self.segments[first] is _APART:
            first += 1
        while first < last and self.segments[last] is _APART:
            last -= 1
        segment = self.segments[first]
        offset = max(start - self.starts[first], 0)
        until = min(end - self.starts[first], len(segment.text))
        if segment.join and first == last:
            return None
        if segment.hides:
            return HitPlace(segment.path, 0, segment.hides, exact=False)
        exact = first == last and segment.path != () and not segment.join
        # An escape is all in or all out: what follows a backslash may have been taken for the first letter of a word.
        before = segment.text[max(offset - _MOST_QUOTED, 0) : offset]
        if (len(before) - len(before.rstrip("\\"))) % 2:
            offset += _ESCAPES.get(segment.text[offset], 0)
        return HitPlace(segment.path, segment.start + offset, segment.start + until, exact)


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
"""So many times the body is searched at most: texts elsewhere than expected stay unparsed."""
_EMPTY = b'""'


def unparsed_bytes(raw: bytes, passages: Sequence[Passage]) -> list[Passage]:
    """The body with empty strings in the place of the passages; long strings of base64 apart, as they are media.

    Whatever is cut out is, letter by letter, one of the passages.
    """
    outside: list[bytes] = []
    end = 0
    for start, until in _occurrences(raw, passages):
        if start >= end:
            outside.append(raw[end:start])
            end = until
    outside.append(raw[end:])
    text = _EMPTY.join(outside).decode("utf-8", "replace")
    if len(text) < LEAST_BARE:
        return [Passage((), text)]
    media, rest = list[Passage](), list[str]()
    for string in text.split('"'):
        bare = string.replace("\\/", "/") if len(string) >= LEAST_BARE else ""
        if bare and inline(bare):
            media.append(Passage((), bare))
        else:
            rest.append(string)
    return [*media, Passage((), '"'.join(rest))]


def _occurrences(raw: bytes, passages: Sequence[Passage]) -> list[tuple[int, int]]:
    """Where the passages stand, from the first on: those of one field in their order, wherever that field is."""
    ends: dict[str | int, int] = {}
    places = list[tuple[int, int]]()
    left = _EFFORT * len(raw)
    ascii_only = raw.isascii()
    for passage in passages:
        sent = _encode(passage.text)
        if ascii_only and not sent.isascii():
            sent = encode_basestring_ascii(passage.text).encode()
        root = passage.path[0] if passage.path else ""
        start = ends.get(root, 0)
        at = raw.find(sent[:_HEAD], start)
        for _ in range(_TRIES - 1):  # some texts begin alike
            if at < 0 or raw.startswith(sent, at):
                break
            at = raw.find(sent[:_HEAD], at + 1)
        at = at if at >= 0 and raw.startswith(sent, at) else -1
        left -= (len(raw) if at < 0 else at) - start
        if left < 0:
            break
        if at >= 0:
            ends[root] = at + len(sent)
            places.append((at, ends[root]))
    return sorted(places)


# Texts that were taken apart: the end of one passage beside the beginning of the next.

REACH = 64
"""Characters on either side of a join; a shorter passage is joined whole, with both its neighbours."""
_MESSAGE_FIELDS = frozenset({"content", "text", "arguments", "output", "input"})


def joins(passages: Sequence[Passage]) -> Iterator[Sequence[Segment]]:
    """Of passages as they follow each other, and of those of one role, whatever stands in between.

    Top-level lists (inputs of an embedding) are texts of their own.
    """
    messages = list(filter(may_go_on, passages))
    yield from _chains(messages)
    if len(messages) < 3:
        return
    by_role: dict[str, list[int]] = {}
    for number, passage in enumerate(messages):
        by_role.setdefault(passage.role, []).append(number)
    for own in by_role.values():
        if own[-1] - own[0] >= len(own):  # others spoke in between
            yield from _chains([messages[number] for number in own])


def may_go_on(passage: Passage) -> bool:
    """It may go on in another."""
    return len(passage.path) > 1 and passage.path[-1] in _MESSAGE_FIELDS


def _chains(passages: Sequence[Passage]) -> Iterator[Sequence[Segment]]:
    """A chain ends where a passage is so long that its end and its beginning are apart."""
    chain: list[Segment] = []
    for before, after in pairwise(passages):
        if not chain:
            start = max(len(before.text) - REACH, 0)
            chain.append(Segment(before.text[start:], before.path, start, join=True))
        chain.append(Segment(after.text[:REACH], after.path, join=True))
        if len(after.text) > REACH:
            yield chain
            chain = []
    if chain:
        yield chain


# Every string in a JSON value, with its path.


def strings(value: Any, path: Path = (), *, keys: bool = True) -> Iterator[Passage]:
    """In the order of the document; a key's passage ends with the key itself, its value's follows.

    Their role is that of the nearest object around with one. Depth is bounded by the parser of the JSON.
    """
    waiting: list[tuple[Path, Any, str, bool]] = [(path, value, "", False)]
    while waiting:
        place, node, role, named = waiting.pop()
        if named:
            yield Passage(place, str(place[-1]), role)
        if isinstance(node, str):
            yield Passage(place, node, role)
        elif isinstance(node, dict):
            own = node.get("role")
            role = own if isinstance(own, str) else role
            waiting += [((*place, key), item, role, keys) for key, item in reversed(node.items())]
        elif isinstance(node, list):
            waiting += [((*place, number), node[number], role, False) for number in range(len(node) - 1, -1, -1)]


def where(path: Path) -> str:
    """messages[0].content; an empty path is the body itself."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".") or "the body"


# The texts in which a request is looked at: its passages as they are, and as what evasions hide.
#
# The first view has every passage once, what of the body is in none of them, and the joins between passages. What is
# written otherwise than it is read is replaced, and what stands near it is a second view; and so on, until nothing is
# left to replace. Ordinary text has one view.

_WRAPPED_LAYERS = 2
"""Joining lines makes others that could be joined: the last of these would never come."""
MOST_LAYERS = 6
"""Base64 of base64 and so on: a text that is wrapped more often hides something."""


def views(passages: Sequence[Passage], raw: bytes) -> Iterator[TextView]:
    """Everything to scan of one request. `raw`: its whole body, for what no passage shows.

    Hits in what no passage shows have the path () and are not exact. Raises `NestedTooDeep`.
    """
    rest = unparsed_bytes(raw, passages) if raw else ()
    view = joined([*segments([*passages, *rest]), *(joins(passages) if len(passages) > 1 else ())])
    yield view
    dull: set[bytes] = set()
    for layer in range(MOST_LAYERS):
        pieces = _pieces(view.text, dull, wrapped=layer < _WRAPPED_LAYERS)
        if not pieces:
            return
        view = replaced(view, pieces)
        yield view
    if _pieces(view.text, dull, wrapped=False):
        raise NestedTooDeep(f"More than {MOST_LAYERS} layers of encodings.")


def body_views(body: bytes) -> Iterator[TextView]:
    """Everything to scan of a body that is about to be sent. Keys are no passages, and so part of what is left."""
    try:
        passages = list(strings(msgspec.json.decode(body), keys=False))
    except (msgspec.DecodeError, UnicodeDecodeError):
        passages = []
    return views(passages, body)


def _pieces(text: str, dull: set[bytes], *, wrapped: bool) -> list[Piece]:
    encoded = text.encode("utf-8", "replace")
    if decoders.SUSPECT.search(encoded.replace(BETWEEN.encode(), b"\n\n"))[0] < 0:
        return []
    place = CharacterOffsets(text, encoded)
    pieces = [*decoders.escapes(text), *decoders.folds(text, encoded, place), *decoders.blobs(encoded, place, dull)]
    if decoders.APART.search(encoded)[0] >= 0:
        pieces += (*decoders.numbers(encoded, place), *decoders.spaced(text, encoded, place))
        pieces += (*decoders.amid(text, encoded, place), *decoders.wraps(text, encoded, place)) if wrapped else ()
    pieces.sort()
    return pieces
