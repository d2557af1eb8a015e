"""Engines under a supervisor in an event loop of their own: started, looked at, killed."""

import asyncio
import functools
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, ParamSpec

import msgspec
import uvloop

from local_serving import record, watch
from local_serving.recipe import EngineHome
from local_serving.spec import EngineSpec, Llamacpp, Vllm, read
from local_serving.supervisor import Supervisor
from router.types.target import EngineState

ROOT = Path(__file__).parents[2]
LIMIT_S = 60.0
EMBEDDED = read("smollm2")
assert isinstance(EMBEDDED, Llamacpp)
SMOLLM2 = EMBEDDED.model_copy(update={"threads": 1})
Arguments = ParamSpec("Arguments")
PARENT = (Path(__file__).parent / "parent.txt").read_text("utf-8")
"""The source of a program that starts an engine and stays."""


def in_loop(test: Callable[Arguments, Coroutine[Any, Any, None]]) -> Callable[Arguments, None]:
    """An asynchronous test, as pytest and `each_row` call it."""

    @functools.wraps(test)
    def run(*values: Arguments.args, **fixtures: Arguments.kwargs) -> None:
        uvloop.run(test(*values, **fixtures))

    return run


def standin(folder: Path, manner: str = "", **changes: Any) -> Vllm:
    """A spec whose interpreter is the stand-in, whatever it is asked to run; `manner`: what is wrong with it."""
    program, model = folder / "python", folder / "model"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S {Path(__file__).with_name("standin.py")} "$@"\n')
    program.chmod(0o755)
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text("{}")
    spec = Vllm(name="mine", model="local/mine", path=str(model), python=str(program), context=2048, served=("mine",))
    environment = {"MANNER": manner, **changes.pop("environment", {})}
    return spec.model_copy(update={"environment": environment, **changes})


@asynccontextmanager
async def supervising(folder: Path, *specs: EngineSpec, python: str = "") -> AsyncIterator[Supervisor]:
    """Not launched yet; ended afterwards."""
    supervisor = Supervisor(specs, folder / "logs", EngineHome(folder / "engines", python))
    try:
        yield supervisor
    finally:
        await supervisor.stop()


async def start(supervisor: Supervisor) -> None:
    """Launches the engines and waits until all serve."""
    supervisor.launch()
    for name in supervisor.served:
        await supervisor.ready(name)


@asynccontextmanager
async def started(folder: Path, *specs: EngineSpec) -> AsyncIterator[Supervisor]:
    async with supervising(folder, *specs) as supervisor:
        await start(supervisor)
        yield supervisor


@contextmanager
def parent(spec: EngineSpec, folder: Path) -> Iterator["tuple[subprocess.Popen[str], int]"]:
    """A process that runs the engine, and the engine's id."""
    arguments = [sys.executable, "-c", PARENT, spec.model_dump_json(), str(folder)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def state(supervisor: Supervisor) -> EngineState:
    return supervisor.states[0]


def pid(supervisor: Supervisor) -> int:
    number = state(supervisor).pid
    assert number is not None
    return number


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110 - other processes make it true
            await asyncio.sleep(0.01)


async def ask(supervisor: Supervisor, path: str, method: str = "GET") -> Any:
    """The JSON that the first engine answers."""
    return msgspec.json.decode((await watch.ask(state(supervisor).url, path, method)).body)


def alive(pid: int) -> bool:
    return record.alive(record.process(pid))


async def gone(*pids: int) -> None:
    await until(lambda: not any(map(alive, pids)))
