"""Points at two numbers, with the intervals that they may lie in, and lines that lead from one to the next."""

from collections.abc import Iterator

from router.report.charts.marks import NO_LABEL, Tones, interval, legend, reach, room, title, tones
from router.report.charts.scale import Scale, linear, spread
from router.report.charts.shapes import Dot, Line, Points, Tick
from router.report.charts.units import said
from router.report.report import Kind, Mark, Plot

HEIGHT, TOP, FOOT = 320, 14, 26
_WIDE_TICK = 2
"""On a phone only every so many ticks across are named."""


def points(plot: Plot) -> Points:
    across = spread([mark.x or 0.0 for mark in plot.marks], plot.x_unit)
    up, found = _up(plot), tones(plot.marks)
    dots = tuple(_dot(number + 1, mark, plot, across, up, found) for number, mark in enumerate(plot.marks))
    ticks = tuple(Tick(_y(value, up), said(value, plot.unit)) for value in up.ticks)
    return Points(
        height=HEIGHT,
        left=room(ticks),
        floor=HEIGHT - FOOT,
        across=tuple(
            Tick(_x(value, across), said(value, plot.x_unit), wide=place % _WIDE_TICK > 0)
            for place, value in enumerate(across.ticks)
        ),
        up=ticks,
        dots=dots,
        lines=tuple(_lines(plot, across, up, found)),
        x_title=plot.x_title + (", logarithmic" if across.logarithmic else ""),
        legend=legend(found),
    )


def _up(plot: Plot) -> Scale:
    """A rate's axis is all of 0 to 1."""
    whole = [1.0] if plot.unit is Kind.RATE else []
    return linear([*reach(plot.marks), *whole], plot.unit)


def _x(value: float, scale: Scale) -> float:
    return round(100 * scale.share(value), 3)


def _y(value: float, scale: Scale) -> float:
    floor = HEIGHT - FOOT
    return round(floor - (floor - TOP) * scale.share(value), 2)


def _dot(number: int, mark: Mark, plot: Plot, across: Scale, up: Scale, found: Tones) -> Dot:
    x = mark.x or 0.0
    return Dot(
        number=number,
        x=_x(x, across),
        y=_y(mark.value, up),
        title=f"{title(mark, plot.unit)}, {plot.x_title} {said(x, plot.x_unit)}",
        label=mark.label or NO_LABEL,
        text=f"{said(x, plot.x_unit)} · {said(mark.value, plot.unit)}{interval(mark, plot.unit)}",
        tone=found.get(mark.series, 0),
        low=None if mark.low is None else _y(mark.low, up),
        high=None if mark.high is None else _y(mark.high, up),
    )


def _lines(plot: Plot, across: Scale, up: Scale, found: Tones) -> Iterator[Line]:
    """From each joined mark to the next one of its series, in the order given."""
    before: dict[str, Mark] = {}
    for mark in plot.marks:
        if not mark.joined:
            continue
        start = before.get(mark.series)
        if start is not None:
            yield Line(
                x=_x(start.x or 0.0, across),
                y=_y(start.value, up),
                to_x=_x(mark.x or 0.0, across),
                to_y=_y(mark.value, up),
                tone=found.get(mark.series, 0),
            )
        before[mark.series] = mark
