"""`lowpass serve --workers N`: one address, one folder, one end; whoever of them answers, the books are right."""

import http.client
import json
import os
import re
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

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


def test_several_processes_answer_at_one_address_and_count_as_one(tmp_path: Path, upstream: Upstream) -> None:
    with serving(tmp_path, policy(upstream.url), 3) as gateway:
        assert len(set(pids(gateway))) == 2

        def several() -> int:
            """A process may take all of a crowd at once; not always."""
            with ThreadPoolExecutor(60) as crowd:
                assert Counter(crowd.map(lambda _: gateway.chat("auto").status, range(60))) == {200: 60}
            return len(owners(gateway)) > 1

        until(several)
        (count,) = gateway.rows("SELECT count(*) AS answers FROM requests WHERE state = 'settled'")
        assert count["answers"] == len(upstream.requests) >= 60
        gateway.check_books()
        (window,) = gateway.rows("SELECT spent, held FROM budget_windows")
        assert window == {"spent": count["answers"] * PRICE, "held": 0}
        for _ in range(6):
            assert metric(gateway, "lowpass_requests_total") == count["answers"]
            assert metric(gateway, "lowpass_cost_usd_total") == pytest.approx(usd(count["answers"] * PRICE))


def test_an_edit_of_the_policy_reaches_every_process(tmp_path: Path, upstream: Upstream) -> None:
    rules = policy(upstream.url)
    with serving(tmp_path, rules, 3) as gateway:
        gateway.write_policy({**rules, "routes": {**rules["routes"], "new": ordered("plain")}})
        until(lambda: gateway.log.read_text().count("is in force") == 3)
        assert {gateway.chat("new").status for _ in range(6)} == {200}
        gateway.write_policy("{")
        until(lambda: gateway.log.read_text().count("the one before stays in force") == 3)
        assert {gateway.chat("new").status for _ in range(6)} == {200}
        assert {metric(gateway, "lowpass_policy_errors_total") for _ in range(3)} == {1}


def test_a_worker_that_is_killed_is_replaced_and_what_it_held_is_charged(tmp_path: Path, upstream: Upstream) -> None:
    upstream.slow_s = 0.5
    with serving(tmp_path, policy(upstream.url), 2) as gateway:
        assert gateway.chat("auto").status == 200
        counted = metric(gateway, "lowpass_requests_total")
        streams = streams_of_all(gateway, 2)
        (victim,) = pids(gateway)
        os.kill(victim, signal.SIGKILL)
        ends = dict(zip((stream.id for stream in streams), completed(streams), strict=True))
        assert set(ends.values()) == {True, False}
        cut = {request_id for request_id, end in ends.items() if not end}
        assert {row["id"] for row in gateway.rows("SELECT id FROM requests WHERE state = 'held'")} == cut

        with sqlite3.connect(gateway.ledger) as ledger:
            ledger.execute("UPDATE requests SET lease_until_ms = 1 WHERE state = 'held'")
        ledger.close()
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
        with pytest.raises(ConnectionRefusedError):
            gateway.raw()


def test_a_signal_to_the_first_process_lets_all_finish(tmp_path: Path, upstream: Upstream) -> None:
    upstream.slow_s = 0.4
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
    upstream.slow_s = 5
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
@pytest.mark.parametrize("by_variable", [True, False])
def test_a_wrong_number_is_one_clear_line(tmp_path: Path, text: str, by_variable: bool) -> None:
    gateway = Gateway(tmp_path, "", {"LOWPASS_WORKERS": text} if by_variable else {})
    status, output = gateway.lowpass("serve", *([] if by_variable else ["--workers", text]))
    assert (status, output.count("\n")) == (1, 1)
    assert f"{text} is not a number of workers" in output
    assert "from 1 to 64" in output
