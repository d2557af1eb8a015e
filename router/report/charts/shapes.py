"""What charts are made of. `x`, `width` and their like are percentages of the width, `y` and `height` pixels from the
top. `tone` numbers the colours."""

from msgspec import Struct

TONES = 8
"""Colours that the style sheet tells apart."""


class Entry(Struct, frozen=True):
    """A line of the legend."""

    tone: int
    text: str


class Tick(Struct, frozen=True):
    """`at` is a percentage or a pixel, whichever axis it stands on; `wide`: left out where there is little room."""

    at: float
    text: str
    wide: bool = False


class Bar(Struct, frozen=True):
    """Lies from `x`, `width` long; what it stands for lies between `low` and `high`, where that is known."""

    label: str
    text: str
    title: str
    x: float
    width: float
    tone: int = 0
    low: float | None = None
    high: float | None = None


class Bars(Struct, frozen=True):
    """`zero`: where the bars begin."""

    zero: float
    bars: tuple[Bar, ...]
    legend: tuple[Entry, ...] = ()


class Column(Struct, frozen=True):
    x: float
    width: float
    y: float
    height: float
    title: str
    tone: int = 0


class Whisker(Struct, frozen=True):
    x: float
    low: float
    high: float


class Days(Struct, frozen=True):
    """`left`: pixels that the ticks' texts need."""

    height: float
    left: float
    zero: float
    ticks: tuple[Tick, ...]
    labels: tuple[Tick, ...]
    columns: tuple[Column, ...]
    whiskers: tuple[Whisker, ...] = ()
    legend: tuple[Entry, ...] = ()


class Dot(Struct, frozen=True):
    """`number` stands beside its name in the list below the chart."""

    number: int
    x: float
    y: float
    title: str
    label: str
    text: str
    tone: int = 0
    low: float | None = None
    high: float | None = None


class Line(Struct, frozen=True):
    x: float
    y: float
    to_x: float
    to_y: float
    tone: int = 0


class Points(Struct, frozen=True):
    height: float
    left: float
    floor: float
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    dots: tuple[Dot, ...]
    lines: tuple[Line, ...]
    x_title: str
    legend: tuple[Entry, ...] = ()


class Drawing(Struct, frozen=True):
    """`shape` says which of the three the `body` is; `unit` is said beside the title."""

    title: str
    unit: str
    shape: str
    body: Bars | Days | Points
