"""`lowpass report cost-of-pass`: which target gives a right answer for the least."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import reduce
from typing import NamedTuple

from router.ledger.facts.query import Label
from router.report.judged import CELL, FEW, FINER, Facts, Group, Labels, cells, pooled, together
from router.report.query import Definition, Source
from router.report.report import Column, Kind, Mark, Plot, Report, Row, Shape
from router.types.price import usd_from_nano

# Which target gives a right answer for the least in each cell, and what would be lost without it.

Values = Mapping[Label, float]
"""Cost of pass by target, nano-USD."""


class Cell(NamedTuple):
    """A task at a difficulty: how many answers were wanted there, and what a right one costs of each target."""

    task: Label
    answers: int
    values: Values


class Adds(NamedTuple):
    """Of one target, over the cells where it and another are known. `frontier`, `without`: what a right answer costs on
    the mean of these cells' answers from the best target of each, and from the best but this one; nano-USD."""

    target: Label
    cells: int
    lowest: int
    share: float
    """Of the answers of all cells: where it is the lowest."""
    alone: int
    """Cells where no other target is known, which tell nothing of what it adds."""
    frontier: float | None
    without: float | None

    @property
    def factor(self) -> float | None:
        return self.without / self.frontier if self.without is not None and self.frontier else None


def known(found: Mapping[Labels, Facts]) -> list[Cell]:
    """By task and difficulty, from facts by target, task and difficulty."""
    values: defaultdict[Labels, dict[Label, float]] = defaultdict(dict)
    answers: defaultdict[Labels, int] = defaultdict(int)
    for (target, *about), facts in found.items():
        answers[tuple(about)] += facts.answers
        value = pooled([facts]).cost_of_pass
        if value is not None:
            values[tuple(about)][target] = value.value
    return [Cell(about[0], answers[about], some) for about, some in values.items()]


def adds(cells: Sequence[Cell]) -> list[Adds]:
    """One a target, what adds most first."""
    wanted = sum(cell.answers for cell in cells)
    found = [_adds(target, cells, wanted) for target in {name for cell in cells for name in cell.values}]
    return sorted(found, key=lambda one: (-(one.factor or 0), -one.share, str(one.target)))


def hull(points: Iterable[tuple[float, float, str]]) -> list[str]:
    """Names on the upper left edge of (cost, pass rate): what no target, and no mixture of two, is better than at the
    same cost."""
    edge: list[tuple[float, float, str]] = []
    for point in sorted(points, key=lambda one: (one[0], -one[1])):
        if edge and point[1] <= edge[-1][1]:
            continue
        while len(edge) > 1 and _below(edge[-2], edge[-1], point):
            edge.pop()
        edge.append(point)
    return [name for *_, name in edge]


def _below(one: tuple[float, float, str], middle: tuple[float, float, str], other: tuple[float, float, str]) -> bool:
    """`middle` is not above the line from one to the other."""
    return (middle[1] - one[1]) * (other[0] - one[0]) <= (other[1] - one[1]) * (middle[0] - one[0])


def _adds(target: Label, cells: Sequence[Cell], wanted: int) -> Adds:
    mine = [cell for cell in cells if target in cell.values]
    lowest = [cell for cell in mine if cell.values[target] == min(cell.values.values())]
    compared = [cell for cell in mine if len(cell.values) > 1]
    share = sum(cell.answers for cell in lowest) / wanted if wanted else 0.0
    frontier = _mean([(cell.answers, min(cell.values.values())) for cell in compared])
    without = _mean([(cell.answers, min(_others(cell, target))) for cell in compared])
    return Adds(target, len(mine), len(lowest), share, len(mine) - len(compared), frontier, without)


def _others(cell: Cell, target: Label) -> list[float]:
    return [value for name, value in cell.values.items() if name != target]


def _mean(parts: Sequence[tuple[int, float]]) -> float | None:
    whole = sum(weight for weight, _ in parts)
    return sum(weight * value for weight, value in parts) / whole if whole else None


# What a right answer costs, by target, task and difficulty; the frontier of that, and what each target adds to it.

_COLUMNS = (
    Column("attempts", Kind.COUNT),
    Column("answers", Kind.COUNT),
    Column("judged", Kind.COUNT),
    Column("pass_rate", Kind.RATE),
    Column("pass_rate_low", Kind.RATE),
    Column("pass_rate_high", Kind.RATE),
    Column("basis"),
    Column("cost_usd", Kind.USD),
    Column("thinking_usd", Kind.USD, rare=True),
    Column("cost_per_answer_usd", Kind.USD),
    Column("cost_of_pass_usd", Kind.USD),
    Column("cost_of_pass_low_usd", Kind.USD),
    Column("cost_of_pass_high_usd", Kind.USD),
)
_UNKNOWN = (None, None, None)
_ADDS = (
    Column("target", Kind.LABEL),
    Column("cells", Kind.COUNT),
    Column("lowest", Kind.COUNT),
    Column("share", Kind.SHARE),
    Column("alone", Kind.COUNT),
    Column("frontier_usd", Kind.USD),
    Column("without_usd", Kind.USD),
    Column("adds", Kind.FACTOR),
)
_NOTE = (
    "Cost of pass: what was spent ÷ (answers × pass rate), with attempts that gave no answer. Intervals hold 95 %."
    f" Basis: judged by at least {FEW} answers; below that, and where nobody judged, as the decisions expected it."
    " Targets don't get the same requests: compare them within a task and a difficulty (0, the easiest fifth, to 4)."
)
_ADDS_NOTE = (
    "Cells: tasks × difficulties where the target's cost of pass is known, and where it is the lowest; share: of all"
    " answers, in the latter. Adds: how many times more a right answer costs without it, from the best other target,"
    " over the cells where another is known. The lowest is picked among estimates: small factors may be chance."
)


def cost_of_pass(source: Source) -> Report:
    by = source.asked.by or CELL
    finer = cells(source, FINER if {*by} - {*CELL} else CELL)
    found = {labels: group.facts for labels, group in together(finer, lambda labels: labels[: len(CELL)]).items()}
    below = [_added(found)]
    if tuple(by) != ("target",):
        below.insert(0, _table(source, ("target",), found, "What a right answer costs, by target"))
    title = f"What a right answer costs, by {' and '.join(by)}"
    return _table(source, by, finer, title, tuple(below), _plots(found))


def _table(
    source: Source,
    by: Sequence[str],
    found: Mapping[Labels, Facts],
    title: str,
    below: tuple[Report, ...] = (),
    plots: tuple[Plot, ...] = (),
) -> Report:
    places = [FINER.index(name) for name in by]
    groups = together(found, lambda labels: tuple(labels[place] for place in places))
    return Report(
        name="cost-of-pass",
        title=title,
        columns=(*(Column(name, Kind.LABEL) for name in by), *_COLUMNS),
        rows=tuple((*labels, *_row(facts)) for labels, facts in _ordered(by, groups)),
        totals=("total", *(None for _ in by[1:]), *_totals(groups.values())),
        note=_NOTE,
        since_ms=source.asked.since_ms,
        until_ms=source.asked.until_ms,
        below=below,
        plots=plots,
    )


def _ordered(by: Sequence[str], groups: Mapping[Labels, Group]) -> list[tuple[Labels, Group]]:
    """Targets stand beside each other where they can be compared, the lowest first."""

    def key(one: tuple[Labels, Group]) -> tuple[object, ...]:
        labels, group = one
        value = group.cost_of_pass
        others = [str(label) for name, label in zip(by, labels, strict=True) if name != "target"]
        return others, value is None, value.value if value else 0, -group.facts.cost, tuple(map(str, labels))

    return sorted(groups.items(), key=key)


def _row(group: Group) -> Row:
    facts, price, value = group.facts, group.facts.price, group.cost_of_pass
    return (
        facts.attempts,
        facts.answers,
        facts.judged,
        *(group.passes or _UNKNOWN),
        group.basis,
        usd_from_nano(facts.cost),
        usd_from_nano(facts.thinking_cost) if facts.thinking_known else None,
        usd(price.value if price else None),
        *map(usd, value or _UNKNOWN),
    )


def _totals(groups: Iterable[Group]) -> Row:
    """What can be added up."""
    facts = reduce(Facts.plus, (group.facts for group in groups), Facts())
    counts, money = (facts.attempts, facts.answers, facts.judged), (facts.cost, facts.thinking_cost)
    return *counts, *_UNKNOWN, None, *map(usd_from_nano, money), None, *_UNKNOWN


def usd(mean: float | None) -> Decimal | None:
    """Of an estimate in nano-USD, to the nano-dollar."""
    return None if mean is None else usd_from_nano(round(mean))


def _added(found: Mapping[Labels, Facts]) -> Report:
    cells = known(found)
    rows = tuple(map(_add_row, adds(cells)))
    below = (_by_task(cells),) if len({cell.task for cell in cells}) > 1 else ()
    return Report(
        name="frontier",
        title="What each target adds to the frontier",
        columns=_ADDS,
        rows=rows,
        note=_ADDS_NOTE,
        below=below,
    )


def _by_task(cells: Sequence[Cell]) -> Report:
    """Targets on the frontier only: elsewhere they add nothing."""
    tasks = sorted({_text(cell.task) or "" for cell in cells})
    rows = tuple(
        (task, *_add_row(one))
        for task in tasks
        for one in adds([cell for cell in cells if (_text(cell.task) or "") == task])
        if one.lowest
    )
    columns = (Column("task", Kind.LABEL), *_ADDS)
    return Report(name="frontier-by-task", title="What each target adds, by task", columns=columns, rows=rows)


def _add_row(one: Adds) -> Row:
    numbers = one.cells, one.lowest, one.share, one.alone
    return _text(one.target), *numbers, usd(one.frontier), usd(one.without), one.factor


def _text(label: Label) -> str | None:
    return None if label is None else str(label)


def _plots(found: Mapping[Labels, Facts]) -> tuple[Plot, ...]:
    targets = together(found, lambda labels: labels[:1])
    points = [
        (group.facts.price.value, group.passes, str(name))
        for (name,), group in targets.items()
        if group.facts.price is not None and group.passes is not None
    ]
    edge = hull((cost, rate.value, name) for cost, rate, name in points)
    marks = tuple(
        Mark(label=name, value=rate.value, low=rate.low, high=rate.high, x=cost, joined=name in edge)
        for cost, rate, name in sorted(points, key=lambda one: one[0])
    )
    if not marks:
        return ()
    return (
        Plot(
            title="Pass rate by the cost of an answer",
            shape=Shape.POINTS,
            unit=Kind.RATE,
            marks=marks,
            x_unit=Kind.USD,
            x_title="Cost of an answer",
        ),
    )


REPORT = Definition(
    name="cost-of-pass",
    summary="What a right answer costs by target, task and difficulty, and which target is worth having.",
    make=cost_of_pass,
    by=FINER,
    where=FINER,
)
