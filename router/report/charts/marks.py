"""What all shapes do with marks: colours of series, titles, the room that an axis needs."""

from collections.abc import Iterable, Mapping, Sequence

from router.report.charts.shapes import TONES, Entry, Tick
from router.report.charts.units import exact, said
from router.report.report import Kind, Mark

OTHERS = "others"
NO_LABEL = "(none)"
_LETTER_PX = 7.2
"""Widest digit of a tick's text."""

Tones = Mapping[str, int]
"""Series → colour."""


def tones(marks: Iterable[Mark]) -> Tones:
    """The largest series first; those beyond the colours there are share the last one. Nothing needs no colour."""
    sizes: dict[str, float] = {}
    for mark in marks:
        sizes[mark.series] = sizes.get(mark.series, 0) + abs(mark.value)
    ranked = sorted(filter(sizes.get, sizes), key=lambda series: (-sizes[series], series))
    return {series: min(place, TONES - 1) for place, series in enumerate(ranked)}


def legend(found: Tones) -> tuple[Entry, ...]:
    """None for a single series: the title names it."""
    if len(found) < 2:
        return ()
    named = [Entry(tone, series or NO_LABEL) for series, tone in found.items() if tone < TONES - 1]
    left = [series for series, tone in found.items() if tone == TONES - 1]
    rest = [Entry(TONES - 1, OTHERS if len(left) > 1 else left[0] or NO_LABEL)] if left else []
    return (*named, *rest)


def reach(marks: Iterable[Mark]) -> list[float]:
    """All that a scale must hold."""
    return [value for mark in marks for value in (mark.value, mark.low, mark.high) if value is not None]


def title(mark: Mark, unit: Kind) -> str:
    """What is shown where somebody points at it: exact."""
    named = ", ".join(filter(None, (mark.label or NO_LABEL, mark.series)))
    return f"{named}: {exact(mark.value, unit)}{interval(mark, unit)}"


def interval(mark: Mark, unit: Kind) -> str:
    if mark.low is None or mark.high is None:
        return ""
    return f" ({said(mark.low, unit)} to {said(mark.high, unit)})"


def room(ticks: Sequence[Tick]) -> float:
    """Pixels left of an axis."""
    return round(_LETTER_PX * max((len(tick.text) for tick in ticks), default=0) + 10, 1)
