"""`lowpass report cost-of-pass`: which target gives a right answer for the least."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from router.ledger.facts.query import Label
from router.report.judged import CELL, FINER, CellGroup, JudgedSums, Labels, cells, pooled, together
from router.report.query import LedgerView, grouped, summed
from router.report.report import Kind, Mark, Plot, Report, Row, Shape, made, plots, usd

# Which target gives a right answer for the least in each cell, and what would be lost without it.


class TaskCell(NamedTuple):
    """A task at a difficulty: how many answers were wanted there, and what a right one costs of each target, in
    nano-USD."""

    task: str
    answers: int
    values: Mapping[Label, float]


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
    factor: float | None


def known(by_cell: Mapping[Labels, JudgedSums]) -> list[TaskCell]:
    """By task and difficulty, from facts by target, task and difficulty."""
    values: defaultdict[Labels, dict[Label, float]] = defaultdict(dict)
    answers: Counter[Labels] = Counter()
    for (target, *about), facts in by_cell.items():
        answers[tuple(about)] += facts.answers
        value = pooled([facts]).cost_of_pass
        if value is not None:
            values[tuple(about)][target] = value.value
    return [TaskCell(str(about[0] or ""), answers[about], some) for about, some in values.items()]


def adds(cells: Sequence[TaskCell]) -> list[Adds]:
    """One a target, what adds most first."""
    parts = [_adds(target, cells) for target in {name for cell in cells for name in cell.values}]
    return sorted(parts, key=lambda part: (-(part.factor or 0), -part.share, str(part.target)))


def _adds(target: Label, cells: Sequence[TaskCell]) -> Adds:
    mine = [cell for cell in cells if target in cell.values]
    lowest = [cell for cell in mine if cell.values[target] == min(cell.values.values())]
    compared = [cell for cell in mine if len(cell.values) > 1]
    wanted, answers = sum(cell.answers for cell in cells), sum(cell.answers for cell in compared)
    frontier = without = factor = None
    if answers:
        frontier = sum(cell.answers * min(cell.values.values()) for cell in compared) / answers
        others = ((cell, (cost for name, cost in cell.values.items() if name != target)) for cell in compared)
        without = sum(cell.answers * min(costs) for cell, costs in others) / answers
        factor = without / frontier if frontier else None
    share = sum(cell.answers for cell in lowest) / wanted if wanted else 0.0
    return Adds(target, len(mine), len(lowest), share, len(mine) - len(compared), frontier, without, factor)


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


# What a right answer costs, by target, task and difficulty; the frontier of that, and what each target adds to it.

_UNKNOWN = (None, None, None)


def cost_of_pass(source: LedgerView) -> Report:
    by = source.request.by or CELL
    finer = cells(source, FINER if {*by} - {*CELL} else CELL)
    facts = {labels: group.facts for labels, group in together(finer, lambda labels: labels[: len(CELL)]).items()}
    below = [_added(facts)]
    if tuple(by) != ("target",):
        below.insert(0, _table(source, ("target",), facts, "What a right answer costs, by target"))
    whole = _table(source, by, finer, f"What a right answer costs, by {' and '.join(by)}")
    return structs.replace(whole, below=tuple(below), plots=_plots(facts))


def _table(source: LedgerView, by: Sequence[str], by_cell: Mapping[Labels, JudgedSums], title: str) -> Report:
    """Targets stand beside each other where they can be compared, the lowest first."""
    places = [FINER.index(name) for name in by]
    groups = together(by_cell, lambda labels: tuple(labels[place] for place in places))

    def order(item: tuple[Labels, CellGroup]) -> tuple[object, ...]:
        names, group = item
        value = group.cost_of_pass
        others = [str(label) for name, label in zip(by, names, strict=True) if name != "target"]
        return others, value is None, value.value if value else 0, -group.facts.cost, tuple(map(str, names))

    total = summed(JudgedSums, (group.facts for group in groups.values()))
    counts, money = (total.attempts, total.answers, total.judged), (usd(total.cost), usd(total.thinking_cost))
    return made(
        "cost-of-pass",
        ((*names, *_row(group)) for names, group in sorted(groups.items(), key=order)),
        by,
        title=title,
        totals=("total", *(None for _ in by[1:]), *counts, *_UNKNOWN, None, *money, None, *_UNKNOWN),
        since_ms=source.request.since_ms,
        until_ms=source.request.until_ms,
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


def _added(by_cell: Mapping[Labels, JudgedSums]) -> Report:
    """Of single tasks only targets on the frontier: elsewhere they add nothing."""
    cells = known(by_cell)
    tasks = grouped((cell.task, cell) for cell in cells)
    of_tasks = ((task, *_add_row(part)) for task in sorted(tasks) for part in adds(tasks[task]) if part.lowest)
    below = (made("frontier-by-task", of_tasks),) if len(tasks) > 1 else ()
    return made("frontier", map(_add_row, adds(cells)), below=below)


def _add_row(part: Adds) -> Row:
    *about, frontier, without, factor = part
    return (*about, usd(frontier), usd(without), factor)


def _plots(by_cell: Mapping[Labels, JudgedSums]) -> tuple[Plot, ...]:
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
