"""What rows leave behind when they go: exact sums by hour, and nothing that was kept for their sake."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.ledger import rows
from router.ledger.facts import attempts, offers
from router.ledger.facts.query import Expired, Query, Where
from router.ledger.kept import Kept
from router.ledger.ledger import Ledger
from router.ledger.packed.expire import expire
from router.ledger.packed.upkeep import needed, upkeep
from router.ledger.query import LONGEST_WINDOW_MS
from tests.ledger.books import found
from tests.ledger.packed.asked import WHOLE, answered, answers, booked, everything, queries, windows
from tests.ledger.packed.drawn import DAY_MS, HOUR_MS, MONDAY_MS, fill, kept, requests
from tests.ledger.packed.test_pack import LATER_MS, packs
from tests.stores import Make

COST = ("requests", "cost")
HALF_MS = MONDAY_MS + 50 * HOUR_MS
"""What is older is packed first, and so goes as a whole."""
KEEP_MS = LATER_MS - (MONDAY_MS + 51 * HOUR_MS)


@settings(max_examples=8, deadline=None)
@given(seeds=requests, asked=st.lists(queries(), min_size=6, max_size=8))
def test_what_can_still_be_told_is_told_as_before(new_ledger: Make, seeds: list[int], asked: list[Query]) -> None:
    ledger = new_ledger()
    fill(ledger, kept(seeds))
    before, whole = answers(ledger, asked), answers(ledger, WHOLE)
    packs(ledger, HALF_MS)
    packs(ledger)
    expire(ledger, LATER_MS, KEEP_MS)
    assert answers(ledger, WHOLE) == whole
    for query, known in zip(asked, before, strict=True):
        now = answered(ledger, query)
        assert now == known or isinstance(now, Expired)
        if isinstance(now, Expired):
            assert any(kept_ms < now.before_ms for kept_ms in _expired(ledger))


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
    parts = {row["part"] for row in found(ledger, oldest)}
    assert parts
    assert all(part.startswith("sums.") for part in parts)


def test_what_they_could_tell_is_refused_from_then_on(ledger: Ledger) -> None:
    made = kept(range(30))
    left = _expiring(ledger, made)
    (last_ms,) = _expired(ledger)

    def asked(by: tuple[str, ...], since_ms: int | None = None, *where: Where) -> Query:
        return Query(table=attempts.TABLE, by=by, measures=COST, where=where, since_ms=since_ms)

    for query in (
        asked(("session",)),
        asked(("tags", "difficulty")),
        asked(("quarter",)),
        asked(("target",), None, Where("session", frozenset({"s-1"}))),
        asked((), made[0].started_ms + 1),
        Query(table=offers.TABLE, by=(), measures=("requests",), since_ms=made[0].started_ms + 1),
    ):
        with pytest.raises(Expired) as refused:
            answers(ledger, [query])
        assert refused.value.before_ms == last_ms + 1
        assert set(refused.value.dimensions) == query.dimensions
    assert answers(ledger, [asked(("session",), last_ms + 1)]) != [{}]
    hour = made[0].started_ms // HOUR_MS * HOUR_MS
    (whole,) = answers(ledger, [asked((), hour + HOUR_MS)])
    assert whole[()][0] == sum(one.started_ms >= hour + HOUR_MS for one in made)
    assert left


def test_what_was_kept_for_their_sake_goes_along(ledger: Ledger) -> None:
    old, young = MONDAY_MS, LATER_MS - DAY_MS
    with ledger.writing() as connection:
        for number, given in enumerate((old, young)):
            connection.execute(_OUTCOME, (f"r{number}", given))
            connection.execute(_INCIDENT, (f"i{number}", given, given + 1))
        connection.execute(_INCIDENT, ("for ever", old, None))
    fill(ledger, kept(range(10)))
    packs(ledger)
    assert expire(ledger, LATER_MS, DAY_MS * 2) == 1
    assert [row["request_id"] for row in found(ledger, "SELECT request_id FROM outcomes")] == ["r1"]
    assert {row["id"] for row in found(ledger, "SELECT id FROM incidents")} == {"i1", "for ever"}


_OUTCOME = (
    "INSERT INTO outcomes (request_id, attempt, target, source, revision, weight, was_weight, decides, task,"
    " difficulty, traits, given_ms, told_key) VALUES (?, 1, 't', 'client', 0, 1, 0, 1, 'chat', 0, '', ?, '')"
)
_INCIDENT = (
    "INSERT INTO incidents (id, at_ms, kind, scope, subject, reason, until_ms) VALUES (?, ?, 'k', 's', 'x', 'y', ?)"
)


def test_the_newest_outcome_stays_so_that_no_later_one_gets_its_place(ledger: Ledger) -> None:
    with ledger.writing() as connection:
        connection.execute(_OUTCOME, ("r", MONDAY_MS))
    expire(ledger, LATER_MS, DAY_MS)
    assert len(found(ledger, "SELECT position FROM outcomes")) == 1


def test_windows_that_no_budget_looks_at_go_and_what_counts_for_ever_stays(ledger: Ledger) -> None:
    fill(ledger, [one for one in kept(range(60)) if one.bookings])
    packs(ledger)
    before = booked(ledger)
    expire(ledger, MONDAY_MS + LONGEST_WINDOW_MS - DAY_MS, DAY_MS)
    assert booked(ledger) == before
    expire(ledger, MONDAY_MS + LONGEST_WINDOW_MS + 10 * DAY_MS, DAY_MS)
    left = [row for row in before if row["window_start_ms"] == 0]
    assert 0 < len(left) < len(before)
    of_recovered = found(ledger, "SELECT window_start_ms FROM bookings WHERE state = 'recovered'")
    assert {row["window_start_ms"] for row in booked(ledger)} <= {0, *(row["window_start_ms"] for row in of_recovered)}
    assert [row for row in booked(ledger) if row["window_start_ms"] == 0] == left
    sums = {(row["account"], row["window_start_ms"]): row["charged"] for row in booked(ledger)}
    assert all(sums[row["budget"], row["window_start_ms"]] == row["spent"] for row in windows(ledger))


def test_upkeep_is_due_once(ledger: Ledger) -> None:
    fill(ledger, kept(range(10)))
    assert needed(ledger, LATER_MS, None)
    assert upkeep(ledger, LATER_MS, None) == (10, 0)
    assert not needed(ledger, LATER_MS, None)
    assert needed(ledger, LATER_MS, DAY_MS)
    assert upkeep(ledger, LATER_MS, DAY_MS) == (0, 1)
    assert not needed(ledger, LATER_MS, DAY_MS)
    assert upkeep(ledger, LATER_MS, DAY_MS) == (0, 0)


def test_a_label_names_one_thing_only() -> None:
    """Facts are kept by the names of their columns."""
    assert not attempts.DIMENSIONS.keys() & attempts.MEASURES.keys()
    assert "started_ms" not in {*attempts.DIMENSIONS, *attempts.MEASURES}
