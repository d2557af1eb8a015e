"""Load, crashes and a disk that takes nothing: no request waits for ever, and no row is lost or booked twice."""

import http.client
import json
import os
import signal
import sqlite3
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

from router.testing.upstream import Answer, Behaviour, Upstream
from tests.dispatch.values import completion
from tests.gateway import school
from tests.gateway.canned import canned
from tests.gateway.running import CHAT, Client, Reply, ordered, processing, serving, target, until
from tests.tables import each_row

pytestmark = pytest.mark.timeout(600)
NANO = 1_000_000_000
PARALLEL = 200
LONG_S = 300
"""Until then whatever is waited for has happened, also on a busy machine."""
CASCADES_NANO = 40_000_000
"""A limit that pays for fifty of 200 second answers."""


def budgets(limit_usd: float, ever_usd: float) -> list[dict[str, Any]]:
    day = {"id": "day", "limit_usd": limit_usd, "window": "day"}
    return [day, {"id": "ever", "limit_usd": ever_usd, "window": "lifetime"}]


def policy(url: str) -> dict[str, Any]:
    behaviours = {"plain": "normal", "slow": "slow-chunks", "broken": "error-500@chaos"}
    targets = {name: target(url, behaviour) for name, behaviour in behaviours.items()}
    routes = {"auto": ordered("plain"), "streams": ordered("slow"), "falls-back": ordered("broken", "plain")}
    return {"version": 1, "targets": targets, "routes": routes, "budgets": budgets(1_000, 10_000)}


def windows(gateway: Client) -> set[tuple[int, int]]:
    """(spent, held) of every window."""
    return {(row["spent"], row["held"]) for row in gateway.rows("SELECT * FROM budget_windows")}


def check_windows(gateway: Client) -> None:
    """They have what the request rows have."""
    sums = "coalesce(sum(cost), 0), coalesce(sum(held * (state = 'held')), 0)"
    assert windows(gateway) == gateway.values(f"SELECT {sums} FROM requests")  # noqa: S608 - constants


def test_two_hundred_at_once_are_answered_once_each(tmp_path: Path, upstream: Upstream) -> None:
    with serving(tmp_path, policy(upstream.url)) as gateway, ThreadPoolExecutor(PARALLEL) as crowd:
        routes = ("auto", "streams", "falls-back")
        replies = list(crowd.map(lambda n: gateway.chat(routes[n % 3], stream=n % 2 == 0), range(PARALLEL)))
        assert Counter(reply.status for reply in replies) == {200: PARALLEL}
        assert all(b"[DONE]" in reply.body for reply in replies[::2])
        rows = gateway.rows("SELECT id, state, cost FROM requests")
        assert len(rows) == PARALLEL
        assert {row["id"] for row in rows} == {reply.id for reply in replies}
        assert Counter(row["state"] for row in rows) == {"settled": PARALLEL}
        check_windows(gateway)
        gateway.check_books()


def test_two_hundred_cascades_spend_no_more_than_there_is(tmp_path: Path) -> None:
    """A dear answer is paid for with the cheap one before it, a cheap one alone, and a refusal not at all."""
    strategy = {"kind": "cascade", "targets": ["cheap", "dear"], "accepts_right": 1, "accepts_wrong": 0}
    route = {"strategy": strategy, "failure_cost_usd": 1, "verifiers": [{"kind": "number"}]}
    pupils = {"cheap": school.Pupil(school.weak), "dear": school.Pupil(school.able)}
    with school.schooling(**pupils) as upstream, ThreadPoolExecutor(PARALLEL) as crowd:
        cheap = school.seat(upstream.url, "cheap", school.CHEAP, 0.8)
        targets = {"cheap": cheap, "dear": school.seat(upstream.url, "dear", school.DEAR, 0.95)}
        limits = budgets(CASCADES_NANO / 1e9, 1)
        rules = {"version": 1, "targets": targets, "routes": {"auto": route}, "budgets": limits}
        with serving(tmp_path, rules) as gateway:

            def ask(number: int) -> Reply:
                text = school.product(11 + number, 13)
                right = {"expected": school.expected(text)}
                return gateway.chat("auto", text, metadata=right, max_tokens=16, stream=number % 2 == 0)

            replies = list(crowd.map(ask, range(PARALLEL)))
            given = Counter((reply.status, reply.headers.get("x-lowpass-model")) for reply in replies)
            assert set(given) <= {(200, "cheap"), (200, "dear"), (402, None)}
            dear = given[200, "dear"]
            passed_over = len(gateway.rows("SELECT 1 FROM attempts WHERE passed_over = 1 AND target = 'cheap'"))
            # Late requests may go to the dear target at once: by then the route has learned that the cheap one fails.
            assert 10 < passed_over <= dear
            spent = dear * school.DEAR_NANO + (passed_over + given[200, "cheap"]) * school.CHEAP_NANO
            sums = "SELECT count(*), sum(cost), sum(state = 'held') FROM requests WHERE route = 'auto'"
            assert gateway.values(sums) == {(PARALLEL, spent, 0)}
            assert gateway.values("SELECT sum(cost) FROM attempts") == {(spent,)}
            assert windows(gateway) == {(spent, 0)}
            assert spent <= CASCADES_NANO
            assert len(upstream.of("dear")) == dear
            gateway.check_books()


@each_row("until_answered", [False, True], ids=["a moment", "for as long as anybody waits"])
def test_while_another_process_keeps_the_ledger_requests_wait_or_are_refused(
    tmp_path: Path, upstream: Upstream, until_answered: bool
) -> None:
    """A short lock is waited for; a long one refuses those that a budget binds."""
    with serving(tmp_path, policy(upstream.url)) as gateway, ThreadPoolExecutor(10) as crowd:
        assert gateway.chat("auto").status == 200
        other = sqlite3.connect(gateway.ledger, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        futures = [crowd.submit(gateway.chat, "auto") for _ in range(10)]
        if until_answered:
            wait(futures)
        else:
            until(lambda: gateway.app.state()["in_flight"] == 10 or any(future.done() for future in futures))
        other.execute("COMMIT")
        other.close()
        replies = [future.result() for future in futures]
        statuses = Counter(reply.status for reply in replies)
        assert statuses == {503: 10} if until_answered else set(statuses) <= {200, 503}
        assert all(reply.error["code"] == "ledger_unavailable" for reply in replies if reply.status == 503)
        until(lambda: gateway.chat("auto").status == 200, LONG_S)
        states = {row["id"]: (row["state"], row["status"]) for row in gateway.rows("SELECT * FROM requests")}
        ends = {200: ("settled", 200), 503: ("released", 503)}
        assert {reply.id: states[reply.id] for reply in replies} == {reply.id: ends[reply.status] for reply in replies}
        assert "held" not in {state for state, _ in states.values()}
        check_windows(gateway)


def test_an_absurd_count_from_an_upstream_does_not_stop_the_ledger(tmp_path: Path, upstream: Upstream) -> None:
    usage = {"prompt_tokens": 2**53, "completion_tokens": 2**53, "total_tokens": 2**54}
    with canned({"absurd": (200, json.dumps({**json.loads(completion("Hi")), "usage": usage}).encode())}) as server:
        rules = policy(upstream.url)
        rules["targets"]["absurd"] = target(server.url, "m", flavour="absurd", price={"input": 1_000, "output": 1_000})
        with serving(tmp_path, rules) as gateway:
            assert gateway.chat("absurd").status == 200
            until(lambda: gateway.chat("auto").status == 200, LONG_S)
            assert gateway.row(gateway.chat("auto").id)["state"] == "settled"


def restarted(gateway: Client) -> dict[str, Any] | None:
    """That it is gone may not have been seen yet."""
    (engine,) = gateway.get("/health/ready").json["engines"]
    return engine if engine["restarts"] and engine["status"] == "ready" else None


def test_a_local_engine_that_is_killed_in_the_middle_of_an_answer_comes_back(tmp_path: Path) -> None:
    local = {"model": "local/smollm2-135m-instruct", "engine": "smollm2"}
    rules = {"version": 1, "targets": {"local": local}, "routes": {"auto": ordered("local")}}
    with processing(tmp_path, rules) as gateway:
        (engine,) = gateway.get("/health/ready").json["engines"]
        body = {"model": "auto", "messages": [{"role": "user", "content": "Tell a very long story."}], "stream": True}
        connection = http.client.HTTPConnection(*gateway.address)
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
        again = until(lambda: restarted(gateway), LONG_S)
        assert again["restarts"] == 1
        assert again["pid"] != engine["pid"]
        reply = gateway.chat("auto", max_tokens=4)
        assert reply.status == 200
        assert reply.json["choices"][0]["message"]["content"]
        gateway.process.terminate()
        assert gateway.process.wait(LONG_S) == 0
        with pytest.raises(ProcessLookupError):
            os.kill(again["pid"], 0)


def test_an_answer_that_waits_in_the_socket_of_a_paused_process_is_no_timeout(
    tmp_path: Path, upstream: Upstream
) -> None:
    gate = threading.Event()

    def answer(*_: object) -> Answer:
        gate.wait(LONG_S)
        return Answer(text=("Hi",))

    upstream.behaviours["waits"] = Behaviour(answer=answer)
    rules = policy(upstream.url)
    rules["targets"]["plain"] = target(upstream.url, "waits", timeouts={"first_ms": 4_000}, retries=0)
    with processing(tmp_path, rules) as gateway, ThreadPoolExecutor(1) as client:
        count = len(upstream.requests)
        reply = client.submit(gateway.chat, "auto")
        until(lambda: len(upstream.requests) > count)
        os.kill(gateway.process.pid, signal.SIGSTOP)
        gate.set()
        upstream.last.wait()
        time.sleep(5)  # the gateway's own limit passes
        os.kill(gateway.process.pid, signal.SIGCONT)
        assert reply.result().status == 200
