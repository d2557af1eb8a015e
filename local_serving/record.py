"""Which engines run for this home folder, and who owns them."""

import asyncio
import fcntl
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from time import monotonic, sleep
from typing import IO, Literal

import msgspec
from msgspec import Struct

from local_serving import EngineError
from local_serving.spec import EngineCost, EngineSpec
from local_serving.watch import read as watch_read
from router.types.target import EngineState, Status

# Which engines run for this home folder, and whose they are: a file for each, and a lock that ends with its owner.

_GONE = "gone"
_PATIENCE_S = 2.0
Owner = Literal["serve", "up"]
"""`lowpass serve`, whose engines end with it; `lowpass local up`."""


class Process(Struct, frozen=True):
    """A process id is given anew some day; together with when it was started it names one process for good."""

    pid: int
    started: str
    """Boot and clock ticks since then; empty: not known on this system."""


class EngineRecord(Struct, frozen=True, kw_only=True):
    """`ended`: in good order, and not to come back by itself."""

    name: str
    kind: Literal["llamacpp", "vllm"]
    digest: str
    """Of the spec that it was started with."""
    owner: Owner
    process: Process
    """The owner's."""
    urls: tuple[str, ...]
    states: tuple[EngineState, ...] = ()
    children: tuple[Process, ...] = ()
    """Leaders of the process groups of engines, and their guardians."""
    ended: bool = False

    @property
    def owned(self) -> bool:
        return not self.ended and alive(self.process)


def claim(folder: Path, name: str) -> IO[bytes] | None:
    """The right to run an engine, held until this file is closed or this process ends, however that comes. None:
    another process has it. Raises `EngineError`."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.fdopen(os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o600), "wb")
    except OSError as error:
        raise EngineError(f"can't write {folder}: {error.strerror}; set LOWPASS_HOME") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        return None
    return lock


def read(folder: Path, name: str) -> EngineRecord | None:
    """None: there is none, or it can't be read."""
    try:
        return msgspec.json.decode((folder / f"{name}.json").read_bytes(), type=EngineRecord)
    except (OSError, msgspec.MsgspecError):
        return None


def records(folder: Path) -> tuple[EngineRecord, ...]:
    return tuple(row for row in (read(folder, path.stem) for path in sorted(folder.glob("*.json"))) if row is not None)


def write(folder: Path, record: EngineRecord) -> None:
    """As a whole: nobody reads half of it."""
    descriptor, name = tempfile.mkstemp(dir=folder, prefix=f".{record.name}.")
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(record))
    os.replace(name, folder / f"{record.name}.json")


def digest(spec: EngineSpec) -> str:
    """The same for specs that start the same, however they came here: 16 and 16.0 are written differently."""
    apart = {"cost": EngineCost(), "licence": "", "architecture": None, "start_s": 1}
    core = type(spec).model_validate_json(spec.model_copy(update=apart).model_dump_json())
    return sha256(core.model_dump_json().encode()).hexdigest()[:16]


def process(pid: int) -> Process:
    return Process(pid, _started(pid))


def alive(process: Process) -> bool:
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return _started(process.pid) == process.started != _GONE


def end_leftovers(children: tuple[Process, ...]) -> None:
    """Kills what is left of engines whose owner and guardian were killed. Blocks.

    A group outlives its leader, and nobody gets a group's number while it has members. So a group whose leader is
    gone is ours if one of it is in the session of a guardian that we recorded.
    """
    groups, guardians = [], {child.pid for child in children}
    for child in children:
        sessions = {int((_stat(pid) or ["0"] * 4)[3]) for pid in members(child.pid)}
        if alive(child) or (_started(child.pid) == _GONE and sessions & guardians):
            groups.append(child.pid)
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    deadline = monotonic() + _PATIENCE_S
    while any(members(group) for group in groups) and monotonic() < deadline:
        sleep(0.01)


def members(group: int) -> list[int]:
    """Processes of the group that still run."""
    rows = {int(path.name): _stat(int(path.name)) for path in Path("/proc").glob("[0-9]*")}
    return [pid for pid, row in rows.items() if row and int(row[2]) == group and row[0] != "Z"]


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from `state` on: the name before may hold anything. Empty: no such process."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    return []


def _started(pid: int) -> str:
    if sys.platform != "linux":
        return ""
    fields = _stat(pid)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot[:8]}-{fields[19]}" if fields and fields[0] != "Z" else _GONE


# How the engines of a home folder stand: what their owners write of them, and what they say themselves.


class EngineStatus(Struct, frozen=True, kw_only=True):
    """`memory`: bytes, of all its processes, shared ones in shares (PSS). None: not known."""

    engine: str
    replica: int
    status: Status
    owner: Owner
    url: str
    pid: int | None
    restarts: int
    last_error: str
    memory: int | None
    running: int | None
    waiting: int | None


def statuses(record: EngineRecord) -> Sequence[EngineStatus]:
    async def rows() -> Sequence[EngineStatus]:
        return await asyncio.gather(*(_status(record, state) for state in record.states))

    return asyncio.run(rows())


async def _status(record: EngineRecord, state: EngineState) -> EngineStatus:
    owned = record.owned
    serves = owned and state.status in (Status.READY, Status.DRAINING)
    load = await watch_read(state.url, record.kind, _PATIENCE_S) if serves else None
    group = members(state.pid) if owned and state.pid else ()
    sizes = [size for pid in group if (size := _pss(pid)) is not None]
    return EngineStatus(
        engine=record.name,
        replica=state.replica,
        status=state.status if owned or state.status is Status.FAILED else Status.STOPPED,
        owner=record.owner,
        url=state.url,
        pid=state.pid if owned else None,
        restarts=state.restarts,
        last_error="its owner was killed" if not owned and not record.ended else state.last_error,
        memory=sum(sizes) if sizes else None,
        running=load.running if load else None,
        waiting=load.waiting if load else None,
    )


def _pss(pid: int) -> int | None:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return None
