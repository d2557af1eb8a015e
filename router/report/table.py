"""A report as tables for the terminal, as wide as it is: columns that do not fit beside each other stand below."""

from collections.abc import Sequence
from io import StringIO

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from router.report.parts import parts
from router.report.render import NUMBERS, Written, heading, words, written
from router.report.report import Report
from router.report.tell import shown


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
        for number, places in enumerate(parts(self._text, options.max_width)):
            yield _drawn(self._text, places, "" if number else self._title)


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
