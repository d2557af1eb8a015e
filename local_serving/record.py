"""Records of the engines of a home folder, and of their owners."""

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

# Records of engines and their owners: a file for each, and a lock that ends with the owner.

_GONE = "gone"
_WAIT_S = 2.0
Owner = Literal["serve", "up"]
"""Command that owns an engine: `lowpass serve`, with which its engines end, or `lowpass local up`."""


class Process(Struct, frozen=True):
    """A process, identified by its id and start time, since ids are reused."""

    pid: int
    started: str
    """Start of the boot id and start time in clock ticks; empty if unknown on this system."""


class EngineRecord(Struct, frozen=True, kw_only=True):
    """Record of an engine. `ended`: whether it was ended in good order and is not to be restarted."""

    name: str
    kind: Literal["llamacpp", "vllm"]
    digest: str
    owner: Owner
    process: Process
    urls: tuple[str, ...]
    states: tuple[EngineState, ...] = ()
    children: tuple[Process, ...] = ()
    """Leaders of the engines' process groups, and their guardians."""
    ended: bool = False

    @property
    def owned(self) -> bool:
        return not self.ended and alive(self.process)


def claim(folder: Path, name: str) -> IO[bytes] | None:
    """Locks the right to run an engine until the returned file is closed or this process ends. Returns None if another
    process has the lock. Raises `EngineError`."""
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
    """Returns the record of an engine; None if there is none, or if it can't be read."""
    try:
        return msgspec.json.decode((folder / f"{name}.json").read_bytes(), type=EngineRecord)
    except (OSError, msgspec.MsgspecError):
        return None


def records(folder: Path) -> tuple[EngineRecord, ...]:
    return tuple(row for row in (read(folder, path.stem) for path in sorted(folder.glob("*.json"))) if row is not None)


def write(folder: Path, record: EngineRecord) -> None:
    """Writes a record atomically."""
    descriptor, name = tempfile.mkstemp(dir=folder, prefix=f".{record.name}.")
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(record))
    os.replace(name, folder / f"{record.name}.json")


def digest(spec: EngineSpec) -> str:
    """Returns a digest of what affects the start, independent of notation: 16 and 16.0 are equal."""
    neutral = {"cost": EngineCost(), "licence": "", "architecture": None, "start_s": 1}
    core = type(spec).model_validate_json(spec.model_copy(update=neutral).model_dump_json())
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
    """Kills the rest of engines whose owner and guardian were killed. Blocks.

    A group outlives its leader, and its id is not reused while it has members. So a group without a leader is one of
    ours if a member is in the session of a recorded guardian.
    """
    groups, guardians = [], {child.pid for child in children}
    for child in children:
        sessions = {int((_stat(pid) or ["0"] * 4)[3]) for pid in members(child.pid)}
        if alive(child) or (_started(child.pid) == _GONE and sessions & guardians):
            groups.append(child.pid)
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    deadline = monotonic() + _WAIT_S
    while any(members(group) for group in groups) and monotonic() < deadline:
        sleep(0.01)


def members(group: int) -> list[int]:
    """Returns the ids of a process group's running members."""
    rows = {int(path.name): _stat(int(path.name)) for path in Path("/proc").glob("[0-9]*")}
    return [pid for pid, row in rows.items() if row and int(row[2]) == group and row[0] != "Z"]


def _stat(pid: int) -> list[str]:
    """Returns the fields of /proc/PID/stat after the name, which may hold anything; empty if there is no process."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    return []


def _started(pid: int) -> str:
    if sys.platform != "linux":
        return ""
    fields = _stat(pid)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot[:8]}-{fields[19]}" if fields and fields[0] != "Z" else _GONE


# Status of the engines of a home folder: what their owners record, and what the engines report.


class EngineStatus(Struct, frozen=True, kw_only=True):
    """Status of a replica. `memory` is the bytes (PSS) of all its processes; None for unknown values."""

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
    load = await watch_read(state.url, record.kind, _WAIT_S) if serves else None
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
