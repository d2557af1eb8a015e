"""`lowpass report cost-of-pass`: which target gives a right answer for the least."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from router.ledger.facts.query import Label
from router.report.judged import CELL, FINER, CellGroup, Facts, Labels, cells, pooled, together
from router.report.query import Source, grouped, summed
from router.report.report import Kind, Mark, Plot, Report, Row, Shape, made, plots, usd

# Which target gives a right answer for the least in each cell, and what would be lost without it.

Values = Mapping[Label, float]
"""Cost of pass by target, nano-USD."""


class TaskCell(NamedTuple):
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


def known(by_cell: Mapping[Labels, Facts]) -> list[TaskCell]:
    """By task and difficulty, from facts by target, task and difficulty."""
    values: defaultdict[Labels, dict[Label, float]] = defaultdict(dict)
    answers: Counter[Labels] = Counter()
    for (target, *about), facts in by_cell.items():
        answers[tuple(about)] += facts.answers
        value = pooled([facts]).cost_of_pass
        if value is not None:
            values[tuple(about)][target] = value.value
    return [TaskCell(about[0], answers[about], some) for about, some in values.items()]


def adds(cells: Sequence[TaskCell]) -> list[Adds]:
    """One a target, what adds most first."""
    wanted = sum(cell.answers for cell in cells)
    parts = [_adds(target, cells, wanted) for target in {name for cell in cells for name in cell.values}]
    return sorted(parts, key=lambda part: (-(part.factor or 0), -part.share, str(part.target)))


def hull(points: Iterable[tuple[float, float, str]]) -> list[str]:
    """Names on the upper left edge of (cost, pass rate): what no target, and no mixture of two, is better than at the
    same cost."""
    edge: list[tuple[float, float, str]] = []
    for cost, rate, name in sorted(points, key=lambda point: (point[0], -point[1])):
        if edge and rate <= edge[-1][1]:
            continue
        while len(edge) > 1:
            (first_cost, first_rate, _), (last_cost, last_rate, _) = edge[-2:]
            if (last_rate - first_rate) * (cost - first_cost) > (rate - first_rate) * (last_cost - first_cost):
                break  # the last one is above the line from the one before it to this
            edge.pop()
        edge.append((cost, rate, name))
    return [name for *_, name in edge]


def _adds(target: Label, cells: Sequence[TaskCell], wanted: int) -> Adds:
    mine = [cell for cell in cells if target in cell.values]
    lowest = [cell for cell in mine if cell.values[target] == min(cell.values.values())]
    compared = [cell for cell in mine if len(cell.values) > 1]
    share = sum(cell.answers for cell in lowest) / wanted if wanted else 0.0
    frontier = _mean([(cell.answers, min(cell.values.values())) for cell in compared])
    others = [(cell.answers, [value for name, value in cell.values.items() if name != target]) for cell in compared]
    without = _mean([(answers, min(values)) for answers, values in others])
    return Adds(target, len(mine), len(lowest), share, len(mine) - len(compared), frontier, without)


def _mean(parts: Sequence[tuple[int, float]]) -> float | None:
    whole = sum(weight for weight, _ in parts)
    return sum(weight * value for weight, value in parts) / whole if whole else None


# What a right answer costs, by target, task and difficulty; the frontier of that, and what each target adds to it.

_UNKNOWN = (None, None, None)


def cost_of_pass(source: Source) -> Report:
    by = source.asked.by or CELL
    finer = cells(source, FINER if {*by} - {*CELL} else CELL)
    facts = {labels: group.facts for labels, group in together(finer, lambda labels: labels[: len(CELL)]).items()}
    below = [_added(facts)]
    if tuple(by) != ("target",):
        below.insert(0, _table(source, ("target",), facts, "What a right answer costs, by target"))
    whole = _table(source, by, finer, f"What a right answer costs, by {' and '.join(by)}")
    return structs.replace(whole, below=tuple(below), plots=_plots(facts))


def _table(source: Source, by: Sequence[str], by_cell: Mapping[Labels, Facts], title: str) -> Report:
    """Targets stand beside each other where they can be compared, the lowest first."""
    places = [FINER.index(name) for name in by]
    groups = together(by_cell, lambda labels: tuple(labels[place] for place in places))

    def order(item: tuple[Labels, CellGroup]) -> tuple[object, ...]:
        names, group = item
        value = group.cost_of_pass
        others = [str(label) for name, label in zip(by, names, strict=True) if name != "target"]
        return others, value is None, value.value if value else 0, -group.facts.cost, tuple(map(str, names))

    total = summed(Facts, (group.facts for group in groups.values()))
    counts, money = (total.attempts, total.answers, total.judged), (usd(total.cost), usd(total.thinking_cost))
    return made(
        "cost-of-pass",
        ((*names, *_row(group)) for names, group in sorted(groups.items(), key=order)),
        by,
        title=title,
        totals=("total", *(None for _ in by[1:]), *counts, *_UNKNOWN, None, *money, None, *_UNKNOWN),
        since_ms=source.asked.since_ms,
        until_ms=source.asked.until_ms,
    )


def _row(group: CellGroup) -> Row:
    facts, price = group.facts, group.facts.price
    return (
        *(facts.attempts, facts.answers, facts.judged, *(group.passes or _UNKNOWN), group.basis),
        usd(facts.cost),
        usd(facts.thinking_cost) if facts.thinking_known else None,
        usd(price.value if price else None),
        *map(usd, group.cost_of_pass or _UNKNOWN),
    )


def _added(by_cell: Mapping[Labels, Facts]) -> Report:
    cells = known(by_cell)
    below = (_by_task(cells),) if len({cell.task for cell in cells}) > 1 else ()
    return made("frontier", map(_add_row, adds(cells)), below=below)


def _by_task(cells: Sequence[TaskCell]) -> Report:
    """Targets on the frontier only: elsewhere they add nothing."""
    tasks = grouped((str(cell.task or ""), cell) for cell in cells)
    rows = ((task, *_add_row(target)) for task in sorted(tasks) for target in adds(tasks[task]) if target.lowest)
    return made("frontier-by-task", rows)


def _add_row(part: Adds) -> Row:
    numbers = part.cells, part.lowest, part.share, part.alone
    return part.target, *numbers, usd(part.frontier), usd(part.without), part.factor


def _plots(by_cell: Mapping[Labels, Facts]) -> tuple[Plot, ...]:
    points = [
        (group.facts.price.value, group.passes, str(name))
        for (name,), group in together(by_cell, lambda labels: labels[:1]).items()
        if group.facts.price is not None and group.passes is not None
    ]
    edge = hull((cost, rate.value, name) for cost, rate, name in points)
    marks = (
        Mark(label=name, value=rate.value, low=rate.low, high=rate.high, x=cost, joined=name in edge)
        for cost, rate, name in sorted(points, key=lambda point: point[0])
    )
    return plots("Pass rate by the cost of an answer", Shape.POINTS, Kind.RATE, marks, Kind.USD, "Cost of an answer")
