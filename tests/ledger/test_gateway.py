"""Gateways whose ledger is a PostgreSQL server, as users and operators have them; and those whose disk is full."""

import json
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from router.ledger.facts import HOUR_MS
from router.ledger.ledger import SqliteLedger
from router.ledger.migrate import SQLITE, newest
from router.ledger.postgres import PostgresLedger
from router.ledger.upkeep import upkeep
from router.ledger.verify import verify
from router.testing import lowpass
from router.testing.upstream import Upstream
from router.types.clock import least_id, now_ms
from router.types.request import DAY_MS
from router.types.target import Secret
from tests.budget.redis_process import RedisProcess
from tests.gateway.running import Client, Gateway, Process, Reply, ordered, processing, serving, target, until
from tests.ledger.books import found
from tests.postgres import Server
from tests.tables import each_row

SETTING = "LOWPASS_DATABASE_URL"
_BODY = b'{"model": "streams", "stream": true, "messages": [{"role": "user", "content": "Hi"}]}'
_HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
STREAM = _HEAD % len(_BODY) + _BODY


def policy(url: str) -> dict[str, Any]:
    behaviours = {"plain": "normal", "slow": "slow-chunks", "broken": "error-500"}
    return {
        "version": 1,
        "loops": {"enabled": False},
        "targets": {name: target(url, behaviour) for name, behaviour in behaviours.items()},
        "routes": {"auto": ordered("plain"), "streams": ordered("slow"), "other": ordered("broken", "plain")},
        "budgets": [
            {"id": "day", "limit_usd": 1_000, "window": "day"},
            {"id": "thoughts", "limit_thinking_tokens": 1_000_000, "window": "hour"},
        ],
    }


@pytest.fixture
def gateway(tmp_path: Path, upstream: Upstream, postgres: Server) -> Iterator[Gateway]:
    with serving(tmp_path, policy(upstream.url), {SETTING: postgres.empty()}) as gateway:
        yield gateway


def ledger_of(gateway: Client) -> PostgresLedger:
    return PostgresLedger(Secret(gateway.environ[SETTING]))


def states(ledger: PostgresLedger) -> dict[str, str]:
    return {row["id"]: row["state"] for row in found(ledger, "SELECT id, state FROM requests")}


@pytest.fixture
def served(tmp_path: Path, upstream: Upstream) -> Iterator[Process]:
    with processing(tmp_path, policy(upstream.url)) as gateway:
        yield gateway


def no_room(gateway: Process, size: int | None = None) -> Callable[[], None]:
    """No file of the gateway may grow beyond `size`: what its write-ahead log has. Returns what makes room again."""
    process, kind = gateway.process.pid, resource.RLIMIT_FSIZE
    before = resource.prlimit(process, kind)
    resource.prlimit(process, kind, (size or gateway.ledger.with_name("lowpass.db-wal").stat().st_size, before[1]))
    return lambda: resource.prlimit(process, kind, before) and None


def until_refused(gateway: Process) -> list[Reply]:
    """Until two in a row were: what one transaction has no room for another may have."""
    replies: list[Reply] = []
    while not (len(replies) > 1 and all(reply.status == 503 for reply in replies[-2:])):
        replies.append(gateway.chat("auto"))
        assert len(replies) < 500
    return replies


@contextmanager
def crowd(gateway: Gateway, size: int, *routes: str) -> Iterator[list[Reply]]:
    """Clients that go on asking; what they were answered."""
    replies: list[Reply] = []
    stop = threading.Event()

    def ask(number: int) -> None:
        while not stop.is_set():
            replies.append(gateway.chat(routes[number % len(routes)], stream=number % 4 > 1))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(size)]
    for thread in threads:
        thread.start()
    try:
        yield replies
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def told(gateway: Client, *words: str) -> Any:
    status, output = gateway.lowpass("ledger", *words, "--json")
    assert status == 0, output
    return json.loads(output)


def restored(folder: Path) -> tuple[Gateway, dict[str, Any]]:
    """A ledger in a file from the copy in this folder, and what is found by looking at it: it is sound."""
    other = Gateway(folder / "other", "")
    status, output = other.lowpass("ledger", "restore", str(folder / "copy"))
    assert status == 0, output
    (known,) = told(other, "verify")
    assert (known["sound"], known["findings"]) == (True, [])
    return other, known


def test_answers_and_all_that_is_told_about_them(gateway: Gateway) -> None:
    ledger = ledger_of(gateway)
    ids = [reply.id for reply in [gateway.chat("auto"), gateway.chat("streams", stream=True)]]
    assert states(ledger) == dict.fromkeys(ids, "settled")
    assert found(ledger, "SELECT COUNT(*) AS n FROM attempts") == [{"n": 2}]
    decision = gateway.get(f"/v1/decisions/{ids[0]}")
    assert (decision.status, decision.json["id"]) == (200, ids[0])
    assert gateway.post("/v1/feedback", {"id": ids[0], "score": 0.5}).status == 200
    assert found(ledger, "SELECT request_id, score FROM outcomes") == [{"request_id": ids[0], "score": 0.5}]
    assert gateway.get("/v1/reports/spend").json["totals"]["requests"] == 2
    page = gateway.get("/dashboard")
    assert (page.status, ids[0].encode() in page.body) == (200, True)
    assert gateway.get(f"/dashboard/requests/{ids[1]}").status == 200
    status, output = gateway.lowpass("report", "spend", "--json")
    assert (status, json.loads(output)["totals"]["requests"]) == (0, 2)
    assert ":secret@" not in gateway.log.read_text()


def test_keys_are_there_for_every_gateway(gateway: Gateway, tmp_path: Path, upstream: Upstream) -> None:
    options = ["--team", "red", "--organisation", "acme", "--scope", "reports"]
    status, output = gateway.lowpass("keys", "create", "root", *options)
    assert status == 0, output
    key = output.splitlines()[0]
    (listed,) = json.loads(gateway.lowpass("keys", "list", "--json")[1])
    assert (listed["team"], listed["organisation"]) == ("red", "acme")
    assert "red of acme" in gateway.lowpass("keys", "list")[1]
    until(lambda: gateway.chat("auto").status == 401)
    with serving(tmp_path / "other", policy(upstream.url), gateway.environ) as other:
        assert other.chat("auto").status == 401
        reply = other.chat("auto", headers={"authorization": f"Bearer {key}"})
        assert reply.status == 200
        rows = found(ledger_of(gateway), "SELECT key_id FROM requests WHERE id = ?", reply.id)
        assert rows == [{"key_id": listed["id"]}]
    assert gateway.lowpass("keys", "revoke", "root")[0] == 0


BETWEEN_COMMITS = (
    "UPDATE bookings SET charged = 7 * (account = 'day'), state = 'settled' WHERE request_id = ?",
    "UPDATE live_requests SET state = 'settled', cost = 7, thinking = 0 WHERE id = ?",
)


def test_a_gateway_that_was_killed_leaves_nothing_held_and_rows_that_are_as_booked(
    tmp_path: Path, upstream: Upstream, postgres: Server
) -> None:
    """Of one request the settlement, of another the birth, of a third its hold, and of a fourth both the birth and the
    settlement was committed here and not in the ledger. Two more waited for room: they held nothing."""
    short = [{"id": "day", "limit_usd": 0.0095, "window": "day"}]
    gateway = Process(tmp_path, policy(upstream.url) | {"budgets": short}, {SETTING: postgres.empty()}).start()
    ledger, budgets = ledger_of(gateway), SqliteLedger(gateway.ledger)
    with ExitStack() as clients:
        for _ in range(6):
            clients.enter_context(gateway.raw()).sendall(STREAM)
        until(lambda: len(states(ledger)) == 6 and len(found(ledger, "SELECT id FROM requests WHERE held > 0")) == 4)
        gateway.kill()
    booked = found(budgets, "SELECT request_id AS id FROM bookings ORDER BY 1")
    settled, *unborn, untold = (row["id"] for row in booked)
    minute_ago = [least_id(now_ms() - 60_000 + at) for at in range(2)]
    with budgets.writing() as local, ledger.writing() as admin:
        for statement in BETWEEN_COMMITS:
            local.execute(statement, (settled,))
            local.execute(statement, (unborn[0],))
        for before, identifier in zip(unborn, minute_ago, strict=True):
            local.execute("UPDATE live_requests SET id = ? WHERE id = ?", (identifier, before))
            local.execute("UPDATE bookings SET request_id = ? WHERE request_id = ?", (identifier, before))
            admin.execute("DELETE FROM live_requests WHERE id = ?", (before,))
        admin.execute("UPDATE live_requests SET held = 0 WHERE id = ?", (untold,))
        for place in (local, admin):
            place.execute("UPDATE live_requests SET lease_until_ms = 1")
    gateway.start()
    until(lambda: set(states(ledger).values()) == {"recovered"} and len(states(ledger)) == 6)
    charged_7 = "SELECT id FROM requests WHERE cost = 7 ORDER BY 1"
    until(lambda: found(ledger, charged_7) == [{"id": minute_ago[0]}, {"id": settled}])
    unequal = [{"subject": identifier} for identifier in (*minute_ago, settled, untold)]
    until(lambda: found(ledger, "SELECT subject FROM incidents ORDER BY 1") == unequal)
    rows = found(ledger, "SELECT cost, held, error FROM requests WHERE cost <> 7 ORDER BY cost")
    assert all(row["cost"] == row["held"] and row["error"] == "crashed" for row in rows)
    assert [row["cost"] > 7 for row in rows] == [False, False, True, True]
    sums = "SELECT spent FROM budget_windows WHERE budget = 'day' AND held = 0"
    assert until(lambda: found(budgets, sums)) == [{"spent": 14 + sum(row["cost"] for row in rows)}]
    assert [known["findings"] for known in told(gateway, "verify")] == [[], []]
    gateway.stop()


@pytest.mark.parametrize("redis", [False, True], ids=["budgets here", "budgets in Redis"])
def test_a_ledger_in_a_server_moves_to_a_file(
    tmp_path: Path, upstream: Upstream, postgres: Server, redis: bool
) -> None:
    """With budgets in Redis nothing of a request stays on the machine."""
    with ExitStack() as stack:
        urls = {SETTING: postgres.empty()}
        if redis:
            urls["LOWPASS_REDIS_URL"] = stack.enter_context(RedisProcess()).url.reveal()
        gateway = stack.enter_context(serving(tmp_path / "one", policy(upstream.url), urls))
        assert [gateway.chat(route).status for route in ("auto", "other") * 3] == [200] * 6
        if redis:
            costs = found(ledger_of(gateway), "SELECT id, cost FROM requests ORDER BY id")
            charged = (
                "SELECT request_id AS id, charged AS cost FROM bookings WHERE state = 'settled' AND account = 'day'"
            )
            until(lambda: found(ledger_of(gateway), f"{charged} ORDER BY id") == costs)
            assert gateway.rows("SELECT id FROM requests") == []
        attempts = len(found(ledger_of(gateway), "SELECT number FROM attempts"))
        known = told(gateway, "verify")
        assert [one["ledger"].partition(":")[0] for one in known] == ["postgresql", *[str(gateway.ledger)][redis:]]
        assert [(one["sound"], one["findings"]) for one in known] == [(True, [])] * len(known)
        assert known[0]["attempts"] == attempts > 6
        about = told(gateway, "info")
        assert (about["version"], about["requests"], about["past"]) == (newest(SQLITE), 6, 0)
        assert about["bytes"] > 10_000
        told(gateway, "backup", str(tmp_path / "copy"))
    other, known = restored(tmp_path)
    assert (known["requests"], known["attempts"]) == (6, attempts)
    status, output = other.lowpass("report", "spend", "--by", "route", "--json")
    assert (status, json.loads(output)["totals"]["requests"]) == (0, 6)


ROWS = ("live_requests", "past_requests")


def test_a_busy_ledger_is_sound_and_so_is_its_copy(tmp_path: Path, upstream: Upstream) -> None:
    with serving(tmp_path / "one", policy(upstream.url)) as gateway, crowd(gateway, 4, "auto", "other") as replies:
        until(lambda: len(replies) > 50)
        (known,) = told(gateway, "verify")
        assert (known["sound"], known["requests"] > 50, known["findings"]) == (True, True, [])
        copied = told(gateway, "backup", str(tmp_path / "copy"))
        assert sum(copied["rows"].get(name, 0) for name in ROWS) >= known["requests"]
    assert restored(tmp_path)[1]["requests"] == sum(copied["rows"].get(name, 0) for name in ROWS)


UNUSABLE = [
    ("postgresql://me:c4n4ry@127.0.0.1:9/books", "127.0.0.1:9/books can't be reached"),
    ("mysql://me:c4n4ry@127.0.0.1/books", "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"),
]


@each_row("url, says", UNUSABLE)
def test_a_database_that_can_not_be_used_is_one_clear_line(tmp_path: Path, url: str, says: str) -> None:
    stopped = Gateway(tmp_path, policy("http://127.0.0.1:9"), {SETTING: url})
    for words in (["serve", "--port", "0", "--policy", str(stopped.policy)], ["report"], ["keys", "list"]):
        status, output = stopped.lowpass(*words)
        assert (status, len(output.strip().splitlines())) == (1, 1), output
        assert [text in output for text in (SETTING, says, "c4n4ry")] == [True, True, False], output


def test_a_database_without_a_ledger_is_no_mistake_of_the_report(tmp_path: Path, postgres: Server) -> None:
    done = lowpass(tmp_path, "report", **{SETTING: postgres.empty()})
    assert (done.status, "there is no ledger at postgresql://" in done.output) == (1, True)


def test_a_server_that_is_killed_under_load_costs_no_answered_request_its_row(
    tmp_path: Path, upstream: Upstream, mortal: Server
) -> None:
    with serving(tmp_path, policy(upstream.url), {SETTING: mortal.database()}) as gateway:
        with crowd(gateway, 20, "auto") as replies:
            until(lambda: len(replies) > 100)
            mortal.kill()
            until(lambda: any(reply.status == 503 for reply in replies))
            until(lambda: gateway.chat("auto").status == 503)
            assert gateway.chat("auto").error["code"] == "ledger_unavailable"
            assert gateway.get("/health/live").status == 200
            for path in ("/v1/reports/spend", f"/v1/decisions/{replies[0].id}"):
                refused = gateway.get(path)
                assert (refused.status, refused.error["code"]) == (503, "ledger_unavailable")
            assert gateway.get("/dashboard").status == 503
            mortal.start()
            until(lambda: gateway.chat("auto").status == 200)
        assert {reply.status for reply in replies} == {200, 503}
        answered = {reply.id for reply in replies if reply.status == 200}
        ledger = ledger_of(gateway)
        until(lambda: "held" not in states(ledger).values())
        now = states(ledger)
        assert {now.get(identifier) for identifier in answered} == {"settled"}
        (counted,) = found(ledger, "SELECT COUNT(*) AS rows, COUNT(DISTINCT request_id) AS requests FROM attempts")
        assert counted["rows"] == counted["requests"] == sum(state == "settled" for state in now.values())
        log = gateway.log.read_text()
        assert [log.count(text) for text in ("the ledger can't be written", "Traceback", ":secret@")] == [1, 0, 0]


def test_a_gateway_lives_on_while_nothing_can_be_moved_into_its_ledger(served: Process) -> None:
    """Commits may still find room in the write-ahead log, and checkpoints none in the database.

    There is less than an empty ledger needs, and more than what SQLite shares among processes (lowpass.db-shm).
    """
    served.chat("auto")
    make_room = no_room(served, 40_960)
    until(lambda: until_refused(served))
    until(lambda: "the write-ahead log could not be moved" in served.log.read_text())
    assert [served.get(path).status for path in ("/health/live", "/v1/reports/spend")] == [200, 200]
    make_room()
    until(lambda: served.chat("auto").status == 200)
    assert served.log.read_text().count("the write-ahead log could not be moved") == 1
    assert served.lowpass("ledger", "verify")[0] == 0


def test_a_gateway_whose_disk_is_full_refuses_and_goes_on_when_there_is_room(
    served: Process, upstream: Upstream
) -> None:
    answered = [served.chat("auto").id for _ in range(3)]
    stream = served.raw()
    stream.sendall(STREAM)
    until(lambda: len(upstream.requests) == 4)
    make_room = no_room(served)
    replies = until(lambda: until_refused(served))
    asked = len(upstream.requests)
    for _ in range(5):
        refused = served.chat("auto")
        assert (refused.status, refused.error["code"]) == (503, "ledger_unavailable")
    assert len(upstream.requests) == asked
    assert served.get("/health/live").status == 200
    make_room()
    until(lambda: served.chat("auto").status == 200)
    answered += [reply.id for reply in replies if reply.status == 200]
    with stream:
        while stream.recv(65_536):
            pass
    until(lambda: not served.rows("SELECT 1 FROM requests WHERE state = 'held'"))
    assert {served.row(identifier)["state"] for identifier in answered} == {"settled"}
    served.check_books()
    status, output = served.lowpass("ledger", "verify")
    assert (status, output.count("\n")) == (0, 1), output
    # A disk that is full to the end leaves a sound ledger.
    no_room(served)
    until(lambda: until_refused(served))
    served.stop()
    known = verify(SqliteLedger(served.ledger))
    assert (known.sound, known.requests >= 3) == (True, True), known.findings
    served.start()
    assert served.chat("auto").status == 200
    assert "Traceback" not in served.log.read_text()


def test_rows_in_the_server_and_bookings_in_a_file_are_compared_in_both_directions(gateway: Gateway) -> None:
    ids = [gateway.chat("auto").id for _ in range(4)]
    until(lambda: gateway.lowpass("ledger", "verify")[0] == 0)
    with ledger_of(gateway).writing() as there, SqliteLedger(gateway.ledger).writing() as here:
        here.execute("DELETE FROM live_requests WHERE id = ?", (ids[0],))
        there.execute("DELETE FROM live_requests WHERE id = ?", (ids[1],))
        there.execute("UPDATE live_requests SET cost = cost + 1 WHERE id = ?", (ids[2],))
        here.execute("UPDATE bookings SET charged = charged + 1 WHERE request_id = ? AND account = 'day'", (ids[3],))
    status, output = gateway.lowpass("ledger", "verify", "--json")
    said = [[f"{row['table']} {row['row']}: {row['says']}" for row in each["findings"]] for each in json.loads(output)]
    assert status == 1
    for identifier, words in zip(ids, ("budgets no row", "has no row", "nano-USD and", "charged"), strict=True):
        assert any(identifier in line and words in line for line in said[1]), (words, said)


def listed(gateway: Gateway) -> Any:
    return until(lambda: gateway.get("/v1/budgets").json.get("data"))


@each_row("places", [(), ("postgres",), ("redis",), ("postgres", "redis")])
def test_what_was_spent_counts_in_another_window_of_its_budget(
    tmp_path: Path, upstream: Upstream, postgres: Server, places: tuple[str, ...]
) -> None:
    """Also after its rows have expired, where the window that was booked began in the other one."""
    environ, rules, cost = {}, policy(upstream.url), 0.0
    until(lambda: now_ms() % HOUR_MS < HOUR_MS - 40_000, 60)
    with ExitStack() as stack:
        if "redis" in places:
            environ["LOWPASS_REDIS_URL"] = stack.enter_context(RedisProcess()).url.reveal()
        if "postgres" in places:
            environ[SETTING] = postgres.empty()
        for number, window in enumerate(("hour", "day", "month", "lifetime", "hour", "week", "day")):
            rules["budgets"][0]["window"] = window
            with serving(tmp_path, rules, environ) as gateway:
                cost += float(gateway.chat("auto").headers["x-lowpass-cost-usd"])
                gateway.tick()
                (budget,) = [budget for budget in listed(gateway) if budget["id"] == "day"]
                assert budget["spent"] == pytest.approx(cost), window
                assert gateway.lowpass("ledger", "verify")[0] == 0
            if not number:
                books = ledger_of(gateway) if len(places) == 2 else SqliteLedger(gateway.ledger)
                upkeep(books, now_ms() + DAY_MS, 1, all_of_them=True)
