"""Views of a request's body: the texts that detectors scan, and where in the body their characters come from."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from router.classify import decoders
from router.classify.decoders import LEAST_PAYLOAD, SEPARATOR, Piece, inline
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

SCANNED_AROUND = 160
"""Number of characters around a piece that are scanned again: a value, and the words that identify it."""
_CUT = "\n\0\n"


class _Replacement(NamedTuple):
    """Characters start:end of the old text, and their replacement; None if they stay the same."""

    start: int
    end: int
    text: str | None = None
    hidden: bool = False

    @property
    def is_cut(self) -> bool:
        return self.text is _CUT

    @property
    def is_aligned(self) -> bool:
        """Whether each character of the replacement stands for one character of the old text."""
        return self.text is None or (len(self.text) == self.end - self.start and not self.hidden)


def view_near(view: TextView, pieces: Sequence[Piece]) -> TextView:
    """Returns only the text near `pieces` (sorted; of overlapping ones the first counts), with these replaced."""
    old = view.text
    text = "".join([old[start:end] if new is None else new for start, end, new, _ in _runs(len(old), pieces)])
    return TextView(text, _OffsetMap(view, pieces).locate)


def _runs(length: int, pieces: Sequence[Piece]) -> Iterator[tuple[int, int, str | None, bool]]:
    last_end = 0
    reach = 0  # there is no earlier piece whose surroundings are kept
    for piece in pieces:
        start = piece[0]
        if start < last_end:
            continue
        if start - last_end > reach + SCANNED_AROUND:
            yield last_end, last_end + reach, None, False
            yield last_end, last_end, _CUT, False
            yield start - SCANNED_AROUND, start, None, False
        elif start > last_end:
            yield last_end, start, None, False
        yield piece
        last_end, reach = piece[1], SCANNED_AROUND
    yield last_end, min(last_end + SCANNED_AROUND, length), None, False
    if last_end + SCANNED_AROUND < length:
        yield last_end, last_end, _CUT, False


class _RunStarts(Struct, kw_only=True):
    starts: Sequence[int] = ()
    """Offsets where the runs begin, and where the last one ends. Computed when the first hit is located."""

    def _index_at(self, at: int) -> int:
        return bisect_right(self.starts, at, hi=len(self.starts) - 1) - 1


class _OffsetMap(_RunStarts):
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
        first, last = self._index_at(start), self._index_at(end - 1)
        while first < last and self.runs[first].is_cut:
            first += 1
        while first < last and self.runs[last].is_cut:
            last -= 1
        return self._place(start, end, first, last)

    def _place(self, start: int, end: int, first: int, last: int) -> HitPlace | None:
        has_cut = any(run.is_cut for run in self.runs[self._index_at(max(start - 1, 0)) : self._index_at(end) + 1])
        head, tail = self.runs[first], self.runs[last]
        if has_cut and first == last and head.text is None:
            return None  # nothing in it was replaced, so that it was found whole before
        offset, rest = max(start - self.starts[first], 0), max(self.starts[last + 1] - end, 0)
        place = self.view.locate(
            head.start + offset if head.is_aligned else head.start, tail.end - rest if tail.is_aligned else tail.end
        )
        is_whole = (head.is_aligned or not offset) and (tail.is_aligned or not rest) and not has_cut
        if place is None or (is_whole and not any(run.hidden for run in self.runs[first : last + 1])):
            return place
        return place._replace(exact=False)


# All texts of a request as one, so that one scan sees them; inline data are decoded.


class Segment(NamedTuple):
    """Text at character `start` of the passage at `path`, or decoded from its first `hidden_length` characters if set.

    With `is_join` it is a copy beside its neighbours: only hits that span several such segments count.
    """

    text: str
    path: Path
    start: int = 0
    hidden_length: int = 0
    is_join: bool = False


def joined_view(groups: Iterable[Sequence[Segment]]) -> TextView:
    """Returns one text. The segments of a group touch each other; between groups stands `SEPARATOR`."""
    segments: list[Segment] = []
    texts: list[str] = []
    for group in groups:
        segments += group
        texts.append(group[0].text if len(group) == 1 else "".join([segment.text for segment in group]))
        segments.append(_GAP)
    return TextView(SEPARATOR.join(texts), _SegmentPlaces(segments).locate)


def passage_segments(passages: Iterable[Passage]) -> list[Sequence[Segment]]:
    """Returns the passages as segments, inline documents decoded; of images and the like only the header."""
    left_length = decoders.MOST_DECODED
    groups: list[Sequence[Segment]] = []
    for passage in passages:
        path, text = passage.path, passage.text
        media = inline(text) if (path[-1] in _PAYLOAD_FIELDS if path else '"' not in text) else None
        if media is None:
            groups.append((Segment(text, path),))
            continue
        groups.append((Segment(text[: len(text) - len(media.payload)], path),))
        if len(media.payload) <= left_length and (decoded := decoders.document(media.payload, unpack=True)) is not None:
            left_length -= max(len(media.payload), len(decoded))
            groups.append((Segment(decoded, path, hidden_length=len(text)),))
    return groups


_PAYLOAD_FIELDS = frozenset({"data", "file_data", "url", "image_url", "uri", "b64_json", "result"})
"""Names of fields with base64 in any provider's API. Under other names a string is text, whatever it holds."""


class _SegmentPlaces(_RunStarts):
    segments: list[Segment]

    def locate(self, start: int, end: int) -> HitPlace | None:
        if not self.starts:
            self.starts = list(accumulate((len(segment.text) for segment in self.segments), initial=0))
        first, last = self._index_at(start), self._index_at(end - 1)
        while first < last and self.segments[first] is _GAP:
            first += 1
        while first < last and self.segments[last] is _GAP:
            last -= 1
        segment = self.segments[first]
        offset = max(start - self.starts[first], 0)
        end_offset = min(end - self.starts[first], len(segment.text))
        if segment.is_join and first == last:
            return None
        if segment.hidden_length:
            return HitPlace(segment.path, 0, segment.hidden_length, exact=False)
        exact = first == last and segment.path != () and not segment.is_join
        # An escape is all in or all out: the letter after a backslash may have passed for the first of a word.
        preceding = segment.text[max(offset - _MOST_QUOTED, 0) : offset]
        if (len(preceding) - len(preceding.rstrip("\\"))) % 2:
            offset += _ESCAPES.get(segment.text[offset], 0)
        return HitPlace(segment.path, segment.start + offset, segment.start + end_offset, exact)


_MOST_QUOTED = 64
_ESCAPES = dict.fromkeys("nrtbf", 1) | dict.fromkeys("ux01234567", -1)
"""Letters after a backslash → 1 for a blank, which precedes the value, -1 for an escape that is its first character."""
_GAP = Segment(SEPARATOR, ())


# Parts of a body that are in none of its passages: numbers, duplicate keys, roles, and fields that were not read.

_to_json = msgspec.json.encode
_NEEDLE_BYTES = 32
"""Number of bytes of a passage that are searched for; the rest is compared, as a long needle is slow to prepare."""
_MOST_TRIES = 4
_MOST_EFFORT = 8
"""Maximum search effort, in multiples of the body's size; passages that are not found by then stay in the rest."""
_EMPTY_STRING = b'""'


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
    text = _EMPTY_STRING.join(outside).decode("utf-8", "replace")
    if len(text) < LEAST_PAYLOAD:
        return [Passage((), text)]
    media, others = list[Passage](), list[str]()
    for string in text.split('"'):
        candidate = string.replace("\\/", "/") if len(string) >= LEAST_PAYLOAD else ""
        if candidate and inline(candidate):
            media.append(Passage((), candidate))
        else:
            others.append(string)
    return [*media, Passage((), '"'.join(others))]


def _occurrences(raw: bytes, passages: Sequence[Passage]) -> list[tuple[int, int]]:
    """Returns (start, end) of the passages in the body; searches for those of a top-level field in order."""
    ends_by_field: dict[str | int, int] = {}
    places = list[tuple[int, int]]()
    left_effort = _MOST_EFFORT * len(raw)
    ascii_only = raw.isascii()
    for passage in passages:
        encoded = _to_json(passage.text)
        if ascii_only and not encoded.isascii():
            encoded = encode_basestring_ascii(passage.text).encode()
        field = passage.path[0] if passage.path else ""
        start = ends_by_field.get(field, 0)
        at = raw.find(encoded[:_NEEDLE_BYTES], start)
        for _ in range(_MOST_TRIES - 1):  # some texts begin alike
            if at < 0 or raw.startswith(encoded, at):
                break
            at = raw.find(encoded[:_NEEDLE_BYTES], at + 1)
        at = at if at >= 0 and raw.startswith(encoded, at) else -1
        left_effort -= (len(raw) if at < 0 else at) - start
        if left_effort < 0:
            break
        if at >= 0:
            ends_by_field[field] = at + len(encoded)
            places.append((at, ends_by_field[field]))
    return sorted(places)


# Values that are split over texts: the end of one passage beside the beginning of the next.

JOIN_REACH = 64
"""Number of characters on either side of a join; a shorter passage is joined whole, with both its neighbours."""
_MESSAGE_FIELDS = frozenset({"content", "text", "arguments", "output", "input"})


def passage_joins(passages: Sequence[Passage]) -> Iterator[Sequence[Segment]]:
    """Yields joins of consecutive passages, and of consecutive passages of each role if others lie in between.

    Items of top-level lists (inputs of an embedding) are separate texts.
    """
    messages = list(filter(may_continue, passages))
    yield from _join_chains(messages)
    if len(messages) < 3:
        return
    by_role: dict[str, list[int]] = {}
    for number, passage in enumerate(messages):
        by_role.setdefault(passage.role, []).append(number)
    for numbers in by_role.values():
        if numbers[-1] - numbers[0] >= len(numbers):  # messages of other roles are in between
            yield from _join_chains([messages[number] for number in numbers])


def may_continue(passage: Passage) -> bool:
    """Returns whether a text may go on in another passage."""
    return len(passage.path) > 1 and passage.path[-1] in _MESSAGE_FIELDS


def _join_chains(passages: Sequence[Passage]) -> Iterator[Sequence[Segment]]:
    """Yields chains of joined ends. A chain ends at a passage so long that its end and its beginning are apart."""
    chain: list[Segment] = []
    for before, after in pairwise(passages):
        if not chain:
            start = max(len(before.text) - JOIN_REACH, 0)
            chain.append(Segment(before.text[start:], before.path, start, is_join=True))
        chain.append(Segment(after.text[:JOIN_REACH], after.path, is_join=True))
        if len(after.text) > JOIN_REACH:
            yield chain
            chain = []
    if chain:
        yield chain


# Every string in a JSON value, with its path.


def passages_in(value: Any, path: Path = (), *, keys: bool = True) -> Iterator[Passage]:
    """Yields the strings in document order; a key's passage has the path of its value, which follows.

    Their role is that of the nearest object around them that has one. The JSON parser limits the depth.
    """
    pending: list[tuple[Path, Any, str, bool]] = [(path, value, "", False)]
    while pending:
        place, node, role, is_key = pending.pop()
        if is_key:
            yield Passage(place, str(place[-1]), role)
        if isinstance(node, str):
            yield Passage(place, node, role)
        elif isinstance(node, dict):
            own_role = node.get("role")
            role = own_role if isinstance(own_role, str) else role
            pending += [((*place, key), item, role, keys) for key, item in reversed(node.items())]
        elif isinstance(node, list):
            pending += [((*place, number), node[number], role, False) for number in range(len(node) - 1, -1, -1)]


def dotted(path: Path) -> str:
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
    view = joined_view([*passage_segments([*passages, *rest]), *(passage_joins(passages) if len(passages) > 1 else ())])
    yield view
    tried: set[bytes] = set()
    for layer in range(MOST_LAYERS):
        pieces = _disguised_pieces(view.text, tried, wrapped=layer < _WRAPPED_LAYERS)
        if not pieces:
            return
        view = view_near(view, pieces)
        yield view
    if _disguised_pieces(view.text, tried, wrapped=False):
        raise NestedTooDeep(f"More than {MOST_LAYERS} layers of encodings.")


def body_views(body: bytes) -> Iterator[TextView]:
    """Returns every text of a body to scan before it is sent. Keys are not passages, and so part of the rest."""
    try:
        passages = list(passages_in(msgspec.json.decode(body), keys=False))
    except (msgspec.DecodeError, UnicodeDecodeError):
        passages = []
    return views(passages, body)


def _disguised_pieces(text: str, tried: set[bytes], *, wrapped: bool) -> list[Piece]:
    data = text.encode("utf-8", "replace")
    if decoders.SUSPECT.search(data.replace(SEPARATOR.encode(), b"\n\n"))[0] < 0:
        return []
    place = CharacterOffsets(text, data)
    pieces = [*decoders.escapes(text), *decoders.lookalikes(text, data, place), *decoders.encodings(data, place, tried)]
    if decoders.SPLIT.search(data)[0] >= 0:
        pieces += (*decoders.byte_numbers(data, place), *decoders.spaced_words(text, data, place))
        pieces += (*decoders.marks_within(text, data, place), *decoders.breaks(text, data, place)) if wrapped else ()
    pieces.sort()
    return pieces
