"""The ledger's sums by hour → records, a few hours at a time, so that no window is too large for the memory."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from router.export.focus.charges import charges
from router.export.focus.columns import Record
from router.export.focus.records import Group, adjustment, correction, usage
from router.ledger.attempt_row import BUCKETS
from router.ledger.connection import Connection
from router.ledger.facts.attempts import HOUR_MS, TABLE
from router.ledger.facts.query import Label, Query, Sums
from router.ledger.rollups import sums
from router.types.price import CostSource, Price, Prices, price_then

BY = (
    *("organisation", "team", "key", "tags", "route", "task", "effort", "target", "model", "provider", "region"),
    *("price_version", "cost_source"),
)
"""One of the ledger's groupings, beside the hour: it can be exported also after its rows have expired."""
MEASURES = (
    *("requests", "attempts", "cost", "own_cost", "recovered", "thinking_cost", "cache_saved"),
    *BUCKETS,
)


TOGETHER = 6
"""Hours that are summed at once."""


class Directory(Struct, frozen=True):
    """What is known beside the ledger: model → version → price, and the names of providers by their ids."""

    prices: Prices = {}
    entities: Mapping[str, str] = {}
    local: frozenset[str] = frozenset()
    """Ids of providers that are engines of one's own."""

    def price(self, model: Label, version: Label) -> Price | None:
        return price_then(self.prices, str(model), str(version))


def dataset(
    connection: Connection, directory: Directory, since_ms: int | None = None, until_ms: int | None = None
) -> Iterator[Record]:
    """Whole hours (UTC): the first that has `since_ms` in it up to the last that has anything before `until_ms`.

    Inside a read transaction it is one moment's. Raises `Expired` where even sums by hour are gone.
    """
    first = None if since_ms is None else since_ms // HOUR_MS * HOUR_MS
    last = None if until_ms is None else -(-until_ms // HOUR_MS) * HOUR_MS
    for begin in _begins(connection, first, last):
        since, until = begin * HOUR_MS, (begin + TOGETHER) * HOUR_MS
        asked = _query(("hour", *BY), MEASURES, max(since, first or 0), min(until, until if last is None else last))
        yield from _records(sums(connection, asked), directory)


def _begins(connection: Connection, since_ms: int | None, until_ms: int | None) -> list[int]:
    """Of the spans of hours in which anything began."""
    found = sums(connection, _query(("hour",), ("requests",), since_ms, until_ms))
    return sorted({int(hour or 0) // TOGETHER * TOGETHER for (hour,) in found})


def _query(by: tuple[str, ...], measures: tuple[str, ...], since_ms: int | None, until_ms: int | None) -> Query:
    return Query(table=TABLE, by=by, measures=measures, since_ms=since_ms, until_ms=until_ms)


def _records(found: Sums, directory: Directory) -> Iterator[Record]:
    for labels in sorted(found, key=lambda labels: tuple(map(str, labels))):
        of, measured = dict(zip(BY, labels[1:], strict=True)), dict(zip(MEASURES, found[labels], strict=True))
        provider = str(of["provider"] or "")
        group = Group(int(labels[0] or 0), of, directory.entities.get(provider, provider), provider in directory.local)
        if of["target"] is None:
            lost = measured["cost"] + measured["recovered"]
            if lost:
                yield adjustment(group, lost, measured)
        else:
            yield from _usage(group, measured, directory)


def _usage(group: Group, measured: Mapping[str, int], directory: Directory) -> Iterator[Record]:
    """Whatever belongs to the group as a whole stands in its first record alone, so that columns can be summed."""
    of = group.of
    if of["cost_source"] == CostSource.ADJUSTED:
        yield correction(group, measured["cost"], measured)
        return
    price = directory.price(of["model"], of["price_version"])
    rest = measured
    for charge in charges(measured, price, str(of["cost_source"])):
        yield usage(group, charge, rest)
        rest = {}
    if measured["recovered"]:
        yield adjustment(group, measured["recovered"], rest)
