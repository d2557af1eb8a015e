"""A report as tables for the terminal, as wide as it is: columns that do not fit beside each other stand below."""

from collections.abc import Iterator, Sequence
from io import StringIO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from router.report.render import NUMBERS, Written, heading, words, written
from router.report.report import Report
from router.report.tell import shown

_WRAPPED = 24
"""Text may be folded to so many cells before a number has to make room."""
_FRAME = 3
"""Cells that each column needs beside its text."""


def table(report: Report) -> RenderableType:
    note = (Text(shown(report.note), style="dim"),) if report.note else ()
    return Group(_Sheet(report), *note, *map(table, report.below))


def as_text(report: Report, width: int = 160) -> str:
    """The same without colours, for a mail or a file."""
    console = Console(file=StringIO(), width=width, color_system=None)
    console.print(table(report))
    assert isinstance(console.file, StringIO)  # noqa: S101 - it was made here
    return console.file.getvalue()


class _Sheet:
    """One table of a report; the labels of its rows stand again in each part."""

    def __init__(self, report: Report) -> None:
        self._title, self._text = heading(report), written(report)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for number, places in enumerate(_parts(self._text, options.max_width)):
            yield _drawn(self._text, places, "" if number else self._title)


def _parts(text: Written, width: int) -> Iterator[list[int]]:
    """Places of the columns that stand beside each other."""
    numeric = [column.kind in NUMBERS for column in text.columns]
    first = numeric.index(True) if True in numeric else len(numeric)
    labels, rest = list(range(first)), list(range(first, len(numeric)))
    room = width - 1 - sum(_width(text, place) for place in labels)
    part: list[int] = []
    for place in rest:
        if part and sum(_width(text, one) for one in (*part, place)) > room:
            yield labels + part
            part = []
        part.append(place)
    yield labels + part


def _width(text: Written, place: int) -> int:
    column = text.columns[place]
    cells = [words(column), *(row[place] for row in text.rows), *text.totals[place : place + 1]]
    widest = max(map(cell_len, cells))
    return _FRAME + (widest if column.kind in NUMBERS else min(widest, _WRAPPED))


def _drawn(text: Written, places: Sequence[int], title: str) -> Table:
    drawn = Table(title=Text(title) if title else None, title_justify="left", show_footer=bool(text.totals))
    for place in places:
        numeric = text.columns[place].kind in NUMBERS
        drawn.add_column(
            Text(words(text.columns[place])),
            Text(text.totals[place]) if text.totals else "",
            justify="right" if numeric else "left",
            no_wrap=numeric,
            overflow="fold",
        )
    for row in text.rows:
        drawn.add_row(*(Text(row[place]) for place in places))
    return drawn
