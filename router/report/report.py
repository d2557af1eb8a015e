"""A report, its tables and values, and how times, days and unsafe text are written."""

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

# `since` and `until` as people write them.

_AGE = re.compile(r"(\d{1,6})([mhdw])", re.ASCII)
_LONG = ("d", "w")
"""These ages begin with their hour: old rows are sums by hour."""
ALWAYS = "all"
_UNIT_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def parse_time(param: str, text: str, now_ms: int, zone: tzinfo = UTC) -> int | None:
    """Unix ms; None for "" and "all"; without an offset in the zone. Raises a 400 `ClientError` that names `param`."""
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


# What others named (tags, models, sessions, tools) as text that is safe to look at, wherever it is shown.

_KEPT = frozenset("\u200c\u200d")
"""Joiners: scripts and emoji need them, and they hide nothing."""
_HIDDEN = frozenset(("Cc", "Cf", "Zl", "Zp", "Cs", "Co"))
"""General categories of characters that act on a terminal or a page instead of being seen: controls, formats
(directions, invisible tags), breaks, surrogates, private use. https://www.unicode.org/reports/tr44/#General_Category"""


def shown(text: str) -> str:
    """Every character that would not be seen is written as an escape: a line break as \\n, U+202E as \\u202e."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char.encode("unicode_escape").decode() if char not in _KEPT and unicodedata.category(char) in _HIDDEN else char
        for char in text
    )


# What every report is: columns, rows, totals, and a note on how to read them.

NO_LABEL = "(none)"
"""Stands for a label that is None."""
Value = str | int | float | Decimal | None
"""None is unknown, or not applicable; never 0. Money is a Decimal in USD, exact to the nano-dollar; never a float."""
Row = tuple[Value, ...]


class Kind(StrEnum):
    """What a column holds, and so how it is written."""

    TEXT = "text"
    LABEL = "label"
    """What a row is about; None where the row gathers what has no such thing."""
    COUNT = "count"
    USD = "usd"
    AMOUNT = "amount"
    """USD where it is a Decimal, whole tokens where it is an int: the row's unit tells."""
    SHARE = "share"
    """A float, 1 is the whole: written as a percentage."""
    RATE = "rate"
    """A float between 0 and 1, such as a pass rate."""
    FACTOR = "factor"
    """A float: so many times."""
    MS = "ms"
    TIME = "time"
    """Unix ms; written as a time in UTC."""
    REQUEST = "request"
    """The id of a request; a page links it."""
    CHANGES = "changes"
    """JSON; people read its amounts in USD."""


class Column(Struct, frozen=True):
    name: str
    kind: Kind = Kind.TEXT
    rare: bool = False
    """Tables for people leave it out while there is nothing in it."""


class Mark(Struct, frozen=True, kw_only=True):
    """One value of a chart, and the interval that it may lie in. Money is in nano-USD: charts round, tables don't."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    x: float | None = None
    """Where it stands, in a chart of points."""
    series: str = ""
    joined: bool = False
    """A line leads to the next joined mark of its series, as along a frontier."""


class Shape(StrEnum):
    BARS = "bars"
    """Lying, one a label, from zero."""
    DAYS = "days"
    """Upright, one a label in the order given, from zero; the series of a label stand on each other."""
    POINTS = "points"
    """Each at its `x` and its value."""


class Plot(Struct, frozen=True, kw_only=True):
    """What a chart shows. `unit` and `x_unit`: what the numbers are."""

    title: str
    shape: Shape
    unit: Kind
    marks: tuple[Mark, ...]
    x_unit: Kind = Kind.COUNT
    x_title: str = ""


def plots(
    title: str, shape: Shape, unit: Kind, marks: Iterable[Mark], x_unit: Kind = Kind.COUNT, x_title: str = ""
) -> tuple[Plot, ...]:
    """One, or none where nothing is to be seen."""
    plot = Plot(title=title, shape=shape, unit=unit, marks=tuple(marks), x_unit=x_unit, x_title=x_title)
    return (plot,) if plot.marks else ()


def bars(sizes: Sequence[tuple[str, float]], most: int) -> list[Mark]:
    """The first ones; all others are one bar, so that the bars add up."""
    marks = [Mark(label=label, value=size) for label, size in sizes[:most]]
    rest = [size for _, size in sizes[most:]]
    return [*marks, Mark(label=f"{len(rest)} others", value=sum(rest))] if rest else marks


class Report(Struct, frozen=True, kw_only=True):
    """`since_ms` is included, `until_ms` is not; None is open. `totals` stands below the rows, column by column."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    totals: Row | None = None
    note: str = ""
    since_ms: int | None = None
    until_ms: int | None = None
    sound: bool = True
    """What it set out to prove holds."""
    below: tuple["Report", ...] = ()
    """Further tables that belong to it."""
    plots: tuple[Plot, ...] = ()

    def column(self, name: str) -> tuple[Value, ...]:
        """One value a row. Raises StopIteration for a name that this report lacks."""
        place = next(number for number, column in enumerate(self.columns) if column.name == name)
        return tuple(row[place] for row in self.rows)

    def total(self, name: str) -> Value:
        """Raises KeyError for a name that this report lacks, and for every name where it has no totals."""
        return dict(zip((column.name for column in self.columns), self.totals or (), strict=False))[name]


# Reports as `reports.yaml` declares them.


class Definition(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A report, or a table below one, as the head of `reports.yaml` explains."""

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
    """By name."""
    known = table("report/reports.yaml")
    return {name: msgspec.convert({"name": name, **fields}, Definition) for name, fields in known.items()}


@cache
def columns(name: str) -> tuple[Column, ...]:
    return parsed(declared()[name].columns)


def parsed(columns: str) -> tuple[Column, ...]:
    """As the head of `reports.yaml` explains."""

    def column(word: str) -> Column:
        name, _, kind = word.removesuffix("?").partition(":")
        usual = Kind.USD if name.endswith("_usd") else Kind.MS if name.endswith("_ms") else Kind.TEXT
        return Column(name, Kind(kind) if kind else usual, word.endswith("?"))

    return tuple(map(column, columns.split()))


@cache
def _formulas(name: str) -> tuple[tuple[Column, str, str, str], ...]:
    """Of a report whose columns are sums: `measure`, or `measure` ÷ `whole`, unknown where the measure `known` is 0."""

    def formula(column: Column) -> tuple[Column, str, str, str]:
        text = declared()[name].sums.get(column.name, column.name.removesuffix("_usd"))
        amount, _, known = text.partition(" if ")
        measure, _, whole = amount.partition(" / ")
        return column, measure, whole, known

    return tuple(map(formula, columns(name)))


@cache
def measures(name: str) -> tuple[str, ...]:
    """What its columns are made of, each once."""
    return tuple(dict.fromkeys(measure for _, *some in _formulas(name) for measure in some if measure))


def made(name: str, rows: Iterable[Sequence[Value]], by: Iterable[str] = (), **about: Any) -> Report:
    """The report or table of this name, from rows and totals whose amounts are in nano-USD; `by`: columns of labels in
    front of those that are declared; `about`: further fields of `Report`, which stand above what is declared."""
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
    """Of sums by labels, and of all, each in the order of `measures`. The note has the legend of what is rare and
    there."""

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


# Days and hours as a time zone has them, out of the ledger's hours and quarters of an hour.

_OLDEST_MS = 1_577_836_800_000
"""2020-01-01: no ledger is older."""
_MONTH_MS = 28 * 86_400_000


def step(zone: tzinfo, since_ms: int | None, until_ms: int | None, now_ms: int) -> tuple[str, int]:
    """The dimension that tells days apart, and how long each of its labels is: a quarter where the zone is off the full
    hour, at any time of the window."""
    first = max(since_ms or _OLDEST_MS, _OLDEST_MS)
    last = max(first, min(until_ms or now_ms, now_ms))
    offsets = {_local(at, zone).utcoffset() for at in (*range(first, last, _MONTH_MS), last)}
    whole = all(offset is None or not offset % timedelta(hours=1) for offset in offsets)
    return ("hour", HOUR_MS) if whole else ("quarter", QUARTER_MS)


def day(at_ms: int, zone: tzinfo) -> str:
    return f"{_local(at_ms, zone):%Y-%m-%d}"


def hour(at_ms: int, zone: tzinfo) -> str:
    """With its offset, so that the hour that a clock shows twice is two."""
    return _local(at_ms, zone).replace(minute=0).isoformat(timespec="minutes").replace("+00:00", "Z")


TIMES: Mapping[str, Callable[[int, tzinfo], str]] = {"day": day, "hour": hour}
"""Of a moment in Unix ms."""


def _local(at_ms: int, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(at_ms // 1000, zone)
