"""A text in which pieces were replaced, and the way back to where they stood."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from router.classify.views.view import Place, View

REACH = 160
"""Characters around a piece that are looked at again: a value and the words that tell what it is."""
_CUT = "\n\0\n"

Piece = tuple[int, int, str, bool]
"""(start, end, text, hidden): what characters start:end of a text stand for. Plain, as there may be a million of them.

As many characters as before stand for one each. What is found in a `hidden` text is not these characters.
"""


class _Run(NamedTuple):
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


def rewritten(view: View, pieces: Sequence[Piece]) -> View:
    """Only what is near a piece: all else has been looked at. `pieces` in order; of two that overlap, the first."""
    old = view.text
    text = "".join([old[start:end] if new is None else new for start, end, new, _ in _runs(len(old), pieces)])
    return View(text, _Back(view, pieces).locate)


def _runs(length: int, pieces: Sequence[Piece]) -> Iterator[tuple[int, int, str | None, bool]]:
    last = 0
    reach = 0  # before the first piece nothing is behind another
    for piece in pieces:
        start = piece[0]
        if start < last:
            continue
        if start - last > reach + REACH:
            yield last, last + reach, None, False
            yield last, last, _CUT, False
            yield start - REACH, start, None, False
        elif start > last:
            yield last, start, None, False
        yield piece
        last, reach = piece[1], REACH
    yield last, min(last + REACH, length), None, False
    if last + REACH < length:
        yield last, last, _CUT, False


class _Back:
    """What stands where is counted up only when something was found."""

    def __init__(self, view: View, pieces: Sequence[Piece]) -> None:
        self._view, self._pieces = view, pieces
        self._runs: list[_Run] = []
        self._starts: list[int] = []

    def locate(self, start: int, end: int) -> Place | None:
        if not self._runs:
            self._runs = [_Run(*run) for run in _runs(len(self._view.text), self._pieces) if run[0] < run[1] or run[2]]
            lengths = (run.end - run.start if run.text is None else len(run.text) for run in self._runs)
            self._starts = list(accumulate(lengths, initial=0))
        first, last = self._number(start), self._number(end - 1)
        while first < last and self._runs[first].cut:
            first += 1
        while first < last and self._runs[last].cut:
            last -= 1
        return self._place(start, end, first, last)

    def _place(self, start: int, end: int, first: int, last: int) -> Place | None:
        severed = any(run.cut for run in self._runs[self._number(max(start - 1, 0)) : self._number(end) + 1])
        begin, until = self._runs[first], self._runs[last]
        if severed and first == last and begin.text is None:
            return None  # nothing was replaced in it, so that it was found whole before
        inside, before = max(start - self._starts[first], 0), max(self._starts[last + 1] - end, 0)
        place = self._view.locate(
            begin.start + inside if begin.each else begin.start, until.end - before if until.each else until.end
        )
        whole = (begin.each or not inside) and (until.each or not before) and not severed
        if place is None or (whole and not any(run.hidden for run in self._runs[first : last + 1])):
            return place
        return place._replace(exact=False)

    def _number(self, at: int) -> int:
        return bisect_right(self._starts, at, hi=len(self._runs)) - 1
