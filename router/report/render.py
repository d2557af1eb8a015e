"""A report as text, as a table for the terminal, as JSON. Nothing here knows which report it is."""

from collections.abc import Sequence
from decimal import Decimal

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from router.report.moment import iso
from router.report.report import Column, Kind, Report, Row, Value

UNKNOWN = "–"
NO_LABEL = "(none)"
_LEAST_PLACES = 2
"""Decimals of an amount, unless exactness needs more."""
_NUMBERS = (Kind.COUNT, Kind.USD, Kind.AMOUNT, Kind.MS)


class Written(msgspec.Struct, frozen=True):
    """A report in words: only the columns that hold something, every cell as text."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    totals: tuple[str, ...]


def written(report: Report) -> Written:
    """All amounts of a column have as many decimals as the longest needs: exact, and the points below each other."""
    lines = [*report.rows, *([report.totals] if report.totals else [])]
    shown = [
        (column, [line[place] for line in lines])
        for place, column in enumerate(report.columns)
        if not column.rare or any(line[place] for line in lines)
    ]
    cells = [_cells(column.kind, values) for column, values in shown]
    rows = list(zip(*cells, strict=True))
    totals = rows.pop() if report.totals else ()
    return Written(tuple(column for column, _ in shown), tuple(rows), totals)


def table(report: Report) -> RenderableType:
    """For the terminal."""
    text = written(report)
    drawn = Table(title=_heading(report), title_justify="left", show_footer=bool(text.totals))
    for number, column in enumerate(text.columns):
        numeric = column.kind in _NUMBERS
        drawn.add_column(
            Text(words(column)),
            Text(text.totals[number]) if text.totals else "",
            justify="right" if numeric else "left",
            no_wrap=numeric,
            overflow="fold",
        )
    for row in text.rows:
        drawn.add_row(*map(Text, row))
    note = (Text(report.note, style="dim"),) if report.note else ()
    return Group(drawn, *note, *map(table, report.below))


def as_json(report: Report) -> bytes:
    """Amounts are JSON numbers, exact to the last digit; times are UTC."""
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
        "below": [_document(one) for one in report.below],
    }


def as_object(columns: Sequence[Column], row: Row) -> dict[str, object]:
    """One row with its names, ready to be encoded as JSON."""
    return {column.name: _json(column.kind, value) for column, value in zip(columns, row, strict=True)}


def words(column: Column) -> str:
    """A column's heading."""
    name, usd, _ = column.name.partition("_usd")
    return name.replace("_", " ") + (" $" if usd else "")


def _heading(report: Report) -> str:
    since = f" since {iso(report.since_ms)}" if report.since_ms is not None else ""
    until = f" until {iso(report.until_ms)}" if report.until_ms is not None else ""
    return report.title + since + until


def _json(kind: Kind, value: Value) -> object:
    if isinstance(value, Decimal):
        return msgspec.Raw(f"{value.normalize():f}".encode())
    return iso(value) if kind is Kind.TIME and isinstance(value, int) else value


def _cells(kind: Kind, values: Sequence[Value]) -> list[str]:
    if kind is Kind.USD:
        places = max([_LEAST_PLACES, *(_places(value) for value in values if isinstance(value, Decimal))])
        return [UNKNOWN if value is None else f"{value:,.{places}f}" for value in values]
    if kind is Kind.AMOUNT:
        money = iter(_cells(Kind.USD, [value for value in values if isinstance(value, Decimal)]))
        return [next(money) if isinstance(value, Decimal) else _cell(kind, value) for value in values]
    return [_cell(kind, value) for value in values]


def _cell(kind: Kind, value: Value) -> str:
    if value is None or value == "":
        return NO_LABEL if kind is Kind.LABEL else UNKNOWN
    if kind is Kind.TIME and isinstance(value, int):
        return iso(value)
    return f"{value:,}" if kind in _NUMBERS else str(value)


def _places(amount: Decimal) -> int:
    exponent = amount.normalize().as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0
