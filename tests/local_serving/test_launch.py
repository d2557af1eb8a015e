"""Engines that are slow, broken, hung or somebody else's, as processes: what the operator is told, and what is left."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop

from local_serving.launch import probe, record, replica
from local_serving.launch.recipe import Place
from local_serving.launch.supervisor import Supervisor
from local_serving.spec import EngineError, External, Vllm
from router.types.engine import EngineState, Status

ROOT = Path(__file__).parents[2]
STANDIN = Path(__file__).parent / "standin.py"


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Vllm]:
    """A spec whose interpreter is the stand-in, whatever it is asked to run."""
    program, folder = tmp_path / "python", tmp_path / "model"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S {STANDIN} "$@"\n')
    program.chmod(0o755)
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    base = Vllm(name="mine", model="local/mine", path=str(folder), python=str(program), context=2048, served=("mine",))

    def made(manner: str = "", **changes: Any) -> Vllm:
        environment = {"MANNER": manner, **changes.pop("environment", {})}
        return msgspec.structs.replace(base, environment=environment, **changes)

    return made


def run(specs: list[Any], folder: Path, scenario: Callable[[Supervisor], Any], **options: Any) -> Supervisor:
    async def life() -> Supervisor:
        supervisor = Supervisor(specs, folder / "logs", Place(folder / "engines"), **options)
        try:
            await scenario(supervisor)
        finally:
            await supervisor.stop()
        return supervisor

    return uvloop.run(life())


async def until(condition: Callable[[], object], limit_s: float = 20) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    return record.alive(record.process(pid))


def gone(pids: list[int], limit_s: float = 10) -> bool:
    deadline = time.monotonic() + limit_s
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(alive, pids))


def state(supervisor: Supervisor) -> EngineState:
    return supervisor.states[0]


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def worker_in(log: Path) -> int:
    return int(log.read_text().partition("worker ")[2].split()[0])


async def said(supervisor: Supervisor, path: str) -> Any:
    return json.loads((await probe.ask(state(supervisor).url, path)).body)


@pytest.mark.parametrize(
    ("manner", "told"),
    [
        ("says {python}: No module named vllm", "that environment has no vLLM: install it there"),
        (
            "says (EngineCore pid=7) ERROR 11-21 20:34:11 [core.py:945] ValueError: No available memory for the cache"
            " blocks. Try increasing",
            r"ValueError: No available memory .*: it does not fit into memory: lower `context`.*lowpass local plan",
        ),
        ("says ValueError: Free memory on device cuda:0 (1/80 GiB)", "lower `context`"),
        ("says torch.OutOfMemoryError: CUDA out of memory. Tried", "lower `context`"),
        ("says RuntimeError: No CUDA GPUs are available", "it finds no GPU it can use: see `nvidia-smi`"),
        ("says ImportError: libcuda.so.1: cannot open shared object file", "it finds no GPU"),
        ("says KeyError: 'invalid tool call parser: x (chose from", "set `tools` to one that it names"),
        ("says KeyError: 'invalid reasoning parser: x (chose from", "set `reasoning.parser`"),
        ("says ValueError: Unknown quantization method: x. Must", "set `quantization`"),
        ("says OSError: [Errno 98] Address already in use", "another program has its port"),
        ("says ValueError: something that nobody has seen before", "does not start: ValueError: something that nobody"),
    ],
)
def test_a_start_that_fails_gives_its_cause_and_the_remedy(
    make: Callable[..., Vllm], tmp_path: Path, manner: str, told: str
) -> None:
    async def scenario(supervisor: Supervisor) -> None:
        with pytest.raises(EngineError, match=told) as caught:
            await supervisor.start()
        assert "\n" not in str(caught.value)
        assert "Engine core initialization failed" not in str(caught.value)

    assert state(run([make(manner)], tmp_path, scenario)).status is Status.FAILED


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"path": "/nowhere/model"}, "the model folder /nowhere/model is missing: set `path` in the spec of mine"),
        ({"path": str(ROOT)}, r"holds no model \(no config.json\): set `path`"),
        ({"python": "/nowhere/python"}, "/nowhere/python is no program that can be run: correct `python` in its spec"),
        ({"python": ""}, "mine has no vLLM to run: set `python` in its spec, or LOWPASS_VLLM_PYTHON"),
        ({"template": "/nowhere/chat.jinja"}, "/nowhere/chat.jinja is missing"),
    ],
)
def test_what_is_missing_is_told_before_anything_is_launched(
    make: Callable[..., Vllm], tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    async def scenario(supervisor: Supervisor) -> None:
        with pytest.raises(EngineError, match=told):
            await supervisor.start()

    run([make(**changes)], tmp_path, scenario)


def test_the_setting_names_the_interpreter_where_the_spec_does_not(make: Callable[..., Vllm], tmp_path: Path) -> None:
    spec = make()

    async def scenario() -> None:
        named = Place(tmp_path / "engines", python=spec.python)
        supervisor = Supervisor([msgspec.structs.replace(spec, python="")], tmp_path / "logs", named)
        await supervisor.start()
        await supervisor.stop()

    uvloop.run(scenario())


def test_what_never_gets_ready_is_killed(make: Callable[..., Vllm], tmp_path: Path) -> None:
    pids: list[int] = []

    async def scenario(supervisor: Supervisor) -> None:
        supervisor.launch()
        await until(lambda: state(supervisor).pid)
        pids.append(state(supervisor).pid or 0)
        told = "it does not serve after 1 s.*: see its log, or raise `start_s`"
        with pytest.raises(EngineError, match=told):
            await supervisor.ready("mine")

    run([make("never ready", start_s=1)], tmp_path, scenario)
    assert gone(pids)


def test_what_answers_200_to_anything_is_not_taken_for_the_engine(make: Callable[..., Vllm], tmp_path: Path) -> None:
    async def scenario(supervisor: Supervisor) -> None:
        with pytest.raises(EngineError, match=r"port \d+ is answered by something else: .* is no list of models"):
            await supervisor.start()

    run([make("yes to all")], tmp_path, scenario)


def test_replicas_have_a_port_a_log_and_a_state_each_and_one_is_enough(
    make: Callable[..., Vllm], tmp_path: Path
) -> None:
    async def scenario(supervisor: Supervisor) -> None:
        await supervisor.start()
        served = supervisor.served["mine"]
        await until(lambda: all(one.status is Status.READY for one in supervisor.states))
        assert [one.url for one in supervisor.states] == list(served.urls)
        assert len(set(served.urls)) == 3
        assert [one.replica for one in supervisor.states] == [0, 1, 2]
        os.kill(supervisor.states[1].pid or 0, signal.SIGKILL)
        await until(lambda: supervisor.states[1].status is Status.RESTARTING)
        await supervisor.ready("mine")
        assert [one.restarts for one in supervisor.states] == [0, 1, 0]

    run([make(replicas=3)], tmp_path, scenario)
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == [f"mine.{number}.log" for number in range(3)]


def test_an_engine_gets_none_of_the_gateway_s_secrets(
    make: Callable[..., Vllm], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = "CANARY-" + "5d1f"
    for name in ("OPENAI_API_KEY", "LOWPASS_REDIS_URL", "LOWPASS_DATABASE_URL", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, canary)

    async def scenario(supervisor: Supervisor) -> None:
        await supervisor.start()
        environment = await said(supervisor, "/environment")
        assert canary not in json.dumps(environment)
        assert environment["HF_HUB_OFFLINE"] == environment["VLLM_NO_USAGE_STATS"] == "1"
        assert environment["VLLM_CACHE_ROOT"].startswith(str(tmp_path / "engines"))

    run([make()], tmp_path, scenario)


def test_a_token_is_named_in_the_spec_and_taken_from_the_environment(
    make: Callable[..., Vllm], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = "CANARY-" + "0b1e"
    monkeypatch.setenv("HUB_TOKEN", canary)

    async def scenario(supervisor: Supervisor) -> None:
        await supervisor.start()
        assert (await said(supervisor, "/environment"))["HF_TOKEN"] == canary

    run([make(environment={"HF_TOKEN": "${HUB_TOKEN}"})], tmp_path, scenario)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and canary.encode() in path.read_bytes()]

    async def without(supervisor: Supervisor) -> None:
        with pytest.raises(EngineError, match="HUB_TOKEN is not set, and the `environment` of mine names it"):
            await supervisor.start()

    monkeypatch.delenv("HUB_TOKEN")
    run([make(environment={"HF_TOKEN": "${HUB_TOKEN}"})], tmp_path, without)


def test_once_it_serves_nothing_that_an_engine_quotes_is_kept(make: Callable[..., Vllm], tmp_path: Path) -> None:
    canary = "CANARY-" + "33aa"
    lines = (
        f"{canary}",
        f"(APIServer%20pid=7)%20ERROR%2011-21%2020:34:11%20[serving.py:12]%20template%20of%20{canary}",
        f"ValueError:%20{canary}",
        f"INFO%2011-21%2020:34:11%20[logger.py:1]%20Received%20{canary}",
        f"torch.OutOfMemoryError:%20CUDA%20out%20of%20memory%20for%20{canary}",
    )

    async def scenario(supervisor: Supervisor) -> None:
        await supervisor.start()
        for line in lines:
            await probe.ask(state(supervisor).url, f"/say?{line}", "POST")
        os.kill(state(supervisor).pid or 0, signal.SIGKILL)
        await until(lambda: state(supervisor).restarts)

    ended = run([make()], tmp_path, scenario)
    log = (tmp_path / "logs" / "mine.log").read_text()
    assert canary not in log + state(ended).last_error
    assert "(APIServer pid=7) ERROR 11-21 20:34:11 [serving.py:12]" in log
    assert "it does not fit into memory" in state(ended).last_error


def test_a_hung_engine_is_killed_and_started_again(
    make: Callable[..., Vllm], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "HEALTH_EVERY_S", 0.02)

    async def scenario(supervisor: Supervisor) -> None:
        await supervisor.start()
        await probe.ask(state(supervisor).url, "/set?well=false", "POST")
        await until(lambda: state(supervisor).restarts)
        await supervisor.ready("mine")
        assert state(supervisor).last_error == "killed, since /health failed 6 times in a row"

    run([make()], tmp_path, scenario)


@pytest.mark.parametrize("victim", ["engine", "guardian"])
def test_workers_end_with_their_engine_whoever_was_killed(
    make: Callable[..., Vllm], tmp_path: Path, victim: str
) -> None:
    """Though they mind neither SIGTERM nor closed pipes."""

    async def scenario(supervisor: Supervisor) -> None:
        await supervisor.start()
        pid, worker = state(supervisor).pid or 0, worker_in(tmp_path / "logs" / "mine.log")
        family = (pid, worker, parent_of(pid))
        os.kill(pid if victim == "engine" else parent_of(pid), signal.SIGKILL)
        await until(lambda: state(supervisor).restarts == 1)
        await until(lambda: not any(map(alive, family)))
        await supervisor.ready("mine")

    run([make("with workers")], tmp_path, scenario)


PARENT = """
import asyncio, sys, uvloop
from pathlib import Path
import msgspec
from local_serving.launch.recipe import Place
from local_serving.launch.supervisor import Supervisor
from local_serving.spec import Vllm

async def main():
    folder = Path(sys.argv[2])
    supervisor = Supervisor([msgspec.json.decode(sys.argv[1], type=Vllm)], folder / "logs", Place(folder / "engines"))
    await supervisor.start()
    print(supervisor.states[0].pid, flush=True)
    await asyncio.sleep(600)

uvloop.run(main())
"""


@contextmanager
def parent(spec: Vllm, folder: Path) -> Iterator["tuple[subprocess.Popen[str], int]"]:
    """A process that runs the engine, and the engine's id."""
    arguments = [sys.executable, "-c", PARENT, msgspec.json.encode(spec).decode(), str(folder)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def test_no_process_of_an_engine_outlives_a_killed_parent(make: Callable[..., Vllm], tmp_path: Path) -> None:
    with parent(make("with workers"), tmp_path) as (process, pid):
        pids = [pid, worker_in(tmp_path / "logs" / "mine.log")]
        assert all(map(alive, pids))
        process.kill()
    assert gone(pids)


def test_leftovers_of_a_killed_parent_and_a_killed_guardian_end_at_the_next_start(
    make: Callable[..., Vllm], tmp_path: Path
) -> None:
    spec = make("with workers")
    with parent(spec, tmp_path) as (process, pid):
        worker = worker_in(tmp_path / "logs" / "mine.log")
        guardian = parent_of(pid)
        process.send_signal(signal.SIGSTOP)  # so that it sees nothing of what follows
        os.kill(guardian, signal.SIGKILL)
        process.kill()
    assert gone([pid, guardian])
    assert alive(worker)

    async def scenario(supervisor: Supervisor) -> None:
        assert not alive(worker)
        await supervisor.start()

    run([spec], tmp_path, scenario)


def test_two_gateways_of_one_home_run_an_engine_once_and_the_second_takes_over(
    make: Callable[..., Vllm], tmp_path: Path
) -> None:
    spec = make()
    with parent(spec, tmp_path) as (process, pid):

        async def scenario(supervisor: Supervisor) -> None:
            supervisor.launch()
            await supervisor.ready("mine")
            assert state(supervisor).pid == pid
            process.kill()
            await until(lambda: state(supervisor).pid not in (pid, None))
            await supervisor.ready("mine")
            assert await said(supervisor, "/arguments")

        run([spec], tmp_path, scenario)
    assert gone([pid])


def test_a_record_that_can_t_be_read_is_as_good_as_none(make: Callable[..., Vllm], tmp_path: Path) -> None:
    (tmp_path / "engines").mkdir()
    (tmp_path / "engines" / "mine.json").write_text('{"name": "mine", "chil')

    async def scenario(supervisor: Supervisor) -> None:
        await supervisor.start()

    run([make()], tmp_path, scenario)
    kept = record.read(tmp_path / "engines", "mine")
    assert kept is not None
    assert (kept.ended, kept.owned, kept.children) == (True, False, ())
    assert (tmp_path / "engines" / "mine.json").stat().st_mode & 0o777 == 0o600


def test_an_engine_that_runs_with_another_spec_is_not_used(make: Callable[..., Vllm], tmp_path: Path) -> None:
    with parent(make(), tmp_path) as (process, pid):

        async def scenario(supervisor: Supervisor) -> None:
            supervisor.launch()
            with pytest.raises(EngineError, match=f"process {process.pid} runs it with another spec: `lowpass local"):
                await supervisor.ready("mine")
            running = record.read(tmp_path / "engines", "mine")
            assert running is not None
            assert state(supervisor).url not in running.urls

        run([make(context=1024)], tmp_path, scenario)
        assert alive(pid)
        process.kill()


def test_a_draining_replica_finishes_what_it_has(make: Callable[..., Vllm], tmp_path: Path) -> None:
    async def scenario(supervisor: Supervisor) -> None:
        await supervisor.start()
        await until(lambda: all(one.status is Status.READY for one in supervisor.states))
        await probe.ask(supervisor.states[0].url, "/set?load=2", "POST")
        draining = asyncio.ensure_future(supervisor.drain("mine", 0))
        await until(lambda: state(supervisor).status is Status.DRAINING)
        await asyncio.sleep(0.3)
        assert alive(state(supervisor).pid or 0)
        await probe.ask(supervisor.states[0].url, "/set?load=0", "POST")
        await draining
        assert [one.status for one in supervisor.states] == [Status.STOPPED, Status.READY]

    run([make(replicas=2)], tmp_path, scenario)


def test_a_server_of_somebody_else_is_watched_and_left_alone(make: Callable[..., Vllm], tmp_path: Path) -> None:
    async def scenario(supervisor: Supervisor) -> None:
        await supervisor.start()
        url, pid = state(supervisor).url, state(supervisor).pid or 0
        there = External(name="there", model="local/mine", urls=(url,), served=("mine",))
        other = External(name="other", model="local/other", urls=(url,))
        watching = Supervisor([there, other], tmp_path / "more")
        watching.launch()
        await watching.ready("there")
        with pytest.raises(EngineError, match="it serves mine, not local/other, other: correct `urls` or `served`"):
            await watching.ready("other")
        await watching.stop()
        assert alive(pid)
        gone_now = External(name="gone", model="local/mine", urls=("http://127.0.0.1:9/v1",))
        nowhere = Supervisor([gone_now], tmp_path / "more")
        nowhere.launch()
        with pytest.raises(EngineError, match=r"http://127.0.0.1:9/v1 does not answer \(.*\): start it"):
            await nowhere.ready("gone")
        await nowhere.stop()

    run([make()], tmp_path, scenario)


def test_an_idle_engine_sleeps_and_a_request_wakes_it(
    make: Callable[..., Vllm], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("local_serving.launch.recipe._GPU_DEVICES", ("/dev/null",))
    monkeypatch.setattr(replica, "_NAP_LOOK_S", 0.1)

    async def scenario(supervisor: Supervisor) -> None:
        await supervisor.start()
        url = state(supervisor).url
        arguments, environment = await said(supervisor, "/arguments"), await said(supervisor, "/environment")
        assert "--enable-sleep-mode" in arguments
        assert (environment["VLLM_SERVER_DEV_MODE"], environment["CUDA_VISIBLE_DEVICES"]) == ("1", "0")
        await until(lambda: state(supervisor).status is Status.SLEEPING)
        assert (await said(supervisor, "/is_sleeping"))["is_sleeping"]
        await probe.ask(url, "/set?load=1", "POST")
        await until(lambda: state(supervisor).status is Status.READY)
        assert not (await said(supervisor, "/is_sleeping"))["is_sleeping"]

    run([make(sleep_after_s=1, gpu="h100-80gb")], tmp_path, scenario)
