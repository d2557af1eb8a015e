"""Lying bars, one a label, from zero."""

from router.report.charts.marks import NO_LABEL, Tones, interval, legend, reach, title, tones
from router.report.charts.scale import Scale, linear
from router.report.charts.shapes import Bar, Bars
from router.report.charts.units import said
from router.report.report import Mark, Plot


def bars(plot: Plot) -> Bars:
    scale, found = linear(reach(plot.marks), plot.unit), tones(plot.marks)
    drawn = tuple(_bar(mark, plot, scale, found) for mark in plot.marks)
    return Bars(zero=round(100 * scale.share(0), 3), bars=drawn, legend=legend(found))


def _bar(mark: Mark, plot: Plot, scale: Scale, found: Tones) -> Bar:
    def place(value: float) -> float:
        return round(100 * scale.share(value), 3)

    zero, end = place(0), place(mark.value)
    return Bar(
        label=mark.label or NO_LABEL,
        text=said(mark.value, plot.unit) + interval(mark, plot.unit),
        title=title(mark, plot.unit),
        x=min(zero, end),
        width=round(abs(end - zero), 3),
        tone=found.get(mark.series, 0),
        low=None if mark.low is None else place(mark.low),
        high=None if mark.high is None else place(mark.high),
    )
