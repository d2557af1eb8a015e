"""What answers cost and how often they were right, in cells that can be put together: the ground of comparisons."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from router.ledger.facts import attempts, offers
from router.ledger.facts.query import Label, LabelFilter
from router.report.query import LedgerView, grouped, summed, summed_by
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
    parts = [(labels, JudgedSums(*sums)) for labels, sums in source.sums(attempts.TABLE, by, SPENT, CLIENTS).items()]
    judged = source.passes(by, _JUDGED).items()
    parts += [(labels, JudgedSums(**dict(zip(_JUDGED, sums, strict=True)))) for labels, sums in judged]
    if expected:
        where = (
            structs.replace(each, dimension=_OFFERED.get(each.dimension, each.dimension))
            for each in source.request.where
        )
        chosen = structs.replace(source, request=structs.replace(source.request, where=tuple(where)))
        offered, measures = [_OFFERED.get(name, name) for name in by], ("answered_rated", "answered_pass_e4")
        rates = chosen.sums(offers.TABLE, offered, measures, _TAKEN).items()
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
