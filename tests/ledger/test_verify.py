"""A sound ledger is found sound; whatever is changed in it, the row where that was done is named."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.reports.made import kept
from router.ledger.facts import attempts, offers
from router.ledger.kept import Kept
from router.ledger.ledger import Ledger, SqliteLedger
from router.ledger.packed import cube
from router.ledger.packed.expire import expire
from router.ledger.packed.pack import pack
from router.ledger.verify import Verified, verify
from router.report.recompute import repriced
from router.types.price import Price
from tests.gateway.running import Gateway
from tests.ledger.books import found
from tests.ledger.plain import Row, attempt, put, put_all, request
from tests.stores import Make

DAY_MS = 86_400_000
NOW_MS = 1_790_000_000_000
LATER_MS = NOW_MS + 1_800_000


def look(ledger: Ledger) -> Verified:
    return verify(ledger, own_budgets=ledger.dialect.folder == "sqlite")


def says(ledger: Ledger) -> list[str]:
    return list(map(str, look(ledger).findings))


def change(ledger: Ledger, *statements: str) -> None:
    with ledger.writing() as connection:
        for statement in statements:
            connection.execute(statement)


def made(count: int, first_ms: int, seed: int) -> list[Kept]:
    return list(kept(count, first_ms, 60_000, seed))


def outcome(one: Kept, revision: int, **more: str | float | None) -> Row:
    row: Row = {"request_id": one.id, "attempt": 1, "target": str(one.attempts[0]["target"]), "source": "client"}
    row |= {"weight": 1.0, "was_weight": float(revision > 0), "decides": 1, "task": "chat", "difficulty": 0.25}
    row |= {"traits": "", "given_ms": NOW_MS, "told_key": "", "revision": revision, "score": 1.0}
    return row | {"was_score": 1.0 if revision else None} | more


ROWS = made(90, NOW_MS - 3 * DAY_MS, 3), made(20, NOW_MS, 4)
HELD, CRASHED, REFUSED = (f"{NOW_MS + at << 80:032x}" for at in (1, 2, 3))


def fill(ledger: Ledger) -> None:
    """Packed rows and fresh ones, requests in every state, a budget that was split off, outcomes."""
    old, fresh = ROWS
    put_all(ledger, old)
    assert pack(ledger, NOW_MS) == len(old)
    put_all(ledger, fresh)
    put(ledger, "requests", **request(HELD, started_ms=NOW_MS, state="held", cost=None, lease_until_ms=LATER_MS))
    crashed = request(CRASHED, state="recovered", held=7, cost=7, thinking=4, held_thinking=4, error="crashed")
    put(ledger, "requests", **crashed | {"input_tokens": None, "output_tokens": None})
    put(ledger, "requests", **request(REFUSED, state="released", held=0, cost=0, thinking=0))
    booking: Row = {"account": "day", "window_start_ms": 5, "held": 7}
    put(ledger, "bookings", request_id=HELD, **booking, charged=None, state="held")
    put(ledger, "bookings", request_id=CRASHED, **booking, charged=7, state="recovered")
    put(ledger, "bookings", request_id="c1", **booking, charged=None, state="held")
    child: Row = {"id": "c1", "parent": "day", "parent_window_ms": 5, "replaces": "[]", "unit": "usd", "size": 7}
    put(ledger, "children", **child, created_ms=1, key_id="", team="", closed_ms=None)
    for one in (old[1], fresh[1]):
        put(ledger, "outcomes", **outcome(one, 0))
        put(ledger, "outcomes", **outcome(one, 1, score=0.0))


@pytest.fixture(scope="module")
def filled(new_ledger: Make) -> Ledger:
    """Sound; whoever changes it changes it back."""
    ledger = new_ledger()
    fill(ledger)
    return ledger


def test_a_sound_ledger(filled: Ledger) -> None:
    known = look(filled)
    assert list(map(str, known.findings)) == []
    assert (known.sound, known.requests, known.segments, known.outcomes) == (True, 90 + 20 + 3, 1, 4)
    assert known.attempts == 110


def test_an_empty_ledger_is_sound(ledger: Ledger) -> None:
    assert look(ledger) == Verified()


IDS = {"$A": ROWS[1][0].id, "$B": ROWS[1][1].id, "$OLD": ROWS[0][1].id, "$H": HELD, "$C": CRASHED}
DAMAGE = (
    ("UPDATE requests SET cost = cost + 1 WHERE id = '$A'", "requests $A: it cost "),
    ("UPDATE attempts SET cost = cost + 1 WHERE request_id = '$A'", "requests $A: it cost "),
    ("UPDATE attempts SET cost = -1 WHERE request_id = '$A'", "attempts $A attempt 1: it cost -1"),
    ("UPDATE requests SET input_tokens = 1 WHERE id = '$A'", "requests $A: it has 1 input_tokens"),
    ("UPDATE attempts SET output_visible = 9999999 WHERE request_id = '$A'", "requests $A: it has "),
    ("UPDATE requests SET reasoning_tokens = -5 WHERE id = '$A'", "requests $A: it has -5 reasoning"),
    ("UPDATE requests SET thinking = 1000000 WHERE id = '$A'", "requests $A: it was charged 1000000"),
    ("UPDATE attempts SET number = 2 WHERE request_id = '$A'", "requests $A: its attempts are numbered 2"),
    ("DELETE FROM attempts WHERE request_id = '$A'", "requests $A: its attempts are numbered none"),
    ("UPDATE requests SET state = 'lost' WHERE id = '$A'", "requests $A: there is no state 'lost'"),
    ("UPDATE requests SET state = 'released' WHERE id = '$A'", "requests $A: it was released, and cost"),
    ("UPDATE requests SET cost = 1 WHERE id = '$H'", "requests $H: it is held, and cost 1"),
    ("UPDATE requests SET cost = 6 WHERE id = '$C'", "requests $C: it was recovered at 6"),
    ("DELETE FROM requests WHERE id = '$A'", "attempts $A: there is no such request"),
    ("UPDATE attempts SET price_version = '' WHERE request_id = '$B'", "attempts $B attempt 1: it does not name"),
    ("UPDATE decisions SET document = '{' WHERE id = '$A'", "decisions $A: its document can't be read"),
    ("UPDATE decisions SET document = '{\"id\":\"x\"}' WHERE id = '$A'", "decisions $A: its document is that of x"),
    ("UPDATE bookings SET charged = 1000000000000000 WHERE request_id = '$A'", "bookings $A in company: it is charged"),
    ("UPDATE bookings SET charged = 3 WHERE request_id = '$H'", "bookings $H in day: it is charged 3"),
    (
        "UPDATE bookings SET charged = 3 WHERE request_id = '$C'",
        "bookings $C in day: it was recovered at 3, and held 7",
    ),
    ("UPDATE outcomes SET request_id = 'x' WHERE request_id = '$B'", "about x: there is no such request"),
    ("UPDATE outcomes SET target = 'x' WHERE request_id = '$B'", "about $B: its request has no attempt 1 at x"),
    ("UPDATE outcomes SET target = 'x' WHERE request_id = '$OLD'", "about $OLD: its request has no attempt 1 at x"),
    ("UPDATE outcomes SET was_score = 0.5 WHERE request_id = '$B' AND revision = 1", "about $B: it does not follow on"),
    ("UPDATE requests SET lease_until_ms = 5 WHERE id = '$H'", "requests $H: it is held, and its lease ended at 5"),
    ("UPDATE segments SET previous = 17", "it follows 17, and the one before it is 0"),
    ("UPDATE segments SET requests = 89", "it has 90 requests, and should have 89"),
    ("DELETE FROM segment_parts WHERE part = 'rows.00'", "it has 0 requests, and should have 90"),
    ("DELETE FROM segment_parts WHERE part = 'rows.index'", "it has 0 requests, and should have 90"),
    ("UPDATE bookings SET charged = charged + 1 WHERE request_id LIKE 'packed-%'", "packed requests were charged"),
)
LOCAL = (
    ("UPDATE budget_windows SET spent = spent + 1 WHERE budget = 'company'", "budget_windows company from"),
    ("UPDATE budget_windows SET held = held - 1 WHERE budget = 'day'", "budget_windows day from 5: it says"),
    ("INSERT INTO bookings VALUES ('x', 'day', 5, 0, 1, 'settled')", "bookings x in day: there is no such request"),
    ("DELETE FROM bookings WHERE request_id = 'c1'", "children c1: nothing is booked for it in day"),
)
"""Of budgets that are kept in the ledger itself."""


def named(text: str) -> str:
    for name, identifier in IDS.items():
        text = text.replace(name, identifier)
    return text


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    ledger = SqliteLedger(tmp_path_factory.mktemp("template") / "lowpass.db")
    ledger.migrate()
    fill(ledger)
    return ledger.path.read_bytes()


@pytest.mark.parametrize(("statement", "where"), [*DAMAGE, *LOCAL])
def test_what_was_changed_is_found(template: bytes, tmp_path: Path, statement: str, where: str) -> None:
    ledger = SqliteLedger(tmp_path / "lowpass.db")
    ledger.path.write_bytes(template)
    change(ledger, named(statement))
    found_now = says(ledger)
    assert any(named(where) in line for line in found_now), found_now
    assert not any("\n" in line for line in found_now)


def test_what_was_changed_is_found_in_either_database(ledger: Ledger) -> None:
    """Much of it at once, as far as one does not hide the other."""
    fill(ledger)
    some = [DAMAGE[at] for at in (0, 5, 12, 14, 15, 19, 20, 22, 24, 25, 26, 29)]
    change(ledger, *(named(statement) for statement, _ in some))
    found_now = says(ledger)
    assert [where for _, where in some if not any(named(where) in line for line in found_now)] == []


def test_a_child_is_charged_to_its_parent_at_what_it_spent(new_sqlite: SqliteLedger) -> None:
    fill(new_sqlite)
    change(
        new_sqlite,
        "UPDATE children SET closed_ms = 9",
        "INSERT INTO budget_windows VALUES ('c1', 0, 0, 0)",
        "UPDATE budget_windows SET held = held WHERE budget = 'c1'",
    )
    assert look(new_sqlite).sound
    change(new_sqlite, "DROP TRIGGER child_booked", "UPDATE bookings SET charged = 3 WHERE request_id = 'c1'")
    assert "children c1: it spent 0, and day is charged 3 for it" in says(new_sqlite)


def parts(ledger: Ledger) -> list[str]:
    return [row["part"] for row in found(ledger, "SELECT part FROM segment_parts ORDER BY part")]


@settings(max_examples=25, suppress_health_check=list(HealthCheck), deadline=None)
@given(data=st.data())
def test_no_part_of_a_segment_can_be_damaged_unnoticed(packed: SqliteLedger, data: st.DataObject) -> None:
    """Cut off, or with another byte in what is there twice: unless it still says the same."""
    name = data.draw(st.sampled_from(parts(packed)))
    with packed.reading() as connection:
        (whole,) = connection.execute("SELECT data FROM segment_parts WHERE part = ?", (name,)).fetchone()
    at = data.draw(st.integers(0, len(whole) - 1))
    broken = whole[:at]
    if not name.startswith("rows.0") and data.draw(st.booleans()):
        broken += bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    put_part(packed, name, broken)
    known = look(packed)
    put_part(packed, name, whole)
    assert not known.sound or said(name, whole) == said(name, broken)


def said(name: str, data: bytes) -> object:
    """Bits that fill up the last byte say nothing."""
    if name.startswith("sums."):
        measures = offers.MEASURES if name.startswith("sums.offers") else tuple(attempts.MEASURES)
        facts = cube.sums(data, cube.grouping(name), measures)
    else:
        column = name.removeprefix("facts.")
        names = ((), (column,)) if column in (*attempts.MEASURES, "started_ms") else ((column,), ())
        facts = cube.facts({"started_ms": msgspec.msgpack.encode([0, 1, 0]), column: data}, *names)
    labels = {name: (list(labels), codes.tolist()) for name, (labels, codes) in facts.labels.items()}
    return labels, {name: amounts.tolist() for name, amounts in facts.measures.items()}


def put_part(ledger: Ledger, name: str, data: bytes) -> None:
    with ledger.writing() as connection:
        connection.execute("UPDATE segment_parts SET data = ? WHERE part = ?", (data, name))


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> SqliteLedger:
    ledger = SqliteLedger(tmp_path_factory.mktemp("packed") / "lowpass.db")
    ledger.migrate()
    put_all(ledger, made(40, NOW_MS - 3 * DAY_MS, 5))
    pack(ledger, NOW_MS)
    return ledger


def test_values_that_no_column_has_are_told_and_end_nothing(new_sqlite: SqliteLedger) -> None:
    """A damaged file may hold anything; SQLite takes it as it comes."""
    put_all(new_sqlite, ROWS[1])
    first, second = IDS["$A"], IDS["$B"]
    change(
        new_sqlite,
        f"UPDATE attempts SET cost = 'much' WHERE request_id = '{first}'",  # noqa: S608
        f"UPDATE attempts SET units = '[' WHERE request_id = '{second}'",  # noqa: S608
    )
    known = verify(
        new_sqlite, also=repriced({"vllm/qwen3.5-9b": {"2026-11-02": Price(version="2026-11-02", input=1, output=1)}})
    )
    assert f"requests {first}: a value of it, of an attempt or of a booking is none of its column" in says(new_sqlite)
    assert known.found >= 1


def test_rows_are_priced_again_at_the_version_that_they_name(ledger: Ledger) -> None:
    put(ledger, "requests", **request("r1"))
    named: Row = {"usage_source": "reported", "reasoning_source": "unknown", "own_cost": 5, "price_version": "v7"}
    put(ledger, "attempts", **attempt("r1", **named))
    price = Price(version="v7", input=1_000_000, output=2_000_000)
    assert verify(ledger, also=repriced({"m": {"v7": price}})).sound
    dearer = Price(version="v7", input=1_000_000, output=9_000_000)
    (finding,) = verify(ledger, also=repriced({"m": {"v7": dearer}})).findings
    assert str(finding) == "attempts r1 attempt 1: it cost 5 nano-USD at its price, which makes 12 of its usage now"
    assert verify(ledger, also=repriced({"m": {"v8": dearer}})).sound


def test_a_ledger_is_sound_while_it_is_packed_and_after_a_crash_of_that(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_all(ledger, ROWS[0])
    with monkeypatch.context() as patch:
        patch.setattr("router.ledger.packed.pack.clear", lambda *_: None)
        pack(ledger, NOW_MS)
    known = look(ledger)
    assert (known.sound, known.requests, known.segments) == (True, 90, 1), known.findings
    pack(ledger, NOW_MS)
    known = look(ledger)
    assert (known.sound, known.requests) == (True, 90), known.findings


def test_what_comes_late_is_looked_at_too(ledger: Ledger) -> None:
    early, late = ROWS[0][:-1:2], ROWS[0][1::2]
    put_all(ledger, [*early, ROWS[0][-1]])
    pack(ledger, NOW_MS)
    put_all(ledger, late)
    put(ledger, "outcomes", **outcome(late[0], 0))
    known = look(ledger)
    assert (known.sound, known.outcomes) == (True, 1), known.findings
    change(ledger, f"UPDATE requests SET cost = cost + 1 WHERE id = '{late[0].id}'")  # noqa: S608
    assert [line.split(":")[0] for line in says(ledger)] == [f"requests {late[0].id}"]
    change(ledger, f"UPDATE requests SET cost = cost - 1 WHERE id = '{late[0].id}'")  # noqa: S608
    pack(ledger, NOW_MS)
    known = look(ledger)
    assert (known.sound, known.segments, known.requests) == (True, 2, 90), known.findings


def test_sums_of_what_expired_vouch_for_each_other(ledger: Ledger) -> None:
    fill(ledger)
    expire(ledger, NOW_MS, DAY_MS)
    known = look(ledger)
    assert (known.sound, known.segments, known.requests) == (True, 1, 20 + 3), known.findings
    sums = [name for name in parts(ledger) if name.startswith("sums.attempts.")]
    with ledger.writing() as connection:
        statement = "SELECT data FROM segment_parts WHERE part = ?"
        (other,) = connection.execute(statement, (sums[0],)).fetchone()
        connection.execute("UPDATE segment_parts SET data = ? WHERE part = ?", (other[: len(other) // 2], sums[0]))
    assert any("sums can't be read" in line for line in says(ledger))


@settings(max_examples=15, suppress_health_check=list(HealthCheck), deadline=None)
@given(data=st.data())
def test_no_amount_can_be_changed_unnoticed(filled: Ledger, data: st.DataObject) -> None:
    """Of any request that is not packed: its cost, or that of an attempt, by any amount that a column holds."""
    table, column, key = data.draw(st.sampled_from([("requests", "cost", "id"), ("attempts", "cost", "request_id")]))
    identifier = data.draw(st.sampled_from([kept.id for kept in ROWS[1]]))
    with filled.writing() as connection:
        read = f"SELECT {column} FROM {table} WHERE {key} = ?"  # noqa: S608
        write = f"UPDATE {table} SET {column} = ? WHERE {key} = ?"  # noqa: S608
        (before,) = connection.execute(read, (identifier,)).fetchone()
        after = data.draw(st.integers(-(2**63), 2**63 - 1).filter(lambda amount: amount != before))
        connection.execute(write, (after, identifier))
        found_now = says(filled)
        connection.execute(write, (before, identifier))
    assert any(identifier in line for line in found_now)


def test_the_command_names_each_row_and_fails(new_sqlite: SqliteLedger) -> None:
    fill(new_sqlite)
    gateway = Gateway(new_sqlite.path.parent, "")
    status, output = gateway.lowpass("ledger", "verify")
    assert (status, output) == (0, f"{new_sqlite.path}: 113 requests, 110 attempts, 1 segments: sound\n")
    change(new_sqlite, named("UPDATE requests SET input_tokens = 0 WHERE id = '$A'"))
    status, output = gateway.lowpass("ledger", "verify")
    assert (status, output.count("\n")) == (1, 2), output
    assert output.startswith(named("requests $A: it has 0 input_tokens, and its attempts "))
    status, output = gateway.lowpass("ledger", "verify", "--json")
    (told,) = json.loads(output)
    assert (status, told["sound"], told["found"], told["requests"]) == (1, False, 1, 113)
    assert [(one["table"], one["row"]) for one in told["findings"]] == [("requests", IDS["$A"])]
