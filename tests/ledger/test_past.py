"""Rows move to the past, are summed up by hour and dropped when they are old; and no answer changes by that."""

import gzip
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from router.ledger import past, rollups, rows
from router.ledger.backup import restore
from router.ledger.facts import attempts, offers
from router.ledger.facts.query import LabelFilter, Query, RowsExpired, Sums
from router.ledger.ledger import Ledger, SqliteLedger
from router.ledger.past import CAME_BACK_MS, ENOUGH, PATIENCE_MS
from router.ledger.query import LONGEST_WINDOW_MS
from router.ledger.rollups import GROUPINGS
from router.ledger.rows import Connection, RequestRecord, SqlRows
from router.ledger.upkeep import needed, upkeep
from router.types.account import LedgerUnavailable
from tests.ledger import drawn
from tests.ledger.books import found
from tests.ledger.drawn import DAY_MS, HOUR_MS, MONDAY_MS, WHOLE, answers, booked, contents, everything, fill, kept
from tests.ledger.plain import add, expire, move, outcome, put
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
    whole, read = answers(ledger, WHOLE), rows.live

    def late(connection: Connection, ids: Sequence[str]) -> list[RequestRecord]:
        read_before = read(connection, ids)
        monkeypatch.undo()
        expire(ledger, LATER_MS, 0)
        return read_before

    monkeypatch.setattr(rows, "live", late)
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
    one = at(kept([1])[0], LATER_MS)
    fill(ledger, [one])
    assert upkeep(ledger, LATER_MS, None) == (0, 0)
    assert not needed(ledger, LATER_MS, None)
    assert needed(ledger, LATER_MS + PATIENCE_MS, None)
    assert upkeep(ledger, LATER_MS + PATIENCE_MS, None) == (1, 0)
    assert not needed(ledger, LATER_MS + PATIENCE_MS, None)
    fill(ledger, [at(each, LATER_MS + DAY_MS + number) for number, each in enumerate(kept(range(ENOUGH)))])
    assert upkeep(ledger, LATER_MS + DAY_MS, None) == (ENOUGH, 0)


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


def test_a_booking_that_is_open_stays_until_it_is_settled(ledger: Ledger) -> None:
    """Budgets elsewhere may confirm long after the request was answered."""
    one = next(one for one in kept(range(20)) if one.bookings and one.request["state"] == "settled")
    open_ = structs.replace(one, bookings=tuple({**line, "charged": None, "state": "held"} for line in one.bookings))
    fill(ledger, [open_])
    assert move(ledger, LATER_MS) == 1
    assert everything(ledger) == [open_]
    with ledger.writing() as connection:
        connection.execute("UPDATE bookings SET charged = 7, state = 'settled' WHERE request_id = ?", (one.id,))
    (settled,) = everything(ledger)
    assert {line["charged"] for line in settled.bookings} == {7}
    assert {row["charged"] for row in booked(ledger)} == {7}


def test_several_at_once_move_and_sum_each_request_once(ledger: Ledger) -> None:
    fill(ledger, kept(range(300), over_ms=DAY_MS))
    before = contents(ledger)

    def work(_: int) -> None:
        with suppress(LedgerUnavailable):
            move(ledger, LATER_MS)

    with ThreadPoolExecutor(4) as crowd:
        list(crowd.map(work, range(4)))
    move(ledger, LATER_MS)
    assert found(ledger, "SELECT COUNT(*) AS moved, MAX(position) AS last FROM past_requests") == [
        {"moved": 300, "last": 300}
    ]
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
    enough = _Full(ledger, 1_000_000)
    move(enough, LATER_MS)
    statements = 1_000_000 - enough.left
    for day, (made, share) in enumerate(zip(days, (0, 0.1, 0.2, 0.35, 0.5), strict=True)):
        fill(ledger, [at(one, one.started_ms + (day + 1) * DAY_MS) for one in made])
        before = contents(ledger, WHOLE[:3])
        with pytest.raises(LedgerUnavailable):
            move(_Full(ledger, int(statements * share)), LATER_MS + DAY_MS)
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
        return Query(table=attempts.TABLE, by=by, measures=COST, where=where, since_ms=since_ms)

    for query in (
        *(asked(by) for by in (("session",), ("tags", "difficulty"), ("quarter",))),
        asked(("target",), None, LabelFilter("session", frozenset({"s-1"}))),
        asked((), first_ms + 1),
        Query(table=offers.TABLE, by=(), measures=("requests",), since_ms=first_ms + 1),
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
    by_tags = Query(table=attempts.TABLE, by=("tags",), measures=COST)
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
    for identifier, at_ms, until in (("0", old, old + 1), ("1", young, young + 1), ("for ever", old, None)):
        incident = {"kind": "k", "scope": "s", "subject": "x", "reason": "y", "until_ms": until}
        put(ledger, "incidents", id=identifier, at_ms=at_ms, **incident)
        if until:
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


def test_what_version_11_had_packed_is_rows_again_and_no_sum_changes(new_ledger: Make) -> None:
    """`data/version_11.*`: a ledger with an expired segment, another one and live rows; what version 11 said of it."""
    ledger, known = new_ledger(), msgspec.json.decode(gzip.decompress((DATA / "version_11.json.gz").read_bytes()))
    restore(ledger, DATA / "version_11.ledger")
    asked = [Query(table=table, by=tuple(by), measures=tuple(measures)) for table, by, measures, _ in known["sums"]]
    sums = [{tuple(labels): tuple(amounts) for labels, amounts in each} for *_, each in known["sums"]]
    rows = [[request | {"app": "", "template": ""}, *rest] for request, *rest in known["rows"]]
    before = contents(ledger, asked)
    for _ in range(2):
        assert answers(ledger, asked) == sums
        kept_rows = [[one.request, [*one.attempts], [*one.bookings], one.decision] for one in everything(ledger)]
        assert kept_rows == rows
        assert contents(ledger, asked) == before
        move(ledger, LATER_MS)
    if ledger.dialect.name == "sqlite":
        assert (booked(ledger), drawn.windows(ledger)) == (known["booked"], known["windows"])


def test_a_label_names_one_thing_only_and_every_measure_has_its_column(ledger: Ledger) -> None:
    assert not attempts.DIMENSIONS.keys() & attempts.MEASURES.keys()
    for table, measures in (("hourly_attempts", attempts.MEASURES), ("hourly_offers", offers.MEASURES)):
        with ledger.reading() as connection:
            columns = [name for name, *_ in connection.execute(f"SELECT * FROM {table}").description]  # noqa: S608
        assert columns == ["grouping_id", "hour", "group_id", *measures]
