"""Charts as SVG."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import ROUND_HALF_EVEN, Context
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from msgspec import Struct

from router.report.query import grouped
from router.report.report import NO_LABEL, Kind, Mark, Plot, Shape
from router.types.price import NANO_PER_USD, usd_from_nano, usd_text

# Scales with round ticks. A linear one always holds 0, so that lengths are in proportion.

_MOST_TICKS = 6
_ROUND = (1, 2, 5, 10)
_WHOLE = (Kind.COUNT, Kind.USD, Kind.AMOUNT, Kind.MS)
"""There is nothing between two ticks that are 1 apart; money is in nano-USD."""
SPREAD = 50
"""From this ratio of the largest to the smallest number on, only a logarithmic scale tells the small ones apart."""


class Axis(Struct, frozen=True):
    """From the first of `ticks` to the last."""

    ticks: tuple[float, ...]
    logarithmic: bool = False

    def across(self, value: float) -> float:
        """Percent of the width."""
        return round(100 * self._share(value), 3)

    def above(self, value: float, floor: float, top: float) -> float:
        """Pixels from above, where the axis reaches from `floor` to `top`."""
        return round(floor - (floor - top) * self._share(value), 2)

    def _share(self, value: float) -> float:
        """Where a value stands between the ends: 0 … 1."""
        low, high = self.ticks[0], self.ticks[-1]
        if self.logarithmic:
            low, high, value = math.log(low), math.log(high), math.log(max(value, low))
        return min(1.0, max(0.0, (value - low) / (high - low)))


def linear(values: Iterable[float], kind: Kind) -> Axis:
    """Its steps are 1, 2 or 5 × a power of ten."""
    held = [0.0, *values]
    low, high = min(held), max(held)
    least = (high - low) / (_MOST_TICKS - 1) or 1.0
    power = 10.0 ** math.floor(math.log10(least) + 1e-9)
    step = next(digit * power for digit in _ROUND if digit * power >= least * (1 - 1e-9))
    step = max(step, 1.0) if kind in _WHOLE else step
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return Axis(tuple(number * step for number in range(first, max(last, first + 1) + 1)))


def spread(numbers: list[float], kind: Kind) -> Axis:
    """Logarithmic where the values are all above 0 and too far apart for a linear one."""
    if not numbers or min(numbers) <= 0 or max(numbers) < SPREAD * min(numbers):
        return linear(numbers, kind)
    first, last = math.floor(math.log10(min(numbers)) + 1e-9), math.ceil(math.log10(max(numbers)) - 1e-9)
    return Axis(tuple(10.0**power for power in range(first, max(last, first + 1) + 1)), logarithmic=True)


# What charts are made of. `x`, `width` and their like are percentages of the width, `y` and `height` pixels from the
# top. `tone` numbers the colours.

TONES = 8
"""Colours that the style sheet tells apart."""


class LegendEntry(NamedTuple):
    tone: int
    text: str


class Tick(Struct, frozen=True):
    """`at` is a percentage or a pixel, whichever axis it stands on; `wide`: left out where there is little room."""

    at: float
    text: str
    wide: bool = False


class ChartItem(Struct, frozen=True, kw_only=True):
    """A bar, a column or a dot: what it stands for lies between `low` and `high`, where that is known. `title` is shown
    where a reader points at it: exact."""

    title: str
    x: float
    y: float = 0
    width: float = 0
    height: float = 0
    tone: int = 0
    low: float | None = None
    high: float | None = None
    label: str = ""
    text: str = ""


class Drawing(Struct, frozen=True, kw_only=True):
    """`unit` is said beside the title; `zero`: where bars and columns begin, the foot of points; `left`: pixels that
    the texts of the upright axis need; `lines`: x, y, to x, to y."""

    title: str
    unit: str
    shape: str
    items: tuple[ChartItem, ...]
    legend: tuple[LegendEntry, ...]
    zero: float
    height: float = 0
    left: float = 0
    up: tuple[Tick, ...] = ()
    across: tuple[Tick, ...] = ()
    lines: tuple[tuple[float, float, float, float], ...] = ()
    x_title: str = ""


# Numbers as a chart says them: in short, with their unit.

_DIGITS = 3
"""Significant digits of a shortened number below one."""
_SHORT = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
"""From this on a count is shortened."""


def format_short(value: float, kind: Kind) -> str:
    """To be read at a glance: $1,234.50, $0.0123, 12.5 %, 1.2 s, 1.40 ×, 12.3 k. Money comes in nano-USD."""
    if kind in (Kind.USD, Kind.AMOUNT):
        return dollars(round(value))
    if kind is Kind.SHARE:
        return f"{100 * value:.1f} %"
    if kind is Kind.RATE:
        return f"{value:.3f}".rstrip("0").rstrip(".")
    if kind is Kind.FACTOR:
        return f"{value:,.2f} ×"
    if kind is Kind.MS:
        return f"{value / 1000:,.3g} s" if abs(value) >= 1000 else f"{value:,.3g} ms"
    for size, letter in _SHORT:
        if abs(value) >= size:
            return f"{value / size:.3g} {letter}"
    return f"{value:,.3g}" if value % 1 else f"{value:,.0f}"


def exact(value: float, kind: Kind) -> str:
    """To the last digit that a chart was given."""
    if kind in (Kind.USD, Kind.AMOUNT):
        return f"{'-' if value < 0 else ''}${usd_text(abs(round(value)))}"
    return f"{value:,.0f}" if kind is Kind.COUNT else format_short(value, kind)


def dollars(nano: int) -> str:
    amount, sign = usd_from_nano(abs(nano)), "-" if nano < 0 else ""
    if nano == 0 or abs(nano) >= NANO_PER_USD:
        return f"{sign}${amount:,.2f}" if nano else "$0"
    short = Context(prec=_DIGITS, rounding=ROUND_HALF_EVEN).plus(amount)
    digits = f"{short:f}".rstrip("0")
    return f"{sign}${digits.ljust(len('0.00'), '0')}"


# What all shapes do with marks: colours of series, titles, the room that an axis needs.

OTHERS = "others"
_LETTER_PX = 7.2
"""Widest digit of a tick's text."""
Place = Callable[[float], float]
"""Where a value stands on its axis."""
Tones = Mapping[str, int]
"""Series → colour."""


def _reach(marks: Iterable[Mark]) -> list[float]:
    """All that a scale must hold."""
    return [value for mark in marks for value in (mark.value, mark.low, mark.high) if value is not None]


def _interval(mark: Mark, unit: Kind) -> str:
    if mark.low is None or mark.high is None:
        return ""
    return f" ({format_short(mark.low, unit)} to {format_short(mark.high, unit)})"


def _item(plot: Plot, mark: Mark, tones: Tones, place: Place, about: str = "", **where: Any) -> ChartItem:
    """Its value and interval stand at `place`; `about`: more for its title; `where`: more fields of a `ChartItem`."""
    label, interval = mark.label or NO_LABEL, _interval(mark, plot.unit)
    names = ", ".join(filter(None, (label, mark.series)))
    low, high = (None if bound is None else place(bound) for bound in (mark.low, mark.high))
    usual = {"label": label, "text": format_short(mark.value, plot.unit) + interval, "low": low, "high": high}
    title = f"{names}: {exact(mark.value, plot.unit)}{interval}{about}"
    return ChartItem(title=title, tone=tones.get(mark.series, 0), **usual | where)


def _upright(scale: Axis, unit: Kind, place: Place) -> dict[str, Any]:
    """The ticks of an upright axis, and the pixels that their texts need left of it."""
    ticks = tuple(Tick(place(value), format_short(value, unit)) for value in scale.ticks)
    return {"up": ticks, "left": round(_LETTER_PX * max(len(tick.text) for tick in ticks) + 10, 1)}


def _bars(plot: Plot, tones: Tones) -> dict[str, Any]:
    """Lying, one a label, from zero."""
    place = linear(_reach(plot.marks), plot.unit).across
    zero = place(0)

    def bar(mark: Mark) -> ChartItem:
        end = place(mark.value)
        return _item(plot, mark, tones, place, x=min(zero, end), width=round(abs(end - zero), 3))

    return {"zero": zero, "items": tuple(map(bar, plot.marks))}


# Upright columns in the order given, from zero; the series of a label stand on each other, losses hang below.

HEIGHT, TOP, FOOT = 220, 12, 24
"""Pixels of the chart, of its room above, and below for the labels."""
WIDE_LABELS, FEW_LABELS = 12, 5
"""So many labels fit below a chart on a screen, and on a phone."""
_GAP = 0.14
"""Of a column's room, on either side."""


def _days(plot: Plot, tones: Tones) -> dict[str, Any]:
    labels = list(dict.fromkeys(mark.label for mark in plot.marks))
    places = {label: place for place, label in enumerate(labels)}
    ranks, single = {series: rank for rank, series in enumerate(tones)}, len(tones) < 2
    parts = list(_stacked(sorted(plot.marks, key=lambda mark: ranks.get(mark.series, 0))))
    scale = linear([*(end for _, _, end in parts), *(_reach(plot.marks) if single else ())], plot.unit)
    place, slot = partial(scale.above, floor=HEIGHT - FOOT, top=TOP), 100 / max(1, len(labels))

    def column(mark: Mark, start: float, end: float) -> ChartItem:
        top, bottom = place(max(start, end)), place(min(start, end))
        where: dict[str, Any] = {
            "x": round(slot * places[mark.label] + slot * _GAP, 3),
            "width": round(slot * (1 - 2 * _GAP), 3),
        }
        # On a part of a stack an interval would stand anywhere.
        where |= {"y": top, "height": round(bottom - top, 2), **({} if single else {"low": None, "high": None})}
        return _item(plot, mark, tones, place, **where)

    items = tuple(column(*part) for part in parts)
    across = tuple(_thinned(labels, slot))
    return {"height": HEIGHT, "zero": place(0), "across": across, "items": items, **_upright(scale, plot.unit, place)}


def _stacked(marks: Iterable[Mark]) -> Iterator[tuple[Mark, float, float]]:
    """Each mark, and from where to where its column reaches: on the one before of its label; what is below 0 on what is
    below 0."""
    reached: dict[tuple[str, bool], float] = {}
    for mark in marks:
        side = (mark.label, mark.value < 0)
        start = reached.get(side, 0.0)
        reached[side] = start + mark.value
        yield mark, start, reached[side]


def _thinned(labels: list[str], slot: float) -> Iterator[Tick]:
    """The last one always has room; others every so often, counted from it. Days and hours of one year stand without
    it."""
    wide, few = (math.ceil(len(labels) / most) for most in (WIDE_LABELS, FEW_LABELS))
    few = math.ceil(few / wide) * wide if labels else 1
    years = {label[:5] for label in labels}
    dated = len(years) == 1 and years.pop()[:4].isdigit() and all(label[4:5] == "-" for label in labels)
    for place, label in enumerate(labels):
        left = len(labels) - 1 - place
        if left % wide == 0:
            yield Tick(round(slot * (place + 0.5), 3), label[5:] if dated else label, wide=left % few > 0)


# Points at two numbers, with the intervals that they may lie in, and lines that lead from one to the next.

POINTS_HEIGHT, POINTS_TOP, POINTS_FOOT = 320, 14, 26
_WIDE_TICK = 2
"""On a phone only every so many ticks across are named."""


def _points(plot: Plot, tones: Tones) -> dict[str, Any]:
    """A rate's axis is all of 0 to 1."""
    along = spread([mark.x or 0.0 for mark in plot.marks], plot.x_unit)
    scale = linear([*_reach(plot.marks), *([1.0] if plot.unit is Kind.RATE else [])], plot.unit)
    floor = POINTS_HEIGHT - POINTS_FOOT
    place = partial(scale.above, floor=floor, top=POINTS_TOP)

    def dot(mark: Mark) -> ChartItem:
        at = format_short(mark.x or 0.0, plot.x_unit)
        text = f"{at} · {format_short(mark.value, plot.unit)}{_interval(mark, plot.unit)}"
        where = {"x": along.across(mark.x or 0.0), "y": place(mark.value), "text": text}
        return _item(plot, mark, tones, place, f", {plot.x_title} {at}", **where)

    dots, ticks = tuple(map(dot, plot.marks)), enumerate(along.ticks)
    joined = grouped((mark.series, dot) for mark, dot in zip(plot.marks, dots, strict=True) if mark.joined)
    lines = ((start.x, start.y, to.x, to.y) for series in joined.values() for start, to in pairwise(series))
    return {
        "height": POINTS_HEIGHT,
        "zero": floor,
        "across": tuple(
            Tick(along.across(at), format_short(at, plot.x_unit), number % _WIDE_TICK > 0) for number, at in ticks
        ),
        "items": dots,
        "lines": tuple(lines),
        "x_title": plot.x_title + (", logarithmic" if along.logarithmic else ""),
        **_upright(scale, plot.unit, place),
    }


# A plot → its drawing.

_UNITS = {Kind.USD: "USD", Kind.AMOUNT: "USD", Kind.RATE: "0 to 1"}
"""What ticks don't say by themselves."""
_SHAPES: Mapping[Shape, Callable[[Plot, Tones], dict[str, Any]]] = {
    Shape.BARS: _bars,
    Shape.DAYS: _days,
    Shape.POINTS: _points,
}


def draw(plot: Plot) -> Drawing:
    """The largest series have the first colours; those beyond the colours there are share the last one. Nothing needs
    no colour, and a single series no legend: the title names it."""
    sizes: defaultdict[str, float] = defaultdict(float)
    for mark in plot.marks:
        sizes[mark.series] += abs(mark.value)
    ranked = sorted(filter(sizes.get, sizes), key=lambda series: (-sizes[series], series))
    tones = {series: min(place, TONES - 1) for place, series in enumerate(ranked)}
    names = grouped((tone, series or NO_LABEL) for series, tone in tones.items()) if len(tones) > 1 else {}
    legend = tuple(LegendEntry(tone, OTHERS if len(series) > 1 else series[0]) for tone, series in names.items())
    shape, unit = plot.shape.value, _UNITS.get(plot.unit, "")
    return Drawing(title=plot.title, unit=unit, shape=shape, legend=legend, **_SHAPES[plot.shape](plot, tones))
