"""What the same requests would have cost, and how often they would have been right, at one target: as the decisions
expected it, corrected by what was expected of that target and came out."""

from collections.abc import Callable, Iterable, Sequence
from operator import add
from typing import NamedTuple

import numpy as np

from router.ledger.facts import offers
from router.ledger.facts.attempts import JUDGE
from router.ledger.facts.query import Label, Where
from router.report.blocks import bounds, drawn
from router.report.judged import Labels
from router.report.source import Source

ENOUGH = 30
"""Requests that a target has to have served as the first choice, for its forecasts to be corrected by them."""
_NO_JUDGES = Where("route", frozenset({JUDGE}), inverted=True)
_SEVERAL = frozenset({"cascade", "self_consistency", "plan"})
"""Strategies under which a request may pay for more than its first choice."""
_MEASURES = ("answered", "answered_expected", "answered_rated", "answered_pass_e4", "answered_actual")


class Sum(NamedTuple):
    """Of requests that were answered: what was expected of one candidate, and what was paid in fact; nano-USD."""

    answered: int = 0
    expected: int = 0
    rated: int = 0
    pass_e4: int = 0
    actual: int = 0

    def plus(self, other: "Sum") -> "Sum":
        return Sum(*map(add, self, other))


class Offer(NamedTuple):
    group: Labels
    hour: int
    """0 where hours are not told apart."""
    chosen: Label
    candidate: Label
    strategy: Label
    sum: Sum

    @property
    def first(self) -> bool:
        return self.chosen == self.candidate


class Ratio(NamedTuple):
    """What came out ÷ what was expected, over so many requests; nano-USD."""

    actual: int = 1
    expected: int = 1
    served: int = 0

    def of(self, expected: int) -> int:
        """Half up."""
        return (2 * expected * self.actual + self.expected) // (2 * self.expected)

    @property
    def factor(self) -> float:
        return self.actual / self.expected


class Baseline(NamedTuple):
    """`name`: why it is compared with."""

    name: str
    target: str
    correction: Ratio


class Alternative(NamedTuple):
    """Of the requests that a target could have served: what they cost, and what it was expected to. The rates are of
    right answers that were expected, of what was chosen and of this target."""

    requests: int
    actual: int
    expected: int
    chosen_rate: float | None
    rate: float | None


def offered(source: Source, by: Sequence[str], read: Callable[[Labels], Labels], *, hourly: bool) -> list[Offer]:
    """`read`: labels of these dimensions → the group that they belong to."""
    known = (*by, *(("hour",) if hourly and "hour" not in by else ()))
    dimensions = (*known, "chosen", "candidate", "strategy")
    found = source.sums(offers.TABLE, dimensions, _MEASURES, _NO_JUDGES)
    at = known.index("hour") if hourly else None
    return [
        Offer(
            group=read(labels[: len(by)]),
            hour=0 if at is None else int(labels[at] or 0),
            chosen=labels[-3],
            candidate=labels[-2],
            strategy=labels[-1],
            sum=Sum(*sums),
        )
        for labels, sums in found.items()
    ]


def correction(found: Iterable[Offer], target: Label) -> Ratio:
    """By requests that paid for nobody but the target, as far as it answered."""
    total = Sum()
    for one in found:
        if one.first and one.chosen == target and one.strategy not in _SEVERAL:
            total = total.plus(one.sum)
    enough = total.answered >= ENOUGH and total.expected > 0
    return Ratio(total.actual, total.expected, total.answered) if enough else Ratio(served=total.answered)


def alternative(found: Sequence[Offer], target: Label) -> Alternative:
    chosen = {_decision(one): one.sum for one in found if one.first}
    total, right = Sum(), 0.0
    for one in found:
        if one.candidate == target:
            total = total.plus(one.sum)
            of_chosen = chosen.get(_decision(one), Sum())
            # Alike decisions need not all have had this candidate: it gets its part of what was expected of the chosen.
            right += of_chosen.pass_e4 * one.sum.rated / of_chosen.rated if of_chosen.rated else 0.0
    rates = (right / total.rated / 1e4, total.pass_e4 / total.rated / 1e4) if total.rated else (None, None)
    return Alternative(total.answered, total.actual, total.expected, *rates)


def spread(found: Sequence[Offer], everything: Sequence[Offer], target: Label) -> tuple[float, float] | None:
    """Bounds of what `target` would have cost more than what was paid, in nano-USD; `everything`: of all groups, which
    its correction is drawn from anew each time. None: of too few hours."""
    hours = [one.hour for one in everything]
    if not hours:
        return None
    first = min(hours)
    table = np.zeros((max(hours) - first + 1, 4))
    for one in found:
        if one.candidate == target:
            table[one.hour - first, :2] += one.sum.expected, one.sum.actual
    for one in everything:
        if one.first and one.chosen == target and one.strategy not in _SEVERAL:
            table[one.hour - first, 2:] += one.sum.expected, one.sum.actual
    draws = drawn(table)
    if draws is None:
        return None
    expected, paid, of_own, own = draws.T
    known = correction(everything, target)
    again = (known.served >= ENOUGH) & (of_own > 0)
    factor = np.where(again, own / np.where(of_own > 0, of_own, 1), known.factor)
    return bounds(expected * factor - paid)


def _decision(one: Offer) -> tuple[object, ...]:
    return one.group, one.hour, one.chosen, one.strategy
