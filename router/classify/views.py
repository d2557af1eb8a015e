"""Views of a request's body: the texts that detectors scan, and where in the body their characters come from."""

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
    """Where a hit lies. `exact`: start:end of the text at `path` is the value itself; else it is hidden there."""

    path: Path
    start: int
    end: int
    exact: bool = True


Locate = Callable[[int, int], HitPlace | None]


class TextView(NamedTuple):
    """A text to scan. `locate` turns (start, end) of it into a place; None if another view has the hit completely."""

    text: str
    locate: Locate


class NestedTooDeep(Exception):
    """Raised when a text is encoded more often than is decoded. Its message quotes no text."""


# A text in which pieces were replaced, and the way back to their original places.

AROUND = 160
"""Number of characters around a piece that are scanned again: a value, and the words that identify it."""
_CUT = "\n\0\n"


class _Replacement(NamedTuple):
    """Characters start:end of the old text, and their replacement; None if they stay the same."""

    start: int
    end: int
    text: str | None = None
    hidden: bool = False

    @property
    def cut(self) -> bool:
        return self.text is _CUT

    @property
    def each(self) -> bool:
        """Whether each character of the replacement stands for one character of the old text."""
        return self.text is None or (len(self.text) == self.end - self.start and not self.hidden)


def replaced(view: TextView, pieces: Sequence[Piece]) -> TextView:
    """Returns only the text near `pieces` (sorted; of overlapping ones the first counts), with these replaced."""
    old = view.text
    text = "".join([old[start:end] if new is None else new for start, end, new, _ in _runs(len(old), pieces)])
    return TextView(text, _OffsetMap(view, pieces).locate)


def _runs(length: int, pieces: Sequence[Piece]) -> Iterator[tuple[int, int, str | None, bool]]:
    last = 0
    reach = 0  # there is no earlier piece whose surroundings are kept
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
    """Offsets where the runs begin, and where the last one ends. Computed when the first hit is located."""

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
            return None  # nothing in it was replaced, so that it was found whole before
        inside, before = max(start - self.starts[first], 0), max(self.starts[last + 1] - end, 0)
        place = self.view.locate(
            begin.start + inside if begin.each else begin.start, until.end - before if until.each else until.end
        )
        whole = (begin.each or not inside) and (until.each or not before) and not severed
        if place is None or (whole and not any(run.hidden for run in self.runs[first : last + 1])):
            return place
        return place._replace(exact=False)


# All texts of a request as one, so that one scan sees them; inline data are decoded.


class Segment(NamedTuple):
    """Text at character `start` of the passage at `path`; with `hides` it is decoded from its first `hides` characters.

    With `join` it is a copy beside its neighbours: only hits that span several such segments count.
    """

    text: str
    path: Path
    start: int = 0
    hides: int = 0
    join: bool = False


def joined(groups: Iterable[Sequence[Segment]]) -> TextView:
    """Returns one text. The segments of a group touch each other; between groups stands `BETWEEN`."""
    segments: list[Segment] = []
    texts: list[str] = []
    for group in groups:
        segments += group
        texts.append(group[0].text if len(group) == 1 else "".join([segment.text for segment in group]))
        segments.append(_APART)
    return TextView(BETWEEN.join(texts), _SegmentPlaces(segments).locate)


def segments(passages: Iterable[Passage]) -> list[Sequence[Segment]]:
    """Returns the passages as segments, inline documents decoded; of images and the like only the header."""
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
"""Names of fields with base64 in any provider's API. Under other names a string is text, whatever it holds."""


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
        # An escape is all in or all out: the letter after a backslash may have passed for the first of a word.
        before = segment.text[max(offset - _MOST_QUOTED, 0) : offset]
        if (len(before) - len(before.rstrip("\\"))) % 2:
            offset += _ESCAPES.get(segment.text[offset], 0)
        return HitPlace(segment.path, segment.start + offset, segment.start + until, exact)


_MOST_QUOTED = 64
_ESCAPES = dict.fromkeys("nrtbf", 1) | dict.fromkeys("ux01234567", -1)
"""Letters after a backslash → 1 for a blank, which precedes the value, -1 for an escape that is its first character."""
_APART = Segment(BETWEEN, ())


# Parts of a body that are in none of its passages: numbers, duplicate keys, roles, and fields that were not read.

_encode = msgspec.json.encode
_HEAD = 32
"""Number of bytes of a passage that are searched for; the rest is compared, as a long needle is slow to prepare."""
_TRIES = 4
_EFFORT = 8
"""Maximum search effort, in multiples of the body's size; passages that are not found by then stay in the rest."""
_EMPTY = b'""'


def unparsed_bytes(raw: bytes, passages: Sequence[Passage]) -> list[Passage]:
    """Returns the body with empty strings in place of the passages, and long base64 strings apart, as they are media.

    What is cut out equals one of the passages, letter by letter.
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
    """Returns (start, end) of the passages in the body; searches for those of a top-level field in order."""
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


# Values that are split over texts: the end of one passage beside the beginning of the next.

REACH = 64
"""Number of characters on either side of a join; a shorter passage is joined whole, with both its neighbours."""
_MESSAGE_FIELDS = frozenset({"content", "text", "arguments", "output", "input"})


def joins(passages: Sequence[Passage]) -> Iterator[Sequence[Segment]]:
    """Yields joins of consecutive passages, and of consecutive passages of each role if others lie in between.

    Items of top-level lists (inputs of an embedding) are separate texts.
    """
    messages = list(filter(may_go_on, passages))
    yield from _chains(messages)
    if len(messages) < 3:
        return
    by_role: dict[str, list[int]] = {}
    for number, passage in enumerate(messages):
        by_role.setdefault(passage.role, []).append(number)
    for own in by_role.values():
        if own[-1] - own[0] >= len(own):  # messages of other roles are in between
            yield from _chains([messages[number] for number in own])


def may_go_on(passage: Passage) -> bool:
    """Returns whether a text may go on in another passage."""
    return len(passage.path) > 1 and passage.path[-1] in _MESSAGE_FIELDS


def _chains(passages: Sequence[Passage]) -> Iterator[Sequence[Segment]]:
    """Yields chains of joined ends. A chain ends at a passage so long that its end and its beginning are apart."""
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
    """Yields the strings in document order; a key's passage has the path of its value, which follows.

    Their role is that of the nearest object around them that has one. The JSON parser limits the depth.
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
    """Returns a path as text, such as messages[0].content; an empty path is the body itself."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".") or "the body"


# The texts in which a request is scanned: its passages as written, and with disguised text decoded.
#
# The first view has every passage once, the parts of the body outside the passages, and the joins between passages.
# Disguised text in a view is decoded, and the text near it forms the next view, until nothing is left to decode.
# Ordinary text has one view.

_WRAPPED_LAYERS = 2
"""Number of layers in which lines are joined, as joining creates new candidates endlessly."""
MOST_LAYERS = 6
"""Maximum number of nested encodings, such as base64 of base64; a text with more hides something."""


def views(passages: Sequence[Passage], raw: bytes) -> Iterator[TextView]:
    """Yields every text of a request to scan. `raw`: its whole body, for what is in no passage.

    Hits in what is in no passage have the path () and are not exact. Raises `NestedTooDeep`.
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
    """Returns every text of a body to scan before it is sent. Keys are not passages, and so part of the rest."""
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
