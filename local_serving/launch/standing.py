"""How the engines of a home folder stand: what their owners write of them, and what they say themselves."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from local_serving.launch import record
from local_serving.launch.record import Owner, Record
from local_serving.watch.watch import read
from router.types.engine import EngineState, Load, Status

_PATIENCE_S = 2.0


class Standing(Struct, frozen=True, kw_only=True):
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


def standing(one: Record) -> Sequence[Standing]:
    return asyncio.run(_standing(one))


async def _standing(one: Record) -> Sequence[Standing]:
    loads = await asyncio.gather(*(_load(one, state) for state in one.states))
    return [_row(one, state, load) for state, load in zip(one.states, loads, strict=True)]


async def _load(one: Record, state: EngineState) -> Load | None:
    busy = one.owned and state.status in (Status.READY, Status.DRAINING)
    return await read(state.url, one.kind, _PATIENCE_S) if busy else None


def _row(one: Record, state: EngineState, load: Load | None) -> Standing:
    killed = not one.owned and not one.ended
    return Standing(
        engine=one.name,
        replica=state.replica,
        status=state.status if one.owned or state.status is Status.FAILED else Status.STOPPED,
        owner=one.owner,
        url=state.url,
        pid=state.pid if one.owned else None,
        restarts=state.restarts,
        last_error="its owner was killed" if killed else state.last_error,
        memory=_memory(state.pid) if one.owned and state.pid else None,
        running=load.running if load else None,
        waiting=load.waiting if load else None,
    )


def _memory(group: int) -> int | None:
    sizes = [_pss(pid) for pid in record.members(group)]
    return sum(size for size in sizes if size is not None) if any(size is not None for size in sizes) else None


def _pss(pid: int) -> int | None:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return None
