"""The ledger's answer to a query, wherever its rows are by now. Read inside one transaction, it is one moment's."""

from collections.abc import Collection

from router.ledger.connection import Connection
from router.ledger.facts import attempts, fresh, offers
from router.ledger.facts.query import Query, Sums, added
from router.ledger.packed.sums import of_packed

_TABLES = {
    attempts.TABLE: (attempts.DIMENSIONS, attempts.MEASURES, fresh.of_attempts),
    offers.TABLE: (offers.DIMENSIONS, offers.MEASURES, fresh.of_offers),
}


def sums(connection: Connection, query: Query) -> Sums:
    """Groups without facts are not there; a query by nothing has the key `()`, or nothing at all.

    Raises ValueError for what the table does not know, and `Expired`.
    """
    dimensions, measures, of_fresh = _TABLES[query.table]
    _known(query.dimensions, dimensions)
    _known(query.measures, measures)
    packed, recent = of_packed(connection, query), of_fresh(connection, query)
    return added(packed, recent) if recent else packed


def _known(asked: Collection[str], known: Collection[str]) -> None:
    unknown = sorted(set(asked) - set(known))
    if unknown:
        raise ValueError(f"unknown: {', '.join(unknown)}. Known: {', '.join(known)}.")
