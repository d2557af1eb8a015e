"""`lowpass report cost-of-pass`: which target gives a right answer for the least; and cells of judged answers."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from router.ledger.facts import ATTEMPTS, OFFERS, Label, LabelFilter
from router.report.query import LedgerView, grouped, summed, summed_by
from router.report.report import Kind, Mark, Plot, Report, Row, Shape, columns, made, plots
from router.report.statistics import Interval, quotient, skewed, weighted, wilson

CELL = ("target", "task", "difficulty")
FINER = (*CELL, "app", "template")
"""What cells can be told apart by besides; only rows have it, and no sums by hour."""
FEW = 10
"""Fewer judgements than so many say less of a target than what is expected of it."""
_SOLID = ("judged", "expected")
CLIENTS = LabelFilter("judging", frozenset({0}))
"""Requests of clients, not of judges."""
_MILLION = 1_000_000
_MICRO = 1_000
"""nano-USD in a micro-USD."""
Labels = tuple[Label, ...]


class JudgedSums(NamedTuple):
    """Sums of the ledger, named as there; money in nano-USD. `rated` and `pass_e4`: what was expected of the target
    where it was chosen and the request was answered."""

    attempts: int = 0
    answers: int = 0
    cost: int = 0
    answers_cost: int = 0
    cost_square: int = 0
    thinking_cost: int = 0
    thinking_known: int = 0
    judged: int = 0
    weight_e6: int = 0
    passed_e6: int = 0
    assumed: int = 0
    assumed_e6: int = 0
    expected_e6: int = 0
    rated: int = 0
    pass_e4: int = 0

    @property
    def basis(self) -> str:
        """What its pass rate goes by."""
        if self.weight_e6 >= FEW * _MILLION:
            return "judged"
        return "expected" if self.rated else "few judged" if self.weight_e6 else "unknown"

    @property
    def passes(self) -> Interval | None:
        """The share of answers that are right, as they were judged, by however few. None: not known. What is only
        expected has no interval."""
        if self.basis == "expected":
            return Interval(self.pass_e4 / self.rated / 1e4)
        if not self.weight_e6:
            return None
        right, all_of_them = self.passed_e6 + self.expected_e6, self.weight_e6 + self.assumed_e6
        return wilson(min(1.0, right / all_of_them), self.weight_e6 / _MILLION)

    @property
    def price(self) -> Interval | None:
        """nano-USD for an answer: all that was spent, also on attempts without one. None: there was no answer."""
        if not self.answers:
            return None
        mean = self.cost / self.answers / _MICRO
        # Squares of tiny costs are rounded up by far; no sum of squares is above the square of the sum.
        squares = min(self.cost_square, (self.cost / _MICRO) ** 2)
        residuals = squares - 2 * mean * self.answers_cost / _MICRO + mean**2 * self.answers
        # Of the mean, in square micro-USD: of the ratio of all costs to all answers (linearised).
        variance = residuals / (self.answers * max(1, self.answers - 1))
        return skewed(self.cost / self.answers, variance * _MICRO**2, self.answers)


class CellGroup(NamedTuple):
    """Some cells together. `passes`: the share of their answers that are right, None: not known; `basis`: what that
    goes by."""

    facts: JudgedSums
    passes: Interval | None
    basis: str

    @property
    def cost_of_pass(self) -> Interval | None:
        """nano-USD for a right answer. None: not known, or none was right."""
        price = self.facts.price
        return None if price is None or self.passes is None else quotient(price, self.passes)


_ANYTHING = (0.0, 1.0)
"""Where a rate lies that is only expected, beside others that were judged."""
SPENT = JudgedSums._fields[: JudgedSums._fields.index("judged")]
_JUDGED = JudgedSums._fields[JudgedSums._fields.index("judged") : JudgedSums._fields.index("rated")]
_TAKEN = LabelFilter("taken", frozenset({1}))
_OFFERED = {"target": "candidate"}
"""Dimensions of attempts, as offers name them."""


def cells(source: LedgerView, by: Sequence[str] = CELL, *, expected: bool = True) -> dict[Labels, JudgedSums]:
    """By `CELL`, or `FINER`: what was asked of targets on behalf of clients. Without what was expected of them it takes
    less."""
    parts = [(labels, JudgedSums(*sums)) for labels, sums in source.sums(ATTEMPTS, by, SPENT, CLIENTS).items()]
    judged = source.passes(by, _JUDGED).items()
    parts += [(labels, JudgedSums(**dict(zip(_JUDGED, sums, strict=True)))) for labels, sums in judged]
    if expected:
        where = (
            structs.replace(each, dimension=_OFFERED.get(each.dimension, each.dimension))
            for each in source.request.where
        )
        chosen = structs.replace(source, request=structs.replace(source.request, where=tuple(where)))
        offered, measures = [_OFFERED.get(name, name) for name in by], ("answered_rated", "answered_pass_e4")
        rates = chosen.sums(OFFERS, offered, measures, _TAKEN).items()
        parts += [(labels, JudgedSums(rated=rated, pass_e4=pass_e4)) for labels, (rated, pass_e4) in rates]
    by_cell = summed_by(JudgedSums, parts)
    return {labels: facts for labels, facts in by_cell.items() if facts.attempts or facts.cost}


def together(by_cell: Mapping[Labels, JudgedSums], group: Callable[[Labels], Labels]) -> dict[Labels, CellGroup]:
    """Cells of the same group as one."""
    parts = grouped((group(labels), facts) for labels, facts in by_cell.items())
    return {name: pooled(some) for name, some in parts.items()}


def pooled(parts: Sequence[JudgedSums]) -> CellGroup:
    """The pass rate counts each part by its answers, however many of them were judged. Parts of too few judgements to
    stand alone are put together first; those of which nothing is known are taken to be as the others."""
    solid = [facts for facts in parts if facts.answers and facts.basis in _SOLID]
    rest = summed(JudgedSums, (facts for facts in parts if facts.basis not in _SOLID))
    if rest.answers and rest.passes is not None:
        solid.append(rest)
    bases = sorted({facts.basis for facts in solid})
    basis = bases[0] if len(bases) == 1 else "mixed" if bases else "unknown"
    known = [(facts.answers, facts.passes) for facts in solid if facts.passes is not None]
    if any(rate.low is not None for _, rate in known):
        known = [(n, Interval(rate.value, *_ANYTHING) if rate.low is None else rate) for n, rate in known]
    return CellGroup(summed(JudgedSums, parts), weighted(known) if known else None, basis)


# Which target gives a right answer for the least in each cell, and what would be lost without it.


class TaskCell(NamedTuple):
    """A task at a difficulty: how many answers were wanted there, and what a right one costs of each target, in
    nano-USD."""

    task: str
    answers: int
    values: Mapping[Label, float]


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


def adds(cells: Sequence[TaskCell]) -> list[Row]:
    """One a target, in the order of `frontier`, what adds most first. Its cells are compared where it and another are
    known: what a right answer costs on the mean of their answers from the best target of each, and the best but it."""
    rows, wanted = [], sum(cell.answers for cell in cells)
    for target in {name for cell in cells for name in cell.values}:
        mine = [cell for cell in cells if target in cell.values]
        lowest = [cell for cell in mine if cell.values[target] == min(cell.values.values())]
        compared = [cell for cell in mine if len(cell.values) > 1]
        answers, frontier, without, factor = sum(cell.answers for cell in compared), None, None, 0.0
        if answers:
            frontier = sum(cell.answers * min(cell.values.values()) for cell in compared) / answers
            others = ((cell, (cost for name, cost in cell.values.items() if name != target)) for cell in compared)
            without = sum(cell.answers * min(costs) for cell, costs in others) / answers
            factor = without / frontier if frontier else 0.0
        share = sum(cell.answers for cell in lowest) / wanted if wanted else 0.0
        counts = (len(mine), len(lowest), share, len(mine) - len(compared))
        order = (-factor, -share, str(target))
        rows.append((order, (target, *counts, frontier, without, factor or None)))
    return [row for _, row in sorted(rows, key=lambda item: item[0])]


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
    every = known(facts)
    tasks = grouped((cell.task, cell) for cell in every)
    lowest = [column.name for column in columns("frontier")].index("lowest")
    # Of single tasks only targets on the frontier: elsewhere they add nothing.
    of_tasks = ((task, *row) for task in sorted(tasks) for row in adds(tasks[task]) if row[lowest])
    by_task = (made("frontier-by-task", of_tasks),) if len(tasks) > 1 else ()
    below = [made("frontier", adds(every), below=by_task)]
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
    counts, money = (total.attempts, total.answers, total.judged), (total.cost, total.thinking_cost)
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
        *(facts.cost, facts.thinking_cost if facts.thinking_known else None, price.value if price else None),
        *(group.cost_of_pass or _UNKNOWN),
    )


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
