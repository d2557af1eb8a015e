"""`lowpass serve --workers N`: one address, one folder, one end; whichever process answers, the books are right."""

import http.client
import json
import os
import re
import signal
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from bench.budgets.site import alive
from router.ledger.engines import GATEWAY, keep
from router.ledger.ledger import SqliteLedger
from router.testing.upstream import Behaviour, Tokens, Upstream
from router.types.clock import now_ms
from router.types.price import EnginePrice, version_of
from tests.gateway.running import (
    CHAT,
    MESSAGES,
    Process,
    Reply,
    local,
    ordered,
    processing,
    target,
    until,
    usd,
    verify_and_move,
)
from tests.gateway.school import metric
from tests.tables import each_row

PRICE = 20 * 1_000 + 10 * 2_000
"""Nano-USD of one answer of `plain`."""
TWO = {"LOWPASS_WORKERS": "2"}


def policy(url: str) -> dict[str, Any]:
    targets = {"plain": target(url, "normal"), "slow": target(url, "gated")}
    more = {"loops": {"enabled": False}, "budgets": [{"id": "day", "limit_usd": 1, "window": "day"}]}
    return {"version": 1, "targets": targets, "routes": {"auto": ordered("plain")}, **more}


@pytest.fixture
def gate(upstream: Upstream) -> Iterator[Event]:
    """Streams of `slow` go on once it is set."""
    gate = Event()
    upstream.behaviours["gated"] = Behaviour(gate=gate)
    yield gate
    gate.set()


def pids(gateway: Process) -> list[int]:
    """Of the workers beside the first process, in the order in which they served."""
    return [int(pid) for pid in re.findall(r"worker \d+ serves, pid (\d+)", gateway.log.read_text())]


def starting(gateway: Process) -> list[int]:
    """Pids of workers, whether they serve yet or not."""
    return [
        int(place.name)
        for place in Path("/proc").glob("[0-9]*")
        if str(gateway.policy).encode() in (line := _command(place)) and b"router.server" in line
    ]


def _command(place: Path) -> bytes:
    try:
        return (place / "cmdline").read_bytes()
    except OSError:
        return b""


def refused(gateway: Process) -> bool:
    """None listens; the last threads of a killed process may do so a moment longer than the process."""
    try:
        gateway.raw().close()
    except ConnectionRefusedError:
        return True
    return False


def owners(gateway: Process) -> set[tuple[Any, ...]]:
    return gateway.values("SELECT DISTINCT owner FROM requests")


def crowd(gateway: Process, number: int) -> set[int]:
    """Statuses of so many requests at once."""
    with ThreadPoolExecutor(number) as pool:
        return set(pool.map(lambda _: gateway.chat("auto").status, range(number)))


class Stream:
    def __init__(self, gateway: Process, model: str = "slow") -> None:
        self._connection = http.client.HTTPConnection(*gateway.address, timeout=60)
        self._connection.request("POST", CHAT, json.dumps({"model": model, "messages": MESSAGES, "stream": True}))
        self._response = self._connection.getresponse()
        self.id = self._response.headers["x-request-id"]

    def complete(self) -> bool:
        try:
            return b"[DONE]" in self._response.read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            self._connection.close()


def streams_of_all(gateway: Process, processes: int) -> list[Stream]:
    """Streams in progress, in every process at least one."""
    streams: list[Stream] = []

    def everywhere() -> bool:
        with ThreadPoolExecutor(10) as pool:
            streams.extend(pool.map(lambda _: Stream(gateway), range(10)))
        rows = gateway.rows("SELECT id, owner FROM requests")
        ids = {stream.id for stream in streams}
        return len({row["owner"] for row in rows if row["id"] in ids}) == processes

    until(everywhere)
    return streams


def completed(streams: list[Stream]) -> list[bool]:
    with ThreadPoolExecutor(len(streams)) as pool:
        return list(pool.map(Stream.complete, streams))


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory, upstream_server: Upstream) -> Iterator[Process]:
    with processing(tmp_path_factory.mktemp("three"), policy(upstream_server.url), {"LOWPASS_WORKERS": "3"}) as gateway:
        yield gateway


def test_several_processes_answer_at_one_address_and_count_as_one(three: Process) -> None:
    assert len(set(pids(three))) == 2
    assert three.log.read_text().count("lowpass answers at") == 1
    # One process may take all of a crowd, but not for ever.
    until(lambda: crowd(three, 60) == {200} and len(owners(three)) > 1)
    (row,) = three.rows("SELECT count(*) AS answers FROM requests WHERE state = 'settled'")
    three.check_books()
    (window,) = three.rows("SELECT spent, held FROM budget_windows")
    assert window == {"spent": row["answers"] * PRICE, "held": 0}
    for _ in range(6):
        assert metric(three, "lowpass_requests_total") == row["answers"]
        assert metric(three, "lowpass_cost_usd_total") == pytest.approx(usd(row["answers"] * PRICE))


def test_an_edit_of_the_policy_reaches_every_process(three: Process, upstream: Upstream) -> None:
    rules = policy(upstream.url)
    good = json.dumps({**rules, "routes": {**rules["routes"], "new": ordered("plain")}})
    for text, line in ((good, "is in force"), ("{", "the one before stays in force")):
        three.write_policy(text)
        until(lambda line=line: three.log.read_text().count(line) == 3)  # type: ignore[misc]
        assert {three.chat("new").status for _ in range(6)} == {200}
    assert {metric(three, "lowpass_policy_errors_total") for _ in range(6)} == {1}


def test_a_new_secret_of_a_key_is_known_to_every_process_at_once(tmp_path: Path, upstream: Upstream) -> None:
    Process(tmp_path, policy(upstream.url)).lowpass("keys", "create", "ann")
    with processing(tmp_path, policy(upstream.url), TWO) as gateway, ThreadPoolExecutor(8) as pool:
        for _ in range(10):
            key = json.loads(gateway.lowpass("keys", "rotate", "ann", "--json")[1])["key"]
            headers = {"authorization": f"Bearer {key}"}
            assert set(pool.map(lambda _, sent=headers: gateway.chat("auto", headers=sent).status, range(8))) == {200}


def test_a_session_has_its_turns_in_all_processes_together(tmp_path: Path, upstream: Upstream) -> None:
    with processing(tmp_path, {**policy(upstream.url), "loops": {"session_turns": 10}}, TWO) as gateway:
        until(lambda: crowd(gateway, 40) == {200} and len(owners(gateway)) == 2)

        def ask(session: str) -> Reply:
            return gateway.chat("auto", headers={"x-lowpass-session": session})

        with ThreadPoolExecutor(40) as pool:
            replies = list(pool.map(ask, ["task"] * 40))
        assert sorted(reply.status for reply in replies) == [200] * 10 + [429] * 30
        refused = ask("task")
        assert (refused.error["code"], refused.headers["x-should-retry"]) == ("turn_limit", "false")
        loop = refused.error["loop"]
        assert [loop[name] for name in ("kind", "subject", "seen", "until")] == ["session_turns", "task", 10, None]
        assert ask("another").status == 200
        assert gateway.rows("SELECT kind, subject FROM incidents") == [{"kind": "session_turns", "subject": "task"}]
        gateway.check_books()
        verify_and_move(gateway)


def expire(gateway: Process, request_id: str) -> None:
    """Ends the leases of the process that had this request, as 30 s would."""
    statement = "UPDATE live_requests SET lease_until_ms = 1 WHERE state = 'held' AND owner = ?"
    with sqlite3.connect(gateway.ledger) as ledger:
        ledger.execute(statement, (gateway.row(request_id)["owner"],))
    ledger.close()


def test_a_worker_that_is_killed_is_replaced_and_what_it_held_is_charged(
    tmp_path: Path, upstream: Upstream, gate: Event
) -> None:
    with processing(tmp_path, policy(upstream.url), TWO) as gateway:
        assert gateway.chat("auto").status == 200
        counted = metric(gateway, "lowpass_requests_total")
        streams = streams_of_all(gateway, 2)
        (victim,) = pids(gateway)
        os.kill(victim, signal.SIGKILL)
        until(lambda: not alive(victim))
        gate.set()
        with ThreadPoolExecutor(len(streams)) as pool:
            ends = {pool.submit(stream.complete): stream.id for stream in streams}
            expire(gateway, next(ends[end] for end in as_completed(ends) if not end.result()))
        cut = {request_id for end, request_id in ends.items() if not end.result()}
        assert 0 < len(cut) < len(streams)
        until(lambda: not gateway.rows("SELECT 1 FROM requests WHERE state = 'held'"))
        recovered = gateway.rows("SELECT id, cost, held FROM requests WHERE state = 'recovered'")
        assert {row["id"] for row in recovered} == cut
        assert all(row["cost"] == row["held"] > 0 for row in recovered)
        gateway.check_books()

        assert "worker 2 ended: killed by SIGKILL" in gateway.log.read_text()
        until(lambda: len(pids(gateway)) == 2)
        assert alive(pids(gateway)[1])
        before = owners(gateway)
        until(lambda: gateway.chat("auto").status == 200 and owners(gateway) > before)
        assert metric(gateway, "lowpass_requests_total") > counted


def test_a_worker_that_is_killed_while_it_starts_is_started_again(tmp_path: Path, upstream: Upstream) -> None:
    gateway = Process(tmp_path, policy(upstream.url), TWO)
    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(gateway.start)
        os.kill(until(lambda: next(iter(starting(gateway)), 0)), signal.SIGKILL)
        gateway.write_policy("{")  # the one before stays in force, and workers start once it is mended
        until(lambda: f"exit status {os.EX_CONFIG}; another starts" in gateway.log.read_text())
        gateway.write_policy(policy(upstream.url))
        started.result()
    try:
        assert gateway.chat("auto").status == 200
        assert "killed by SIGKILL; another starts" in gateway.log.read_text()
        assert len(pids(gateway)) == 1
    finally:
        assert gateway.stop() == 0


def test_nothing_is_left_of_a_gateway_whose_first_process_is_killed(tmp_path: Path) -> None:
    """All of them share one engine, and know what becomes of it."""
    targets = {"local": {"model": "local/smollm2-135m-instruct", "engine": "smollm2"}}
    rules = {"version": 1, "targets": targets, "routes": {"auto": ordered("local")}}
    with processing(tmp_path, rules, {"LOWPASS_WORKERS": "3"}) as gateway:
        engines = [gateway.get("/health/ready").json["engines"] for _ in range(10)]
        assert [engine["status"] for (engine,) in engines] == ["ready"] * 10
        family = {engine["pid"] for (engine,) in engines} | set(pids(gateway))
        assert len(family) == 3
        assert gateway.chat("auto", max_tokens=4).status == 200
        gateway.kill()
        until(lambda: not any(alive(pid) for pid in family))
        until(lambda: refused(gateway))


@each_row(
    "workers, number, signals",
    [(1, signal.SIGINT, 1), (1, signal.SIGTERM, 2), *((2, signal.SIGTERM, n) for n in (1, 2))],
)
def test_a_signal_lets_all_finish_and_a_second_one_does_not_wait(
    tmp_path: Path, upstream: Upstream, gate: Event, workers: int, number: signal.Signals, signals: int
) -> None:
    gate.clear()
    with processing(tmp_path, policy(upstream.url), {"LOWPASS_WORKERS": str(workers)}) as gateway:
        streams = streams_of_all(gateway, workers)
        gateway.process.send_signal(number)
        until(lambda: gateway.log.read_text().count("Shutting down") == workers)
        if signals == 1:
            gate.set()
        else:
            gateway.process.send_signal(number)
        assert set(completed(streams)) == {signals == 1}
        assert gateway.process.wait(60) == 0
        assert not any(alive(pid) for pid in pids(gateway))
        assert gateway.rows("SELECT 1 FROM requests WHERE state = 'held'") == []
        log, ends = gateway.log.read_text(), gateway.values("SELECT DISTINCT state, status, error FROM requests")
        assert "Traceback" not in log
        if signals == 1:
            assert (ends, "ended" in log) == ({("settled", 200, None)}, False)
            gateway.check_books()
        elif workers == 1:
            assert {error for *_, error in ends} == {"client_gone"}


# An engine whose hours cost something: every process charges what was measured, and none forgets it when killed.

NANO = 1_000_000_000
DEAR, CHEAP = 40 * NANO, 10 * NANO
"""nano-USD per million output tokens."""


def paid(url: str, home: Path) -> dict[str, Any]:
    """Says nothing of its load, so only the test measures it."""
    spec = home / "paid.yaml"
    engine = {"name": "paid", "engine": "external", "model": "cached", "urls": [f"{url}/vllm/v1"], "metrics": "none"}
    spec.write_text(json.dumps(engine))
    row = local(url, "cached", hourly_usd=1, engine=str(spec))
    del row["base_url"]
    routes = {"auto": ordered("engine")}
    return {"version": 1, "loops": {"enabled": False}, "targets": {"engine": row}, "routes": routes}


def measured(gateway: Process, output: int) -> str:
    """As the meter writes it; the name of the price."""
    now = now_ms()
    prices = {"input": output // 4, "cached": output // 400, "output": output, "hourly": NANO}
    work = {"since_ms": now, "wall_ms": 60_000, "busy_ms": 30_000, **prices}
    work |= {"uncached_tokens": 1_000, "cached_tokens": 0, "output_tokens": 1_000}
    price = EnginePrice(version=version_of("paid", now), engine="paid", gateway=GATEWAY, counted="marginal", **work)
    keep(SqliteLedger(gateway.ledger), [], [price])
    return price.version


def charged(gateway: Process) -> dict[str, Any]:
    reply = gateway.chat("engine")
    assert reply.status == 200, reply.body
    (attempt,) = gateway.settled(reply.id)["attempts"]
    return dict(attempt)


def all_charge(gateway: Process, version: str) -> bool:
    """Of some on connections of their own, until both processes have taken one."""
    with ThreadPoolExecutor(4) as pool:
        ids = [attempt["request_id"] for attempt in pool.map(lambda _: charged(gateway), range(8))]
    query = "SELECT DISTINCT owner, price_version FROM requests JOIN attempts ON request_id = id WHERE id IN (%s)"
    rows = gateway.rows(query % ", ".join("?" * len(ids)), *ids)
    return len({row["owner"] for row in rows}) == 2 and {row["price_version"] for row in rows} == {version}


def test_a_measured_price_is_charged_by_all_processes_and_survives_their_end(tmp_path: Path) -> None:
    with Upstream() as engine, processing(tmp_path, paid(engine.url, tmp_path), TWO) as gateway:
        tokens, gate = Tokens(uncached=200, cache_read=100, visible=40), Event()
        engine.behaviours["cached"] = Behaviour(tokens=tokens, gate=gate)
        until(lambda: gateway.get("/health/ready").json["ready"])
        assert not charged(gateway)["price_version"].startswith("measured")
        dear = measured(gateway, DEAR)
        until(lambda: all_charge(gateway, dear))
        row = charged(gateway)
        exact = row["input_uncached"] * DEAR // 4 + row["cache_read"] * DEAR // 400 + row["output_visible"] * DEAR
        assert row["cost"] == (exact + 500_000) // 1_000_000 > 0

        stream = Stream(gateway, "engine")
        cheap = measured(gateway, CHEAP)
        until(lambda: all_charge(gateway, cheap))
        gate.set()
        assert stream.complete()
        (attempt,) = gateway.settled(stream.id)["attempts"]
        assert attempt["price_version"] == dear, "what was decided before keeps its price"

        gateway.kill()
        gateway.start()
        until(lambda: gateway.get("/health/ready").json["ready"])
        assert charged(gateway)["price_version"] == cheap
        status, output = gateway.lowpass("ledger", "verify")
        assert (status, output.rpartition(": ")[2].strip()) == (0, "ok")
        status, output = gateway.lowpass("report", "engines", "--json")
        (history,) = json.loads(output)["below"]
        assert [(row["version"], row["output_per_m_usd"]) for row in history["rows"]] == [(cheap, 10), (dear, 40)]
