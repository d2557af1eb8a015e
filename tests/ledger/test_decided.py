"""Requests with their decisions, in stretches: the same as whole rows say, wherever they are by now."""

from itertools import pairwise

import pytest

from router.ledger import decided
from router.ledger.connection import Connection
from router.ledger.decided import COLUMNS, Row, Stretch, expired, stretches
from router.ledger.kept import Kept
from router.ledger.ledger import Ledger
from router.ledger.packed.pack import pack
from router.ledger.rows import every
from tests.ledger.packed.drawn import DAY_MS, MONDAY_MS, fill, kept


def row(one: Kept) -> Row:
    document = None if one.decision is None else one.decision["document"]
    return Row._make((*(one.request[name] for name in COLUMNS), len(one.attempts), document))


def read(connection: Connection, since_ms: int | None = None, until_ms: int | None = None) -> list[Row]:
    found = stretches(connection, since_ms, until_ms)
    return [one for stretch in found for one in decided.decided(connection, stretch, since_ms, until_ms)]


@pytest.mark.parametrize("packed", [False, True])
def test_they_are_what_whole_rows_say(ledger: Ledger, packed: bool) -> None:
    made = kept(range(60), open_too=True)
    fill(ledger, made)
    while packed and pack(ledger, MONDAY_MS + 10 * DAY_MS):
        pass
    times = sorted(one.started_ms for one in made)
    with ledger.reading() as connection:
        connection.execute("BEGIN")
        assert read(connection) == [row(one) for one in every(connection)]
        for since, until in ((times[20], times[40]), (None, times[5]), (times[55], None), (times[-1] + 1, None)):
            assert read(connection, since, until) == [row(one) for one in every(connection, since, until)]
        assert expired(connection) == 0


def test_stretches_have_each_request_once(ledger: Ledger) -> None:
    made = kept(range(40))
    fill(ledger, made)
    ids = sorted(one.id for one in made)
    with ledger.reading() as connection:
        cuts = [*ids[::7], ""]
        found = [one.id for pair in pairwise(cuts) for one in decided.decided(connection, Stretch(*pair))]
        assert found == ids


def test_an_empty_ledger_has_no_stretches(ledger: Ledger) -> None:
    with ledger.reading() as connection:
        assert stretches(connection) == []
