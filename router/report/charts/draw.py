"""A plot → its drawing."""

from collections.abc import Callable, Mapping

from router.report.charts.bars import bars
from router.report.charts.days import days
from router.report.charts.points import points
from router.report.charts.shapes import Bars, Days, Drawing, Points
from router.report.report import Kind, Plot, Shape

_UNITS = {Kind.USD: "USD", Kind.AMOUNT: "USD", Kind.RATE: "0 to 1"}
"""What ticks don't say by themselves."""
_SHAPES: Mapping[Shape, Callable[[Plot], Bars | Days | Points]] = {
    Shape.BARS: bars,
    Shape.DAYS: days,
    Shape.POINTS: points,
}


def draw(plot: Plot) -> Drawing:
    return Drawing(plot.title, _UNITS.get(plot.unit, ""), plot.shape.value, _SHAPES[plot.shape](plot))
