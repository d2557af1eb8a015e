"""Pairs of models of which the cheaper by list price was dearer in fact, by how much, and how much of it is thinking.

List price and cost can come apart by the number of tokens, most of them thoughts (arXiv 2603.23971).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from math import inf
from typing import NamedTuple

from router.ledger.facts import ATTEMPTS
from router.report.cost_of_pass import CLIENTS, SPENT, JudgedSums, Labels
from router.report.query import LedgerView
from router.report.report import Kind, Mark, Report, Row, Shape, declared, made, plots
from router.report.spend import silent
from router.report.statistics import Interval, quotient, weighted

LEAST = 5
"""Answers of each of two models that a cell takes to be compared."""
_MOST_BARS = 12
_ABOUT = ("task", "difficulty")
_TOKENS = ("input_tokens", "output_tokens", "counted")
_NO_PRICES = "The policy in force has no list prices to compare with."


class ModelCost(NamedTuple):
    """Of one model in one cell. `known`: all that thinking cost there is known."""

    facts: JudgedSums
    input_tokens: int
    output_tokens: int
    known: bool


Shared = Sequence[tuple[float, ModelCost, ModelCost]]
"""Cells in which two models answered: its weight, and the cost of each."""


class ModelPair(NamedTuple):
    """`model` is cheaper by list than `than`. `costs`: nano-USD per answer; `dearer`: their ratio."""

    model: str
    than: str
    costs: tuple[Interval, ...]
    dearer: Interval | None
    row: Row


def price_reversal(source: LedgerView) -> Report:
    # Input and output by model, in nano-USD per million tokens; left out: models whose targets don't agree on them.
    lists: defaultdict[str, set[tuple[int, int]]] = defaultdict(set)
    for target in source.targets.values():
        price = target.model.price
        if price is not None and not price.assumed:
            lists[target.model.id].add((price.input, price.output))
    left_out = sorted(model for model, prices in lists.items() if len(prices) > 1)
    prices = {model: next(iter(stated)) for model, stated in lists.items() if len(stated) == 1}
    mute = {target.model.id for target in source.targets.values() if silent(target)}
    cells: defaultdict[str, dict[Labels, ModelCost]] = defaultdict(dict)
    by_labels = source.sums(ATTEMPTS, ("model", *_ABOUT), (*SPENT, *_TOKENS), CLIENTS).items()
    for (model, *about), sums in by_labels:
        facts, (sent, written, counted) = JudgedSums(*sums[: len(SPENT)]), sums[len(SPENT) :]
        known = model in mute or facts.thinking_known >= counted
        cells[str(model)][tuple(about)] = ModelCost(facts, sent, written, known)
    pairs = list(_pairs(cells, prices))
    reversals = [pair for pair in pairs if pair.costs[0].value > pair.costs[1].value]
    reversals.sort(key=lambda pair: (-(pair.dearer.value if pair.dearer else inf), pair.model, pair.than))
    note = (
        f"{len(reversals)} of the {len(pairs)} pairs of models that can be compared.",
        declared()["price-reversal"].note,
        f"Left out, with several prices: {', '.join(left_out)}." if left_out else "",
    )
    marks = (
        Mark(label=f"{pair.model} : {pair.than}", value=factor.value, low=factor.low, high=factor.high)
        for pair in reversals[:_MOST_BARS]
        if (factor := pair.dearer) is not None
    )
    chart = plots("How many times as dear, though cheaper by list price", Shape.BARS, Kind.FACTOR, marks)
    text = " ".join(filter(None, note)) if prices else _NO_PRICES
    return made("price-reversal", (pair.row for pair in reversals), note=text, plots=chart)


def _pairs(
    cells: Mapping[str, Mapping[Labels, ModelCost]], prices: Mapping[str, tuple[int, int]]
) -> Iterator[ModelPair]:
    """All that can be compared; each once, the cheaper by list first."""
    for left, right in permutations(sorted(cells.keys() & prices.keys()), 2):
        # Each weighs by what it tells of a difference, so that a cell counts as the smaller of both does.
        in_both = ((cost, cells[right][about]) for about, cost in cells[left].items() if about in cells[right])
        answers = ((first.facts.answers, second.facts.answers, first, second) for first, second in in_both)
        shared = [(a * b / (a + b), first, second) for a, b, first, second in answers if min(a, b) >= LEAST]
        both = [cost for _, *pair in shared for cost in pair]
        # nano-USD for a million tokens, input and output as both models used them.
        sent, written = sum(cost.input_tokens for cost in both), sum(cost.output_tokens for cost in both)
        mix = (sent, written) if sent + written else (1, 1)
        lists = tuple((prices[model][0] * mix[0] + prices[model][1] * mix[1]) / sum(mix) for model in (left, right))
        if shared and lists[0] < lists[1]:
            yield _pair(left, right, lists, shared)


def _pair(left: str, right: str, lists: tuple[float, ...], shared: Shared) -> ModelPair:
    """`lists`: nano-USD per million tokens."""
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
    return ModelPair(left, right, tuple(costs), dearer, row)
