"""Packing changes where rows are, and nothing that anybody can ask."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from router.ledger import rows
from router.ledger.connection import Connection, Rows
from router.ledger.facts.query import Query
from router.ledger.kept import Kept
from router.ledger.ledger import Ledger
from router.ledger.packed.pack import AFTER_MS, CAME_BACK_MS, LONGEST_MS, finish, needed, pack
from router.types.journal import LedgerUnavailable
from tests.ledger.books import found
from tests.ledger.packed.asked import WHOLE, answers, booked, everything, queries, windows
from tests.ledger.packed.drawn import DAY_MS, HOUR_MS, MONDAY_MS, add, fill, kept, requests
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


@settings(max_examples=10, deadline=None)
@given(seeds=requests, asked=st.lists(queries(), min_size=4, max_size=8))
def test_every_answer_stays(new_ledger: Make, seeds: list[int], asked: list[Query]) -> None:
    ledger, made = new_ledger(), kept(seeds, open_too=True)
    fill(ledger, made)
    asked = [*WHOLE, *asked]
    before = answers(ledger, asked), everything(ledger), booked(ledger), windows(ledger)
    for now_ms in (MONDAY_MS + 50 * HOUR_MS, LATER_MS):
        packs(ledger, now_ms)
        assert (answers(ledger, asked), everything(ledger), booked(ledger), windows(ledger)) == before
    open_ = [one.request["state"] == "held" for one in made]
    packed = open_.index(True) if any(open_) else len(made)
    assert [row["id"] for row in found(ledger, LEFT)] == [one.id for one in made[packed:]]


def test_one_request_is_found_wherever_it_is(ledger: Ledger) -> None:
    made = kept(range(30))
    fill(ledger, made)
    assert packs(ledger, MONDAY_MS + 50 * HOUR_MS)
    left = {row["id"] for row in found(ledger, "SELECT id FROM requests")}
    assert 0 < len(left) < len(made)
    with ledger.reading() as connection:
        assert [rows.one(connection, one.id) for one in made] == made
        assert rows.one(connection, "01" * 16) is None
        since, until = MONDAY_MS + 20 * HOUR_MS, MONDAY_MS + 60 * HOUR_MS
        window = [one for one in made if since <= one.started_ms < until]
        assert list(rows.every(connection, since, until)) == window


def test_young_and_held_requests_wait_and_all_that_follow(ledger: Ledger) -> None:
    first, second, third = kept(range(3))
    held = at(second, first.started_ms + 1, "held")
    fill(ledger, [first, held, at(third, first.started_ms + 2)])
    assert pack(ledger, first.started_ms + LONGEST_MS - 1) == 0
    assert pack(ledger, first.started_ms + LONGEST_MS) == 1
    assert pack(ledger, LATER_MS) == 0
    with ledger.writing() as connection:
        connection.execute("UPDATE requests SET state = 'recovered' WHERE id = ?", (held.id,))
    lease = held.started_ms + 30_000
    assert pack(ledger, lease + CAME_BACK_MS - 1) == 0
    assert pack(ledger, held.started_ms + LONGEST_MS) == 2


def test_what_just_happened_waits(ledger: Ledger) -> None:
    old, young = (at(one, MONDAY_MS + number * LONGEST_MS) for number, one in enumerate(kept(range(2))))
    fill(ledger, [old, young])
    assert pack(ledger, young.started_ms + AFTER_MS - 1) == 1
    assert [row["id"] for row in found(ledger, "SELECT id FROM requests")] == [young.id]


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
    before = answers(ledger, WHOLE), everything(ledger), booked(ledger), windows(ledger)
    again = made[1:4]
    with ledger.writing() as connection:
        for one in again:
            add(connection, one)
    assert packs(ledger) == 0
    assert (answers(ledger, WHOLE), everything(ledger), booked(ledger), windows(ledger)) == before


def test_a_booking_that_is_open_stays_until_it_is_settled(ledger: Ledger) -> None:
    """Budgets elsewhere may confirm long after the request was answered."""
    one = next(one for one in kept(range(20)) if one.bookings and one.request["state"] == "settled")
    open_ = structs.replace(one, bookings=tuple({**line, "charged": None, "state": "held"} for line in one.bookings))
    fill(ledger, [open_])
    assert packs(ledger) == 1
    assert everything(ledger) == [open_]
    with ledger.writing() as connection:
        connection.execute("UPDATE bookings SET charged = 7, state = 'settled' WHERE request_id = ?", (one.id,))
    with ledger.reading() as connection:
        settled = rows.one(connection, one.id)
    assert settled is not None
    assert {line["charged"] for line in settled.bookings} == {7}
    assert {row["charged"] for row in booked(ledger)} == {7}


def test_two_at_once_pack_each_request_once(ledger: Ledger) -> None:
    made = kept(range(300), over_ms=DAY_MS)
    fill(ledger, made)
    before = answers(ledger, WHOLE), booked(ledger), windows(ledger)

    def work(_: int) -> int:
        try:
            return packs(ledger)
        except LedgerUnavailable:
            return 0

    with ThreadPoolExecutor(4) as crowd:
        list(crowd.map(work, range(4)))
    packs(ledger)
    assert found(ledger, "SELECT SUM(requests) AS packed FROM segments") == [{"packed": 300}]
    assert (answers(ledger, WHOLE), booked(ledger), windows(ledger)) == before
    assert everything(ledger) == made
    assert found(ledger, LEFT) == []


class _Failing:
    """A connection to a disk that takes so many statements, and then no more."""

    def __init__(self, connection: Connection, left: int) -> None:
        self._connection, self.left = connection, left

    def execute(self, statement: str, values: Any = (), /) -> Rows:
        if statement != "ROLLBACK":
            self.left -= 1
        if self.left < 0:
            raise LedgerUnavailable("database or disk is full")
        return self._connection.execute(statement, values)


class _Full:
    """A ledger on such a disk."""

    def __init__(self, ledger: Ledger, left: int) -> None:
        self._ledger, self.left = ledger, left

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        with self._ledger.writing() as connection:
            failing = _Failing(connection, self.left)
            try:
                yield failing
            finally:
                self.left = failing.left


def test_whoever_fails_leaves_everything_as_it_was_and_the_next_goes_on(ledger: Ledger) -> None:
    days = [kept(range(day * 60, day * 60 + 60), over_ms=DAY_MS) for day in range(7)]
    fill(ledger, days.pop())
    enough = _Full(ledger, 1_000_000)
    packs(enough)
    statements = 1_000_000 - enough.left
    for day, (made, share) in enumerate(zip(days, (0, 0.1, 0.5, 0.85, 0.92, 0.97), strict=True)):
        fill(ledger, [at(one, one.started_ms + (day + 1) * DAY_MS) for one in made])
        before = answers(ledger, WHOLE[:3]), everything(ledger), booked(ledger), windows(ledger)
        with pytest.raises(LedgerUnavailable):
            packs(_Full(ledger, int(statements * share)))
        for go_on in (lambda: None, lambda: finish(ledger), lambda: packs(ledger, LATER_MS + DAY_MS)):
            go_on()
            assert (answers(ledger, WHOLE[:3]), everything(ledger), booked(ledger), windows(ledger)) == before
        assert found(ledger, LEFT) == []
    assert found(ledger, "SELECT part FROM segment_parts WHERE segment NOT IN (SELECT number FROM segments)") == []
