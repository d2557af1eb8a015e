"""What every report is: columns, rows, totals, and a note on how to read them."""

from decimal import Decimal
from enum import StrEnum

from msgspec import Struct, structs

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
    """What a chart shows, for whoever draws it. `unit` and `x_unit`: what the numbers are."""

    title: str
    shape: Shape
    unit: Kind
    marks: tuple[Mark, ...]
    x_unit: Kind = Kind.COUNT
    x_title: str = ""


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

    def narrowed(self, *names: str) -> "Report":
        """With these columns only, in their own order."""
        places = [number for number, column in enumerate(self.columns) if column.name in names]

        def cut(row: Row) -> Row:
            return tuple(row[place] for place in places)

        return structs.replace(
            self,
            columns=tuple(self.columns[place] for place in places),
            rows=tuple(map(cut, self.rows)),
            totals=None if self.totals is None else cut(self.totals),
        )

    def total(self, name: str) -> Value:
        """Raises KeyError for a name that this report lacks, and for every name where it has no totals."""
        names = (column.name for column in self.columns)
        return dict(zip(names, self.totals or (), strict=False))[name]
