"""`lowpass report vendors`: shares of providers, and who could have served in their place."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct

from router.ledger.facts.attempts import TABLE as ATTEMPTS_TABLE
from router.ledger.facts.offers import TABLE
from router.ledger.rows import documents
from router.report.egress import NOWHERE, Place, Places
from router.report.query import Source, grouped, summed
from router.report.report import Kind, Mark, Report, Row, Shape, made, plots, usd

# Who else could have served what some targets served, and for how much: from what was expected of each candidate.
#
# Sums know how many requests of a kind each candidate could have served, not which of them. What one could, another
# is taken to have been able to as well, as far as it goes: so no more are said to be served than surely could be.
# Exact, request by request, is `lowpass replay` under a policy without these targets.

_KIND = ("route", "class")
_MEASURES = ("requests", "expected", "rated", "pass_e4")
SURE = 10_000
"""A pass rate of 1, as sums have it."""


class CandidateSums(NamedTuple):
    """Of one candidate, over the requests of one kind with one choice: nano-USD, and rates in ten-thousandths."""

    requests: int
    expected: int
    rated: int
    pass_e4: int


class ChoiceSums(Struct, frozen=True):
    """Requests of one kind with the same choice, and what was expected of it and of everybody else."""

    chosen: str
    own: CandidateSums
    others: Mapping[str, CandidateSums]


class Instead(NamedTuple):
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

    @property
    def served(self) -> int:
        """By others, at least."""
        return self.requests - self.stranded


def cells(source: Source) -> list[ChoiceSums]:
    """Of requests that had a choice."""
    by_kind: dict[tuple[object, ...], dict[str, CandidateSums]] = {}
    for labels, sums in source.sums(TABLE, (*_KIND, "chosen", "candidate"), _MEASURES).items():
        *kind, candidate = labels
        by_kind.setdefault(tuple(kind), {})[str(candidate)] = CandidateSums(*sums)
    chosen = ((str(kind[-1]), offers) for kind, offers in by_kind.items() if kind[-1] in offers)
    return [
        ChoiceSums(name, offers[name], {other: offer for other, offer in offers.items() if other != name})
        for name, offers in chosen
    ]


def instead(of: Iterable[ChoiceSums], may: Callable[[str], bool]) -> Instead:
    """If only the candidates that `may` had been there: the cheapest takes all that it could serve, the next what it
    could beyond."""
    return summed(Instead, (_moved(cell, may) for cell in of))


def _moved(cell: ChoiceSums, may: Callable[[str], bool]) -> Instead:
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
    least = max(0, own.requests - sum(offer.requests for offer in others))
    now = _part(own.expected, served, own.requests)
    return Instead(own.requests, own.requests - served, least, now, then, rated, now_e4, then_e4)


def _part(amount: int, taken: int, of: int) -> int:
    """Half up."""
    return (2 * amount * taken + of) // (2 * of)


# On whom everything depends: shares by legal entity and by jurisdiction, and what is left if one of them vanishes.

_VENDORS_MEASURES = ("requests", "attempts", "input_tokens", "output_tokens", "cost", "recovered")
_SHARES = ("spend", "requests", "tokens")
OURS = "local"
"""Stands for a jurisdiction where nothing leaves."""


class _Share(NamedTuple):
    requests: int = 0
    attempts: int = 0
    tokens: int = 0
    cost: int = 0
    recovered: int = 0

    def of(self, name: str) -> int:
        return {"spend": self.cost, "requests": self.requests, "tokens": self.tokens}[name]


_Shares = Mapping[str | None, _Share]


def vendors(source: Source) -> Report:
    places = Places(documents(source.connection), source.targets)
    by_place = _by_place(source, places)
    every = summed(_Share, by_place.values())
    ranked = sorted(by_place.items(), key=lambda item: _rank(item[0].entity, item[1]))
    rows = tuple((place.entity, _law(place), *_amounts(share, every)) for place, share in ranked)
    marks = [Mark(label=place.entity, value=share.cost) for place, share in ranked if place.entity is not None]
    return made(
        "vendors",
        rows,
        totals=("total", None, *_amounts(every, every)) if rows else None,
        below=_below(by_place, every, _without(source, places)) if rows else (),
        plots=plots("Spend by entity", Shape.BARS, Kind.USD, marks),
    )


def _by_place(source: Source, places: Places) -> Mapping[Place, _Share]:
    """Requests that no target was asked for are at no place."""
    parts = []
    for (target, policy), sums in source.sums(ATTEMPTS_TABLE, ("target", "policy"), _VENDORS_MEASURES).items():
        place = NOWHERE if target is None else places.then(str(target), str(policy))
        if target is not None and place.entity is None:
            place = place._replace(entity=str(target))
        requests, attempts, *tokens, cost, recovered = sums
        parts.append((place, (requests, attempts, sum(tokens), cost, recovered)))
    return {place: summed(_Share, some) for place, some in grouped(parts).items()}


def _law(place: Place) -> str | None:
    return OURS if place.local else place.jurisdiction


def _rank(label: str | None, share: _Share) -> tuple[bool, int, int, str]:
    """Dearest first; what has no label last."""
    return label is None, -share.cost, -share.requests, label or ""


def _amounts(share: _Share, every: _Share) -> Row:
    parts = (share.of(name) / every.of(name) if every.of(name) else None for name in _SHARES)
    return (*share[:3], usd(share.cost), usd(share.recovered), *parts)


def _below(by_place: Mapping[Place, _Share], every: _Share, without: tuple[Row, ...]) -> tuple[Report, ...]:
    entities, laws = (
        {label: summed(_Share, some) for label, some in grouped((of(at), by_place[at]) for at in by_place).items()}
        for of in (lambda place: place.entity, _law)
    )
    homes = [_law(place) for place in by_place if place.entity is not None]
    ranked = sorted(laws.items(), key=lambda item: _rank(*item))
    return (
        made("jurisdictions", ((law, homes.count(law), *_amounts(share, every)) for law, share in ranked)),
        made("concentration", (*_index("entity", entities), *_index("jurisdiction", laws))),
        made("without", without),
    )


def _index(by: str, shares: _Shares) -> tuple[Row, ...]:
    """Of requests that went to a target: those that were refused have no entity."""
    rows: list[Row] = []
    for name in _SHARES:
        parts = {label: share.of(name) for label, share in shares.items() if label is not None and share.of(name)}
        total = sum(parts.values())
        if total:
            largest = max(sorted(parts), key=parts.__getitem__)
            hhi = round(sum((100 * part / total) ** 2 for part in parts.values()))
            rows.append((by, name, largest, parts[largest] / total, hhi))
    return tuple(rows)


def _without(source: Source, places: Places) -> tuple[Row, ...]:
    """One row an entity that was a first choice, the one that most depends on first."""

    def entity(target: str) -> str:
        return places.now(target).entity or target

    def others(vanished: str) -> Callable[[str], bool]:
        return lambda target: places.offered(target) and entity(target) != vanished

    of = grouped((entity(cell.chosen), cell) for cell in cells(source))
    lost = [(name, instead(some, others(name))) for name, some in of.items()]
    lost.sort(key=lambda item: (-item[1].stranded, -item[1].requests, item[0]))
    return tuple(_lost(*item) for item in lost)


def _lost(entity: str, left: Instead) -> Row:
    money = (left.now, left.then, left.then - left.now) if left.served else (None, None, None)
    scale = SURE * left.rated
    rates = (left.now_e4 / scale, left.then_e4 / scale) if scale else (None, None)
    return (entity, left.requests, left.stranded_least, left.stranded, *map(usd, money), *rates)
