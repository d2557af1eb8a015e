"""Reports with their tables and values, and the formatting of times, days and unsafe text."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from enum import StrEnum
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from router.errors import ClientError
from router.ledger.facts import HOUR_MS, QUARTER_MS
from router.types.price import usd_from_nano
from router.types.tables import table

# Times of the parameters `since` and `until`.

_AGE = re.compile(r"(\d{1,6})([mhdw])", re.ASCII)
_LONG = ("d", "w")
"""Units of ages that are rounded down to a full hour, because old rows are kept as hourly sums."""
ALWAYS = "all"
_UNIT_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def parse_time(param: str, text: str, now_ms: int, zone: tzinfo = UTC) -> int | None:
    """Parses a time to Unix ms; None for "" and "all". `zone` is the default offset. Raises `ClientError` 400."""
    if text in ("", ALWAYS):
        return None
    age = _AGE.fullmatch(text)
    if age:
        past = now_ms - int(age[1]) * _UNIT_MS[age[2]]
        return past - past % HOUR_MS if age[2] in _LONG else past
    try:
        when = datetime.fromisoformat(text)
        return round((when if when.tzinfo else when.replace(tzinfo=zone)).timestamp() * 1000)
    except (ValueError, OverflowError):
        remedy = "Send a date (2026-01-31), a time (2026-01-31T12:00Z) or an age (24h, 7d)."
        message = f"{param}: '{text[:40]}' is no time. {remedy}"
        raise ClientError(400, "invalid_request_error", message, param=param) from None


# Names from outside (tags, models, sessions, tools) as text that is safe to display.

_KEPT = frozenset("\u200c\u200d")
"""Joiners, which scripts and emoji need and which hide nothing."""
_HIDDEN = frozenset(("Cc", "Cf", "Zl", "Zp", "Cs", "Co"))
"""General categories of characters that affect a terminal or page instead of being visible: controls, formats
(directions, invisible tags), breaks, surrogates, private use. https://www.unicode.org/reports/tr44/#General_Category"""


def shown(text: str) -> str:
    """Replaces invisible characters by escapes: a line break by \\n, U+202E by \\u202e."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char.encode("unicode_escape").decode() if char not in _KEPT and unicodedata.category(char) in _HIDDEN else char
        for char in text
    )


# Parts of every report: columns, rows, totals, and a note on how to read them.

NO_LABEL = "(none)"
"""Text in place of a label that is None."""
Value = str | int | float | Decimal | None
"""A cell; None if unknown or not applicable, never 0. Money is an exact Decimal in USD, never a float."""
Row = tuple[Value, ...]


class Kind(StrEnum):
    """Kind of a column's values, which determines their format."""

    TEXT = "text"
    LABEL = "label"
    """Subject of a row; None if the row collects what has no such subject."""
    COUNT = "count"
    USD = "usd"
    AMOUNT = "amount"
    """USD if it is a Decimal, or tokens if it is an int, depending on the row's unit."""
    SHARE = "share"
    """A float, with 1 for the whole; written as a percentage."""
    RATE = "rate"
    """A float between 0 and 1, such as a pass rate."""
    FACTOR = "factor"
    """A multiplier as a float."""
    MS = "ms"
    TIME = "time"
    """Unix ms; written as a time in UTC."""
    REQUEST = "request"
    """Id of a request; a page links to it."""
    CHANGES = "changes"
    """JSON whose nano-USD amounts are shown in USD."""


class Column(Struct, frozen=True):
    name: str
    kind: Kind = Kind.TEXT
    rare: bool = False
    """Whether tables for people omit the column while it is empty."""


class Mark(Struct, frozen=True, kw_only=True):
    """One value of a chart, with its interval. Money is in nano-USD: charts round, tables don't."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    x: float | None = None
    """Horizontal position in a chart of points."""
    series: str = ""
    joined: bool = False
    """Whether a line connects it to the next joined mark of its series, as along a frontier."""


class Shape(StrEnum):
    BARS = "bars"
    """Horizontal bars from zero, one per label."""
    DAYS = "days"
    """Columns from zero, one per label in the given order, with the series of a label stacked."""
    POINTS = "points"
    """Points at `x` and value."""


class Plot(Struct, frozen=True, kw_only=True):
    """A chart's data. `unit` and `x_unit` are the kinds of its numbers."""

    title: str
    shape: Shape
    unit: Kind
    marks: tuple[Mark, ...]
    x_unit: Kind = Kind.COUNT
    x_title: str = ""


def plots(
    title: str, shape: Shape, unit: Kind, marks: Iterable[Mark], x_unit: Kind = Kind.COUNT, x_title: str = ""
) -> tuple[Plot, ...]:
    """Returns a tuple with one plot, or an empty tuple if there are no marks."""
    plot = Plot(title=title, shape=shape, unit=unit, marks=tuple(marks), x_unit=x_unit, x_title=x_title)
    return (plot,) if plot.marks else ()


def bars(sizes: Sequence[tuple[str, float]], most: int) -> list[Mark]:
    """Returns the first `most` bars, and one for the sum of all others."""
    marks = [Mark(label=label, value=size) for label, size in sizes[:most]]
    rest = [size for _, size in sizes[most:]]
    return [*marks, Mark(label=f"{len(rest)} others", value=sum(rest))] if rest else marks


class Report(Struct, frozen=True, kw_only=True):
    """A report; `since_ms` is inclusive, `until_ms` exclusive, None for no limit. `totals` is a row below the rows."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    totals: Row | None = None
    note: str = ""
    since_ms: int | None = None
    until_ms: int | None = None
    sound: bool = True
    """Whether the property that the report verifies holds."""
    below: tuple["Report", ...] = ()
    plots: tuple[Plot, ...] = ()

    def column(self, name: str) -> tuple[Value, ...]:
        """Returns the values of a column. Raises StopIteration for an unknown name."""
        place = next(number for number, column in enumerate(self.columns) if column.name == name)
        return tuple(row[place] for row in self.rows)

    def total(self, name: str) -> Value:
        """Returns the total of a column. Raises KeyError for an unknown name, or if there are no totals."""
        return dict(zip((column.name for column in self.columns), self.totals or (), strict=False))[name]


# Reports as declared in `reports.yaml`.


class Definition(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A report, or a table below one; the head of `reports.yaml` explains the fields."""

    name: str
    title: str = ""
    columns: str = ""
    note: str = ""
    sql: str = ""
    sums: Mapping[str, str] = {}
    legend: Mapping[str, str] = {}
    summary: str = ""
    by: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    needs_subject: bool = False
    takes_baseline: bool = False
    timeless: bool = False
    reads_policy: bool = False
    needs_pots: bool = False


@cache
def declared() -> Mapping[str, Definition]:
    """Returns the definitions of all reports and tables by name."""
    known = table("report/reports.yaml")
    return {name: msgspec.convert({"name": name, **fields}, Definition) for name, fields in known.items()}


@cache
def columns(name: str) -> tuple[Column, ...]:
    return parsed(declared()[name].columns)


def parsed(columns: str) -> tuple[Column, ...]:
    """Parses the columns of a definition; the head of `reports.yaml` explains the syntax."""

    def column(word: str) -> Column:
        name, _, kind = word.removesuffix("?").partition(":")
        usual = Kind.USD if name.endswith("_usd") else Kind.MS if name.endswith("_ms") else Kind.TEXT
        return Column(name, Kind(kind) if kind else usual, word.endswith("?"))

    return tuple(map(column, columns.split()))


@cache
def _formulas(name: str) -> tuple[tuple[Column, str, str, str], ...]:
    """Returns the columns of a report of sums, each as `measure` or `measure` ÷ `whole`, unknown if `known` is 0."""

    def formula(column: Column) -> tuple[Column, str, str, str]:
        text = declared()[name].sums.get(column.name, column.name.removesuffix("_usd"))
        amount, _, known = text.partition(" if ")
        measure, _, whole = amount.partition(" / ")
        return column, measure, whole, known

    return tuple(map(formula, columns(name)))


@cache
def measures(name: str) -> tuple[str, ...]:
    """Returns the measures that the columns are computed from, without duplicates."""
    return tuple(dict.fromkeys(measure for _, *some in _formulas(name) for measure in some if measure))


def made(name: str, rows: Iterable[Sequence[Value]], by: Iterable[str] = (), **about: Any) -> Report:
    """Builds the report or table of a definition, from rows and totals whose amounts are in nano-USD. `by` are label
    columns in front of the declared ones; `about` are further fields of `Report`, which override the definition."""
    known = declared()[name]
    labels = (Column(label, Kind.LABEL) for label in by)
    about = {"title": known.title, "note": known.note, "columns": (*labels, *columns(name)), **about}
    money = [column.kind is Kind.USD for column in about["columns"]]

    def in_usd(row: Sequence[Value]) -> Row:
        pairs = zip(row, money, strict=True)
        return tuple(
            usd_from_nano(round(cell)) if nano and isinstance(cell, int | float) else cell for cell, nano in pairs
        )

    about["totals"] = in_usd(about["totals"]) if about.get("totals") else None
    return Report(name=name.rpartition("/")[2], rows=tuple(map(in_usd, rows)), **about)


def tallied(
    name: str,
    by: Sequence[str],
    groups: Iterable[tuple[Sequence[Value], Sequence[int]]],
    total: Sequence[int] = (),
    **about: Any,
) -> Report:
    """Builds a report from sums by labels and from total sums, each in the order of `measures`. The note includes the
    legends of the rare columns that have values."""

    def sums(amounts: Sequence[int]) -> Mapping[str, int]:
        return dict(zip(measures(name), amounts, strict=True))

    def cells(amounts: Sequence[int]) -> Iterator[Value]:
        by_measure = sums(amounts)
        for _, measure, whole, known in _formulas(name):
            amount, divisor = by_measure[measure], by_measure[whole] if whole else 1
            if not divisor or (known and not by_measure[known]):
                yield None
            else:
                yield amount / divisor if whole else amount

    known, notes = declared()[name], [about.pop("note", declared()[name].note)]
    if total:
        about["totals"] = ("total", *(None for _ in by[1:]), *cells(total))
        rare = ((known.legend.get(column.name), measure) for column, measure, *_ in _formulas(name))
        notes += [text for text, measure in rare if text and sums(total)[measure]]
    note = " ".join(filter(None, notes))
    return made(name, ((*labels, *cells(amounts)) for labels, amounts in groups), by, note=note, **about)


# Days and hours in a time zone, from the ledger's hours and quarter-hours.

_OLDEST_MS = 1_577_836_800_000
"""2020-01-01, in Unix ms: the earliest time of a ledger."""
_MONTH_MS = 28 * 86_400_000


def step(zone: tzinfo, since_ms: int | None, until_ms: int | None, now_ms: int) -> tuple[str, int]:
    """Returns the dimension that separates days, and the length of its labels in ms: quarter-hours if the zone's offset
    is not in full hours at any time of the window."""
    first = max(since_ms or _OLDEST_MS, _OLDEST_MS)
    last = max(first, min(until_ms or now_ms, now_ms))
    offsets = {_local(at, zone).utcoffset() for at in (*range(first, last, _MONTH_MS), last)}
    whole = all(offset is None or not offset % timedelta(hours=1) for offset in offsets)
    return ("hour", HOUR_MS) if whole else ("quarter", QUARTER_MS)


def day(at_ms: int, zone: tzinfo) -> str:
    return f"{_local(at_ms, zone):%Y-%m-%d}"


def hour(at_ms: int, zone: tzinfo) -> str:
    """Returns an hour with its offset, so that an hour repeated by the clock has two labels."""
    return _local(at_ms, zone).replace(minute=0).isoformat(timespec="minutes").replace("+00:00", "Z")


TIMES: Mapping[str, Callable[[int, tzinfo], str]] = {"day": day, "hour": hour}
"""Formats of a time in Unix ms, by name."""


def _local(at_ms: int, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(at_ms // 1000, zone)
