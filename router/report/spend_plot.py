"""What the chart of spend shows: the dearest groups, or each day's."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from router.report.days import next_day
from router.report.render import NO_LABEL
from router.report.report import Kind, Mark, Plot, Shape

MOST_BARS = 12
MOST_SERIES = 6
"""More colours can't be told apart."""
_MOST_DAYS = 400
"""Days without spend are shown as such, unless there would be too many."""
_TITLE = "Spend"

Costs = Sequence[tuple[tuple[str | None, ...], int]]
"""Labels → nano-USD, in the report's order."""


def plots(by: Sequence[str], costs: Costs) -> tuple[Plot, ...]:
    """None where a chart would mislead: tags of one request can't stand on each other, and what has no time nowhere."""
    times = [place for place, name in enumerate(by) if name in ("day", "hour")]
    timeless = any(labels[place] is None for place in times for labels, _ in costs)
    if not costs or len(times) > 1 or timeless or (times and "tag" in by):
        return ()
    marks = _stacked(times[0], costs) if times else _bars(costs)
    if times and by[times[0]] == "day":
        marks = _filled(marks)
    shape = Shape.DAYS if times else Shape.BARS
    return (Plot(title=_TITLE, shape=shape, unit=Kind.USD, marks=tuple(marks)),)


def _bars(costs: Costs) -> list[Mark]:
    """What is left out is one bar of its own, so that the bars add up."""
    shown = [Mark(label=_name(labels), value=cost) for labels, cost in costs[:MOST_BARS]]
    rest = costs[MOST_BARS:]
    return [*shown, Mark(label=f"{len(rest)} others", value=sum(cost for _, cost in rest))] if rest else shown


def _stacked(time: int, costs: Costs) -> list[Mark]:
    rest = [(labels[time] or "", labels[:time] + labels[time + 1 :], cost) for labels, cost in costs]
    sizes: dict[tuple[str | None, ...], int] = {}
    for _, series, cost in rest:
        sizes[series] = sizes.get(series, 0) + cost
    largest = set(sorted(sizes, key=lambda series: -sizes[series])[:MOST_SERIES])
    found: dict[tuple[str, str], int] = {}
    for label, series, cost in rest:
        name = (_name(series) if series else "") if series in largest else "others"
        found[label, name] = found.get((label, name), 0) + cost
    order = sorted(found.items(), key=lambda one: (datetime.fromisoformat(one[0][0]), one[0][1]))
    return [Mark(label=label, series=name, value=cost) for (label, name), cost in order]


def _filled(marks: Iterable[Mark]) -> list[Mark]:
    """With a mark for each day on which nothing happened."""
    known: dict[str, list[Mark]] = {}
    for mark in marks:
        known.setdefault(mark.label, []).append(mark)
    day, last = min(known), max(known)
    found: list[Mark] = []
    while day <= last and len(found) < _MOST_DAYS:
        found += known.get(day, [Mark(label=day, value=0)])
        day = next_day(day)
    return found if day > last else [mark for some in known.values() for mark in some]


def _name(labels: tuple[str | None, ...]) -> str:
    return " · ".join(label or NO_LABEL for label in labels)
