"""A gateway whose ledger is a PostgreSQL server, as its users and its operator have it."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from router.ledger.ledger import SqliteLedger
from router.ledger.postgres.ledger import PostgresLedger
from router.types.secret import Secret
from tests.budget.redis_process import RedisProcess
from tests.gateway.running import Gateway, Reply, ordered, serving, target, until
from tests.ledger.books import found
from tests.postgres import Server
from tests.upstream import Upstream

SETTING = "LOWPASS_DATABASE_URL"


def policy(url: str) -> dict[str, Any]:
    targets = {"plain": target(url, "normal"), "slow": target(url, "slow-chunks")}
    budgets = [{"id": "day", "limit_usd": 1_000, "window": "day"}]
    return {
        "version": 1,
        "targets": targets,
        "routes": {"auto": ordered("plain"), "streams": ordered("slow")},
        "budgets": budgets,
    }


@pytest.fixture
def gateway(tmp_path: Path, upstream: Upstream, postgres: Server) -> Iterator[Gateway]:
    with serving(tmp_path, policy(upstream.url), {SETTING: postgres.empty()}) as gateway:
        yield gateway


def ledger_of(gateway: Gateway) -> PostgresLedger:
    return PostgresLedger(Secret(gateway._environ[SETTING]))


def states(ledger: PostgresLedger) -> dict[str, str]:
    return {row["id"]: row["state"] for row in found(ledger, "SELECT id, state FROM requests")}


def test_answers_and_all_that_is_told_about_them(gateway: Gateway) -> None:
    ledger = ledger_of(gateway)
    replies = [gateway.chat("auto"), gateway.chat("streams", stream=True)]
    ids = [reply.headers["x-request-id"] for reply in replies]
    assert states(ledger) == dict.fromkeys(ids, "settled")
    assert [row["n"] for row in found(ledger, "SELECT COUNT(*) AS n FROM attempts")] == [2]
    decision = gateway.get(f"/v1/decisions/{ids[0]}")
    assert (decision.status, decision.json["id"]) == (200, ids[0])
    assert gateway.post("/v1/feedback", {"id": ids[0], "score": 0.5}).status == 200
    assert found(ledger, "SELECT request_id, score FROM outcomes") == [{"request_id": ids[0], "score": 0.5}]
    report = gateway.get("/v1/reports/spend").json
    assert report["totals"]["requests"] == 2
    page = gateway.get("/dashboard")
    assert (page.status, ids[0].encode() in page.body) == (200, True)
    assert gateway.get(f"/dashboard/requests/{ids[1]}").status == 200
    status, output = gateway.lowpass("report", "spend", "--json")
    assert (status, json.loads(output)["totals"]["requests"]) == (0, 2)
    log = gateway.log.read_text()
    assert f"ledger     {ledger.name}" in log
    assert ":secret@" not in log


def test_keys_are_there_for_every_gateway(gateway: Gateway, tmp_path: Path, upstream: Upstream) -> None:
    options = ["--team", "red", "--organisation", "acme", "--scope", "reports"]
    status, output = gateway.lowpass("keys", "create", "root", *options)
    assert status == 0, output
    key = output.splitlines()[0]
    (listed,) = json.loads(gateway.lowpass("keys", "list", "--json")[1])
    assert (listed["team"], listed["organisation"]) == ("red", "acme")
    assert "team red of acme" in gateway.lowpass("keys", "list")[1]
    until(lambda: gateway.chat("auto").status == 401, 5)
    with serving(tmp_path / "other", policy(upstream.url), gateway._environ) as other:
        assert other.chat("auto").status == 401
        reply = other.chat("auto", headers={"authorization": f"Bearer {key}"})
        assert reply.status == 200
        (row,) = found(ledger_of(gateway), "SELECT key_id FROM requests WHERE id = ?", reply.headers["x-request-id"])
        assert row["key_id"] == listed["id"]
    assert gateway.lowpass("keys", "revoke", "root")[0] == 0


def test_a_gateway_that_was_killed_leaves_nothing_held_for_ever(gateway: Gateway) -> None:
    ledger = ledger_of(gateway)
    with ExitStack() as clients:
        for _ in range(5):
            clients.enter_context(gateway.raw()).sendall(_stream())
        until(lambda: list(states(ledger).values()) == ["held"] * 5)
        gateway.kill()
    budgets = SqliteLedger(gateway.ledger)
    for place in (ledger, budgets):
        with place.writing() as admin:
            admin.execute("UPDATE requests SET lease_until_ms = 1")
    gateway.start()
    until(lambda: set(states(ledger).values()) == {"recovered"}, 5)
    rows = found(ledger, "SELECT cost, held, error FROM requests")
    assert all(row["cost"] == row["held"] > 0 and row["error"] == "crashed" for row in rows)
    (window,) = until(lambda: found(budgets, "SELECT spent, held FROM budget_windows WHERE held = 0"))
    assert window["spent"] == sum(row["cost"] for row in rows)


def _stream() -> bytes:
    body = json.dumps({"model": "streams", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}).encode()
    return b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body


def test_with_budgets_in_redis_nothing_of_a_request_stays_on_the_machine(
    tmp_path: Path, upstream: Upstream, postgres: Server
) -> None:
    with RedisProcess() as redis:
        urls = {SETTING: postgres.empty(), "LOWPASS_REDIS_URL": redis.url.reveal()}
        with serving(tmp_path, policy(upstream.url), urls) as gateway:
            reply = gateway.chat("auto")
            assert reply.status == 200
            ledger = ledger_of(gateway)
            (row,) = found(ledger, "SELECT id, state, cost FROM requests")
            assert (row["id"], row["state"]) == (reply.headers["x-request-id"], "settled")
            booked = "SELECT request_id, charged FROM bookings WHERE state = 'settled'"
            assert until(lambda: found(ledger, booked)) == [{"request_id": row["id"], "charged": row["cost"]}]
            assert gateway.rows("SELECT id FROM requests") == []


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://me:c4n4ry@127.0.0.1:9/books", "127.0.0.1:9/books can't be reached"),
        ("mysql://me:c4n4ry@127.0.0.1/books", "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"),
    ],
)
def test_a_database_that_can_not_be_used_is_one_clear_line(
    tmp_path: Path, upstream: Upstream, url: str, says: str
) -> None:
    gateway = Gateway(tmp_path, policy(upstream.url), {SETTING: url})
    for command in (["serve", "--port", "0", "--policy", str(gateway.policy)], ["report"], ["keys", "list"]):
        status, output = gateway.lowpass(*command)
        assert (status, len(output.strip().splitlines())) == (1, 1), output
        assert SETTING in output
        assert says in output
        assert "c4n4ry" not in output


def test_a_database_without_a_ledger_is_no_mistake_of_the_report(tmp_path: Path, postgres: Server) -> None:
    status, output = Gateway(tmp_path, "", {SETTING: postgres.empty()}).lowpass("report")
    assert (status, "there is no ledger at postgresql://" in output) == (1, True)


def test_a_server_that_is_killed_under_load_costs_no_answered_request_its_row(
    tmp_path: Path, upstream: Upstream
) -> None:
    server = Server()
    if not server.mine:
        pytest.skip("the server of LOWPASS_TEST_DATABASE_URL is not ours to kill")
    server.start()
    try:
        with serving(tmp_path, policy(upstream.url), {SETTING: server.database()}) as gateway:
            _kill_under_load(gateway, server)
    finally:
        server.stop()


def _kill_under_load(gateway: Gateway, server: Server) -> None:
    replies: list[Reply] = []
    slowest, stop = [0.0], threading.Event()

    def ask(number: int) -> None:
        while not stop.is_set():
            began = time.monotonic()
            replies.append(gateway.chat("auto", stream=number % 2 == 0))
            slowest[0] = max(slowest[0], time.monotonic() - began)

    crowd = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
    for thread in crowd:
        thread.start()
    try:
        until(lambda: len(replies) > 100)
        server.kill()
        until(lambda: any(reply.status == 503 for reply in replies))
        until(lambda: gateway.chat("auto").status == 503)
        down = gateway.chat("auto")
        assert down.error["code"] == "ledger_unavailable"
        assert gateway.get("/health/live").status == 200
        for path in ("/v1/reports/spend", f"/v1/decisions/{replies[0].headers['x-request-id']}"):
            refused = gateway.get(path)
            assert (refused.status, refused.error["code"]) == (503, "ledger_unavailable")
        assert gateway.get("/dashboard").status == 503
        server.start()
        until(lambda: gateway.chat("auto").status == 200, 20)
    finally:
        stop.set()
        for thread in crowd:
            thread.join(10)
    assert set(Counter(reply.status for reply in replies)) == {200, 503}
    assert slowest[0] < 8
    answered = {reply.headers["x-request-id"] for reply in replies if reply.status == 200}
    ledger = ledger_of(gateway)
    until(lambda: "held" not in states(ledger).values())
    now = states(ledger)
    assert {now.get(identifier) for identifier in answered} == {"settled"}
    (counted,) = found(ledger, "SELECT COUNT(*) AS rows, COUNT(DISTINCT request_id) AS requests FROM attempts")
    assert counted["rows"] == counted["requests"] == sum(state == "settled" for state in now.values())
    log = gateway.log.read_text()
    assert log.count("the ledger can't be written") == 1
    assert "Traceback" not in log
    assert ":secret@" not in log
