"""All texts of a request as one, so that one scan sees them; what is inline is decoded."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from router.classify.views.inline import MOST_DECODED, document, inline
from router.classify.views.view import Place, View
from router.types.request import Passage, Path

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
