"""Packing changes where rows are, and no answer."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from router.ledger import rows
from router.ledger.connection import Connection, Rows
from router.ledger.facts.query import Query
from router.ledger.kept import Kept
from router.ledger.ledger import Ledger, SqliteLedger
from router.ledger.packed.pack import AFTER_MS, CAME_BACK_MS, LONGEST_MS, finish, needed, pack
from router.types.journal import LedgerUnavailable
from tests.ledger.books import found
from tests.ledger.packed import drawn
from tests.ledger.packed.drawn import DAY_MS, HOUR_MS, MONDAY_MS, WHOLE, booked, contents, everything, fill, kept
from tests.ledger.plain import add
from tests.stores import Make

LATER_MS = MONDAY_MS + 10 * DAY_MS
LEFT = "SELECT id FROM requests UNION SELECT id FROM decisions UNION SELECT request_id FROM attempts ORDER BY 1"


def packs(ledger: Ledger, now_ms: int = LATER_MS) -> int:
    total = 0
    while some := pack(ledger, now_ms):
        total += some
    return total


def at(one: Kept, started_ms: int, state: str = "settled") -> Kept:
    """The same request at another time."""
    identifier = f"{started_ms:012x}{one.id[12:]}"
    changed = {"id": identifier, "started_ms": started_ms, "state": state, "lease_until_ms": started_ms + 30_000}
    renamed = {"request_id": identifier}
    decision = None if one.decision is None else {**one.decision, "id": identifier}
    return structs.replace(
        one,
        request={**one.request, **changed},
        attempts=tuple({**line, **renamed} for line in one.attempts),
        bookings=tuple({**line, **renamed} for line in one.bookings),
        decision=decision,
    )


@settings(max_examples=4, deadline=None)
@given(seeds=drawn.requests, asked=st.lists(drawn.queries(), min_size=4, max_size=8))
def test_every_answer_stays(new_ledger: Make, seeds: list[int], asked: list[Query]) -> None:
    ledger, made = new_ledger(), kept(seeds, open_too=True)
    fill(ledger, made)
    before = contents(ledger, [*WHOLE, *asked])
    for now_ms in (MONDAY_MS + 50 * HOUR_MS, LATER_MS):
        packs(ledger, now_ms)
        assert contents(ledger, [*WHOLE, *asked]) == before
    open_ = [one.request["state"] == "held" for one in made]
    packed = open_.index(True) if any(open_) else len(made)
    assert [row["id"] for row in found(ledger, LEFT)] == [one.id for one in made[packed:]]


def test_one_request_is_found_wherever_it_is(ledger: Ledger) -> None:
    made = kept(range(30))
    fill(ledger, made)
    assert packs(ledger, MONDAY_MS + 50 * HOUR_MS)
    assert 0 < len(found(ledger, "SELECT id FROM requests")) < len(made)
    with ledger.reading() as connection:
        assert [rows.one(connection, one.id) for one in made] == made
        assert rows.one(connection, "01" * 16) is None
        since, until = MONDAY_MS + 20 * HOUR_MS, MONDAY_MS + 60 * HOUR_MS
        window = [one for one in made if since <= one.started_ms < until]
        assert list(rows.every(connection, since, until)) == window


def test_young_and_held_requests_wait_and_all_that_follow(new_sqlite: SqliteLedger) -> None:
    first, second, third = kept(range(3))
    held = at(second, first.started_ms + 1, "held")
    fill(new_sqlite, [first, held, at(third, first.started_ms + 2)])
    assert pack(new_sqlite, first.started_ms + LONGEST_MS - 1) == 0
    assert pack(new_sqlite, first.started_ms + LONGEST_MS) == 1
    assert pack(new_sqlite, LATER_MS) == 0
    with new_sqlite.writing() as connection:
        connection.execute("UPDATE requests SET state = 'recovered' WHERE id = ?", (held.id,))
    assert pack(new_sqlite, held.started_ms + 30_000 + CAME_BACK_MS - 1) == 0
    assert pack(new_sqlite, held.started_ms + LONGEST_MS) == 2


def test_what_just_happened_waits(new_sqlite: SqliteLedger) -> None:
    old, young = (at(one, MONDAY_MS + number * LONGEST_MS) for number, one in enumerate(kept(range(2))))
    fill(new_sqlite, [old, young])
    assert pack(new_sqlite, young.started_ms + AFTER_MS - 1) == 1
    assert found(new_sqlite, "SELECT id FROM requests") == [{"id": young.id}]


def test_it_is_known_whether_there_is_something_to_do(ledger: Ledger) -> None:
    def due(now_ms: int) -> bool:
        with ledger.reading() as connection:
            return needed(connection, now_ms)

    made = kept(range(4))
    fill(ledger, made)
    assert not due(made[0].started_ms + LONGEST_MS - 1)
    assert due(made[0].started_ms + LONGEST_MS)
    packs(ledger)
    assert not due(LATER_MS)
    fill(ledger, [at(kept([9])[0], made[0].started_ms + 1)])
    assert due(LATER_MS)


def test_what_comes_late_is_packed_then(ledger: Ledger) -> None:
    made = kept(range(20), over_ms=DAY_MS)
    fill(ledger, [*made[:5], *made[8:]])
    assert packs(ledger) == 17
    fill(ledger, made[5:8])
    assert packs(ledger) == 3
    assert everything(ledger) == made
    with ledger.reading() as connection:
        assert [rows.one(connection, one.id) for one in made] == made


def test_what_is_written_twice_counts_once(ledger: Ledger) -> None:
    """A commit is repeated when its answer was lost; by then its rows may be packed."""
    made = [one for one in kept(range(40)) if one.attempts and one.bookings]
    fill(ledger, made)
    packs(ledger)
    before = contents(ledger)
    with ledger.writing() as connection:
        for one in made[1:4]:
            add(connection, one)
    assert packs(ledger) == 0
    assert contents(ledger) == before


def test_a_booking_that_is_open_stays_until_it_is_settled(ledger: Ledger) -> None:
    """Budgets elsewhere may confirm long after the request was answered."""
    one = next(one for one in kept(range(20)) if one.bookings and one.request["state"] == "settled")
    open_ = structs.replace(one, bookings=tuple({**line, "charged": None, "state": "held"} for line in one.bookings))
    fill(ledger, [open_])
    assert packs(ledger) == 1
    assert everything(ledger) == [open_]
    with ledger.writing() as connection:
        connection.execute("UPDATE bookings SET charged = 7, state = 'settled' WHERE request_id = ?", (one.id,))
    (settled,) = everything(ledger)
    assert {line["charged"] for line in settled.bookings} == {7}
    assert {row["charged"] for row in booked(ledger)} == {7}


def test_two_at_once_pack_each_request_once(ledger: Ledger) -> None:
    fill(ledger, kept(range(300), over_ms=DAY_MS))
    before = contents(ledger)

    def work(_: int) -> None:
        with suppress(LedgerUnavailable):
            packs(ledger)

    with ThreadPoolExecutor(4) as crowd:
        list(crowd.map(work, range(4)))
    packs(ledger)
    assert found(ledger, "SELECT SUM(requests) AS packed FROM segments") == [{"packed": 300}]
    assert contents(ledger) == before
    assert found(ledger, LEFT) == []


class _Full:
    """A ledger on a disk that takes so many statements, and then no more; a connection of it too."""

    def __init__(self, ledger: Ledger, left: int) -> None:
        self._ledger, self.left = ledger, left
        self._connection: Connection | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        with self._ledger.writing() as self._connection:
            yield self

    def execute(self, statement: str, values: Any = (), /) -> Rows:
        self.left -= statement != "ROLLBACK"
        if self.left < 0:
            raise LedgerUnavailable("database or disk is full")
        assert self._connection is not None
        return self._connection.execute(statement, values)


def test_a_failure_leaves_everything_as_it_was_and_the_next_goes_on(ledger: Ledger) -> None:
    days = [kept(range(day * 20, day * 20 + 20), over_ms=DAY_MS) for day in range(7)]
    fill(ledger, days.pop())
    enough = _Full(ledger, 1_000_000)
    packs(enough)
    statements = 1_000_000 - enough.left
    for day, (made, share) in enumerate(zip(days, (0, 0.1, 0.5, 0.85, 0.92, 0.97), strict=True)):
        fill(ledger, [at(one, one.started_ms + (day + 1) * DAY_MS) for one in made])
        before = contents(ledger, WHOLE[:3])
        with pytest.raises(LedgerUnavailable):
            packs(_Full(ledger, int(statements * share)))
        for go_on in (lambda: None, lambda: finish(ledger), lambda: packs(ledger, LATER_MS + DAY_MS)):
            go_on()
            assert contents(ledger, WHOLE[:3]) == before
        assert found(ledger, LEFT) == []
    assert found(ledger, "SELECT part FROM segment_parts WHERE segment NOT IN (SELECT number FROM segments)") == []
