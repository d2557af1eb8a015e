"""Engines that outlive the shell: each under a supervisor process of its own.

It is `python -m local_serving.launch.detached FOLDER LOGS PYTHON`. The spec comes by standard input: its environment
may hold what a list of processes should not show.
"""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import msgspec

from local_serving.launch import record
from local_serving.launch.recipe import Launched, Place
from local_serving.launch.record import Record
from local_serving.launch.supervisor import DRAIN_S, Supervisor
from local_serving.launch.vllm import DRAIN_S as ENGINE_DRAIN_S
from local_serving.spec.spec import EngineError, EngineSpec

END_LIMIT_S = DRAIN_S + ENGINE_DRAIN_S + 10.0
"""By then an engine that was told to end has ended."""
_LOOK_EVERY_S = 0.05


def main() -> None:
    folder, logs, python = sys.argv[1:]
    spec: EngineSpec = msgspec.json.decode(sys.stdin.buffer.read(), type=EngineSpec)
    try:
        asyncio.run(_keep(spec, Path(logs), Place(Path(folder), python)))
    except EngineError as error:
        sys.exit(str(error))


def start(spec: Launched, logs: Path, place: Place) -> "subprocess.Popen[bytes]":
    """Returns at once. Raises `EngineError` if nothing can be written."""
    try:
        logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _told(logs, spec.name).open("wb") as told:
            process = subprocess.Popen(  # noqa: S603 - ourselves
                (sys.executable, "-P", "-m", __spec__.name, str(place.folder), str(logs), place.python),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=told,
                start_new_session=True,
            )
    except OSError as error:
        raise EngineError(f"can't write to {logs}: {error.strerror}; set LOWPASS_HOME") from error
    assert process.stdin is not None  # noqa: S101
    with process.stdin as stdin:
        stdin.write(msgspec.json.encode(spec))
    return process


def why(logs: Path, name: str) -> str:
    """Why a supervisor ended: its last words."""
    lines = _told(logs, name).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else f"{name} was ended before it served"


def end(one: Record, folder: Path) -> bool:
    """Has it drain and end, and waits for that; whether it ended by itself. Else its supervisor is killed."""
    os.kill(one.process.pid, signal.SIGTERM)
    deadline = monotonic() + END_LIMIT_S
    while (now := record.read(folder, one.name)) and now.owned and monotonic() < deadline:
        sleep(_LOOK_EVERY_S)
    if now and now.owned:
        os.kill(one.process.pid, signal.SIGKILL)
    return not (now and now.owned)


async def _keep(spec: EngineSpec, logs: Path, place: Place) -> None:
    """Until SIGTERM, or until its first start failed."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, ended.set)
    supervisor = Supervisor([spec], logs, place, "up")
    if not supervisor.runs(spec.name):
        raise EngineError(f"{spec.name} runs already")
    supervisor.launch()
    starting = loop.create_task(supervisor.ready(spec.name))
    ending = loop.create_task(ended.wait())
    await asyncio.wait({starting, ending}, return_when=asyncio.FIRST_COMPLETED)
    try:
        if starting.done():
            starting.result()
            await ending
            await supervisor.drain(spec.name)
    finally:
        starting.cancel()
        await supervisor.stop()


def _told(logs: Path, name: str) -> Path:
    return logs / f"{name}.up.log"


if __name__ == "__main__":
    main()
