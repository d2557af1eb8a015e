"""What is asked of a ledger, and what must not change when its rows are packed."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from router.ledger import rows
from router.ledger.facts import attempts, offers
from router.ledger.facts.query import Expired, Query, Sums, Where
from router.ledger.facts.read import sums
from router.ledger.kept import Kept
from router.ledger.ledger import Ledger
from tests.ledger.books import found
from tests.ledger.packed.drawn import DAY_MS, HOUR_MS, MONDAY_MS

ALL_TABLES = {
    attempts.TABLE: (tuple(attempts.DIMENSIONS), tuple(attempts.MEASURES)),
    offers.TABLE: (offers.DIMENSIONS, offers.MEASURES),
}
_CHARGED = (
    "SELECT account, window_start_ms, CAST(SUM(charged) AS BIGINT) AS charged FROM bookings WHERE charged IS NOT NULL"
    " GROUP BY account, window_start_ms ORDER BY account, window_start_ms"
)
_OPEN = "SELECT * FROM bookings WHERE charged IS NULL ORDER BY request_id, account"
WHOLE = [Query(table=table, by=(), measures=measures) for table, (_, measures) in ALL_TABLES.items()] + [
    Query(table=attempts.TABLE, by=by, measures=tuple(attempts.MEASURES)) for by in attempts.GROUPINGS
]
"""Of everything, together and by each grouping."""


@st.composite
def queries(draw: st.DrawFn) -> Query:
    table = draw(st.sampled_from(sorted(ALL_TABLES)))
    dimensions, measures = ALL_TABLES[table]
    some = st.lists(st.sampled_from(dimensions), max_size=3, unique=True)
    labels: st.SearchStrategy[Any] = st.sampled_from([None, "gpu", "internal", "auto", "house/model", "", "s-1", "ok"])
    where = draw(
        st.lists(st.builds(Where, st.sampled_from(dimensions), st.frozensets(labels), st.booleans()), max_size=2)
    )
    edge = st.one_of(
        st.none(),
        st.integers(0, 72).map(lambda hours: MONDAY_MS + hours * HOUR_MS),
        st.integers(0, 3 * DAY_MS).map(lambda ms: MONDAY_MS + ms),
    )
    return Query(
        table=table,
        by=tuple(draw(some)),
        measures=tuple(draw(st.lists(st.sampled_from(measures), max_size=3, unique=True))),
        where=tuple(where),
        since_ms=draw(edge),
        until_ms=draw(edge),
    )


def answers(ledger: Ledger, asked: Sequence[Query]) -> list[Sums]:
    with ledger.reading() as connection:
        connection.execute("BEGIN")
        return [sums(connection, query) for query in asked]


def answered(ledger: Ledger, query: Query) -> Sums | Expired:
    try:
        return answers(ledger, [query])[0]
    except Expired as expired:
        return expired


def everything(ledger: Ledger) -> list[Kept]:
    with ledger.reading() as connection:
        connection.execute("BEGIN")
        return list(rows.every(connection))


def booked(ledger: Ledger) -> list[dict[str, Any]]:
    """What was charged in each window, and what is held."""
    return found(ledger, _CHARGED) + found(ledger, _OPEN)


def windows(ledger: Ledger) -> list[dict[str, Any]]:
    return found(ledger, "SELECT * FROM budget_windows ORDER BY budget, window_start_ms")
