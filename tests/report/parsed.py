"""What a reader gets out of each form of a report: rows of texts, however they are drawn."""

import csv
import json
from decimal import Decimal
from html.parser import HTMLParser
from io import StringIO
from typing import Any

from router.report.csv_ import as_csv
from router.report.html import page
from router.report.render import as_json, words, written
from router.report.report import Kind, Report
from router.report.table import as_text

Amounts = list[list[Decimal | None]]
"""A row: its amounts, column by column; None where there is none."""
WIDE = 20_000


def amounts(report: Report) -> Amounts:
    """As they are."""
    return [[value for value in row if isinstance(value, Decimal) or value is None] for row in _money(report)]


def of_json(report: Report) -> Amounts:
    document = json.loads(as_json(report), parse_float=Decimal)
    return [[_decimal(row[name]) for name in _names(report)] for row in document["rows"]]


def of_csv(report: Report) -> Amounts:
    rows = list(csv.DictReader(StringIO(as_csv(report).decode(), newline="")))
    return [[_decimal(row[name] or None) for name in _names(report)] for row in rows]


def of_html(report: Report) -> Amounts:
    """A wide table stands in parts, each with its headings; what is below it, in sections of its own."""
    drawn = Cells.read(page(report).partition("</section>")[0])
    found: list[dict[str, str]] = [{} for _ in report.rows]
    for part, headings in enumerate(drawn.headings):
        lines = drawn.rows[part * len(found) : (part + 1) * len(found)]
        for row, line in zip(found, lines, strict=True):
            row |= zip(headings, line, strict=True)
    named = {words(column): column.name for column in report.columns}
    return _by_name(report, [{named[heading]: cell for heading, cell in row.items()} for row in found])


def of_terminal(report: Report) -> Amounts:
    """Names may hold the frame's own lines; numbers stand behind them."""
    lines = [line[1:-1] for line in as_text(report, WIDE).splitlines() if line.startswith("│")]
    columns = len(written(report).columns)
    return _shown(report, [line.rsplit("│", columns - 1) for line in lines])


FORMS = (of_json, of_csv, of_html, of_terminal)


class Cells(HTMLParser):
    """The cells of a page's table bodies, and every tag on it."""

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
        if tag == "thead":
            self.headings.append([])
        if tag == "tr":
            self.rows.append([])
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


def _shown(report: Report, cells: list[list[str]]) -> Amounts:
    """Of what people see: a rare column without anything in it is left out."""
    shown = [column.name for column in written(report).columns]
    return _by_name(report, [dict(zip(shown, row, strict=True)) for row in cells[: len(report.rows)]])


def _by_name(report: Report, by_name: list[dict[str, str]]) -> Amounts:
    return [[_decimal(_text(row.get(name))) for name in _names(report)] for row in by_name]


def _text(cell: str | None) -> str | None:
    text = "0" if cell is None else cell.strip().replace(",", "")
    return None if text == "–" else text


def _decimal(value: Any) -> Decimal | None:
    return None if value is None else Decimal(value)


def _names(report: Report) -> list[str]:
    return [column.name for column in report.columns if column.kind is Kind.USD]


def _money(report: Report) -> list[list[Any]]:
    places = [at for at, column in enumerate(report.columns) if column.kind is Kind.USD]
    return [[row[at] for at in places] for row in report.rows]
