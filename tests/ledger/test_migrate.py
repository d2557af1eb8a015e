"""Versions of the ledger, up and down: the same tables and the same rows come back, and nothing is lost unasked."""

import sqlite3
from typing import Any

import pytest

from bench.reports.made import kept
from router.ledger.ledger import Ledger, SqliteLedger
from router.ledger.migrate import FIRST, SQLITE, LedgerTooOld, WouldLose, newest
from router.ledger.packed.pack import pack
from router.types.journal import LedgerUnavailable
from tests.gateway.running import Gateway
from tests.ledger.books import found
from tests.ledger.plain import Row, attempt, put, put_all, request

NEWEST = newest(SQLITE)
DAY_MS = 86_400_000
NOW_MS = 1_790_000_000_000
_SQLITE = """
    SELECT m.name AS "table", c.name AS "column", c.type AS kind, c."notnull" AS required, c.dflt_value AS def, c.pk
    FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type = 'table' ORDER BY m.name, c.cid
"""
_POSTGRES = """
    SELECT table_name AS "table", column_name AS "column", data_type AS kind, is_nullable, column_default AS def
    FROM information_schema.columns WHERE table_schema = 'public' ORDER BY table_name, ordinal_position
"""
_REST = {
    "sqlite": "SELECT name, sql FROM sqlite_master WHERE type IN ('index', 'trigger') ORDER BY name",
    "postgres": "SELECT indexname AS name, indexdef AS sql FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1",
}
"""Indexes and triggers."""

ENGINE_PRICE: Row = {"version": "measured e 2026-01-01T00:00:00Z", "engine": "e", "gateway": "g", "since_ms": 1}
ENGINE_PRICE |= {"counted": "marginal", "hourly": 1, "wall_ms": 1, "busy_ms": 1}
ENGINE_PRICE |= dict.fromkeys(("input", "cached", "output", "uncached_tokens", "cached_tokens", "output_tokens"), 1)
ENGINE_HOUR: Row = {"engine": "e", "hour": 1, "gateway": "g", "external": 0, "energy_mj": None, "declared_mj": 1}
ENGINE_HOUR |= dict.fromkeys(("wall_ms", "busy_ms", "request_ms", "prefill_ms", "decode_ms", "finished", "cost"), 1)
ENGINE_HOUR |= dict.fromkeys(("rejected", "preempted", "restarts"), 1)
ENGINE_HOUR |= dict.fromkeys(("uncached_tokens", "cached_tokens", "output_tokens"), 1)


def schema(ledger: Ledger) -> list[dict[str, Any]]:
    kind = ledger.dialect.folder
    with ledger.reading(any_version=True) as connection:
        lines = []
        for query in (_SQLITE if kind == "sqlite" else _POSTGRES, _REST[kind]):
            cursor = connection.execute(query)
            names = [name for name, *_ in cursor.description]
            lines += [dict(zip(names, row, strict=True)) for row in cursor]
    return lines


def rows(ledger: Ledger) -> dict[str, list[dict[str, Any]]]:
    orders = {"requests": "id", "attempts": "request_id, number", "bookings": "request_id, account", "keys": "id"}
    orders |= {"budget_windows": "budget", "outcomes": "position", "decisions": "id", "taints": "session"}
    queries = {table: f"SELECT * FROM {table} ORDER BY {order}" for table, order in orders.items()}  # noqa: S608
    return {table: found(ledger, query) for table, query in queries.items()}


@pytest.fixture
def filled(ledger: Ledger) -> Ledger:
    """Rows that the first version has a place for."""
    for identifier in ("r1", "r2"):
        put(ledger, "requests", **request(identifier))
        put(ledger, "attempts", **attempt(identifier))
    put(ledger, "decisions", id="r1", decided_ms=1, policy="p", document="{}")
    lists = dict.fromkeys(("routes", "targets", "tags", "scopes"), "[]")
    put(ledger, "keys", id="k1", hash="ab", name="one", created_ms=1, budget="", **lists)
    return ledger


def test_down_and_up_again_everything_is_as_it_was(filled: Ledger) -> None:
    before, content = schema(filled), rows(filled)
    for version in range(NEWEST - 1, FIRST - 1, -1):
        assert filled.migrate(version) == version == filled.version()
    assert filled.migrate() == NEWEST
    assert schema(filled) == before
    assert rows(filled) == content


def test_all_the_way_at_once(filled: Ledger) -> None:
    before, content = schema(filled), rows(filled)
    assert (filled.migrate(FIRST), filled.migrate()) == (FIRST, NEWEST)
    assert (schema(filled), rows(filled)) == (before, content)


def test_feedback_goes_down_and_comes_back(filled: Ledger) -> None:
    outcome: Row = {"request_id": "r1", "attempt": 1, "target": "", "source": "client"}
    outcome |= {"weight": 1, "was_weight": 0}
    outcome |= {"decides": 1, "task": "chat", "difficulty": 0.25, "traits": "", "given_ms": 5, "told_key": ""}
    put(filled, "outcomes", **outcome, revision=0, score=0.5)
    put(filled, "outcomes", **outcome | {"was_weight": 1, "given_ms": 6}, revision=1, score=1, was_score=0.5, was_ms=5)
    content = rows(filled)
    filled.migrate(8)
    with filled.reading(any_version=True) as connection:
        told = connection.execute("SELECT request_id, score, source FROM feedback ORDER BY given_ms").fetchall()
    assert [tuple(line) for line in told] == [("r1", 0.5, "client"), ("r1", 1, "client")]
    filled.migrate()
    assert rows(filled) == content


def test_open_holds_go_down_and_come_back(new_sqlite: SqliteLedger) -> None:
    put(new_sqlite, "requests", **request(state="held", cost=None))
    put(new_sqlite, "bookings", request_id="r1", account="day", window_start_ms=1, held=7, charged=None, state="held")
    content = rows(new_sqlite)
    new_sqlite.migrate(FIRST)
    assert new_sqlite.migrate() == NEWEST
    assert rows(new_sqlite) == content
    assert content["budget_windows"] == [{"budget": "day", "window_start_ms": 1, "spent": 0, "held": 7}]


@pytest.mark.parametrize(
    ("table", "row", "version", "says"),
    [
        ("engine_prices", ENGINE_PRICE, 10, "what tokens of local engines cost"),
        ("engine_hours", ENGINE_HOUR, 10, "what local engines did"),
        ("attempts", attempt("r9", thinking_cost=4), 9, "what reasoning cost"),
        ("requests", request("r9", overhead_us=4), 9, "kept lowpass busy"),
        ("posteriors", {"name": "x", "position": 1, "at_ms": 1, "state": ""}, 8, ""),
        ("attempts", attempt("r9", passed_over=1), 7, "which answers of a request were given"),
        ("instance", {"id": 1, "secret": "s"}, 6, "the secret of placeholders"),
        ("taints", {"session": "s", "data_class": "c", "firm": 1}, 5, "what sessions have seen"),
        ("alerts", {"account": "a", "window_start_ms": 1, "share": 1}, 4, "which alerts were told"),
        ("loops", {"id": "s", "changed_ms": 1, "document": "{}"}, 3, "streaks of the loop breaker"),
        ("attempts", attempt("r9", own_cost=4), 2, "what our prices made of usage"),
        ("requests", request("r9", lowered="effort"), 1, "what was lowered"),
    ],
)
def test_what_a_version_has_no_place_for_is_given_up_only_when_asked(
    filled: Ledger, table: str, row: dict[str, Any], version: int, says: str
) -> None:
    put(filled, table, **row)
    before, content = schema(filled), rows(filled)
    if says:
        with pytest.raises(WouldLose, match=f"version {version} has no place for .*{says}.* --lose-data"):
            filled.migrate(version)
        assert (schema(filled), rows(filled), filled.version()) == (before, content, NEWEST)
    assert filled.migrate(version, lose_data=True) == version
    assert filled.migrate() == NEWEST
    assert schema(filled) == before


def test_what_was_packed_is_unpacked_on_the_way_down(ledger: Ledger) -> None:
    put_all(ledger, kept(60, NOW_MS - 2 * DAY_MS, 1_000, seed=7))
    before = rows(ledger)
    assert pack(ledger, NOW_MS) == 60
    assert rows(ledger)["requests"] == []
    with pytest.raises(WouldLose, match="what reasoning cost"):
        ledger.migrate(9)
    assert rows(ledger)["requests"] == []
    ledger.migrate(9, lose_data=True)
    ledger.migrate()
    for line in (*before["attempts"], *before["requests"]):
        line.update({name: None for name in line.keys() & {"thinking_cost", "cache_saved", "overhead_us"}})
    assert rows(ledger) == before


@pytest.mark.parametrize("version", [0, NEWEST + 1])
def test_there_are_no_other_versions(ledger: Ledger, version: int) -> None:
    with pytest.raises(ValueError, match=f"no version {version}"):
        ledger.migrate(version)
    assert ledger.version() == NEWEST


def test_an_older_ledger_is_told_from_a_broken_one(ledger: Ledger) -> None:
    ledger.migrate(NEWEST - 1)
    with pytest.raises(LedgerTooOld, match=f"has version {NEWEST - 1} .* needs {NEWEST}: run `lowpass ledger migrate`"):
        found(ledger, "SELECT 1")
    with pytest.raises(LedgerUnavailable), ledger.reading():
        pass
    ledger.migrate()
    assert found(ledger, "SELECT 1 AS one") == [{"one": 1}]


@pytest.mark.parametrize("command", [["report"], ["ledger", "verify"], ["ledger", "info"], ["keys", "list"]])
def test_commands_on_an_older_ledger_say_what_to_do_or_bring_it_up(
    new_sqlite: SqliteLedger, command: list[str]
) -> None:
    new_sqlite.migrate(NEWEST - 1)
    status, output = Gateway(new_sqlite.path.parent, "").lowpass(*command)
    if command[0] == "keys":
        assert (status, new_sqlite.version()) == (0, NEWEST)
    else:
        assert (status, output.count("\n")) == (1, 1), output
        assert f"has version {NEWEST - 1}" in output
        assert "run `lowpass ledger migrate`" in output


def test_a_newer_ledger_is_left_alone(new_sqlite: SqliteLedger) -> None:
    with sqlite3.connect(new_sqlite.path) as connection:
        connection.execute(f"PRAGMA user_version = {NEWEST + 1}")
    connection.close()
    for command in (["ledger", "migrate"], ["ledger", "info"], ["keys", "list"]):
        status, output = Gateway(new_sqlite.path.parent, "").lowpass(*command)
        assert (status, output.count("\n")) == (1, 1), output
        assert "install a newer one" in output
