"""Who else could have served what some targets served, and for how much: from what was expected of each candidate.

Sums know how many requests of a kind each candidate could have served, not which of them. What one could, another is
taken to have been able to as well, as far as it goes: so no more are said to be served than surely could be. Exact,
request by request, is `lowpass replay` under a policy without these targets.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct

from router.ledger.facts.offers import TABLE
from router.report.source import Source

_KIND = ("route", "class")
_MEASURES = ("requests", "expected", "rated", "pass_e4")
SURE = 10_000
"""A pass rate of 1, as sums have it."""


class Offer(NamedTuple):
    """Of one candidate, over the requests of one kind with one choice: nano-USD, and rates in ten-thousandths."""

    requests: int
    expected: int
    rated: int
    pass_e4: int


class Cell(Struct, frozen=True):
    """Requests of one kind with the same choice, and what was expected of it and of everybody else."""

    chosen: str
    own: Offer
    others: Mapping[str, Offer]


class Instead(Struct, frozen=True, kw_only=True):
    """Of `requests` at most `stranded` could be served by nobody else, and at least `stranded_least`. Money is expected
    nano-USD of all the others; pass rates sum over those of which both are known (`rated`), in ten-thousandths."""

    requests: int = 0
    stranded: int = 0
    stranded_least: int = 0
    now: int = 0
    then: int = 0
    rated: int = 0
    now_e4: int = 0
    then_e4: int = 0

    def __add__(self, other: "Instead") -> "Instead":
        names = self.__struct_fields__
        return Instead(**{name: getattr(self, name) + getattr(other, name) for name in names})

    @property
    def served(self) -> int:
        """By others, at least."""
        return self.requests - self.stranded


def cells(source: Source) -> list[Cell]:
    """Of requests that had a choice."""
    found: dict[tuple[object, ...], dict[str, Offer]] = {}
    for labels, sums in source.sums(TABLE, (*_KIND, "chosen", "candidate"), _MEASURES).items():
        *kind, candidate = labels
        found.setdefault(tuple(kind), {})[str(candidate)] = Offer(*sums)
    return [
        Cell(str(kind[-1]), offers[str(kind[-1])], {name: one for name, one in offers.items() if name != kind[-1]})
        for kind, offers in found.items()
        if kind[-1] in offers
    ]


def instead(of: Iterable[Cell], may: Callable[[str], bool]) -> Instead:
    """If only the candidates that `may` had been there: the cheapest takes all that it could serve, the next what it
    could beyond."""
    return sum((_moved(cell, may) for cell in of), Instead())


def _moved(cell: Cell, may: Callable[[str], bool]) -> Instead:
    own = cell.own
    others = [offer for name, offer in cell.others.items() if may(name) and offer.requests]
    others.sort(key=lambda offer: offer.expected / offer.requests)
    served, then, rated, now_e4, then_e4 = 0, 0, 0, 0, 0
    for offer in others:
        taken = max(0, offer.requests - served)
        served += taken
        then += _part(offer.expected, taken, offer.requests)
        if offer.rated and own.rated:
            rated += taken
            then_e4 += _part(offer.pass_e4, taken, offer.rated)
            now_e4 += _part(own.pass_e4, taken, own.rated)
    return Instead(
        requests=own.requests,
        stranded=own.requests - served,
        stranded_least=max(0, own.requests - sum(offer.requests for offer in others)),
        now=_part(own.expected, served, own.requests),
        then=then,
        rated=rated,
        now_e4=now_e4,
        then_e4=then_e4,
    )


def _part(amount: int, taken: int, of: int) -> int:
    """Half up."""
    return (2 * amount * taken + of) // (2 * of)
