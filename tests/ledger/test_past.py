"""Rows move to the past, are summed up by hour and dropped when they are old, and no answer changes by that; and the
process that does so, killed at any moment."""

import asyncio
import logging
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from router.ledger import past, rollups, rows
from router.ledger.facts import ATTEMPTS, DIMENSIONS, GROUPINGS, MEASURES, OFFERS, LabelFilter, Query, RowsExpired, Sums
from router.ledger.ledger import Ledger, SqliteLedger
from router.ledger.past import CAME_BACK_MS, ENOUGH, PATIENCE_MS
from router.ledger.postgres import PostgresLedger
from router.ledger.query import LONGEST_WINDOW_MS
from router.ledger.rows import Connection, RequestRecord, SqlRows
from router.ledger.upkeep import needed, upkeep
from router.settings import SettingError, read
from router.testing import lowpass
from router.types.account import LedgerUnavailable
from router.types.clock import now_ms
from router.types.target import Secret
from router.workers.background import Upkeep
from tests.gateway.running import until
from tests.ledger import drawn
from tests.ledger.books import found
from tests.ledger.drawn import (
    DAY_MS,
    HOUR_MS,
    MONDAY_MS,
    WHOLE,
    answers,
    booked,
    contents,
    everything,
    fill,
    kept,
    windows,
)
from tests.ledger.plain import add, expire, move, outcome, put
from tests.postgres import Server
from tests.stores import Make

COST = ("requests", "cost")
LATER_MS = MONDAY_MS + 10 * DAY_MS
HALF_MS = MONDAY_MS + 50 * HOUR_MS
KEEP_MS = LATER_MS - HALF_MS
LIVE = (
    "SELECT id FROM live_requests UNION SELECT id FROM live_decisions"
    " UNION SELECT request_id FROM live_attempts ORDER BY 1"
)
DATA = Path(__file__).with_name("data")


def at(one: RequestRecord, started_ms: int, state: str = "settled") -> RequestRecord:
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
@given(seeds=drawn.requests, asked=st.lists(drawn.queries(), min_size=4, max_size=8), cut=st.integers(0, 40))
def test_every_answer_stays(new_ledger: Make, seeds: list[int], asked: list[Query], cut: int) -> None:
    ledger, made = new_ledger(), kept(seeds, open_too=True)
    fill(ledger, made[:cut])
    move(ledger, LATER_MS)
    fill(ledger, made[cut:])
    before = contents(ledger, [*WHOLE, *asked])
    move(ledger, LATER_MS)
    assert contents(ledger, [*WHOLE, *asked]) == before
    assert [row["id"] for row in found(ledger, LIVE)] == [one.id for one in made if one.request["state"] == "held"]


def test_one_request_is_found_wherever_it_is_and_by_plain_sql(ledger: Ledger) -> None:
    made = kept(range(30))
    fill(ledger, made[:20])
    assert move(ledger, LATER_MS) == 20
    fill(ledger, made[20:])
    with ledger.reading() as connection:
        assert [rows.one(connection, one.id) for one in made] == made
        assert rows.one(connection, "01" * 16) is None
        since, until = MONDAY_MS + 20 * HOUR_MS, MONDAY_MS + 60 * HOUR_MS
        window = [one for one in made if since <= one.started_ms < until]
        assert list(rows.every(connection, since, until)) == window
        assert rows.newest(connection, 15) == made[:-16:-1]
    assert found(ledger, "SELECT * FROM requests ORDER BY id") == [one.request for one in made]
    lines = [line for one in made for line in one.attempts]
    assert found(ledger, "SELECT * FROM attempts ORDER BY request_id, number") == lines
    first = made[3]
    assert found(ledger, "SELECT route, task FROM requests WHERE id = ?", first.id) == [
        {"route": first.request["route"], "task": first.request["task"]}
    ]


def test_held_requests_stay_and_recovered_ones_for_a_while(ledger: Ledger) -> None:
    first, second, third = kept(range(3))
    held, back = at(second, first.started_ms + 1, "held"), at(third, first.started_ms + 2, "recovered")
    fill(ledger, [first, held, back])
    assert move(ledger, back.started_ms + 30_000 + CAME_BACK_MS - 1) == 1
    assert move(ledger, back.started_ms + 30_000 + CAME_BACK_MS) == 1
    assert [row["id"] for row in found(ledger, "SELECT id FROM live_requests")] == [held.id]


def test_what_another_process_moved_and_dropped_meanwhile_counts_once(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes between this one's look at the live rows and its transaction."""
    fill(ledger, kept(range(30)))
    whole, read = answers(ledger, WHOLE), rows.some

    def late(connection: Connection, *asked: Any) -> list[RequestRecord]:
        read_before = read(connection, *asked)
        monkeypatch.undo()
        expire(ledger, LATER_MS, 0)
        return read_before

    monkeypatch.setattr(rows, "some", late)
    move(ledger, LATER_MS)
    assert answers(ledger, WHOLE) == whole
    assert everything(ledger) == []


def test_nothing_is_dropped_that_is_not_in_all_sums(ledger: Ledger) -> None:
    fill(ledger, kept(range(30)))
    whole = answers(ledger, WHOLE)
    while past.move(ledger, LATER_MS, all_of_them=True):
        pass
    names = [grouping.name for grouping in GROUPINGS]
    assert past.expire(ledger, LATER_MS, 0, names) == 0
    rollups.roll_up(ledger)
    assert past.expire(ledger, LATER_MS, 0, names) == 0, "the one that is made late is not"
    assert expire(ledger, LATER_MS, 0) == 30
    assert answers(ledger, WHOLE) == whole


def test_a_request_of_a_wrong_clock_keeps_no_other_from_expiring(ledger: Ledger) -> None:
    first, *others = kept(range(20))
    fill(ledger, [at(first, LATER_MS + 3650 * DAY_MS)])
    move(ledger, LATER_MS)
    fill(ledger, others)
    assert expire(ledger, LATER_MS, 0) == 19
    assert len(everything(ledger)) == 1


def test_what_was_only_decided_expires(ledger: Ledger) -> None:
    for at_ms in (MONDAY_MS, LATER_MS):
        put(ledger, "decisions", id=f"{at_ms:012x}7", decided_ms=at_ms, policy="p", document="{}")
    expire(ledger, LATER_MS, DAY_MS)
    assert found(ledger, "SELECT decided_ms FROM decisions") == [{"decided_ms": LATER_MS}]


def test_attempts_of_a_process_that_came_back_too_late_are_left_out(ledger: Ledger) -> None:
    back = next(one for one in kept(range(40)) if one.attempts)
    lost = structs.replace(back, request={**back.request, "state": "recovered"}, attempts=())
    fill(ledger, [lost])
    move(ledger, LATER_MS)
    for line in back.attempts:
        put(ledger, "attempts", **{name: value for name, value in line.items()})
    assert everything(ledger) == [lost]
    fill(ledger, [at(kept([7])[0], LATER_MS - DAY_MS)])
    move(ledger, LATER_MS)
    assert found(ledger, "SELECT 1 FROM live_attempts") == []


def test_few_requests_wait_for_more_and_not_for_ever(ledger: Ledger) -> None:
    fill(ledger, [at(kept([1])[0], LATER_MS)])
    assert (upkeep(ledger, LATER_MS, None), needed(ledger, LATER_MS, None)) == ((0, 0), False)
    assert needed(ledger, LATER_MS + PATIENCE_MS, None)
    assert upkeep(ledger, LATER_MS + PATIENCE_MS, None) == (1, 0)
    assert not needed(ledger, LATER_MS + PATIENCE_MS, None)
    fill(ledger, [at(each, LATER_MS + DAY_MS + number) for number, each in enumerate(kept(range(ENOUGH)))])
    moved = [upkeep(ledger, LATER_MS + DAY_MS + passed_ms, None)[0] for passed_ms in (20_000, 31_000)]
    assert moved == [0, ENOUGH], "until a lease would have ended, other processes learn from a request"


def test_what_comes_late_is_there_at_once(ledger: Ledger) -> None:
    made = kept(range(20), over_ms=DAY_MS)
    fill(ledger, [*made[:5], *made[8:]])
    assert move(ledger, LATER_MS) == 17
    fill(ledger, made[5:8])
    assert everything(ledger) == made
    assert move(ledger, LATER_MS) == 3
    assert everything(ledger) == made


def test_what_is_written_twice_counts_once(ledger: Ledger) -> None:
    """A commit is repeated when its answer was lost; by then its rows may have moved."""
    made = [one for one in kept(range(40)) if one.attempts and one.bookings]
    fill(ledger, made)
    move(ledger, LATER_MS)
    before = contents(ledger)
    with ledger.writing() as connection:
        for one in made[1:4]:
            add(connection, one)
    move(ledger, LATER_MS)
    assert contents(ledger) == before


def test_a_booking_that_is_open_stays_until_it_is_settled(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Budgets elsewhere may confirm long after the request was answered: here before the transaction of a process whose
    look came before another one moved it. The digest of the batch stands."""
    one, read = next(one for one in kept(range(20)) if one.bookings and one.request["state"] == "settled"), rows.some
    open_ = structs.replace(one, bookings=tuple({**line, "charged": None, "state": "held"} for line in one.bookings))
    fill(ledger, [open_])

    def late(connection: Connection, *asked: Any) -> list[RequestRecord]:
        read_before = read(connection, *asked)
        monkeypatch.undo()
        assert move(ledger, LATER_MS) == 1
        assert everything(ledger) == [open_]
        with ledger.writing() as writer:
            writer.execute("UPDATE bookings SET charged = 7, state = 'settled' WHERE request_id = ?", (one.id,))
        return read_before

    monkeypatch.setattr(rows, "some", late)
    move(ledger, LATER_MS)
    with ledger.reading() as connection:
        assert list(past.damaged_ranges(connection)) == []
    (settled,) = everything(ledger)
    assert {line["charged"] for line in (*settled.bookings, *booked(ledger))} == {7}


def test_several_at_once_move_and_sum_each_request_once(ledger: Ledger) -> None:
    fill(ledger, kept(range(300), over_ms=DAY_MS))
    before = contents(ledger)

    def work(_: int) -> None:
        with suppress(LedgerUnavailable):
            move(ledger, LATER_MS)

    with ThreadPoolExecutor(4) as crowd:
        list(crowd.map(work, range(4)))
    move(ledger, LATER_MS)
    moved = found(ledger, "SELECT COUNT(*) AS moved, MAX(position) AS last FROM past_requests")
    assert moved == [{"moved": 300, "last": 300}]
    assert contents(ledger) == before
    assert found(ledger, LIVE) == []


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

    def execute(self, statement: str, values: Any = (), /) -> SqlRows:
        self.left -= statement != "ROLLBACK"
        if self.left < 0:
            raise LedgerUnavailable("database or disk is full")
        assert self._connection is not None
        return self._connection.execute(statement, values)


def test_a_failure_leaves_every_answer_and_the_next_run_goes_on(ledger: Ledger) -> None:
    days = [kept(range(day * 20, day * 20 + 20), over_ms=DAY_MS) for day in range(6)]
    fill(ledger, days.pop())
    enough: Any = _Full(ledger, 1_000_000)
    move(enough, LATER_MS)
    statements = 1_000_000 - enough.left
    for day, (made, share) in enumerate(zip(days, (0, 0.1, 0.2, 0.35, 0.5), strict=True)):
        fill(ledger, [at(one, one.started_ms + (day + 1) * DAY_MS) for one in made])
        before = contents(ledger, WHOLE[:3])
        full: Any = _Full(ledger, int(statements * share))
        with pytest.raises(LedgerUnavailable):
            move(full, LATER_MS + DAY_MS)
        assert contents(ledger, WHOLE[:3]) == before
        move(ledger, LATER_MS + DAY_MS)
        assert contents(ledger, WHOLE[:3]) == before
        assert found(ledger, LIVE) == []


@settings(max_examples=4, deadline=None)
@given(seeds=drawn.requests, asked=st.lists(drawn.queries(), min_size=6, max_size=8))
def test_what_can_still_be_told_is_told_as_before(new_ledger: Make, seeds: list[int], asked: list[Query]) -> None:
    ledger = new_ledger()
    fill(ledger, kept(seeds))
    before, whole = answers(ledger, asked), answers(ledger, WHOLE)
    expire(ledger, LATER_MS, KEEP_MS)
    assert answers(ledger, WHOLE) == whole
    for query, known in zip(asked, before, strict=True):
        now = _answer(ledger, query)
        assert now == known or (isinstance(now, RowsExpired) and now.before_ms <= HALF_MS)


def _answer(ledger: Ledger, query: Query) -> Sums | RowsExpired:
    try:
        return answers(ledger, [query])[0]
    except RowsExpired as expired:
        return expired


def test_whole_rows_are_gone_and_younger_ones_are_not(ledger: Ledger) -> None:
    made = kept(range(30))
    fill(ledger, made)
    left = [one for one in made if one.started_ms >= HALF_MS]
    assert 0 < expire(ledger, LATER_MS, KEEP_MS) == len(made) - len(left)
    assert everything(ledger) == left
    with ledger.reading() as connection:
        assert rows.one(connection, made[0].id) is None
    for table, column in (("past_attempts", "request_id"), ("past_decisions", "id"), ("past_bookings", "request_id")):
        ids = {row["id"] for row in found(ledger, f"SELECT {column} AS id FROM {table}")}  # noqa: S608
        assert ids <= {one.id for one in left}


def test_what_they_could_tell_is_refused_from_then_on(new_sqlite: SqliteLedger) -> None:
    made = kept(range(30))
    fill(new_sqlite, made)
    expire(new_sqlite, LATER_MS, KEEP_MS)
    first_ms = made[0].started_ms
    last_ms = max(one.started_ms for one in made if one.started_ms < HALF_MS)
    boundary = (last_ms // HOUR_MS + 1) * HOUR_MS

    def asked(by: tuple[str, ...], since_ms: int | None = None, *where: LabelFilter) -> Query:
        return Query(table=ATTEMPTS, by=by, measures=COST, where=where, since_ms=since_ms)

    for query in (
        *(asked(by) for by in (("session",), ("tags", "difficulty"), ("quarter",))),
        asked(("target",), None, LabelFilter("session", frozenset({"s-1"}))),
        asked((), first_ms + 1),
        Query(table=OFFERS, by=(), measures=("requests",), since_ms=first_ms + 1),
    ):
        with pytest.raises(RowsExpired) as refused:
            answers(new_sqlite, [query])
        assert refused.value.before_ms == boundary
        assert set(refused.value.dimensions) == query.dimensions
    assert answers(new_sqlite, [asked(("session",), boundary)]) != [{}]
    hour = first_ms // HOUR_MS * HOUR_MS + HOUR_MS
    (whole,) = answers(new_sqlite, [asked((), hour)])
    assert whole[()][0] == sum(one.started_ms >= hour for one in made)


def test_a_grouping_of_a_later_version_does_not_answer_for_rows_that_had_gone_before_it(ledger: Ledger) -> None:
    made = kept(range(30))
    fill(ledger, made)
    expire(ledger, LATER_MS, KEEP_MS)
    whole = answers(ledger, WHOLE)
    with ledger.writing() as connection:
        connection.execute("DELETE FROM progress WHERE name = 'attempts.tags'")
        connection.execute(
            "DELETE FROM hourly_attempts WHERE grouping_id = (SELECT id FROM names WHERE name = 'attempts.tags')"
        )
    move(ledger, LATER_MS)
    assert answers(ledger, [one for one in WHOLE if one.by != ("tags",)]) == [
        sums for one, sums in zip(WHOLE, whole, strict=True) if one.by != ("tags",)
    ]
    by_tags = Query(table=ATTEMPTS, by=("tags",), measures=COST)
    at = [one.by for one in WHOLE].index(("tags",))
    wanted = [WHOLE[at].measures.index(name) for name in COST]
    finest = {labels: tuple(sums[each] for each in wanted) for labels, sums in whole[at].items()}
    assert answers(ledger, [by_tags]) == [finest]
    boundary = max(one.started_ms for one in made if one.started_ms < HALF_MS) // HOUR_MS * HOUR_MS + HOUR_MS
    later = structs.replace(by_tags, since_ms=boundary)
    assert sum(requests for requests, _ in answers(ledger, [later])[0].values()) == sum(
        one.started_ms >= boundary for one in made
    )


def test_what_was_kept_for_their_sake_goes_along(ledger: Ledger) -> None:
    old, young = MONDAY_MS, LATER_MS - DAY_MS
    for identifier, at_ms, until_ms in (("0", old, old + 1), ("1", young, young + 1), ("for ever", old, None)):
        incident = {"kind": "k", "scope": "s", "subject": "x", "reason": "y", "until_ms": until_ms}
        put(ledger, "incidents", id=identifier, at_ms=at_ms, **incident)
        if until_ms:
            put(ledger, "outcomes", **outcome(identifier, given_ms=at_ms))
    fill(ledger, kept(range(10)))
    assert expire(ledger, LATER_MS, DAY_MS * 2) == 10
    assert found(ledger, "SELECT request_id FROM outcomes") == [{"request_id": "1"}]
    assert {row["id"] for row in found(ledger, "SELECT id FROM incidents")} == {"1", "for ever"}


def test_the_newest_outcome_stays_so_that_no_later_one_gets_its_place(ledger: Ledger) -> None:
    put(ledger, "outcomes", **outcome(given_ms=MONDAY_MS))
    expire(ledger, LATER_MS, DAY_MS)
    assert len(found(ledger, "SELECT position FROM outcomes")) == 1


def test_windows_that_no_budget_looks_at_go_and_what_counts_for_ever_stays(ledger: Ledger) -> None:
    fill(ledger, [one for one in kept(range(60)) if one.bookings])
    before = booked(ledger)
    expire(ledger, MONDAY_MS + LONGEST_WINDOW_MS - DAY_MS, DAY_MS)
    assert booked(ledger) == before
    expire(ledger, MONDAY_MS + LONGEST_WINDOW_MS + 10 * DAY_MS, DAY_MS)
    left, after = [row for row in before if row["window_start_ms"] == 0], booked(ledger)
    assert 0 < len(left) < len(before)
    assert after == left
    sums = {(row["account"], row["window_start_ms"]): row["charged"] for row in after}
    assert all(sums[row["budget"], row["window_start_ms"]] == row["spent"] for row in drawn.windows(ledger))


def test_a_label_names_one_thing_only_and_every_measure_has_its_column(ledger: Ledger) -> None:
    assert not DIMENSIONS[ATTEMPTS].keys() & MEASURES[ATTEMPTS].keys()
    for table, measures in (("hourly_attempts", MEASURES[ATTEMPTS]), ("hourly_offers", MEASURES[OFFERS])):
        with ledger.reading() as connection:
            columns = [name for name, *_ in connection.execute(f"SELECT * FROM {table}").description]  # noqa: S608
        assert columns == ["grouping_id", "hour", "group_id", *measures]


def home(path: Path, count: int) -> SqliteLedger:
    """A ledger of so many old requests, in the folder that LOWPASS_HOME names."""
    ledger = SqliteLedger(path / "lowpass.db")
    ledger.migrate()
    fill(ledger, old(count))
    return ledger


def old(count: int) -> list[RequestRecord]:
    """Older than anything that is kept, on any day on which the test runs."""
    return [at(one, one.started_ms - 10 * 365 * DAY_MS) for one in kept(range(count))]


def start(path: Path, **settings: str) -> "subprocess.Popen[bytes]":
    environ, command = {**os.environ, "LOWPASS_HOME": str(path), **settings}, (sys.executable, "-m")
    pipe = subprocess.PIPE
    return subprocess.Popen((*command, "router.ledger.upkeep"), env=environ, stdin=pipe, stderr=pipe)


@contextmanager
def locked(path: Path, how: str) -> Iterator[None]:
    locker = sqlite3.connect(path / "lowpass.db", isolation_level=None)
    locker.execute(f"BEGIN {how}")
    yield
    locker.close()


def test_killed_at_any_moment_it_leaves_everything_countable(tmp_path: Path) -> None:
    ledger = home(tmp_path, 1500)
    before = contents(ledger, WHOLE[:4])
    for moment in ("past_requests) > 0", "past_requests) > 700", "hourly_attempts) > 0"):
        process, query = start(tmp_path), f"SELECT 1 WHERE (SELECT COUNT(*) FROM {moment}"  # noqa: S608
        until(lambda: process.poll() is not None or found(ledger, query), 60)  # noqa: B023 - called at once
        process.kill()
        process.communicate()
        assert contents(ledger, WHOLE[:4]) == before
    with start(tmp_path) as last:
        until(lambda: not needed(ledger, now_ms(), None), 60)
        last.kill()
    assert contents(ledger, WHOLE[:4]) == before
    assert found(ledger, "SELECT id FROM live_requests") == []
    assert found(ledger, "SELECT COUNT(*) AS moved FROM past_requests") == [{"moved": 1500}]


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    """It waits for a lock here, or it would be done first."""
    home(tmp_path, 3)
    with locked(tmp_path, "EXCLUSIVE"), start(tmp_path) as process:
        assert (process.communicate()[1], process.returncode) == (b"", 1)


def test_a_locked_ledger_is_left_as_it_was_and_the_reason_told_in_one_line(tmp_path: Path) -> None:
    ledger = home(tmp_path, 3)
    with locked(tmp_path, "IMMEDIATE"), start(tmp_path) as process:
        assert process.wait(60) == 1
        assert process.stderr is not None
        (line,) = process.stderr.read().decode().splitlines()
    assert "lowpass.db" in line
    assert "locked" in line
    assert found(ledger, "SELECT id FROM past_requests") == []


def serve(ledger: SqliteLedger, over: Callable[[], bool]) -> None:
    """As a gateway does it, until then."""

    async def work() -> None:
        upkeep = Upkeep(ledger, None, every_s=0.01)
        upkeep.launch()
        while not over():  # noqa: ASYNC110 - another process does it
            await asyncio.sleep(0.05)
        await upkeep.stop()

    asyncio.run(work())


def test_a_gateway_has_it_kept_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = home(tmp_path, 5)
    monkeypatch.setenv("LOWPASS_HOME", str(tmp_path))
    serve(ledger, lambda: not found(ledger, "SELECT id FROM live_requests"))
    assert found(ledger, "SELECT COUNT(*) AS moved FROM past_requests") == [{"moved": 5}]


def test_a_gateway_says_why_that_can_not_be_done_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LOWPASS_HOME", str(tmp_path))
    monkeypatch.setenv("LOWPASS_KEEP_ROWS_DAYS", "soon")
    with caplog.at_level(logging.ERROR, "lowpass"):
        serve(home(tmp_path, 5), lambda: len(caplog.records) >= 2)
    assert "LOWPASS_KEEP_ROWS_DAYS=soon is not a number of days" in caplog.messages[0]
    assert "trying again" in caplog.messages[0]


def test_it_can_be_done_by_hand(tmp_path: Path) -> None:
    ledger = home(tmp_path, 5)
    done = lowpass(tmp_path, "ledger", "upkeep")
    assert (done.status, done.out) == (0, "moved 5 requests; dropped the rows of 0\n")
    assert found(ledger, "SELECT id FROM live_requests") == []


def test_a_ledger_apart_from_the_budgets_leaves_their_file_small(tmp_path: Path, postgres: Server) -> None:
    """Of the requests that are in both only sums of bookings are of use here."""
    local, url = home(tmp_path, 0), postgres.database()
    there = PostgresLedger(Secret(url))
    fill(local, [structs.replace(one, attempts=(), decision=None) for one in old(5)])
    fill(there, old(3))
    before = booked(local), windows(local)
    with start(tmp_path, LOWPASS_DATABASE_URL=url) as process:
        until(lambda: not needed(there, now_ms(), None) and not needed(local, now_ms(), 0), 60)
        process.kill()
    assert found(there, "SELECT COUNT(*) AS moved FROM past_requests") == [{"moved": 3}]
    for table in ("live_requests", "past_requests", "past_attempts", "past_bookings"):
        assert found(local, f"SELECT 1 FROM {table}") == []  # noqa: S608
    assert (booked(local), windows(local)) == before


def test_a_ledger_that_was_here_before_keeps_its_rows(tmp_path: Path, postgres: Server) -> None:
    local, url = home(tmp_path, 20), postgres.database()
    before = contents(local, WHOLE[:2])
    with start(tmp_path, LOWPASS_DATABASE_URL=url) as process:
        until(lambda: found(local, "SELECT 1 FROM past_requests") and not needed(local, now_ms(), None), 60)
        process.kill()
    assert contents(local, WHOLE[:2]) == before


def test_days_that_rows_are_kept() -> None:
    environ = {"LOWPASS_HOME": "/nowhere"}
    for days, kept_ms in (("", None), ("1", DAY_MS), ("400", 400 * DAY_MS)):
        assert read(environ | {"LOWPASS_KEEP_ROWS_DAYS": days}).keep_rows_ms == kept_ms
    for days in ("0", "-1", "1.5", "a week", "²"):
        with pytest.raises(SettingError, match="LOWPASS_KEEP_ROWS_DAYS"):
            read(environ | {"LOWPASS_KEEP_ROWS_DAYS": days})
