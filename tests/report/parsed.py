"""What a reader gets out of each form of a report: rows of texts, however they are drawn."""

import csv
import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from html.parser import HTMLParser
from io import StringIO

from hypothesis import HealthCheck, settings

from router.report.csv_ import as_csv
from router.report.html import page
from router.report.render import as_json, words, written
from router.report.report import Kind, Report
from router.report.table import as_text

Amounts = list[list[Decimal | None]]
"""A row: its amounts, column by column; None where there is none."""
WIDE = 20_000
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Of properties: a busy machine fails none of them."""


def amounts(report: Report) -> Amounts:
    """As they are."""
    names = [column.name for column in report.columns]
    return _amounts(report, (dict(zip(names, row, strict=True)) for row in report.rows))


def of_json(report: Report) -> Amounts:
    return _amounts(report, json.loads(as_json(report), parse_float=Decimal)["rows"])


def of_csv(report: Report) -> Amounts:
    rows = csv.DictReader(StringIO(as_csv(report).decode(), newline=""))
    return _amounts(report, ({name: cell or None for name, cell in row.items()} for row in rows))


def of_html(report: Report) -> Amounts:
    """A wide table stands in parts, each with its headings; what is below it, in sections of its own."""
    drawn = Cells.read(page(report).partition("</section>")[0])
    names = {words(column): column.name for column in report.columns}
    found: list[dict[str, str]] = [{} for _ in report.rows]
    for part, headings in enumerate(drawn.headings):
        lines = drawn.rows[part * len(found) : (part + 1) * len(found)]
        for row, line in zip(found, lines, strict=True):
            row |= zip((names[heading] for heading in headings), line, strict=True)
    return _amounts(report, map(_shown, found))


def of_terminal(report: Report) -> Amounts:
    """Names may hold the frame's own lines; numbers stand behind them."""
    lines = [line[1:-1] for line in as_text(report, WIDE).splitlines() if line.startswith("│")][: len(report.rows)]
    names = [column.name for column in written(report).columns]
    rows = (dict(zip(names, line.rsplit("│", len(names) - 1), strict=True)) for line in lines)
    return _amounts(report, map(_shown, rows))


FORMS = (of_json, of_csv, of_html, of_terminal)


def _amounts(report: Report, rows: Iterable[Mapping[str, object]]) -> Amounts:
    """A rare column without anything in it is left out of what people see: that is 0."""
    names = [column.name for column in report.columns if column.kind is Kind.USD]
    cells = ([row.get(name, 0) for name in names] for row in rows)
    return [[None if cell is None else Decimal(str(cell)) for cell in row] for row in cells]


def _shown(row: Mapping[str, str]) -> dict[str, str | None]:
    cells = {name: cell.strip().replace(",", "") for name, cell in row.items()}
    return {name: None if cell == "–" else cell for name, cell in cells.items()}


class Cells(HTMLParser):
    """The cells of a page's table bodies, the headings of each table, and every tag on the page."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: set[str] = set()
        self.headings: list[list[str]] = []
        self._into: list[str] | None = None

    @classmethod
    def read(cls, page: str) -> "Cells":
        cells = cls()
        cells.feed(page)
        return cells

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag in ("thead", "tr"):
            (self.headings if tag == "thead" else self.rows).append([])
        if tag == "td" or (tag == "th" and ("scope", "col") in attributes):
            self._into = self.rows[-1] if tag == "td" else self.headings[-1]
            self._into.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._into = None
        if tag in ("thead", "tfoot"):
            self.rows = [row for row in self.rows if row]

    def handle_data(self, data: str) -> None:
        if self._into is not None:
            self._into[-1] += data
