"""`lowpass serve --workers N`: one address, one folder, one end; whoever of them answers, the books are right."""

import http.client
import json
import os
import re
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from router.settings import SettingError, read
from tests.gateway.running import CHAT, Gateway, ordered, target, until, usd
from tests.upstream import Upstream

PRICE = 20 * 1_000 + 10 * 2_000
"""Nano-USD of one answer of `plain`."""


def policy(url: str) -> dict[str, Any]:
    return {
        "version": 1,
        "targets": {"plain": target(url, "normal"), "slow": target(url, "slow-chunks")},
        "routes": {"auto": ordered("plain")},
        "budgets": [{"id": "day", "limit_usd": 1, "window": "day"}],
    }


@contextmanager
def serving(home: Path, rules: object, workers: int) -> Iterator[Gateway]:
    gateway = Gateway(home, rules).start("--workers", str(workers))
    try:
        yield gateway
    finally:
        if gateway.process.poll() is None:
            gateway.stop()


def pids(gateway: Gateway) -> list[int]:
    """Of the workers beside the first process, in the order in which they served."""
    return [int(pid) for pid in re.findall(r"worker \d+ serves, pid (\d+)", gateway.log.read_text())]


def runs(pid: int) -> bool:
    """A zombie whose new parent is slow to notice runs nothing."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def refused(gateway: Gateway) -> bool:
    """Nobody listens; the last threads of a killed process may do so a moment longer than the process."""
    try:
        gateway.raw().close()
    except ConnectionRefusedError:
        return True
    return False


def owners(gateway: Gateway) -> set[str]:
    return {row["owner"] for row in gateway.rows("SELECT DISTINCT owner FROM requests")}


def metric(gateway: Gateway, name: str) -> float:
    """The sum over its labels."""
    families = text_string_to_metric_families(gateway.get("/metrics").body.decode())
    return sum(sample.value for family in families for sample in family.samples if sample.name == name)


class Stream:
    """An answer of `slow` that has begun."""

    def __init__(self, gateway: Gateway) -> None:
        self._connection = http.client.HTTPConnection(*gateway.address, timeout=15)
        body = {"model": "slow", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
        self._connection.request("POST", CHAT, json.dumps(body))
        self._response = self._connection.getresponse()
        self.id = self._response.headers["x-request-id"]

    def complete(self) -> bool:
        """Whether it came to its end."""
        try:
            return b"[DONE]" in self._response.read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            self._connection.close()


def streams_of_all(gateway: Gateway, processes: int) -> list[Stream]:
    """Streams in progress, in every process at least one."""
    found: list[Stream] = []

    def everywhere() -> bool:
        with ThreadPoolExecutor(10) as crowd:
            found.extend(crowd.map(lambda _: Stream(gateway), range(10)))
        return len(owners(gateway)) == processes

    until(everywhere)
    return found


def completed(streams: list[Stream]) -> list[bool]:
    with ThreadPoolExecutor(len(streams)) as crowd:
        return list(crowd.map(Stream.complete, streams))


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory, upstream_server: Upstream) -> Iterator[Gateway]:
    with serving(tmp_path_factory.mktemp("three"), policy(upstream_server.url), 3) as gateway:
        yield gateway


def test_several_processes_answer_at_one_address_and_count_as_one(three: Gateway, upstream: Upstream) -> None:
    assert len(set(pids(three))) == 2
    assert three.log.read_text().count("lowpass answers at") == 1

    def several() -> bool:
        """One process may take all of a crowd, but not for ever."""
        with ThreadPoolExecutor(60) as crowd:
            assert Counter(crowd.map(lambda _: three.chat("auto").status, range(60))) == {200: 60}
        return len(owners(three)) > 1

    until(several)
    (found,) = three.rows("SELECT count(*) AS answers FROM requests WHERE state = 'settled'")
    answers = found["answers"]
    three.check_books()
    (window,) = three.rows("SELECT spent, held FROM budget_windows")
    assert window == {"spent": answers * PRICE, "held": 0}
    for _ in range(6):
        assert metric(three, "lowpass_requests_total") == answers
        assert metric(three, "lowpass_cost_usd_total") == pytest.approx(usd(answers * PRICE))


def test_an_edit_of_the_policy_reaches_every_process(three: Gateway, upstream: Upstream) -> None:
    rules = policy(upstream.url)
    three.write_policy({**rules, "routes": {**rules["routes"], "new": ordered("plain")}})
    until(lambda: three.log.read_text().count("is in force") == 3)
    assert {three.chat("new").status for _ in range(6)} == {200}
    three.write_policy("{")
    until(lambda: three.log.read_text().count("the one before stays in force") == 3)
    assert {three.chat("new").status for _ in range(6)} == {200}
    assert {metric(three, "lowpass_policy_errors_total") for _ in range(6)} == {1}


def expire(gateway: Gateway, request_id: str) -> None:
    """Ends the leases of the process that had this request, as 30 s would."""
    statement = "UPDATE requests SET lease_until_ms = 1 WHERE state = 'held' AND owner = ?"
    with sqlite3.connect(gateway.ledger) as ledger:
        ledger.execute(statement, (gateway.row(request_id)["owner"],))
    ledger.close()


def test_a_worker_that_is_killed_is_replaced_and_what_it_held_is_charged(tmp_path: Path, upstream: Upstream) -> None:
    upstream.slow_s = 0.3
    with serving(tmp_path, policy(upstream.url), 2) as gateway:
        assert gateway.chat("auto").status == 200
        counted = metric(gateway, "lowpass_requests_total")
        streams = streams_of_all(gateway, 2)
        (victim,) = pids(gateway)
        os.kill(victim, signal.SIGKILL)
        with ThreadPoolExecutor(len(streams)) as crowd:
            ends = {crowd.submit(stream.complete): stream.id for stream in streams}
            expire(gateway, next(ends[end] for end in as_completed(ends) if not end.result()))
        cut = {request_id for end, request_id in ends.items() if not end.result()}
        assert 0 < len(cut) < len(streams)
        until(lambda: not gateway.rows("SELECT 1 FROM requests WHERE state = 'held'"), 15)
        recovered = gateway.rows("SELECT id, cost, held FROM requests WHERE state = 'recovered'")
        assert {row["id"] for row in recovered} == cut
        assert all(row["cost"] == row["held"] > 0 for row in recovered)
        gateway.check_books()

        assert "worker 2 ended: killed by SIGKILL" in gateway.log.read_text()
        until(lambda: len(pids(gateway)) == 2)
        assert runs(pids(gateway)[1])
        before = owners(gateway)
        until(lambda: gateway.chat("auto").status == 200 and owners(gateway) > before)
        assert metric(gateway, "lowpass_requests_total") > counted


def test_nothing_is_left_of_a_gateway_whose_first_process_is_killed(tmp_path: Path, upstream: Upstream) -> None:
    """All of them share one engine, and know what becomes of it."""
    targets = {"local": {"model": "local/smollm2-135m-instruct", "engine": "smollm2"}}
    rules = {"version": 1, "targets": targets, "routes": {"auto": ordered("local")}}
    with serving(tmp_path, rules, 3) as gateway:
        engines = [gateway.get("/health/ready").json["engines"] for _ in range(10)]
        assert [engine["status"] for (engine,) in engines] == ["ready"] * 10
        family = {engine["pid"] for (engine,) in engines} | set(pids(gateway))
        assert len(family) == 3
        assert gateway.chat("auto", max_tokens=4).status == 200
        gateway.kill()
        until(lambda: not any(runs(pid) for pid in family))
        until(lambda: refused(gateway))


def test_a_signal_to_the_first_process_lets_all_finish(tmp_path: Path, upstream: Upstream) -> None:
    upstream.slow_s = 0.25
    with serving(tmp_path, policy(upstream.url), 2) as gateway:
        streams = streams_of_all(gateway, 2)
        gateway.process.terminate()
        assert all(completed(streams))
        assert gateway.process.wait(10) == 0
        assert not any(runs(pid) for pid in pids(gateway))
        assert gateway.values("SELECT DISTINCT state, status FROM requests") == {("settled", 200)}
        gateway.check_books()
        assert "Traceback" not in gateway.log.read_text()
        assert "ended" not in gateway.log.read_text()


def test_a_second_signal_does_not_wait_for_any_of_them(tmp_path: Path, upstream: Upstream) -> None:
    upstream.slow_s = 1
    with serving(tmp_path, policy(upstream.url), 2) as gateway:
        streams = streams_of_all(gateway, 2)
        gateway.process.terminate()
        until(lambda: gateway.log.read_text().count("Shutting down") == 2)
        gateway.process.terminate()
        assert gateway.process.wait(4) == 0
        assert not any(completed(streams))
        assert not any(runs(pid) for pid in pids(gateway))
        assert gateway.rows("SELECT 1 FROM requests WHERE state = 'held'") == []


@pytest.mark.parametrize("text", ["0", "-1", "65", "many", "2.5"])
def test_a_wrong_number_is_refused(tmp_path: Path, text: str) -> None:
    home = {"LOWPASS_HOME": str(tmp_path)}
    for environ, option in (({"LOWPASS_WORKERS": text}, None), ({"LOWPASS_WORKERS": "2"}, text)):
        with pytest.raises(SettingError, match="from 1 to 64"):
            read({**home, **environ}, workers=option)


@pytest.mark.parametrize(("environ", "options"), [({"LOWPASS_WORKERS": "0"}, []), ({}, ["--workers", "0"])])
def test_a_wrong_number_is_one_clear_line(tmp_path: Path, environ: dict[str, str], options: list[str]) -> None:
    status, output = Gateway(tmp_path, "", environ).lowpass("serve", *options)
    assert (status, output.count("\n")) == (1, 1)
    assert "0 is not a number of workers" in output
