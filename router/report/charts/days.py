"""Upright columns in the order given, from zero; the series of a label stand on each other, losses hang below."""

import math
from collections.abc import Iterator, Mapping, Sequence

from router.report.charts.marks import legend, reach, room, title, tones
from router.report.charts.scale import Scale, linear
from router.report.charts.shapes import Column, Days, Tick, Whisker
from router.report.charts.units import said
from router.report.report import Mark, Plot

HEIGHT, TOP, FOOT = 220, 12, 24
"""Pixels of the chart, of its room above, and below for the labels."""
WIDE_LABELS, FEW_LABELS = 12, 5
"""So many labels fit below a chart on a screen, and on a phone."""
_GAP = 0.14
"""Of a column's room, on either side."""

Part = tuple[Mark, float, float]
"""A mark, and from where to where its column reaches."""


def days(plot: Plot) -> Days:
    labels = list(dict.fromkeys(mark.label for mark in plot.marks))
    places = {label: place for place, label in enumerate(labels)}
    found = tones(plot.marks)
    ranks = {series: rank for rank, series in enumerate(found)}
    ranked = sorted(plot.marks, key=lambda mark: ranks.get(mark.series, 0))
    parts = list(_stacked(ranked))
    scale = linear([*(end for _, _, end in parts), *(reach(plot.marks) if len(found) < 2 else ())], plot.unit)
    slot = 100 / max(1, len(labels))
    columns = tuple(
        _column(part, slot * places[part[0].label], slot, scale, plot, found.get(part[0].series, 0)) for part in parts
    )
    whiskers = _whiskers(plot, places, slot, scale) if len(found) < 2 else ()
    ticks = tuple(Tick(_y(value, scale), said(value, plot.unit)) for value in scale.ticks)
    return Days(
        height=HEIGHT,
        left=room(ticks),
        zero=_y(0, scale),
        ticks=ticks,
        labels=_thinned(labels, slot),
        columns=columns,
        whiskers=whiskers,
        legend=legend(found),
    )


def _y(value: float, scale: Scale) -> float:
    floor = HEIGHT - FOOT
    return round(floor - (floor - TOP) * scale.share(value), 2)


def _stacked(marks: Sequence[Mark]) -> Iterator[Part]:
    """Each on the one before of its label; what is below 0 on what is below 0."""
    reached: dict[tuple[str, bool], float] = {}
    for mark in marks:
        side = (mark.label, mark.value < 0)
        start = reached.get(side, 0.0)
        reached[side] = start + mark.value
        yield mark, start, reached[side]


def _column(part: Part, x: float, slot: float, scale: Scale, plot: Plot, tone: int) -> Column:
    mark, start, end = part
    top, bottom = _y(max(start, end), scale), _y(min(start, end), scale)
    return Column(
        x=round(x + slot * _GAP, 3),
        width=round(slot * (1 - 2 * _GAP), 3),
        y=top,
        height=round(bottom - top, 2),
        title=title(mark, plot.unit),
        tone=tone,
    )


def _whiskers(plot: Plot, places: Mapping[str, int], slot: float, scale: Scale) -> tuple[Whisker, ...]:
    return tuple(
        Whisker(round(slot * (places[mark.label] + 0.5), 3), _y(mark.low, scale), _y(mark.high, scale))
        for mark in plot.marks
        if mark.low is not None and mark.high is not None
    )


def _thinned(labels: list[str], slot: float) -> tuple[Tick, ...]:
    """The last one always has room; others every so often, counted from it."""
    wide, few = (math.ceil(len(labels) / most) for most in (WIDE_LABELS, FEW_LABELS))
    few = math.ceil(few / wide) * wide if labels else 1
    short = _short(labels)
    return tuple(
        Tick(round(slot * (place + 0.5), 3), text, wide=(len(labels) - 1 - place) % few > 0)
        for place, text in enumerate(short)
        if (len(labels) - 1 - place) % wide == 0
    )


def _short(labels: list[str]) -> list[str]:
    """Days and hours of one year without it."""
    years = {label[:5] for label in labels}
    dated = len(years) == 1 and years.pop()[:4].isdigit() and all(label[4:5] == "-" for label in labels)
    return [label[5:] for label in labels] if dated else labels
