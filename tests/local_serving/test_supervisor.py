"""The real engine as a supervised child: it answers, comes back when killed, and leaves nothing behind."""

import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from openai import APIStatusError, AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from local_serving import EngineError, watch
from local_serving.supervisor import Supervisor
from router.types.target import EngineState, Status
from tests.local_serving.supervised import SMOLLM2, alive, in_loop, pid, start, started, state, supervising, until
from tests.tables import each_row

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Say hello."}]
pytestmark = pytest.mark.timeout(300)
MOMENTS: dict[str, Callable[[EngineState], object]] = {
    "at once": lambda _: True,
    "when its process is there": lambda state: state.pid,
    "when it serves": lambda state: state.status is Status.READY,
}


def client(supervisor: Supervisor) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=state(supervisor).url, api_key="-", max_retries=0, timeout=60)


def port_of(supervisor: Supervisor) -> int:
    return int(state(supervisor).url.removesuffix("/v1").rpartition(":")[2])


@in_loop
async def test_one_child_serves_chat_and_embeddings_to_the_official_client_and_ends_whole(tmp_path: Path) -> None:
    async with started(tmp_path, SMOLLM2) as supervisor:
        load = await watch.read(state(supervisor).url, "llamacpp")
        assert load is not None
        assert (load.running, load.waiting, load.output) == (0, 0, 0)
        async with client(supervisor) as openai:
            answer = await openai.chat.completions.create(model=SMOLLM2.model, messages=HELLO, max_tokens=4)
            assert answer.choices[0].message.content
            reply = await openai.embeddings.create(model=SMOLLM2.model, input=["hello", "hello", "a long goodbye"])
            models = await openai.models.list()
        vectors = [item.embedding for item in reply.data]
        assert [len(vector) for vector in vectors] == [576] * 3
        assert vectors[0] == pytest.approx(vectors[1], abs=1e-3)
        assert vectors[0] != pytest.approx(vectors[2], abs=1e-3)
        assert [model.id for model in models.data] == [SMOLLM2.model]
        child = pid(supervisor)
    assert state(supervisor).status is Status.STOPPED
    assert not alive(child)
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port_of(supervisor))) != 0


@each_row("moment", MOMENTS)
@in_loop
async def test_stop_is_safe_at_any_moment(tmp_path: Path, moment: str) -> None:
    async with supervising(tmp_path, SMOLLM2) as supervisor:
        supervisor.launch()
        await until(lambda: MOMENTS[moment](state(supervisor)))
        await supervisor.stop()
        assert state(supervisor).status is Status.STOPPED
        with pytest.raises(EngineError, match="local engine smollm2 was stopped"):
            await supervisor.ready("smollm2")


@in_loop
async def test_launch_returns_before_the_engine_serves(tmp_path: Path) -> None:
    async with supervising(tmp_path, SMOLLM2) as supervisor:
        supervisor.launch()
        assert state(supervisor).status is Status.STARTING
        with pytest.raises(EngineError, match="local engine smollm2 is not ready after 0 s"):
            await supervisor.ready("smollm2", timeout_s=0)
        await supervisor.ready("smollm2")
        assert state(supervisor).status is Status.READY
        with pytest.raises(EngineError, match="there is no engine 'other': running are smollm2"):
            await supervisor.ready("other")


@in_loop
async def test_a_port_of_another_program_and_a_log_that_cannot_be_written_give_one_clear_line(tmp_path: Path) -> None:
    async with supervising(tmp_path, SMOLLM2) as supervisor:
        port = port_of(supervisor)
        message = f"can't listen on 127.0.0.1:{port}: Address already in use"
        with socket.create_server(("127.0.0.1", port)), pytest.raises(EngineError, match=message):
            await start(supervisor)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "logs").write_text("a file, not a folder")
    async with supervising(tmp_path / "other", SMOLLM2) as supervisor:
        with pytest.raises(EngineError, match=r"can't write the engine's log .*smollm2\.log: .*; set LOWPASS_HOME"):
            await start(supervisor)


@in_loop
async def test_no_text_of_a_request_reaches_the_log(tmp_path: Path) -> None:
    canary = "CANARY-7f3a"
    schema = {"type": "object", "properties": {canary: {"type": "string", "pattern": f"^[{canary}"}}}
    bodies: list[dict[str, object]] = [
        {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}},
        {"grammar": f"root ::= {canary} ["},
        {"tools": [{"type": canary}]},
        {},
    ]
    canaries: list[ChatCompletionMessageParam] = [{"role": "user", "content": canary}]
    async with started(tmp_path, SMOLLM2) as supervisor:
        async with client(supervisor) as openai:
            for body in ({"max_tokens": 4} | body for body in bodies):
                with suppress(APIStatusError):
                    await openai.chat.completions.create(model=SMOLLM2.model, messages=canaries, extra_body=body)
        os.kill(pid(supervisor), signal.SIGABRT)
        await until(lambda: state(supervisor).restarts)
    log = (tmp_path / "logs" / "smollm2.log").read_text()
    assert "killed by SIGABRT" in log
    assert canary not in log + state(supervisor).last_error
