"""`lowpass report vendors`: shares of providers, and alternatives to each of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from router.ledger.facts import ATTEMPTS, OFFERS
from router.report.egress import Destination, PastPolicies
from router.report.query import LedgerView, grouped, summed, summed_by
from router.report.report import Kind, Mark, Report, Row, Shape, made, plots

# Which other targets could have served some targets' requests, and at what cost, from the expectations of decisions.
#
# Sums have the number of requests that each candidate could have served, but not which ones. Candidates are assumed to
# overlap as far as possible, so the number of served requests is a lower bound. Exact results, request by request, come
# from `lowpass replay` under a policy without these targets.

_KIND = ("route", "class")
CERTAIN_E4 = 10_000
"""A pass rate of 1 in the ledger's sums."""


class CandidateSums(NamedTuple):
    """Expectations for a candidate, over requests of a kind with one choice: nano-USD, rates in ten-thousandths."""

    requests: int
    expected: int
    rated: int
    pass_e4: int


class ChoiceSums(NamedTuple):
    """Requests of one kind with the same choice: the expectations for the choice, and for each other candidate."""

    chosen: str
    own: CandidateSums
    others: Mapping[str, CandidateSums]


class VendorLoss(NamedTuple):
    """Loss of a target for `requests`, of which `stranded_least` to `stranded` have no alternative. `now` and `then`:
    the expected cost of the others, in nano-USD. Pass rates, in ten-thousandths, are sums over `rated` requests."""

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
        """Minimum number of requests that other targets can serve."""
        return self.requests - self.stranded


def cells(source: LedgerView) -> list[ChoiceSums]:
    """Returns the sums of requests for which a target was chosen."""
    by_labels = source.sums(OFFERS, (*_KIND, "chosen", "candidate"), CandidateSums._fields)
    by_kind = grouped((labels[:-1], (str(labels[-1]), CandidateSums(*sums))) for labels, sums in by_labels.items())
    choices = ((str(kind[-1]), dict(candidates)) for kind, candidates in by_kind.items())
    return [ChoiceSums(chosen, offers.pop(chosen), offers) for chosen, offers in choices if chosen in offers]


def vendor_loss(of: Iterable[ChoiceSums], may: Callable[[str], bool]) -> VendorLoss:
    """Returns the effect of having only the candidates for which `may` is true. The cheapest serves all that it can,
    the next one the rest that it can."""
    return summed(VendorLoss, (_moved(cell, may) for cell in of))


def _moved(cell: ChoiceSums, may: Callable[[str], bool]) -> VendorLoss:
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
    return VendorLoss(own.requests, own.requests - served, least, now, then, rated, now_e4, then_e4)


def _part(amount: int, taken: int, of: int) -> int:
    """Returns a share of an amount, rounded half up."""
    return (2 * amount * taken + of) // (2 * of)


# Dependence on vendors: shares by legal entity and jurisdiction, and what is left if an entity is lost.

_MEASURES = ("requests", "attempts", "input_tokens", "output_tokens", "cost", "recovered")
_SHARES = ("spend", "requests", "tokens")
LOCAL = "local"
"""Label in place of a jurisdiction for local targets."""


class _VendorShare(NamedTuple):
    """Sums of a vendor; money in nano-USD."""

    requests: int = 0
    attempts: int = 0
    tokens: int = 0
    spend: int = 0
    recovered: int = 0


def vendors(source: LedgerView) -> Report:
    policies, parts = PastPolicies(source.connection, source.targets), []
    for (target, policy), sums in source.sums(ATTEMPTS, ("target", "policy"), _MEASURES).items():
        # Requests for which no target was asked have no destination.
        place = Destination() if target is None else policies.then(str(policy), str(target))
        if target is not None and place.entity is None:
            place = place._replace(entity=str(target))
        requests, attempts, *tokens, cost, recovered = sums
        parts.append((place, (requests, attempts, sum(tokens), cost, recovered)))
    by_place = summed_by(_VendorShare, parts)
    every = summed(_VendorShare, by_place.values())
    ranked = sorted(by_place.items(), key=lambda item: _rank(item[0].entity, item[1]))
    rows = tuple((place.entity, _law(place), *_amounts(share, every)) for place, share in ranked)
    entities = summed_by(_VendorShare, ((place.entity, share) for place, share in by_place.items()))
    laws = summed_by(_VendorShare, ((_law(place), share) for place, share in by_place.items()))
    homes = [_law(place) for place in by_place if place.entity is not None]
    by_law = sorted(laws.items(), key=lambda item: _rank(*item))
    below = (
        made("jurisdictions", ((law, homes.count(law), *_amounts(share, every)) for law, share in by_law)),
        made("concentration", (*_index("entity", entities), *_index("jurisdiction", laws))),
        made("without", _without(source, policies)),
    )
    marks = [Mark(label=place.entity, value=share.spend) for place, share in ranked if place.entity is not None]
    return made(
        "vendors",
        rows,
        totals=("total", None, *_amounts(every, every)) if rows else None,
        below=below if rows else (),
        plots=plots("Spend by entity", Shape.BARS, Kind.USD, marks),
    )


def _law(place: Destination) -> str | None:
    return LOCAL if place.local else place.jurisdiction


def _rank(label: str | None, share: _VendorShare) -> tuple[bool, int, int, str]:
    """Sort key: most expensive first, without a label last."""
    return label is None, -share.spend, -share.requests, label or ""


def _amounts(share: _VendorShare, every: _VendorShare) -> Row:
    pairs = ((getattr(share, name), getattr(every, name)) for name in _SHARES)
    return (*share, *(part / whole if whole else None for part, whole in pairs))


def _index(by: str, shares: Mapping[str | None, _VendorShare]) -> Iterator[Row]:
    """Yields concentration rows of requests that went to a target; refused ones have no entity."""
    for name in _SHARES:
        parts = {label: amount for label, share in shares.items() if label and (amount := getattr(share, name))}
        if total := sum(parts.values()):
            largest = max(sorted(parts), key=parts.__getitem__)
            hhi = round(sum((100 * part / total) ** 2 for part in parts.values()))
            yield by, name, largest, parts[largest] / total, hhi


def _without(source: LedgerView, policies: PastPolicies) -> list[Row]:
    """Returns one row for each entity that was a first choice, starting with the one that is hardest to replace."""

    def entity(target: str) -> str:
        return policies.now(target).entity or target

    def others(vanished: str) -> Callable[[str], bool]:
        return lambda target: policies.offered(target) and entity(target) != vanished

    chosen = grouped((entity(cell.chosen), cell) for cell in cells(source))
    lost = [(name, vendor_loss(some, others(name))) for name, some in chosen.items()]
    lost.sort(key=lambda item: (-item[1].stranded, -item[1].requests, item[0]))
    rows: list[Row] = []
    for name, left in lost:
        money = (left.now, left.then, left.then - left.now) if left.served else (None, None, None)
        scale = CERTAIN_E4 * left.rated
        rates = (left.now_e4 / scale, left.then_e4 / scale) if scale else (None, None)
        rows.append((name, left.requests, left.stranded_least, left.stranded, *money, *rates))
    return rows
