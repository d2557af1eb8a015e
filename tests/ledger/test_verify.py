"""A sound ledger is found sound; whatever is changed in it, the row where that was done is named."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from router.ledger.adjust import Correction, NotAdjustable, adjust
from router.ledger.facts import ATTEMPTS, MEASURES, OFFERS
from router.ledger.keys import create, revoke, set_limit
from router.ledger.ledger import Ledger, SqliteLedger
from router.ledger.past import head
from router.ledger.rollups import roll_up
from router.ledger.rows import RequestRecord
from router.ledger.upkeep import upkeep
from router.ledger.verify import Verified, verify
from router.report.recompute import repriced
from router.testing import lowpass
from router.types.price import Price
from router.types.request import KeyTerms
from tests.ledger import plain
from tests.ledger.books import found
from tests.ledger.plain import DAY_MS, FRESH, NOW_MS, OLD, Row, expire, move, outcome, put, put_all
from tests.tables import each_row

CORRECTION = Correction(actor="root", source="operator", cause="stated", reason="invoice 4711")
LATER_MS = NOW_MS + 1_800_000
HELD, CRASHED, REFUSED = (f"{NOW_MS + at << 80:032x}" for at in (1, 2, 3))


def look(ledger: Ledger) -> Verified:
    return verify(ledger, own_budgets=ledger.dialect.name == "sqlite")


def says(ledger: Ledger) -> list[str]:
    return list(map(str, look(ledger).findings))


def assert_sound(ledger: Ledger, **counts: int) -> None:
    known = look(ledger)
    assert (known.sound, *(getattr(known, name) for name in counts)) == (True, *counts.values()), known.findings


def change(ledger: Ledger, *statements: str) -> None:
    with ledger.writing() as connection:
        for statement in statements:
            connection.execute(named(statement))


def about(kept: RequestRecord, **more: str | float | None) -> Row:
    return outcome(kept.id, target=str(kept.attempts[0]["target"]), given_ms=NOW_MS) | more


def fill(ledger: Ledger) -> Ledger:
    """Rows of the past and live ones, requests in every state, a budget that was split off, outcomes."""
    put_all(ledger, OLD)
    assert move(ledger, NOW_MS) == len(OLD)
    put_all(ledger, FRESH)
    put(ledger, "requests", **plain.request(HELD, started_ms=NOW_MS, state="held", cost=None, lease_until_ms=LATER_MS))
    crashed = plain.request(CRASHED, state="recovered", held=7, cost=7, thinking=4, held_thinking=4, error="crashed")
    put(ledger, "requests", **crashed | {"input_tokens": None, "output_tokens": None})
    put(ledger, "requests", **plain.request(REFUSED, state="released", held=0, cost=0, thinking=0))
    put(ledger, "bookings", **plain.booking(CRASHED, charged=7, state="recovered"))
    for identifier in (HELD, "c1"):
        put(ledger, "bookings", **plain.booking(identifier))
    put(ledger, "children", **plain.child())
    for kept in (OLD[1], FRESH[1]):
        put(ledger, "outcomes", **about(kept))
        put(ledger, "outcomes", **about(kept, revision=1, score=0.0, was_weight=1.0, was_score=1.0))
    return ledger


def test_a_sound_ledger(ledger: Ledger) -> None:
    assert look(ledger) == Verified(), "of an empty one"
    fill(ledger)
    assert says(ledger) == []
    assert_sound(ledger, requests=90 + 20 + 3, outcomes=4, attempts=110)


IDS = {"$A": FRESH[0].id, "$B": FRESH[1].id, "$OLD": OLD[1].id, "$GONE": OLD[3].id, "$H": HELD, "$C": CRASHED}
IDS |= {"$P": OLD[0].id, "$Q": OLD[2].id}
TOGETHER, ALONE, LOCAL, SEALED, GONE = (
    [tuple(line.split("; -- ")) for line in part.splitlines()[1:]]
    for part in Path(__file__).with_name("damage.sql").read_text("utf-8").split("\n\n")
)
"""Statements, and what is said of the row after them; as that file says."""


def named(text: str) -> str:
    for name, identifier in IDS.items():
        text = text.replace(name, identifier)
    return text


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    ledger = SqliteLedger(tmp_path_factory.mktemp("template") / "lowpass.db")
    ledger.migrate()
    fill(ledger)
    return ledger.path


@each_row("statement, where", [*TOGETHER, *ALONE, *LOCAL])
def test_what_was_changed_is_found(template: Path, tmp_path: Path, statement: str, where: str) -> None:
    ledger = SqliteLedger(Path(shutil.copy(template, tmp_path)))
    change(ledger, statement)
    lines = says(ledger)
    assert any(named(where) in line for line in lines), lines
    assert not any("\n" in line for line in lines)


def test_what_was_changed_is_found_in_either_database(ledger: Ledger) -> None:
    change(fill(ledger), *(statement for statement, _ in TOGETHER))
    lines = says(ledger)
    assert [where for _, where in TOGETHER if not any(named(where) in line for line in lines)] == []


def test_a_child_is_charged_to_its_parent_at_what_it_spent(new_sqlite: SqliteLedger) -> None:
    closed = "UPDATE children SET closed_ms = 9", "INSERT INTO budget_windows VALUES ('c1', 0, 0, 0)"
    change(fill(new_sqlite), *closed, "UPDATE budget_windows SET held = held WHERE budget = 'c1'")
    assert_sound(new_sqlite)
    change(new_sqlite, "DROP TRIGGER child_booked", "UPDATE bookings SET charged = 3 WHERE request_id = 'c1'")
    assert "children c1: it spent 0, and day is charged 3 for it" in says(new_sqlite)


SUMS = (("hourly_attempts", tuple(MEASURES[ATTEMPTS])), ("hourly_offers", tuple(MEASURES[OFFERS])))
CHANGE = st.integers(-(2**40), 2**40).filter(bool)


@settings(max_examples=12, suppress_health_check=list(HealthCheck), deadline=None)
@given(data=st.data())
def test_no_sum_can_be_changed_unnoticed(template: Path, tmp_path: Path, data: st.DataObject) -> None:
    ledger = SqliteLedger(Path(shutil.copy(template, tmp_path)))
    table, measures = data.draw(st.sampled_from(SUMS))
    keys = found(ledger, f"SELECT grouping_id, hour, group_id FROM {table}")  # noqa: S608
    key, measure, more = data.draw(st.sampled_from(keys)), data.draw(st.sampled_from(measures)), data.draw(CHANGE)
    with ledger.writing() as connection:
        connection.execute(
            f"UPDATE {table} SET {measure} = {measure} + ?"  # noqa: S608
            " WHERE grouping_id = ? AND hour = ? AND group_id = ?",
            (more, *key.values()),
        )
    assert any(f"{table} " in line and f"sums {measure} of" in line for line in says(ledger)), says(ledger)


def test_values_that_no_column_has_are_told_and_end_nothing(new_sqlite: SqliteLedger) -> None:
    """A damaged file may hold anything; SQLite takes it as it comes."""
    put_all(new_sqlite, FRESH)
    damage = ("cost = 'much' WHERE request_id = '$A'", "units = '[' WHERE request_id = '$B'")
    change(new_sqlite, *(f"UPDATE live_attempts SET {what}" for what in damage))  # noqa: S608
    prices = {"vllm/qwen3.5-9b": {"2026-11-02": Price(version="2026-11-02", input=1, output=1)}}
    assert verify(new_sqlite, also=repriced(prices)).found >= 1
    line = named("requests $A: a value of it, of an attempt or of a booking is none of its column")
    assert line in says(new_sqlite)


def test_what_is_booked_for_a_lifetime_is_missed_however_old_it_is(new_sqlite: SqliteLedger) -> None:
    old = structs.replace(OLD[0], bookings=tuple({**row, "window_start_ms": 0} for row in OLD[0].bookings))
    put_all(new_sqlite, [old, *OLD[1:]])
    move(new_sqlite, NOW_MS)
    assert_sound(new_sqlite)
    change(new_sqlite, "DELETE FROM bookings WHERE request_id = 'packed-0'")
    assert any(
        line.startswith("bookings packed-0 in company: moved requests were charged") for line in says(new_sqlite)
    )


def test_rows_are_priced_again_at_the_version_that_they_name(new_sqlite: SqliteLedger) -> None:
    put(new_sqlite, "requests", **plain.request("r1"))
    priced: Row = {"usage_source": "reported", "reasoning_source": "unknown", "own_cost": 5, "price_version": "v7"}
    put(new_sqlite, "attempts", **plain.attempt("r1", **priced))
    price, dearer = (Price(version="v7", input=1_000_000, output=output) for output in (2_000_000, 9_000_000))
    assert verify(new_sqlite, also=repriced({"m": {"v7": price}})).sound
    (finding,) = verify(new_sqlite, also=repriced({"m": {"v7": dearer}})).findings
    assert str(finding) == "attempts r1 attempt 1: it cost 5 nano-USD at its price, which makes 12 of its usage now"
    assert verify(new_sqlite, also=repriced({"m": {"v8": dearer}})).sound


def test_what_comes_late_is_looked_at_too(ledger: Ledger) -> None:
    early, late = OLD[:-1:2], OLD[1::2]
    put_all(ledger, [*early, OLD[-1]])
    move(ledger, NOW_MS)
    put_all(ledger, late)
    put(ledger, "outcomes", **about(late[0]))
    assert_sound(ledger, outcomes=1)
    for more, tables in ((1, ("requests", "bookings")), (-1, ())):
        change(ledger, f"UPDATE live_requests SET cost = cost + {more} WHERE id = '{late[0].id}'")  # noqa: S608
        told = {line.split(":")[0].split(" in ")[0] for line in says(ledger)}
        assert told == {f"{table} {late[0].id}" for table in tables}
    move(ledger, NOW_MS)
    assert_sound(ledger, requests=90)


def test_sums_of_what_expired_vouch_for_each_other(ledger: Ledger) -> None:
    expire(fill(ledger), NOW_MS, DAY_MS)
    assert_sound(ledger, requests=20 + 1)
    change(ledger, "UPDATE hourly_attempts SET cost = cost + 1 WHERE hour = (SELECT MIN(hour) FROM hourly_attempts)")
    assert any("it sums cost of all to " in line and ", and other sums to " in line for line in says(ledger))


def test_what_has_not_moved_and_the_audit_are_sealed(ledger: Ledger) -> None:
    """Each change is made to agree with all that is compared; rows that then move are compared with their seals."""
    put_all(ledger, FRESH)
    crashed = plain.request(CRASHED, state="recovered", held=7, cost=7, started_ms=NOW_MS, lease_until_ms=NOW_MS)
    put(ledger, "requests", **crashed | {"input_tokens": None, "output_tokens": None})
    put(ledger, "bookings", **plain.booking(CRASHED, charged=7, state="recovered"))
    with ledger.writing() as connection:
        terms = KeyTerms(name="ann")
        for number in range(3):
            set_limit(connection, f"b{number}", 5, None, "root")
        key, _ = create(connection, terms, "root")
        revoke(connection, key.id, "root")
        adjusted = adjust(connection, connection, FRESH[5].id, lambda _: 77, CORRECTION, {})
    upkeep(ledger, NOW_MS, None)
    assert_sound(ledger)
    change(ledger, *(statement for statement, _ in SEALED))
    places = [named(where).replace("$X", adjusted.id).replace("$K", key.id) for _, where in SEALED]
    for _ in range(2):
        lines = says(ledger)
        assert [where for where in places if not any(where in line for line in lines)] == [], lines
        upkeep(ledger, LATER_MS, None, all_of_them=True)


def test_corrections_at_once_come_one_by_one(ledger: Ledger) -> None:
    put_all(ledger, FRESH)
    kept = FRESH[5]
    own, account = int(str(kept.request["cost"])), kept.bookings[0]["account"]

    def correct(cost: int) -> None:
        with ledger.writing() as connection:
            adjust(connection, connection, kept.id, lambda _: cost, CORRECTION, {})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(correct, range(own + 1, own + 9)))
    whose = "b.request_id = ? OR EXISTS (SELECT 1 FROM adjustments AS a WHERE a.id = b.request_id)"
    charged = f"SELECT SUM(b.charged) AS all_of_it FROM bookings AS b WHERE b.account = ? AND ({whose})"  # noqa: S608
    for cost in (own + 20, own):
        correct(cost)
        assert found(ledger, charged, str(account), kept.id) == [{"all_of_it": cost}]
    with pytest.raises(NotAdjustable, match="already"):
        correct(own)
    assert found(ledger, "SELECT SUM(cost) AS added, COUNT(*) AS rows FROM adjustments") == [{"added": 0, "rows": 10}]
    assert_sound(ledger)


def test_seals_are_dropped_once_the_chain_has_their_requests_and_no_earlier(ledger: Ledger) -> None:
    put_all(ledger, FRESH[:8])
    upkeep(ledger, NOW_MS, None)
    for rows in (FRESH[8:15], FRESH[15:]):
        upkeep(ledger, NOW_MS, None, all_of_them=True)
        put_all(ledger, rows)
        upkeep(ledger, NOW_MS, None)
        assert_sound(ledger)
    assert len(found(ledger, "SELECT id FROM seals")) == 1 + len(FRESH[15:])
    assert_sound(ledger, requests=20)
    change(ledger, "DELETE FROM seals")
    for gone in ("the seals are gone", "its seal, or the one before, is not what was written"):
        assert [line for line in says(ledger) if gone in line], gone
        upkeep(ledger, NOW_MS, None)


def test_a_request_that_is_gone_everywhere_shows(template: Path, tmp_path: Path) -> None:
    """Rows, bookings and sums agree with each other, and not with the chain."""
    ledger = SqliteLedger(Path(shutil.copy(template, tmp_path)))
    change(ledger, *(statement for (statement,) in GONE))
    while roll_up(ledger):
        pass
    lines = says(ledger)
    assert [line.partition(":")[0].rpartition(" positions ")[0] for line in lines] == ["past_requests"], lines


def test_the_command_names_each_row_and_fails(new_sqlite: SqliteLedger) -> None:
    fill(new_sqlite)
    home = new_sqlite.path.parent
    with new_sqlite.reading() as connection:
        sound = f"{new_sqlite.path}: 113 requests, 110 attempts, chain {head(connection)}: ok\n"
    assert lowpass(home, "ledger", "verify") == (0, sound, "", sound)
    change(new_sqlite, "UPDATE live_requests SET input_tokens = 0 WHERE id = '$A'")
    done = lowpass(home, "ledger", "verify")
    assert (done.status, done.output.count("\n")) == (1, 2), done
    assert done.output.startswith(named("requests $A: it has 0 input_tokens, and its attempts "))
    done = lowpass(home, "ledger", "verify", "--json")
    (known,) = json.loads(done.out)
    assert (done.status, known["sound"], known["found"], known["requests"]) == (1, False, 1, 113)
    assert [(row["table"], row["row"]) for row in known["findings"]] == [("requests", IDS["$A"])]
