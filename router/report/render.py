"""A report in words, and as JSON. Nothing here knows which report it is."""

from collections.abc import Sequence
from decimal import Decimal

import msgspec

from router.report.moment import iso
from router.report.report import Column, Kind, Report, Row, Value
from router.report.tell import shown

UNKNOWN = "–"
NO_LABEL = "(none)"
_LEAST_PLACES = 2
"""Decimals of an amount, unless exactness needs more."""
NUMBERS = (Kind.COUNT, Kind.USD, Kind.AMOUNT, Kind.SHARE, Kind.RATE, Kind.FACTOR, Kind.MS)
"""Written below each other, by their last digit."""
_DIGITS = 6
"""Significant digits of what is no exact amount."""


class Written(msgspec.Struct, frozen=True):
    """A report in words: only the columns that hold something, every cell as text that is safe to look at."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    totals: tuple[str, ...]


def written(report: Report) -> Written:
    """All amounts of a column have as many decimals as the longest needs: exact, and the points below each other."""
    lines = [*report.rows, *([report.totals] if report.totals else [])]
    filled = [
        (column, [line[place] for line in lines])
        for place, column in enumerate(report.columns)
        if not column.rare or any(line[place] for line in lines)
    ]
    cells = [_cells(column.kind, values) for column, values in filled]
    rows = list(zip(*cells, strict=True))
    totals = rows.pop() if report.totals else ()
    # A total is of all: a label that it lacks is not one that its rows lack.
    totals = tuple("" if text == NO_LABEL else text for text in totals)
    return Written(tuple(column for column, _ in filled), tuple(rows), totals)


def as_json(report: Report) -> bytes:
    """Amounts are JSON numbers, exact to the last digit; times are UTC; names are as they are."""
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


def heading(report: Report) -> str:
    """What it is about, and of when."""
    since = f" since {iso(report.since_ms)}" if report.since_ms is not None else ""
    until = f" until {iso(report.until_ms)}" if report.until_ms is not None else ""
    return shown(report.title) + since + until


def plain(amount: Decimal) -> str:
    """All digits and no more, without an exponent."""
    text = f"{amount:f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) if amount else "0"


def rounded(value: float) -> float:
    """Counts as they are."""
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def _json(kind: Kind, value: Value) -> object:
    if isinstance(value, Decimal):
        return msgspec.Raw(plain(value).encode())
    if isinstance(value, float):
        return rounded(value)
    return iso(value) if kind is Kind.TIME and isinstance(value, int) else value


def _cells(kind: Kind, values: Sequence[Value]) -> list[str]:
    """Amounts with as many decimals as the longest of them needs."""
    money = [value for value in values if isinstance(value, Decimal)]
    places = max([_LEAST_PLACES, *map(_places, money)])
    return [f"{value:,.{places}f}" if isinstance(value, Decimal) else _cell(kind, value) for value in values]


def _cell(kind: Kind, value: str | int | float | None) -> str:
    if value is None or value == "":
        return NO_LABEL if kind is Kind.LABEL else UNKNOWN
    if isinstance(value, str):
        return shown(value)
    if kind is Kind.TIME:
        return iso(round(value))
    return _number(kind, value)


def _number(kind: Kind, value: float) -> str:
    if kind is Kind.SHARE:
        return f"{100 * value:,.1f} %"
    if kind is Kind.FACTOR:
        return f"{value:,.2f} ×"
    if kind is Kind.RATE:
        return f"{value:.3f}"
    return f"{rounded(value):,}" if kind in NUMBERS else str(value)


def _places(amount: Decimal) -> int:
    _, _, decimals = plain(amount).partition(".")
    return len(decimals)
