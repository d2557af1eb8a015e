"""Which target gives a right answer for the least in each cell, and what would be lost without it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from router.ledger.facts.query import Label
from router.report.judged import Facts, Labels, pooled

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
