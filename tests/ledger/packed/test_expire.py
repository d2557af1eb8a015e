"""What rows leave behind when they go: exact sums by hour, and nothing that was kept for their sake."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.ledger import rows
from router.ledger.facts import attempts, offers
from router.ledger.facts.query import Expired, Query, Sums, Where
from router.ledger.kept import Kept
from router.ledger.ledger import Ledger, SqliteLedger
from router.ledger.packed.expire import expire
from router.ledger.packed.upkeep import needed, upkeep
from router.ledger.query import LONGEST_WINDOW_MS
from tests.ledger.books import found
from tests.ledger.packed import drawn
from tests.ledger.packed.drawn import DAY_MS, HOUR_MS, MONDAY_MS, WHOLE, answers, booked, everything, fill, kept
from tests.ledger.packed.test_pack import LATER_MS, packs
from tests.ledger.plain import outcome, put
from tests.stores import Make

COST = ("requests", "cost")
HALF_MS = MONDAY_MS + 50 * HOUR_MS
"""What is older is packed first, and so goes as a whole."""
KEEP_MS = LATER_MS - (MONDAY_MS + 51 * HOUR_MS)


@settings(max_examples=4, deadline=None)
@given(seeds=drawn.requests, asked=st.lists(drawn.queries(), min_size=6, max_size=8))
def test_what_can_still_be_told_is_told_as_before(new_ledger: Make, seeds: list[int], asked: list[Query]) -> None:
    ledger = new_ledger()
    fill(ledger, kept(seeds))
    before, whole = answers(ledger, asked), answers(ledger, WHOLE)
    packs(ledger, HALF_MS)
    packs(ledger)
    expire(ledger, LATER_MS, KEEP_MS)
    assert answers(ledger, WHOLE) == whole
    for query, known in zip(asked, before, strict=True):
        now = _answer(ledger, query)
        assert now == known or (isinstance(now, Expired) and min(_expired(ledger)) < now.before_ms)


def _answer(ledger: Ledger, query: Query) -> Sums | Expired:
    try:
        return answers(ledger, [query])[0]
    except Expired as expired:
        return expired


def _expired(ledger: Ledger) -> list[int]:
    return [row["last_ms"] for row in found(ledger, "SELECT last_ms FROM segments WHERE expired_ms IS NOT NULL")]


def _expiring(ledger: Ledger, made: list[Kept]) -> list[Kept]:
    """Packs all of them, lets the older ones go, and returns the others."""
    fill(ledger, made)
    packs(ledger, HALF_MS)
    packs(ledger)
    assert expire(ledger, LATER_MS, KEEP_MS) == 1
    (last_ms,) = _expired(ledger)
    return [one for one in made if one.started_ms > last_ms]


def test_whole_rows_are_gone_and_younger_ones_are_not(ledger: Ledger) -> None:
    made = kept(range(30))
    left = _expiring(ledger, made)
    assert 0 < len(left) < len(made)
    assert everything(ledger) == left
    gone = next(one for one in made if one not in left)
    with ledger.reading() as connection:
        assert rows.one(connection, gone.id) is None
    oldest = "SELECT part FROM segment_parts WHERE segment = (SELECT MIN(number) FROM segments)"
    assert {row["part"].partition(".")[0] for row in found(ledger, oldest)} == {"sums"}


def test_what_they_could_tell_is_refused_from_then_on(new_sqlite: SqliteLedger) -> None:
    made = kept(range(30))
    assert _expiring(new_sqlite, made)
    (last_ms,) = _expired(new_sqlite)
    first_ms = made[0].started_ms

    def asked(by: tuple[str, ...], since_ms: int | None = None, *where: Where) -> Query:
        return Query(table=attempts.TABLE, by=by, measures=COST, where=where, since_ms=since_ms)

    for query in (
        *(asked(by) for by in (("session",), ("tags", "difficulty"), ("quarter",))),
        asked(("target",), None, Where("session", frozenset({"s-1"}))),
        asked((), first_ms + 1),
        Query(table=offers.TABLE, by=(), measures=("requests",), since_ms=first_ms + 1),
    ):
        with pytest.raises(Expired) as refused:
            answers(new_sqlite, [query])
        assert refused.value.before_ms == last_ms + 1
        assert set(refused.value.dimensions) == query.dimensions
    assert answers(new_sqlite, [asked(("session",), last_ms + 1)]) != [{}]
    hour = first_ms // HOUR_MS * HOUR_MS + HOUR_MS
    (whole,) = answers(new_sqlite, [asked((), hour)])
    assert whole[()][0] == sum(one.started_ms >= hour for one in made)


def test_what_was_kept_for_their_sake_goes_along(ledger: Ledger) -> None:
    old, young = MONDAY_MS, LATER_MS - DAY_MS
    for identifier, at_ms, until in (("0", old, old + 1), ("1", young, young + 1), ("for ever", old, None)):
        incident = {"kind": "k", "scope": "s", "subject": "x", "reason": "y", "until_ms": until}
        put(ledger, "incidents", id=identifier, at_ms=at_ms, **incident)
        if until:
            put(ledger, "outcomes", **outcome(identifier, given_ms=at_ms))
    fill(ledger, kept(range(10)))
    packs(ledger)
    assert expire(ledger, LATER_MS, DAY_MS * 2) == 1
    assert found(ledger, "SELECT request_id FROM outcomes") == [{"request_id": "1"}]
    assert {row["id"] for row in found(ledger, "SELECT id FROM incidents")} == {"1", "for ever"}


def test_the_newest_outcome_stays_so_that_no_later_one_gets_its_place(ledger: Ledger) -> None:
    put(ledger, "outcomes", **outcome(given_ms=MONDAY_MS))
    expire(ledger, LATER_MS, DAY_MS)
    assert len(found(ledger, "SELECT position FROM outcomes")) == 1


def test_windows_that_no_budget_looks_at_go_and_what_counts_for_ever_stays(ledger: Ledger) -> None:
    fill(ledger, [one for one in kept(range(60)) if one.bookings])
    packs(ledger)
    before = booked(ledger)
    expire(ledger, MONDAY_MS + LONGEST_WINDOW_MS - DAY_MS, DAY_MS)
    assert booked(ledger) == before
    expire(ledger, MONDAY_MS + LONGEST_WINDOW_MS + 10 * DAY_MS, DAY_MS)
    left, after = [row for row in before if row["window_start_ms"] == 0], booked(ledger)
    assert 0 < len(left) < len(before)
    recovered = found(ledger, "SELECT window_start_ms FROM bookings WHERE state = 'recovered'")
    assert {row["window_start_ms"] for row in after} <= {0, *(row["window_start_ms"] for row in recovered)}
    assert [row for row in after if row["window_start_ms"] == 0] == left
    sums = {(row["account"], row["window_start_ms"]): row["charged"] for row in after}
    assert all(sums[row["budget"], row["window_start_ms"]] == row["spent"] for row in drawn.windows(ledger))


def test_upkeep_is_due_once(new_sqlite: SqliteLedger) -> None:
    fill(new_sqlite, kept(range(10)))
    for keep_ms, done in ((None, (10, 0)), (DAY_MS, (0, 1))):
        assert needed(new_sqlite, LATER_MS, keep_ms)
        assert upkeep(new_sqlite, LATER_MS, keep_ms) == done
        assert not needed(new_sqlite, LATER_MS, keep_ms)
    assert upkeep(new_sqlite, LATER_MS, DAY_MS) == (0, 0)


def test_a_label_names_one_thing_only() -> None:
    """Facts are kept by the names of their columns."""
    assert not attempts.DIMENSIONS.keys() & attempts.MEASURES.keys()
    assert "started_ms" not in {*attempts.DIMENSIONS, *attempts.MEASURES}
