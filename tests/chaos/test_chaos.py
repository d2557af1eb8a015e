"""Load, crashes and a disk that takes nothing: no request waits for ever, and no row is lost or booked twice."""

import http.client
import json
import os
import signal
import sqlite3
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from router.testing.upstream import Answer, Behaviour, Upstream
from tests.dispatch.values import completion
from tests.gateway import school
from tests.gateway.canned import canned
from tests.gateway.running import CHAT, MESSAGES, Client, Process, Reply, ordered, processing, serving, target, until
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


def policy(url: str, limit_usd: float = 1_000) -> dict[str, Any]:
    behaviours = {"plain": "normal", "slow": "slow-chunks", "broken": "error-500@chaos", "hangs": "hang"}
    targets = {name: target(url, behaviour) for name, behaviour in behaviours.items()}
    routes = {"auto": ordered("plain"), "streams": ordered("slow"), "falls-back": ordered("broken", "plain")}
    return {"version": 1, "targets": targets, "routes": routes, "budgets": budgets(limit_usd, 10 * limit_usd)}


class Customer:
    """Waits for its answer as long as it takes. `ids` collects those of answers that have begun."""

    def __init__(self, gateway: Client) -> None:
        self._gateway, self.ids, self.sent = gateway, list[str](), threading.Semaphore(0)

    def __call__(self, model: str, messages: object = MESSAGES, **body: Any) -> Reply:
        connection = http.client.HTTPConnection(*self._gateway.address)
        try:
            connection.request("POST", CHAT, json.dumps({"model": model, "messages": messages, **body}))
            self.sent.release()
            response = connection.getresponse()
            self.ids.append(response.headers["x-request-id"])
            return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()


def windows(gateway: Client) -> set[tuple[int, int]]:
    """(spent, held) of every window."""
    return {(row["spent"], row["held"]) for row in gateway.rows("SELECT * FROM budget_windows")}


def check_windows(gateway: Client) -> None:
    """They have what the request rows have."""
    sums = "coalesce(sum(cost), 0), coalesce(sum(held * (state = 'held')), 0)"
    assert windows(gateway) == gateway.values(f"SELECT {sums} FROM requests")  # noqa: S608 - constants


def test_two_hundred_at_once_are_answered_once_each(tmp_path: Path, upstream: Upstream) -> None:
    with serving(tmp_path, policy(upstream.url)) as gateway, ThreadPoolExecutor(PARALLEL) as crowd:
        routes, client = ("auto", "streams", "falls-back"), Customer(gateway)
        replies = list(crowd.map(lambda n: client(routes[n % 3], stream=n % 2 == 0), range(PARALLEL)))
        assert Counter(reply.status for reply in replies) == {200: PARALLEL}
        assert all(b"[DONE]" in reply.body for reply in replies[::2])
        rows = gateway.rows("SELECT id, state, cost FROM requests")
        assert len(rows) == PARALLEL
        assert {row["id"] for row in rows} == {reply.headers["x-request-id"] for reply in replies}
        assert Counter(row["state"] for row in rows) == {"settled": PARALLEL}
        check_windows(gateway)
        gateway.check_books()


def test_a_budget_is_not_overspent_by_a_crowd(tmp_path: Path, upstream: Upstream) -> None:
    """A fifth of a cent, and a hundred requests at once that may cost as much each, but turn out to cost a fiftieth."""
    with serving(tmp_path, policy(upstream.url, 0.002)) as gateway, ThreadPoolExecutor(100) as crowd:
        replies = list(crowd.map(Customer(gateway), ["streams"] * 100))
        assert {reply.status for reply in replies} == {200, 402}
        spent = max(spent for spent, _ in windows(gateway))
        assert spent <= 2_000_000
        least = min(reply.error["budget"]["needed"] for reply in replies if reply.status == 402)
        assert spent + least * NANO > 2_000_000, "there was room for one more"
        check_windows(gateway)


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
            client = Customer(gateway)

            def ask(number: int) -> Reply:
                text = school.product(11 + number, 13)
                fields = {"metadata": {"expected": school.expected(text)}, "max_tokens": 16, "stream": number % 2 == 0}
                return client("auto", [{"role": "user", "content": text}], **fields)

            replies = list(crowd.map(ask, range(PARALLEL)))
            given = Counter((reply.status, reply.headers.get("x-lowpass-model")) for reply in replies)
            assert set(given) <= {(200, "cheap"), (200, "dear"), (402, None)}
            dear, both = given[200, "dear"], school.CHEAP_NANO + school.DEAR_NANO
            assert dear > 10
            spent = dear * both + given[200, "cheap"] * school.CHEAP_NANO
            sums = "SELECT count(*), sum(cost), sum(state = 'held') FROM requests WHERE route = 'auto'"
            assert gateway.values(sums) == {(PARALLEL, spent, 0)}
            assert gateway.values("SELECT sum(cost) FROM attempts") == {(spent,)}
            assert windows(gateway) == {(spent, 0)}
            assert spent <= CASCADES_NANO
            passed_over = "SELECT target, count(*) FROM attempts WHERE passed_over = 1 GROUP BY target"
            assert gateway.values(passed_over) == {("cheap", dear)}
            assert len(upstream.of("dear")) == dear
            gateway.check_books()


class Answered(Struct):
    """What a client has in its hands."""

    complete: list[str]
    begun: list[str]


def keep_asking(gateway: Client, stop: threading.Event, answered: Answered) -> None:
    while not stop.is_set():
        client = Customer(gateway)
        with suppress(OSError, http.client.HTTPException):
            reply = client("streams", stream=True)
            if b"[DONE]" in reply.body:
                answered.complete += client.ids
        answered.begun += client.ids


def test_a_gateway_that_is_killed_under_load_loses_no_answer_and_no_cent(tmp_path: Path, upstream: Upstream) -> None:
    gateway = Process(tmp_path, policy(upstream.url)).start()
    stop, answered, hangs = threading.Event(), Answered([], []), "hangs"
    crowd = [threading.Thread(target=keep_asking, args=(gateway, stop, answered)) for _ in range(20)]
    for thread in crowd:
        thread.start()
    with ThreadPoolExecutor(1) as waiting:
        hung = waiting.submit(Customer(gateway), hangs)
        held = "SELECT 1 FROM requests WHERE state = 'held' AND requested = 'hangs'"
        until(lambda: len(answered.complete) >= 40 and gateway.rows(held), LONG_S)
        gateway.kill()
        stop.set()
        assert isinstance(hung.exception(), OSError | http.client.HTTPException)
    for thread in crowd:
        thread.join()

    states = {row["id"]: row["state"] for row in gateway.rows("SELECT id, state FROM requests")}
    assert {states[request_id] for request_id in answered.complete} == {"settled"}
    assert set(answered.begun) <= set(states)
    open_holds = [request_id for request_id, state in states.items() if state == "held"]
    check_windows(gateway)

    expired = open_holds[:5]
    with sqlite3.connect(gateway.ledger) as ledger:
        ledger.executemany("UPDATE live_requests SET lease_until_ms = 1 WHERE id = ?", [(name,) for name in expired])
    ledger.close()
    gateway.start()
    try:
        recovered = "SELECT 1 FROM requests WHERE state = 'recovered'"
        until(lambda: len(gateway.rows(recovered)) == len(expired), LONG_S)
        assert len(gateway.rows("SELECT 1 FROM requests WHERE state = 'held'")) == len(open_holds) - len(expired)
        assert gateway.rows(f"{recovered} AND (cost != held OR error != 'crashed')") == []
        check_windows(gateway)
        assert Customer(gateway)("auto").status == 200
        check_windows(gateway)
        assert "were charged at their hold" in gateway.log.read_text()
    finally:
        gateway.kill()


@each_row("until_answered", [False, True], ids=["a moment", "for as long as anybody waits"])
def test_while_another_process_keeps_the_ledger_requests_wait_or_are_refused(
    tmp_path: Path, upstream: Upstream, until_answered: bool
) -> None:
    """A short lock is waited for; a long one refuses those that a budget binds."""
    with serving(tmp_path, policy(upstream.url)) as gateway, ThreadPoolExecutor(10) as crowd:
        client = Customer(gateway)
        assert client("auto").status == 200
        client.sent.acquire()
        other = sqlite3.connect(gateway.ledger, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        futures = [crowd.submit(client, "auto") for _ in range(10)]
        for future in futures:
            client.sent.acquire()
            if until_answered:
                future.result()
        other.execute("COMMIT")
        other.close()
        replies = [future.result() for future in futures]
        statuses = Counter(reply.status for reply in replies)
        assert statuses == {503: 10} if until_answered else set(statuses) <= {200, 503}
        assert all(reply.error["code"] == "ledger_unavailable" for reply in replies if reply.status == 503)
        until(lambda: client("auto").status == 200, LONG_S)
        rows = gateway.rows("SELECT id, state, status, cost FROM requests")
        states = {row["id"]: (row["state"], row["status"]) for row in rows}
        for reply in replies:
            expected = ("settled", 200) if reply.status == 200 else ("released", 503)
            assert states[reply.headers["x-request-id"]] == expected
        assert not [row for row in rows if row["state"] == "held"]
        check_windows(gateway)


def test_an_absurd_count_from_an_upstream_does_not_stop_the_ledger(tmp_path: Path, upstream: Upstream) -> None:
    usage = {"prompt_tokens": 2**53, "completion_tokens": 2**53, "total_tokens": 2**54}
    with canned({"absurd": (200, json.dumps({**json.loads(completion("Hi")), "usage": usage}).encode())}) as server:
        rules = policy(upstream.url)
        rules["targets"]["absurd"] = target(server.url, "m", flavour="absurd", price={"input": 1_000, "output": 1_000})
        with serving(tmp_path, rules) as gateway:
            client = Customer(gateway)
            assert client("absurd").status == 200
            until(lambda: client("auto").status == 200, LONG_S)
            reply = client("auto")
            assert gateway.row(reply.headers["x-request-id"])["state"] == "settled"


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
        connection, client = http.client.HTTPConnection(*gateway.address), Customer(gateway)
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
        reply = client("auto", max_tokens=4)
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
        reply = client.submit(Customer(gateway), "auto")
        until(lambda: len(upstream.requests) > count)
        os.kill(gateway.process.pid, signal.SIGSTOP)
        gate.set()
        upstream.last.wait()
        time.sleep(5)  # the gateway's own limit passes
        os.kill(gateway.process.pid, signal.SIGCONT)
        assert reply.result().status == 200
