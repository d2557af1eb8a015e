"""`lowpass report cost-of-pass` and `price-reversal`: which target gives a right answer at the lowest cost, and which
models are cheaper by list price only."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import permutations
from math import inf
from typing import NamedTuple

from msgspec import structs

from router.ledger.facts import ATTEMPTS, OFFERS, PASSES, Label, LabelFilter
from router.report.query import LedgerView, grouped, summed, summed_by
from router.report.report import Kind, Mark, Plot, Report, Row, Shape, columns, declared, made, plots
from router.report.spend import silent
from router.report.statistics import Interval, quotient, skewed, weighted, wilson

CELL = ("target", "task", "difficulty")
FINER = (*CELL, "app", "template")
"""Dimensions by which cells can be split further; only rows have all of these, hourly sums do not."""
MIN_JUDGED = 10
"""Number of judgements below which a pass rate is based on the expectations of decisions instead."""
_RELIABLE = ("judged", "expected")
CLIENTS = LabelFilter("judging", frozenset({0}))
"""Requests of clients, without those of judges."""
_MILLION = 1_000_000
_NANO_PER_MICRO = 1_000
"""nano-USD per micro-USD."""
Labels = tuple[Label, ...]


class JudgedSums(NamedTuple):
    """Sums of the ledger under the ledger's names; money in nano-USD. `rated` and `pass_e4` are the expected pass rates
    of the target in decisions that chose it and whose requests were answered."""

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
        """What the pass rate is based on."""
        if self.weight_e6 >= MIN_JUDGED * _MILLION:
            return "judged"
        return "expected" if self.rated else "few judged" if self.weight_e6 else "unknown"

    @property
    def passes(self) -> Interval | None:
        """Share of right answers: as judged if there are enough judgements, else as expected (without an interval),
        else by the few judgements there are; None if unknown."""
        if self.basis == "expected":
            return Interval(self.pass_e4 / self.rated / 1e4)
        if not self.weight_e6:
            return None
        right, all_of_them = self.passed_e6 + self.expected_e6, self.weight_e6 + self.assumed_e6
        return wilson(min(1.0, right / all_of_them), self.weight_e6 / _MILLION)

    @property
    def price(self) -> Interval | None:
        """Cost per answer in nano-USD, including attempts without an answer; None if there was no answer."""
        if not self.answers:
            return None
        mean = self.cost / self.answers / _NANO_PER_MICRO
        # Squares of tiny costs are rounded up considerably; no sum of squares exceeds the square of the sum.
        squares = min(self.cost_square, (self.cost / _NANO_PER_MICRO) ** 2)
        residuals = squares - 2 * mean * self.answers_cost / _NANO_PER_MICRO + mean**2 * self.answers
        # Variance of the ratio of all costs to all answers (linearised), in square micro-USD.
        variance = residuals / (self.answers * max(1, self.answers - 1))
        return skewed(self.cost / self.answers, variance * _NANO_PER_MICRO**2, self.answers)


class CellGroup(NamedTuple):
    """Several cells together. `passes`: the share of right answers, None if unknown; `basis`: what it is based on."""

    facts: JudgedSums
    passes: Interval | None
    basis: str

    @property
    def cost_of_pass(self) -> Interval | None:
        """Cost per right answer in nano-USD; None if unknown, or if no answer was right."""
        price = self.facts.price
        return None if price is None or self.passes is None else quotient(price, self.passes)


_ANYTHING = (0.0, 1.0)
"""Bounds of a rate that is only expected, when it is combined with judged rates."""
SPENT = JudgedSums._fields[: JudgedSums._fields.index("judged")]
_JUDGED = JudgedSums._fields[JudgedSums._fields.index("judged") : JudgedSums._fields.index("rated")]
_CHOSEN = LabelFilter("taken", frozenset({1}))
_OFFERED = {"target": "candidate"}
"""Names of the dimensions of attempts that offers name differently."""


def cells(source: LedgerView, by: Sequence[str] = CELL, *, expected: bool = True) -> dict[Labels, JudgedSums]:
    """Returns sums of clients' requests by `CELL` or `FINER`. Without `expected`, which takes less time, expected pass
    rates are left out."""
    parts = [(labels, JudgedSums(*sums)) for labels, sums in source.sums(ATTEMPTS, by, SPENT, CLIENTS).items()]
    judged = source.sums(PASSES, by, _JUDGED).items()
    parts += [(labels, JudgedSums(**dict(zip(_JUDGED, sums, strict=True)))) for labels, sums in judged]
    if expected:
        where = (
            structs.replace(each, dimension=_OFFERED.get(each.dimension, each.dimension))
            for each in source.request.where
        )
        chosen = structs.replace(source, request=structs.replace(source.request, where=tuple(where)))
        offered, measures = [_OFFERED.get(name, name) for name in by], ("answered_rated", "answered_pass_e4")
        rates = chosen.sums(OFFERS, offered, measures, _CHOSEN).items()
        parts += [(labels, JudgedSums(rated=rated, pass_e4=pass_e4)) for labels, (rated, pass_e4) in rates]
    return {labels: facts for labels, facts in summed_by(JudgedSums, parts).items() if facts.attempts or facts.cost}


def together(by_cell: Mapping[Labels, JudgedSums], group: Callable[[Labels], Labels]) -> dict[Labels, CellGroup]:
    """Combines the cells of each group."""
    parts = grouped((group(labels), facts) for labels, facts in by_cell.items())
    return {name: pooled(some) for name, some in parts.items()}


def pooled(parts: Sequence[JudgedSums]) -> CellGroup:
    """Combines cells. The pass rate is weighted by answers, not by judgements. Cells with few judgements are merged
    first, and cells about which nothing is known are assumed to be like the others."""
    reliable = [facts for facts in parts if facts.answers and facts.basis in _RELIABLE]
    rest = summed(JudgedSums, (facts for facts in parts if facts.basis not in _RELIABLE))
    if rest.answers and rest.passes is not None:
        reliable.append(rest)
    bases = sorted({facts.basis for facts in reliable})
    basis = bases[0] if len(bases) == 1 else "mixed" if bases else "unknown"
    known = [(facts.answers, facts.passes) for facts in reliable if facts.passes is not None]
    if any(rate.low is not None for _, rate in known):
        known = [(n, Interval(rate.value, *_ANYTHING) if rate.low is None else rate) for n, rate in known]
    return CellGroup(summed(JudgedSums, parts), weighted(known) if known else None, basis)


# Which target gives a right answer at the lowest cost in each cell, and what its absence would cost.


class TaskCell(NamedTuple):
    """A task at one difficulty: the number of answers, and the cost of a right answer of each target, in nano-USD."""

    task: str
    answers: int
    values: Mapping[Label, float]


def known(by_cell: Mapping[Labels, JudgedSums]) -> list[TaskCell]:
    """Returns cells by task and difficulty, from facts by target, task and difficulty."""
    values: defaultdict[Labels, dict[Label, float]] = defaultdict(dict)
    answers: Counter[Labels] = Counter()
    for (target, *about), facts in by_cell.items():
        answers[tuple(about)] += facts.answers
        value = pooled([facts]).cost_of_pass
        if value is not None:
            values[tuple(about)][target] = value.value
    return [TaskCell(str(about[0] or ""), answers[about], some) for about, some in values.items()]


def adds(cells: Sequence[TaskCell]) -> list[Row]:
    """Returns one row per target with the columns of `frontier`, the most valuable target first. Compares the mean cost
    of a right answer with and without the target, over the cells in which another target is known too."""
    rows, wanted = [], sum(cell.answers for cell in cells)
    for target in {name for cell in cells for name in cell.values}:
        with_target = [cell for cell in cells if target in cell.values]
        lowest = [cell for cell in with_target if cell.values[target] == min(cell.values.values())]
        compared = [cell for cell in with_target if len(cell.values) > 1]
        answers, frontier, cost_without, factor = sum(cell.answers for cell in compared), None, None, 0.0
        if answers:
            frontier = sum(cell.answers * min(cell.values.values()) for cell in compared) / answers
            others = ((cell, (cost for name, cost in cell.values.items() if name != target)) for cell in compared)
            cost_without = sum(cell.answers * min(costs) for cell, costs in others) / answers
            factor = cost_without / frontier if frontier else 0.0
        share = sum(cell.answers for cell in lowest) / wanted if wanted else 0.0
        counts = (len(with_target), len(lowest), share, len(with_target) - len(compared))
        rows.append(((-factor, -share, str(target)), (target, *counts, frontier, cost_without, factor or None)))
    return [row for _, row in sorted(rows, key=lambda item: item[0])]


def hull(points: Iterable[tuple[float, float, str]]) -> list[str]:
    """Returns the names on the upper left convex edge of (cost, pass rate): no target, and no mixture of two, is better
    at the same cost."""
    edge: list[tuple[float, float, str]] = []
    for cost, rate, name in sorted(points, key=lambda point: (point[0], -point[1])):
        if edge and rate <= edge[-1][1]:
            continue
        while len(edge) > 1:
            (first_cost, first_rate, _), (last_cost, last_rate, _) = edge[-2:]
            if (last_rate - first_rate) * (cost - first_cost) > (rate - first_rate) * (last_cost - first_cost):
                break  # the last point is above the line from its predecessor to this one
            edge.pop()
        edge.append((cost, rate, name))
    return [name for *_, name in edge]


# Cost of a right answer by target, task and difficulty; its frontier, and what each target adds to that.

_UNKNOWN = (None, None, None)


def cost_of_pass(source: LedgerView) -> Report:
    by = source.request.by or CELL
    finer = cells(source, FINER if {*by} - {*CELL} else CELL)
    facts = {labels: group.facts for labels, group in together(finer, lambda labels: labels[: len(CELL)]).items()}
    every = known(facts)
    tasks = grouped((cell.task, cell) for cell in every)
    lowest = [column.name for column in columns("frontier")].index("lowest")
    # For single tasks only targets on the frontier are listed: others add nothing there.
    of_tasks = ((task, *row) for task in sorted(tasks) for row in adds(tasks[task]) if row[lowest])
    by_task = (made("frontier-by-task", of_tasks),) if len(tasks) > 1 else ()
    below = [made("frontier", adds(every), below=by_task)]
    if tuple(by) != ("target",):
        below.insert(0, _table(source, ("target",), facts, "What a right answer costs, by target"))
    whole = _table(source, by, finer, f"What a right answer costs, by {' and '.join(by)}")
    return structs.replace(whole, below=tuple(below), plots=_plots(facts))


def _table(source: LedgerView, by: Sequence[str], by_cell: Mapping[Labels, JudgedSums], title: str) -> Report:
    """Returns a table whose comparable targets are next to each other, the cheapest first."""
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


# Pairs of models of which the one with the lower list price cost more in fact, by how much, and how much of that is
# thinking. List price and cost differ through the number of tokens, most of them thoughts (arXiv 2603.23971).

MIN_ANSWERS = 5
"""Minimum number of answers of each of two models for a cell in which they are compared."""
_MAX_PAIRS = 12
_TASK_LEVEL = ("task", "difficulty")
_TOKENS = ("input_tokens", "output_tokens", "counted")
_NO_PRICES = "The policy in force has no list prices to compare with."


class ModelCost(NamedTuple):
    """Sums of one model in one cell. `known` says whether the whole cost of thinking is known."""

    facts: JudgedSums
    input_tokens: int
    output_tokens: int
    known: bool


Shared = Sequence[tuple[float, ModelCost, ModelCost]]
"""Cells in which two models answered: the weight, and the sums of each model."""


class ModelPair(NamedTuple):
    """Two models, the first with the lower list price. `costs`: nano-USD per answer; `dearer`: their ratio."""

    models: tuple[str, str]
    costs: tuple[Interval, ...]
    dearer: Interval | None
    row: Row


def price_reversal(source: LedgerView) -> Report:
    # Input and output prices by model, in nano-USD per million tokens, except for models whose targets' prices differ.
    list_prices: defaultdict[str, set[tuple[int, int]]] = defaultdict(set)
    for target in source.targets.values():
        price = target.model.price
        if price is not None and not price.assumed:
            list_prices[target.model.id].add((price.input, price.output))
    left_out = sorted(model for model, prices in list_prices.items() if len(prices) > 1)
    prices = {model: next(iter(stated)) for model, stated in list_prices.items() if len(stated) == 1}
    non_thinking = {target.model.id for target in source.targets.values() if silent(target)}
    by_model: defaultdict[str, dict[Labels, ModelCost]] = defaultdict(dict)
    for (model, *about), sums in source.sums(ATTEMPTS, ("model", *_TASK_LEVEL), (*SPENT, *_TOKENS), CLIENTS).items():
        facts, (sent, written, counted) = JudgedSums(*sums[: len(SPENT)]), sums[len(SPENT) :]
        known = model in non_thinking or facts.thinking_known >= counted
        by_model[str(model)][tuple(about)] = ModelCost(facts, sent, written, known)
    pairs = list(_pairs(by_model, prices))
    reversals = [pair for pair in pairs if pair.costs[0].value > pair.costs[1].value]
    reversals.sort(key=lambda pair: (-(pair.dearer.value if pair.dearer else inf), pair.models))
    note = (
        f"{len(reversals)} of the {len(pairs)} pairs of models that can be compared.",
        declared()["price-reversal"].note,
        f"Left out, with several prices: {', '.join(left_out)}." if left_out else "",
    )
    marks = (
        Mark(label=" : ".join(pair.models), value=factor.value, low=factor.low, high=factor.high)
        for pair in reversals[:_MAX_PAIRS]
        if (factor := pair.dearer) is not None
    )
    chart = plots("How many times as dear, though cheaper by list price", Shape.BARS, Kind.FACTOR, marks)
    text = " ".join(filter(None, note)) if prices else _NO_PRICES
    return made("price-reversal", (pair.row for pair in reversals), note=text, plots=chart)


def _pairs(
    by_model: Mapping[str, Mapping[Labels, ModelCost]], prices: Mapping[str, tuple[int, int]]
) -> Iterator[ModelPair]:
    """Yields all pairs that can be compared, each once, the model with the lower list price first."""
    for left, right in permutations(sorted(by_model.keys() & prices.keys()), 2):
        # A cell's weight is that of a difference of means: the smaller of both counts dominates it.
        in_both = ((cost, by_model[right][place]) for place, cost in by_model[left].items() if place in by_model[right])
        answers = ((first.facts.answers, second.facts.answers, first, second) for first, second in in_both)
        shared = [(a * b / (a + b), first, second) for a, b, first, second in answers if min(a, b) >= MIN_ANSWERS]
        both = [cost for _, *pair in shared for cost in pair]
        # List prices in nano-USD per million tokens, for the share of input and output that both models used.
        sent, written = sum(cost.input_tokens for cost in both), sum(cost.output_tokens for cost in both)
        mix = (sent, written) if sent + written else (1, 1)
        lists = tuple((prices[model][0] * mix[0] + prices[model][1] * mix[1]) / sum(mix) for model in (left, right))
        if shared and lists[0] < lists[1]:
            yield _pair(left, right, lists, shared)


def _pair(left: str, right: str, lists: tuple[float, ...], shared: Shared) -> ModelPair:
    """Compares two models; `lists`: their list prices in nano-USD per million tokens."""
    costs, thoughts, weights = [], [], [weight for weight, *_ in shared]
    for side in ([cost.facts for _, cost, _ in shared], [cost.facts for _, _, cost in shared]):
        parts = list(zip(weights, side, strict=True))
        costs.append(weighted([(weight, price) for weight, facts in parts if (price := facts.price) is not None]))
        each = ((weight, Interval(facts.thinking_cost / facts.answers)) for weight, facts in parts)
        thoughts.append(weighted(list(each)).value)
    both, (cost, other) = [cost for _, *pair in shared for cost in pair], (estimate.value for estimate in costs)
    without = part = None
    if all(model.known for model in both) and cost != other:
        rest = other - thoughts[1]
        without = (cost - thoughts[0]) / rest if rest > 0 else None
        part = (thoughts[0] - thoughts[1]) / (cost - other)
    dearer, answers = quotient(*costs), sum(model.facts.answers for model in both)
    factor = dearer or (None, None, None)
    row = (left, right, answers, *lists, cost, other, *factor, without, part)
    return ModelPair((left, right), tuple(costs), dearer, row)
