"""`lowpass report vendors`: shares of providers, and who could have served in their place."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from router.ledger.facts.attempts import TABLE as ATTEMPTS_TABLE
from router.ledger.facts.offers import TABLE
from router.ledger.rows import documents
from router.report.egress import NOWHERE, Place, Places
from router.report.query import Definition, Source
from router.report.report import Column, Kind, Mark, Plot, Report, Row, Shape, Value
from router.types.price import usd_from_nano

# Who else could have served what some targets served, and for how much: from what was expected of each candidate.
#
# Sums know how many requests of a kind each candidate could have served, not which of them. What one could, another
# is taken to have been able to as well, as far as it goes: so no more are said to be served than surely could be.
# Exact, request by request, is `lowpass replay` under a policy without these targets.

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


# On whom everything depends: shares by legal entity and by jurisdiction, and what is left if one of them vanishes.

_VENDORS_MEASURES = ("requests", "attempts", "input_tokens", "output_tokens", "cost", "recovered")
_SHARES = ("spend", "requests", "tokens")
_AMOUNTS = (
    Column("requests", Kind.COUNT),
    Column("attempts", Kind.COUNT),
    Column("tokens", Kind.COUNT),
    Column("cost_usd", Kind.USD),
    Column("recovered_usd", Kind.USD, rare=True),
    *(Column(f"share_of_{name}", Kind.SHARE) for name in _SHARES),
)
_COLUMNS = (Column("entity", Kind.LABEL), Column("jurisdiction"), *_AMOUNTS)
_LAW_COLUMNS = (Column("jurisdiction", Kind.LABEL), Column("entities", Kind.COUNT), *_AMOUNTS)
_INDEX_COLUMNS = (
    Column("by", Kind.LABEL),
    Column("of"),
    Column("largest"),
    Column("its_share", Kind.SHARE),
    Column("hhi", Kind.COUNT),
)
_WITHOUT_COLUMNS = (
    Column("entity", Kind.LABEL),
    Column("requests", Kind.COUNT),
    Column("nobody_else_at_least", Kind.COUNT),
    Column("nobody_else_at_most", Kind.COUNT),
    Column("expected_usd", Kind.USD),
    Column("instead_usd", Kind.USD),
    Column("change_usd", Kind.USD),
    Column("pass_rate", Kind.RATE),
    Column("pass_rate_instead", Kind.RATE),
)
_NOTE = (
    "Entity and jurisdiction as the policy of each request had them. A request counts where its last attempt went,"
    " tokens and money where they were spent; what was recovered after a crash is not in the shares."
)
_INDEX_NOTE = (
    "HHI: the sum of squared shares in percent, 10,000 for one supplier alone; above 1,800 a market is called highly"
    " concentrated (US Merger Guidelines 2023, 2.1)."
)
_WITHOUT_NOTE = (
    "Bounds, from what was expected of every candidate: requests that it was the first choice for; of them those that"
    " no other candidate of today's policy could serve; of all others, what was expected of it and what of the cheapest"
    " candidates instead. For a route whose strategy makes no forecasts only fallbacks are known. Exact, request by"
    " request: lowpass replay under a policy without its targets."
)
OURS = "local"
"""Stands for a jurisdiction where nothing leaves."""


class _Share(Struct):
    requests: int = 0
    attempts: int = 0
    tokens: int = 0
    cost: int = 0
    recovered: int = 0

    def add(self, sums: Sequence[int]) -> None:
        requests, attempts, *tokens, cost, recovered = sums
        self.requests += requests
        self.attempts += attempts
        self.tokens += sum(tokens)
        self.cost += cost
        self.recovered += recovered

    @property
    def sums(self) -> Sequence[int]:
        return self.requests, self.attempts, self.tokens, self.cost, self.recovered

    def of(self, name: str) -> int:
        return {"spend": self.cost, "requests": self.requests, "tokens": self.tokens}[name]


_Shares = Mapping[str | None, _Share]


def _made(source: Source) -> Report:
    places = Places(documents(source.connection), source.targets)
    by_place, every = _shares(source, places)
    ranked = sorted(by_place.items(), key=lambda item: _rank(item[0].entity, item[1]))
    rows = tuple((one.entity, _law(one), *_amounts(at, every)) for one, at in ranked)
    return Report(
        name="vendors",
        title="Vendors",
        columns=_COLUMNS,
        rows=rows,
        totals=("total", None, *_amounts(every, every)) if rows else None,
        note=_NOTE,
        since_ms=source.asked.since_ms,
        until_ms=source.asked.until_ms,
        below=_below(by_place, every, _without(source, places)) if rows else (),
        plots=_plots(ranked),
    )


REPORT = Definition(
    name="vendors",
    summary="Concentration by legal entity and jurisdiction, and what is left if one vanishes.",
    make=_made,
    where=("route", "class"),
)


def _shares(source: Source, places: Places) -> tuple[Mapping[Place, _Share], _Share]:
    """By place, and of all; requests that no target was asked for are at no place."""
    by_place: dict[Place, _Share] = defaultdict(_Share)
    every = _Share()
    for (target, policy), sums in source.sums(ATTEMPTS_TABLE, ("target", "policy"), _VENDORS_MEASURES).items():
        place = NOWHERE if target is None else places.then(str(target), str(policy))
        if target is not None and place.entity is None:
            place = place._replace(entity=str(target))
        for share in (by_place[place], every):
            share.add(sums)
    return by_place, every


def _law(place: Place) -> str | None:
    return OURS if place.local else place.jurisdiction


def _rank(label: str | None, share: _Share) -> tuple[bool, int, int, str]:
    """Dearest first; what has no label last."""
    return label is None, -share.cost, -share.requests, label or ""


def _together(by_place: Mapping[Place, _Share], label: Callable[[Place], str | None]) -> _Shares:
    found: dict[str | None, _Share] = defaultdict(_Share)
    for place, share in by_place.items():
        found[label(place)].add(share.sums)
    return found


def _amounts(share: _Share, every: _Share) -> Row:
    parts = (share.of(name) / every.of(name) if every.of(name) else None for name in _SHARES)
    money = (usd_from_nano(share.cost), usd_from_nano(share.recovered))
    return (share.requests, share.attempts, share.tokens, *money, *parts)


def _below(by_place: Mapping[Place, _Share], every: _Share, without: tuple[Row, ...]) -> tuple[Report, ...]:
    entities, laws = _together(by_place, lambda place: place.entity), _together(by_place, _law)
    homes = [_law(place) for place in by_place if place.entity is not None]
    ranked = sorted(laws.items(), key=lambda item: _rank(*item))
    by_law = tuple((law, homes.count(law), *_amounts(one, every)) for law, one in ranked)
    index = (*_index("entity", entities), *_index("jurisdiction", laws))
    return (
        Report(name="jurisdictions", title="By jurisdiction", columns=_LAW_COLUMNS, rows=by_law),
        Report(name="concentration", title="Concentration", columns=_INDEX_COLUMNS, rows=index, note=_INDEX_NOTE),
        Report(
            name="without", title="If one vanished tomorrow", columns=_WITHOUT_COLUMNS, rows=without, note=_WITHOUT_NOTE
        ),
    )


def _index(by: str, shares: _Shares) -> tuple[Row, ...]:
    """Of what went to anybody: refused requests are nobody's."""
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
    of: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells(source):
        of[_named(places, cell.chosen)].append(cell)
    found = [(entity, instead(some, _others(places, entity))) for entity, some in of.items()]
    found.sort(key=lambda one: (-one[1].stranded, -one[1].requests, one[0]))
    return tuple(_lost(entity, one) for entity, one in found)


def _named(places: Places, target: str) -> str:
    return places.now(target).entity or target


def _others(places: Places, entity: str) -> Callable[[str], bool]:
    return lambda target: places.offered(target) and _named(places, target) != entity


def _lost(entity: str, one: Instead) -> Row:
    money: tuple[Value, ...] = (None, None, None)
    if one.served:
        money = (usd_from_nano(one.now), usd_from_nano(one.then), usd_from_nano(one.then - one.now))
    scale = SURE * one.rated
    rates: tuple[Value, ...] = (one.now_e4 / scale, one.then_e4 / scale) if scale else (None, None)
    return (entity, one.requests, one.stranded_least, one.stranded, *money, *rates)


def _plots(ranked: Sequence[tuple[Place, _Share]]) -> tuple[Plot, ...]:
    marks = tuple(Mark(label=place.entity, value=one.cost) for place, one in ranked if place.entity is not None)
    return (Plot(title="Spend by entity", shape=Shape.BARS, unit=Kind.USD, marks=marks),) if marks else ()
