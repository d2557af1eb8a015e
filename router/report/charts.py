"""Charts of reports: the geometry that is drawn as SVG."""

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

# Scales with round ticks. A linear scale always includes 0, so that lengths are proportional.

_MAX_TICKS = 6
_ROUND = (1, 2, 5, 10)
_WHOLE = (Kind.COUNT, Kind.USD, Kind.AMOUNT, Kind.MS)
"""Kinds without values between two ticks that are 1 apart; money is in nano-USD."""
LOGARITHMIC_FROM = 50
"""Ratio of the largest to the smallest value from which on a scale is logarithmic, to separate the small values."""


class Axis(Struct, frozen=True):
    """A scale from the first of `ticks` to the last."""

    ticks: tuple[float, ...]
    logarithmic: bool = False

    def across(self, value: float) -> float:
        """Returns a value's position in percent of the width."""
        return round(100 * self._share(value), 3)

    def above(self, value: float, floor: float, top: float) -> float:
        """Returns a value's position in pixels from the top, on an axis from `floor` to `top`."""
        return round(floor - (floor - top) * self._share(value), 2)

    def _share(self, value: float) -> float:
        """Returns a value's position between the ends of the axis, 0 to 1."""
        low, high = self.ticks[0], self.ticks[-1]
        if self.logarithmic:
            low, high, value = math.log(low), math.log(high), math.log(max(value, low))
        return min(1.0, max(0.0, (value - low) / (high - low)))


def linear(values: Iterable[float], kind: Kind) -> Axis:
    """Returns a linear axis with steps of 1, 2 or 5 times a power of ten."""
    held = [0.0, *values]
    low, high = min(held), max(held)
    least = (high - low) / (_MAX_TICKS - 1) or 1.0
    power = 10.0 ** math.floor(math.log10(least) + 1e-9)
    step = next(digit * power for digit in _ROUND if digit * power >= least * (1 - 1e-9))
    step = max(step, 1.0) if kind in _WHOLE else step
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return Axis(tuple(number * step for number in range(first, max(last, first + 1) + 1)))


def spread(numbers: list[float], kind: Kind) -> Axis:
    """Returns a logarithmic axis if all values are positive and too far apart for a linear one, else a linear axis."""
    if not numbers or min(numbers) <= 0 or max(numbers) < LOGARITHMIC_FROM * min(numbers):
        return linear(numbers, kind)
    first, last = math.floor(math.log10(min(numbers)) + 1e-9), math.ceil(math.log10(max(numbers)) - 1e-9)
    return Axis(tuple(10.0**power for power in range(first, max(last, first + 1) + 1)), logarithmic=True)


# Parts of a chart. `x`, `width` and similar fields are percentages of the width; `y` and `height` are pixels from the
# top. `tone` is the number of a colour.

TONES = 8
"""Number of colours in the style sheet."""


class LegendEntry(NamedTuple):
    tone: int
    text: str


class Tick(Struct, frozen=True):
    """A tick; `at` is in percent or pixels, depending on its axis. A `wide` tick is left out on narrow screens."""

    at: float
    text: str
    wide: bool = False


class ChartItem(Struct, frozen=True, kw_only=True):
    """A bar, column or dot, with its interval from `low` to `high` if that is known. `title` is the tooltip, with exact
    values."""

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
    """A chart. `unit` is shown next to the title; `zero` is the base of bars and columns, and the foot of points;
    `left` is the width in pixels of the upright axis's texts; `lines` are (x, y, to x, to y)."""

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


# Short number formats with units.

_DIGITS = 3
"""Number of significant digits of amounts below one USD."""
_SHORT = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
"""Sizes from which counts are shortened, with their letters."""


def format_short(value: float, kind: Kind) -> str:
    """Formats a value for reading: $1,234.50, $0.0123, 12.5 %, 1.2 s, 1.40 ×, 12.3 k. Money is in nano-USD."""
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
    """Formats a value with all digits that the chart has."""
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


# Helpers for all shapes: colours of series, titles, and the space for an axis.

OTHERS = "others"
_LETTER_PX = 7.2
"""Width in pixels of the widest digit of a tick's text."""
Place = Callable[[float], float]
"""Returns a value's position on its axis."""
Tones = Mapping[str, int]
"""Series → number of its colour."""


def _scale_values(marks: Iterable[Mark]) -> list[float]:
    """Returns all values that a scale must include."""
    return [value for mark in marks for value in (mark.value, mark.low, mark.high) if value is not None]


def _interval(mark: Mark, unit: Kind) -> str:
    if mark.low is None or mark.high is None:
        return ""
    return f" ({format_short(mark.low, unit)} to {format_short(mark.high, unit)})"


def _item(plot: Plot, mark: Mark, tones: Tones, place: Place, about: str = "", **where: Any) -> ChartItem:
    """Builds an item with its value and interval at `place`; `about` extends its title, `where` sets further fields."""
    label, interval = mark.label or NO_LABEL, _interval(mark, plot.unit)
    names = ", ".join(filter(None, (label, mark.series)))
    low, high = (None if bound is None else place(bound) for bound in (mark.low, mark.high))
    usual = {"label": label, "text": format_short(mark.value, plot.unit) + interval, "low": low, "high": high}
    title = f"{names}: {exact(mark.value, plot.unit)}{interval}{about}"
    return ChartItem(title=title, tone=tones.get(mark.series, 0), **usual | where)


def _vertical(scale: Axis, unit: Kind, place: Place) -> dict[str, Any]:
    """Returns the ticks of an upright axis, and the width in pixels of their texts."""
    ticks = tuple(Tick(place(value), format_short(value, unit)) for value in scale.ticks)
    return {"up": ticks, "left": round(_LETTER_PX * max(len(tick.text) for tick in ticks) + 10, 1)}


def _bars(plot: Plot, tones: Tones) -> dict[str, Any]:
    """Draws horizontal bars from zero, one per label."""
    place = linear(_scale_values(plot.marks), plot.unit).across
    zero = place(0)

    def bar(mark: Mark) -> ChartItem:
        end = place(mark.value)
        return _item(plot, mark, tones, place, x=min(zero, end), width=round(abs(end - zero), 3))

    return {"zero": zero, "items": tuple(map(bar, plot.marks))}


# Upright columns from zero, in the given order; the series of a label are stacked, negative values downwards.

HEIGHT, TOP, FOOT = 220, 12, 24
"""Height of the chart in pixels, and of its margins above and, for the labels, below."""
WIDE_LABELS, FEW_LABELS = 12, 5
"""Number of labels that fit below a chart on a screen, and on a phone."""
_GAP = 0.14
"""Gap on either side of a column, as a share of its space."""


def _days(plot: Plot, tones: Tones) -> dict[str, Any]:
    labels = list(dict.fromkeys(mark.label for mark in plot.marks))
    places = {label: place for place, label in enumerate(labels)}
    ranks, single = {series: rank for rank, series in enumerate(tones)}, len(tones) < 2
    parts = list(_stacked(sorted(plot.marks, key=lambda mark: ranks.get(mark.series, 0))))
    scale = linear([*(end for _, _, end in parts), *(_scale_values(plot.marks) if single else ())], plot.unit)
    place, slot = partial(scale.above, floor=HEIGHT - FOOT, top=TOP), 100 / max(1, len(labels))

    def column(mark: Mark, start: float, end: float) -> ChartItem:
        top, bottom = place(max(start, end)), place(min(start, end))
        where: dict[str, Any] = {
            "x": round(slot * places[mark.label] + slot * _GAP, 3),
            "width": round(slot * (1 - 2 * _GAP), 3),
        }
        # On a part of a stack an interval would be misplaced.
        where |= {"y": top, "height": round(bottom - top, 2), **({} if single else {"low": None, "high": None})}
        return _item(plot, mark, tones, place, **where)

    items = tuple(column(*part) for part in parts)
    across = tuple(_label_ticks(labels, slot))
    return {"height": HEIGHT, "zero": place(0), "across": across, "items": items, **_vertical(scale, plot.unit, place)}


def _stacked(marks: Iterable[Mark]) -> Iterator[tuple[Mark, float, float]]:
    """Yields each mark with the start and end of its column, stacked on the previous one of its label and sign."""
    reached: dict[tuple[str, bool], float] = {}
    for mark in marks:
        side = (mark.label, mark.value < 0)
        start = reached.get(side, 0.0)
        reached[side] = start + mark.value
        yield mark, start, reached[side]


def _label_ticks(labels: list[str], slot: float) -> Iterator[Tick]:
    """Yields ticks for every n-th label, counted from the last one. Dates are shortened if all are of one year."""
    wide, few = (math.ceil(len(labels) / most) for most in (WIDE_LABELS, FEW_LABELS))
    few = math.ceil(few / wide) * wide if labels else 1
    years = {label[:5] for label in labels}
    dated = len(years) == 1 and years.pop()[:4].isdigit() and all(label[4:5] == "-" for label in labels)
    for place, label in enumerate(labels):
        left = len(labels) - 1 - place
        if left % wide == 0:
            yield Tick(round(slot * (place + 0.5), 3), label[5:] if dated else label, wide=left % few > 0)


# Points at two values, with their intervals, and lines between them.

POINTS_HEIGHT, POINTS_TOP, POINTS_FOOT = 320, 14, 26
_WIDE_TICK = 2
"""On a phone every how many ticks across the chart are labelled."""


def _points(plot: Plot, tones: Tones) -> dict[str, Any]:
    """Draws points. The axis of a rate covers 0 to 1."""
    along = spread([mark.x or 0.0 for mark in plot.marks], plot.x_unit)
    scale = linear([*_scale_values(plot.marks), *([1.0] if plot.unit is Kind.RATE else [])], plot.unit)
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
        **_vertical(scale, plot.unit, place),
    }


# Conversion of a plot to a drawing.

_UNITS = {Kind.USD: "USD", Kind.AMOUNT: "USD", Kind.RATE: "0 to 1"}
"""Units that the ticks don't show."""
_SHAPES: Mapping[Shape, Callable[[Plot, Tones], dict[str, Any]]] = {
    Shape.BARS: _bars,
    Shape.DAYS: _days,
    Shape.POINTS: _points,
}


def draw(plot: Plot) -> Drawing:
    """Draws a plot. The largest series get the first colours; those beyond the last colour share it. A series of zeros
    has no colour. A single series has no legend, because the title names it."""
    sizes: defaultdict[str, float] = defaultdict(float)
    for mark in plot.marks:
        sizes[mark.series] += abs(mark.value)
    ranked = sorted(filter(sizes.get, sizes), key=lambda series: (-sizes[series], series))
    tones = {series: min(place, TONES - 1) for place, series in enumerate(ranked)}
    names = grouped((tone, series or NO_LABEL) for series, tone in tones.items()) if len(tones) > 1 else {}
    legend = tuple(LegendEntry(tone, OTHERS if len(series) > 1 else series[0]) for tone, series in names.items())
    shape, unit = plot.shape.value, _UNITS.get(plot.unit, "")
    return Drawing(title=plot.title, unit=unit, shape=shape, legend=legend, **_SHAPES[plot.shape](plot, tones))
