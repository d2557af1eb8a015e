"""Load, crashes and a disk that does not take anything: nobody waits for ever, and no row is lost or booked twice."""

import http.client
import json
import os
import signal
import sqlite3
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from tests.gateway.canned import canned
from tests.gateway.running import CHAT, Gateway, Reply, ordered, serving, target, until
from tests.upstream import Upstream

NANO = 1_000_000_000
PARALLEL = 200
ANSWER = {
    "id": "c",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
}


def policy(url: str, limit_usd: float = 1_000) -> dict[str, Any]:
    targets = {
        "plain": target(url, "normal"),
        "slow": target(url, "slow-chunks", timeouts={"total_ms": 2_000}),
        "broken": target(url, "error-500@chaos"),
    }
    routes = {"auto": ordered("plain"), "streams": ordered("slow"), "falls-back": ordered("broken", "plain")}
    budgets = [
        {"id": "day", "limit_usd": limit_usd, "window": "day"},
        {"id": "ever", "limit_usd": 10 * limit_usd, "window": "lifetime"},
    ]
    return {"version": 1, "targets": targets, "routes": routes, "budgets": budgets}


def both_windows(gateway: Gateway) -> set[tuple[int, int]]:
    return {(row["spent"], row["held"]) for row in gateway.rows("SELECT * FROM budget_windows")}


def sums(gateway: Gateway) -> tuple[int, int]:
    """(spent, held) as the request rows have it."""
    (row,) = gateway.rows(
        "SELECT coalesce(sum(cost), 0) AS spent, coalesce(sum(held * (state = 'held')), 0) AS held FROM requests"
    )
    return row["spent"], row["held"]


def test_two_hundred_at_once_are_answered_once_each(tmp_path: Path, upstream: Upstream) -> None:
    with serving(tmp_path, policy(upstream.url)) as gateway:

        def ask(number: int) -> Reply:
            return gateway.chat(("auto", "streams", "falls-back")[number % 3], stream=number % 2 == 0)

        with ThreadPoolExecutor(PARALLEL) as crowd:
            replies = list(crowd.map(ask, range(PARALLEL)))
        assert Counter(reply.status for reply in replies) == {200: PARALLEL}
        assert all(b"[DONE]" in reply.body for reply in replies[::2])
        answered = {reply.headers["x-request-id"] for reply in replies}
        rows = gateway.rows("SELECT id, state, cost FROM requests")
        assert {row["id"] for row in rows} == answered
        assert len(rows) == len(answered) == PARALLEL
        assert Counter(row["state"] for row in rows) == {"settled": PARALLEL}
        assert both_windows(gateway) == {sums(gateway)}
        gateway.check_books()


def test_a_budget_is_not_overspent_by_a_crowd(tmp_path: Path, upstream: Upstream) -> None:
    """A fifth of a cent, and a hundred requests at once that may cost as much each, but turn out to cost a fiftieth."""
    with serving(tmp_path, policy(upstream.url, 0.002)) as gateway:
        with ThreadPoolExecutor(100) as crowd:
            replies = list(crowd.map(lambda _: gateway.chat("streams"), range(100)))
        assert set(reply.status for reply in replies) == {200, 402}
        spent = max(spent for spent, _ in both_windows(gateway))
        assert spent <= 2_000_000
        least = min(reply.error["budget"]["needed"] for reply in replies if reply.status == 402)
        assert spent + least * NANO > 2_000_000, "there was room for one more"
        assert both_windows(gateway) == {sums(gateway)}


class Answered(Struct):
    """What a client has in its hands."""

    complete: list[str]
    begun: list[str]


def keep_asking(gateway: Gateway, stop: threading.Event, answered: Answered) -> None:
    body = json.dumps({"model": "streams", "messages": [{"role": "user", "content": "Hi"}], "stream": True})
    while not stop.is_set():
        connection = http.client.HTTPConnection(*gateway.address, timeout=10)
        try:
            connection.request("POST", CHAT, body)
            response = connection.getresponse()
            request_id = response.headers["x-request-id"]
            answered.begun.append(request_id)
            if b"[DONE]" in response.read():
                answered.complete.append(request_id)
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()


def test_a_gateway_that_is_killed_under_load_loses_no_answer_and_no_cent(tmp_path: Path, upstream: Upstream) -> None:
    gateway = Gateway(tmp_path, policy(upstream.url)).start()
    stop, answered = threading.Event(), Answered([], [])
    crowd = [threading.Thread(target=keep_asking, args=(gateway, stop, answered)) for _ in range(20)]
    for thread in crowd:
        thread.start()
    until(lambda: len(answered.complete) >= 40)
    gateway.kill()
    stop.set()
    for thread in crowd:
        thread.join(10)

    states = {row["id"]: row["state"] for row in gateway.rows("SELECT id, state FROM requests")}
    assert {states[request_id] for request_id in answered.complete} == {"settled"}
    assert set(answered.begun) <= set(states)
    held = [request_id for request_id, state in states.items() if state == "held"]
    assert held, "nothing was in flight when the gateway died"
    assert both_windows(gateway) == {sums(gateway)}

    expired = held[:5]
    with sqlite3.connect(gateway.ledger) as ledger:
        ledger.executemany("UPDATE requests SET lease_until_ms = 1 WHERE id = ?", [(one,) for one in expired])
    ledger.close()
    gateway.start()
    try:
        until(lambda: len(gateway.rows("SELECT 1 FROM requests WHERE state = 'recovered'")) == len(expired))
        assert len(gateway.rows("SELECT 1 FROM requests WHERE state = 'held'")) == len(held) - len(expired)
        assert (
            gateway.rows("SELECT 1 FROM requests WHERE state = 'recovered' AND (cost != held OR error != 'crashed')")
            == []
        )
        assert both_windows(gateway) == {sums(gateway)}
        assert gateway.chat("auto").status == 200
        assert both_windows(gateway) == {sums(gateway)}
        assert "were charged at their hold" in gateway.log.read_text()
    finally:
        gateway.stop()


@pytest.mark.parametrize("seconds", [1.0, 2.6])
def test_while_another_process_keeps_the_ledger_requests_wait_or_are_refused(
    tmp_path: Path, upstream: Upstream, seconds: float
) -> None:
    """A lock of a second is waited for; a longer one refuses at least those that a budget binds."""
    with serving(tmp_path, policy(upstream.url)) as gateway:
        assert gateway.chat("auto").status == 200
        other = sqlite3.connect(gateway.ledger, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        release = threading.Timer(seconds, lambda: other.execute("COMMIT"))
        release.start()
        with ThreadPoolExecutor(10) as crowd:
            replies = list(crowd.map(lambda _: gateway.chat("auto"), range(10)))
        release.join()
        other.close()
        statuses = Counter(reply.status for reply in replies)
        assert set(statuses) <= {200, 503}
        assert seconds > 2 or statuses == {200: 10}
        for reply in replies:
            if reply.status == 503:
                assert reply.error["code"] == "ledger_unavailable"
        until(lambda: gateway.chat("auto").status == 200, 5)
        rows = until(lambda: gateway.rows("SELECT id, state, status, cost FROM requests"))
        states = {row["id"]: (row["state"], row["status"]) for row in rows}
        for reply in replies:
            expected = ("settled", 200) if reply.status == 200 else ("released", 503)
            assert states[reply.headers["x-request-id"]] == expected
        assert not [row for row in rows if row["state"] == "held"]
        assert both_windows(gateway) == {sums(gateway)}


def test_an_absurd_count_from_an_upstream_does_not_stop_the_ledger(tmp_path: Path, upstream: Upstream) -> None:
    usage = {"prompt_tokens": 2**53, "completion_tokens": 2**53, "total_tokens": 2**54}
    with canned({"absurd": (200, json.dumps({**ANSWER, "usage": usage}).encode())}) as server:
        rules = policy(upstream.url)
        rules["targets"]["absurd"] = target(server.url, "m", flavour="absurd", price={"input": 1_000, "output": 1_000})
        with serving(tmp_path, rules) as gateway:
            assert gateway.chat("absurd").status == 200
            until(lambda: gateway.chat("auto").status == 200, 5)
            reply = gateway.chat("auto")
            assert gateway.row(reply.headers["x-request-id"])["state"] == "settled"


def restarted(gateway: Gateway) -> dict[str, Any] | None:
    """That it is gone may not have been seen yet."""
    (engine,) = gateway.get("/health/ready").json["engines"]
    return engine if engine["restarts"] and engine["status"] == "ready" else None


def test_a_local_engine_that_is_killed_in_the_middle_of_an_answer_comes_back(tmp_path: Path) -> None:
    rules = {
        "version": 1,
        "targets": {"local": {"model": "local/smollm2-135m-instruct", "engine": "smollm2"}},
        "routes": {"auto": ordered("local")},
    }
    with serving(tmp_path, rules) as gateway:
        (engine,) = gateway.get("/health/ready").json["engines"]
        body = {"model": "auto", "messages": [{"role": "user", "content": "Tell a very long story."}], "stream": True}
        connection = http.client.HTTPConnection(*gateway.address, timeout=20)
        connection.request("POST", CHAT, json.dumps({**body, "max_tokens": 1_500, "temperature": 1}))
        response = connection.getresponse()
        assert response.status == 200
        assert response.readline().startswith(b"data: ")
        os.kill(engine["pid"], signal.SIGKILL)
        rest = response.read()
        connection.close()
        assert b"[DONE]" not in rest
        assert b'"error"' in rest.strip().split(b"\n\n")[-1]
        row = gateway.row(response.headers["x-request-id"])
        assert (row["state"], row["status"], row["error"]) == ("settled", 200, "cut")
        assert row["attempts"][0]["output_visible"] > 0
        again = until(lambda: restarted(gateway), 20)
        assert again["restarts"] == 1
        assert again["pid"] != engine["pid"]
        reply = gateway.chat("auto", max_tokens=4)
        assert reply.status == 200
        assert reply.json["choices"][0]["message"]["content"]
        assert gateway.stop() == 0
        with pytest.raises(ProcessLookupError):
            os.kill(again["pid"], 0)
