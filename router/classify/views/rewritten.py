"""A text in which pieces were replaced, and the way back to where they stood."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from router.classify.views.view import Place, View

REACH = 256
"""Characters around a piece that are looked at again: a value and the words that tell what it is."""
_CUT = "\n\0\n"


class Piece(NamedTuple):
    """What characters start:end of a text stand for. As many characters as before stand for one each.

    With `hidden` it has no order of its own in the text: what is found in it is not these characters.
    """

    start: int
    end: int
    text: str
    hidden: bool = False


class _Run(NamedTuple):
    """Characters from `start` of the new text stand for those from `old`: one by one, or, with `end`, all for all."""

    start: int
    old: int
    end: int = -1
    hidden: bool = False
    cut: bool = False


def rewritten(view: View, pieces: Sequence[Piece]) -> View:
    """Only what is near a piece: all else has been looked at. `pieces` in order; of two that overlap, the first."""
    text = view.text
    written = _Written(text)
    last = 0
    for piece in pieces:
        if piece.start < last:
            continue
        if piece.start - last > (2 * REACH if last else REACH):
            written.copy(last, last + REACH if last else 0)
            written.cut()
            written.copy(piece.start - REACH, piece.start)
        else:
            written.copy(last, piece.start)
        written.replace(piece)
        last = piece.end
    written.copy(last, min(last + REACH, len(text)))
    if last + REACH < len(text):
        written.cut()
    return View("".join(written.texts), _Back(view, written.runs, written.length).locate)


class _Written:
    def __init__(self, text: str) -> None:
        self._text = text
        self.texts: list[str] = []
        self.runs: list[_Run] = []
        self.length = 0

    def copy(self, start: int, end: int) -> None:
        if start < end:
            self._add(self._text[start:end], _Run(self.length, start))

    def replace(self, piece: Piece) -> None:
        if piece.text:
            each = len(piece.text) == piece.end - piece.start and not piece.hidden
            self._add(piece.text, _Run(self.length, piece.start, -1 if each else piece.end, piece.hidden))

    def cut(self) -> None:
        self._add(_CUT, _Run(self.length, 0, cut=True))

    def _add(self, text: str, run: _Run) -> None:
        self.texts.append(text)
        self.runs.append(run)
        self.length += len(text)


class _Back:
    def __init__(self, view: View, runs: list[_Run], length: int) -> None:
        self._view, self._runs = view, runs
        self._starts = [run.start for run in runs]
        self._length = length

    def locate(self, start: int, end: int) -> Place | None:
        first, last = self._number(start), self._number(end - 1)
        over = [run for run in self._runs[first : last + 1] if not run.cut]
        if not over:
            return None
        severed = self._severed(start, end)
        if severed and len(over) == 1 and over[0].end < 0:
            return None  # nothing was replaced in it, so that it was found whole before
        begin, until = over[0], over[-1]
        old_start = begin.old + max(start - begin.start, 0) if begin.end < 0 else begin.old
        old_end = until.old + end - until.start if until.end < 0 else until.end
        place = self._view.locate(old_start, min(old_end, len(self._view.text)))
        whole = (begin.end < 0 or start == begin.start) and (until.end < 0 or end == self._end(last))
        if place is None or (whole and not severed and not any(run.hidden for run in over)):
            return place
        return place._replace(exact=False)

    def _severed(self, start: int, end: int) -> bool:
        """It touches a cut: it may go on behind it."""
        around = self._runs[self._number(max(start - 1, 0)) : self._number(min(end, self._length - 1)) + 1]
        return any(run.cut for run in around)

    def _number(self, at: int) -> int:
        return bisect_right(self._starts, at) - 1

    def _end(self, number: int) -> int:
        return self._starts[number + 1] if number + 1 < len(self._starts) else self._length
