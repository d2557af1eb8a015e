"""Rendering of reports as text, HTML and CSV."""

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import cache
from io import StringIO
from pathlib import Path

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from router.errors import invalid
from router.report.charts import dollars, format_short
from router.report.query import named
from router.report.report import NO_LABEL, Column, Kind, Report, Row, Value, shown
from router.types.clock import iso
from router.types.price import nano_from_usd, usd_text

# A report as text, and as JSON, independent of which report it is.

UNKNOWN = "–"
_NANO = re.compile(r'("\w*)nano":(-?\d+)')
NUMBERS = (Kind.COUNT, Kind.USD, Kind.AMOUNT, Kind.SHARE, Kind.RATE, Kind.FACTOR, Kind.MS)
"""Kinds of columns that are aligned to the right."""
_DAY_S = 86_400
_DIGITS = 6
"""Number of significant digits of values that are not exact amounts."""


class RenderedReport(msgspec.Struct, frozen=True):
    """A report as text: only columns with values, and every cell in a form that is safe to display."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    totals: tuple[str, ...]


def written(report: Report, now_ms: int | None = None) -> RenderedReport:
    """Formats a report for reading; JSON and CSV are exact. Times within a day of `now_ms` become relative."""
    lines = [*report.rows, *([report.totals] if report.totals else [])]
    filled = [
        (column, [line[place] for line in lines])
        for place, column in enumerate(report.columns)
        if not column.rare or any(line[place] for line in lines)
    ]
    cells = ([_cell(column.kind, value, now_ms) for value in values] for column, values in filled)
    rows = list(zip(*cells, strict=True))
    totals = rows.pop() if report.totals else ()
    # Totals have no labels, so that "(none)" is left out there.
    totals = tuple("" if text == NO_LABEL else text for text in totals)
    return RenderedReport(tuple(column for column, _ in filled), tuple(rows), totals)


def as_json(report: Report) -> bytes:
    """Encodes a report. Amounts are exact JSON numbers, times are in UTC, and names are unchanged."""
    return msgspec.json.encode(_document(report))


def _document(report: Report) -> dict[str, object]:
    return {
        "object": "report",
        "name": report.name,
        "title": report.title,
        "since": None if report.since_ms is None else iso(report.since_ms),
        "until": None if report.until_ms is None else iso(report.until_ms),
        "columns": [{"name": column.name, "kind": column.kind} for column in report.columns],
        "rows": [as_object(report.columns, row) for row in report.rows],
        "totals": as_object(report.columns, report.totals) if report.totals else None,
        "note": report.note,
        "sound": report.sound,
        "below": [_document(part) for part in report.below],
    }


def as_object(columns: Sequence[Column], row: Row) -> dict[str, object]:
    """Returns a row as an object that can be encoded as JSON."""
    return {column.name: _json(column.kind, value) for column, value in zip(columns, row, strict=True)}


def words(column: Column) -> str:
    """Returns a column's heading."""
    return column.name.removesuffix("_usd").removesuffix("_ms").replace("_", " ")


def heading(report: Report) -> str:
    """Returns the title and period of a report."""
    return f"{shown(report.title)} {period(report)}".rstrip()


def period(report: Report) -> str:
    """Returns the period of a report; empty if it covers all time."""
    since = f"since {iso(report.since_ms)}" if report.since_ms is not None else ""
    until = f"until {iso(report.until_ms)}" if report.until_ms is not None else ""
    return f"{since} {until}".strip()


def plain(amount: Decimal) -> str:
    """Returns all digits of an amount, without an exponent or trailing zeros."""
    text = f"{amount:f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) if amount else "0"


def _json(kind: Kind, value: Value) -> object:
    if isinstance(value, Decimal):
        return msgspec.Raw(plain(value).encode())
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    return iso(value) if kind is Kind.TIME and isinstance(value, int) else value


def _cell(kind: Kind, value: Value, now_ms: int | None) -> str:
    if value is None or value == "":
        return NO_LABEL if kind is Kind.LABEL else UNKNOWN
    if isinstance(value, str):
        usd = _NANO.sub(lambda amount: f'{amount[1]}usd":{usd_text(int(amount[2]))}', value)
        return shown(usd if kind is Kind.CHANGES else value)
    if isinstance(value, Decimal):
        return dollars(nano_from_usd(value))
    if kind is Kind.TIME:
        return ago(round(value), now_ms)
    if kind is Kind.RATE:
        return f"{value:.3f}"
    return format_short(value, Kind.COUNT if kind is Kind.AMOUNT else kind) if kind in NUMBERS else str(value)


def ago(at_ms: int, now_ms: int | None) -> str:
    """Returns a relative time ("2 min ago", "in 5 h"), or the time if it is a day away or `now_ms` is None."""
    seconds = None if now_ms is None else (now_ms - at_ms) // 1000
    if seconds is None or abs(seconds) >= _DAY_S:
        return iso(at_ms)
    size, unit = next((step for step in ((3_600, "h"), (60, "min")) if abs(seconds) >= step[0]), (1, "s"))
    return f"{seconds // size} {unit} ago" if seconds >= 0 else f"in {-seconds // size} {unit}"


# The columns of a report that fit next to each other in a given width; the others follow below.

_WRAPPED = 24
"""Number of characters to which text may be wrapped before a number has to make room."""
_FOLDED = 10
"""Number of characters to which text may be wrapped if there are no numbers."""
_FRAME = 3
"""Number of characters that each column needs in addition to its text."""


def parts(text: RenderedReport, width: int) -> Iterator[list[int]]:
    """Yields the indexes of each part's columns. The first part begins with all text in front of the first number; the
    others repeat only its labels, or else its first column. `width` is in characters."""
    numeric = [column.kind in NUMBERS for column in text.columns]
    lines = [tuple(map(words, text.columns)), *text.rows, *([text.totals] if text.totals else [])]
    widest = [max(map(cell_len, cells)) for cells in zip(*lines, strict=True)]
    widths = [_FRAME + (size if number else min(size, _WRAPPED)) for size, number in zip(widest, numeric, strict=True)]
    foldable = width >= len(numeric) * (_FRAME + _FOLDED)
    first = numeric.index(True) if True in numeric else len(numeric) if foldable else 1
    labels, rest = list(range(first)), list(range(first, len(numeric)))
    part: list[int] = []
    for place in rest:
        if part and sum(widths[at] for at in (*labels, *part, place)) > width - 1:
            yield labels + part
            labels = [at for at in labels if text.columns[at].kind is Kind.LABEL] or labels[:1]
            part = []
        part.append(place)
    yield labels + part


# A report as a self-contained HTML page: for a mail, a file or a printer.

_WIDTH = 130
"""Width of a line in characters, as on a sheet of paper."""


def page(report: Report) -> str:
    """Renders a report as a page without scripts or external resources; all data is escaped."""
    return _template().render(report=report)


@cache
def _template() -> Template:
    pages = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.globals |= {"written": written, "words": words, "heading": heading, "shown": shown}
    pages.globals |= {"parts": parts, "width": _WIDTH, "numbers": NUMBERS}
    return pages.get_template("page.html")


# A report as tables for the terminal, fitted to its width: columns that don't fit follow below.


def table(report: Report, now_ms: int | None = None) -> RenderableType:
    """Returns a report as rich tables; `now_ms` as in `written`."""
    note = (Text(shown(report.note), style="dim"),) if report.note else ()
    return Group(_Sheet(report, now_ms), *note, *(table(part, now_ms) for part in report.below))


def as_text(report: Report, width: int = 80) -> str:
    """Returns a report as tables without colours, for a mail or a file."""
    console = Console(file=StringIO(), width=width, color_system=None)
    console.print(table(report))
    assert isinstance(console.file, StringIO)  # noqa: S101 - it was made here
    return console.file.getvalue()


class _Sheet:
    """One table of a report; each of its parts repeats the labels of the rows."""

    def __init__(self, report: Report, now_ms: int | None) -> None:
        self._title, self._text = heading(report), written(report, now_ms)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self._text.rows:
            yield Text(f"{self._title}: no rows")
            return
        title: Text | None = Text(self._title)
        for places in parts(self._text, options.max_width):
            drawn = Table(title=title, title_justify="left", show_footer=bool(self._text.totals))
            for place in places:
                numeric = self._text.columns[place].kind in NUMBERS
                drawn.add_column(
                    Text(words(self._text.columns[place])),
                    Text(self._text.totals[place]) if self._text.totals else "",
                    justify="right" if numeric else "left",
                    no_wrap=numeric,
                    overflow="fold",
                )
            for row in self._text.rows:
                drawn.add_row(*(Text(row[place]) for place in places))
            yield drawn
            title = None


# One table of a report as CSV (RFC 4180): a header, then its rows; safe to open in a spreadsheet.
#
# Amounts are exact decimals; times are in UTC; unknown values are empty. Totals are left out, so that they are not
# added up with the rows.

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""Prefixes that make spreadsheets run a text as a formula; an apostrophe in front prevents this.
https://owasp.org/www-community/attacks/CSV_Injection"""


def as_csv(report: Report, table: str = "") -> bytes:
    """Encodes a report's first table, or the named one. Raises `ClientError` 400 for an unknown name."""
    named_tables = {part.name: part for part in reversed(list(tables(report)))}
    if table and table not in named_tables:
        raise invalid("table", f"{report.name} has no table '{table[:40]}'. {named(sorted(named_tables))}")
    chosen = named_tables[table] if table else report
    lines = [[column.name for column in chosen.columns]]
    lines += [
        [cell(column.kind, value) for column, value in zip(chosen.columns, row, strict=True)] for row in chosen.rows
    ]
    # An empty line would not be a row.
    return "".join((",".join(line) or '""') + "\r\n" for line in lines).encode()


def tables(report: Report) -> Iterator[Report]:
    """Yields the report and all tables below it."""
    yield report
    for part in report.below:
        yield from tables(part)


def cell(kind: Kind, value: Value) -> str:
    """Returns a cell. Text is always quoted, because a spreadsheet may take a semicolon as a separator."""
    if isinstance(value, str):
        safe = shown(f"'{value}" if value.startswith(_FORMULA) else value)
        return '"' + safe.replace('"', '""') + '"'
    if value is None:
        return ""
    return plain(value) if isinstance(value, Decimal) else str(_json(kind, value))
