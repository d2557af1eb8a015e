"""What the same requests would have cost, and how often they would have been right, at one target: as the decisions
expected it, corrected by what was expected of that target and came out."""

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
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
_WHOM = ("chosen", "candidate", "strategy")
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
    chosen: Label
    candidate: Label
    strategy: Label
    sum: Sum

    @property
    def first(self) -> bool:
        return self.chosen == self.candidate

    @property
    def alone(self) -> bool:
        """Nobody but the candidate was paid, as far as it answered."""
        return self.first and self.strategy not in _SEVERAL


class Hour(NamedTuple):
    """`alone`: as of an `Offer`; nano-USD."""

    group: Labels
    hour: int
    candidate: Label
    alone: bool
    expected: int
    actual: int


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


def offered(source: Source, by: Sequence[str], read: Callable[[Labels], Labels]) -> list[Offer]:
    """`read`: labels of these dimensions → the group that they belong to."""
    found = source.sums(offers.TABLE, (*by, *_WHOM), _MEASURES, _NO_JUDGES)
    return _added(
        Offer(read(labels[: len(by)]), labels[-3], labels[-2], labels[-1], Sum(*sums)) for labels, sums in found.items()
    )


def merged(found: Iterable[Offer]) -> list[Offer]:
    """All groups as one, which has no labels."""
    return _added(one._replace(group=()) for one in found)


def _added(found: Iterable[Offer]) -> list[Offer]:
    """One for each group, choice, candidate and strategy."""
    added: dict[tuple[object, ...], Offer] = {}
    for one in found:
        before = added.get(one[:-1])
        added[one[:-1]] = one if before is None else one._replace(sum=before.sum.plus(one.sum))
    return list(added.values())


def hourly(source: Source, by: Sequence[str], targets: Iterable[Label]) -> list[Hour]:
    """Of these candidates."""
    them = Where("candidate", frozenset(targets))
    measures = ("answered_expected", "answered_actual")
    found = source.sums(offers.TABLE, (*by, "hour", *_WHOM), measures, _NO_JUDGES, them)
    return [
        Hour(tuple(labels), int(hour or 0), candidate, chosen == candidate and strategy not in _SEVERAL, *sums)
        for (*labels, hour, chosen, candidate, strategy), sums in found.items()
    ]


def correction(found: Iterable[Offer], target: Label) -> Ratio:
    total = reduce(Sum.plus, (one.sum for one in found if one.candidate == target and one.alone), Sum())
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


def spread(found: Iterable[Hour], everything: Sequence[Hour], known: Baseline) -> tuple[float, float] | None:
    """Bounds of what the baseline would have cost more than what was paid, in nano-USD; `everything`: of all groups,
    which its correction is drawn from anew each time. None: of too few hours."""
    if not everything:
        return None
    first, last = min(one.hour for one in everything), max(one.hour for one in everything)
    table = np.zeros((last - first + 1, 4))
    for one in found:
        if one.candidate == known.target:
            table[one.hour - first, :2] += one.expected, one.actual
    for one in everything:
        if one.candidate == known.target and one.alone:
            table[one.hour - first, 2:] += one.expected, one.actual
    draws = drawn(table)
    if draws is None:
        return None
    expected, paid, foreseen, came = draws.T
    ratio = known.correction
    again = (ratio.served >= ENOUGH) & (foreseen > 0)
    return bounds(expected * np.where(again, came / np.where(again, foreseen, 1), ratio.factor) - paid)


def _decision(one: Offer) -> tuple[object, ...]:
    return one.group, one.chosen, one.strategy
