"""Twice as much as an engine can do: what comes to its clients with somewhere else to go, and without.

Arrivals are Poisson and wait for nobody: a queue that grows is not spared by slower clients.
"""

import asyncio
import os
import random
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import uvloop
from msgspec import Struct

from bench.children import cores, upstream
from bench.load import LoadError
from bench.local.part import Goal, missed
from bench.local.sites import Running, embedded, engine, gateway, on_core, ours
from bench.local.streams import Answer, Ask, Door, connect, keep_busy
from local_serving.manifests import written

SLOTS, TOKENS = 2, 24
TIMES = 2.0
"""The capacity."""
SEED = 20_261_121
DEADLINE = 4.0
"""Times what a request takes with all slots busy; at least `LEAST_MS`, which the provider keeps to with ease."""
LEAST_MS = 2_500
PATIENCE_S = 60.0
"""How long a client waits for an answer before it counts as lost."""
_SETTLED = "SELECT count(*) FROM requests WHERE state <> 'held'"
_SPEC = embedded(name="spill", parallel=SLOTS, cache_mib=0)
_tickets = count(1)


class Size(Struct, frozen=True):
    calibrated: int
    """Requests by which the capacity is measured."""
    seconds: float


WHOLE, QUICK = Size(40, 60.0), Size(10, 10.0)


class Outcome(Struct, frozen=True):
    """Of one route under the load."""

    requests: int
    rows: int
    """Requests in the ledger, none of them open."""
    lost: dict[str, int]
    """Without a whole answer, by what came instead."""
    shares: dict[str, int]
    """Whole answers by target."""
    p50_ms: float
    p95_ms: float
    """Of whole answers, to their end."""


class Spill(Struct, frozen=True, kw_only=True):
    per_s: float
    """Requests that the engine can do."""
    busy_ms: float
    """What one takes meanwhile, median."""
    deadline_ms: int
    alone: Outcome
    """The engine is the route's only target."""
    spilling: Outcome
    """A provider is its second."""

    @property
    def goals(self) -> tuple[Goal, ...]:
        found, offered = self.spilling, f"{TIMES:g} × {self.per_s:.1f} requests/s"
        served = sum(found.shares.values())
        shares = ", ".join(f"{name} {number / served:.0%}" for name, number in sorted(found.shares.items()))
        lost, rows = sum(found.lost.values()), found.rows
        return (
            Goal(
                f"{offered}: p95 of served requests",
                f"< {self.deadline_ms:,} ms",
                f"{found.p95_ms:,.0f} ms ({shares or 'nobody'}; alone {self._alone})",
                0 < found.p95_ms < self.deadline_ms,
                f"load {os.getloadavg()[0]:.1f}",
            ),
            Goal(f"{offered}: requests lost", "0", f"{lost} of {found.requests}", lost == 0, _told(found.lost)),
            Goal(f"{offered}: rows in the ledger", f"{found.requests}", f"{rows}", rows == found.requests),
        )

    @property
    def missed(self) -> tuple[str, ...]:
        return missed(self.goals)

    @property
    def _alone(self) -> str:
        return f"{self.alone.p95_ms:,.0f} ms, and {sum(self.alone.lost.values())} of {self.alone.requests} lost"


def measure(quick: bool) -> Spill:
    """Raises LoadError if an engine or a gateway does not start."""
    size = QUICK if quick else WHOLE
    with tempfile.TemporaryDirectory(prefix="lowpass-bench-") as name, upstream(ours(), "bench.local.provider") as port:
        home = Path(name)
        spec = home / "engine.yaml"
        spec.write_text(written(_SPEC))
        with on_core(ours()):
            return uvloop.run(_measured(home, spec, port, size))


async def _measured(home: Path, spec: Path, provider: int, size: Size) -> Spill:
    with engine(_SPEC, home) as alone:
        per_s, busy_ms = await _capacity(Door(alone.port, _SPEC.model), size.calibrated)
    deadline_ms = max(int(busy_ms * DEADLINE), LEAST_MS)
    outcomes = {}
    for name, order in (("alone", ["engine"]), ("spilling", ["engine", "provider"])):
        with gateway(home / name, policy(spec, provider, order, deadline_ms), cores().all) as front:
            for target in ("engine", "provider"):
                await _capacity(Door(front.port, target, front.key), size.calibrated // 2)
            outcomes[name] = await _flood(front, TIMES * per_s, size.seconds)
    return Spill(per_s=per_s, busy_ms=busy_ms, deadline_ms=deadline_ms, **outcomes)


def policy(spec: Path, provider: int, order: Sequence[str], deadline_ms: int) -> dict[str, Any]:
    """The route `auto` asks in this order."""
    card = {"name": "far", "provider": "vllm", "context": 32768, "max_output": 4096, "capabilities": ["chat"]}
    targets: dict[str, Any] = {
        "engine": {"model": "local/smollm2-135m-instruct", "engine": str(spec)},
        "provider": {
            "model": card | {"price": {"input": 0.5, "output": 2}},
            "base_url": f"http://127.0.0.1:{provider}/v1",
        },
    }
    route = {"strategy": {"kind": "ordered", "targets": list(order)}, "deadline_ms": deadline_ms}
    return {"version": 1, "targets": targets, "routes": {"auto": route}}


async def _capacity(door: Door, requests: int) -> tuple[float, float]:
    """Requests per second with all slots busy, and the median of what one takes in milliseconds. Raises LoadError."""
    answers = await keep_busy(door, [_ask() for _ in range(requests)], SLOTS)
    if wrong := next((one for one in answers if not one.whole), None):
        raise LoadError(f"{door.model}: status {wrong.status} at rest")
    seconds = max(one.last for one in answers) - min(one.sent for one in answers)
    return len(answers) / seconds, median(one.seconds for one in answers) * 1e3


async def _flood(front: Running, per_s: float, seconds: float) -> Outcome:
    door, draw = Door(front.port, "auto", front.key), random.Random(SEED)  # noqa: S311 - the same arrivals each time
    before, at, start, asking = _rows(front), 0.0, perf_counter(), list[asyncio.Task[Answer | str]]()
    while (at := at + draw.expovariate(per_s)) < seconds:
        await asyncio.sleep(start + at - perf_counter())
        asking.append(asyncio.create_task(_one(door)))
    answers = await asyncio.gather(*asking)
    return outcome(answers, _rows(front) - before)


async def _one(door: Door) -> Answer | str:
    """An answer, or why there is none."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            client = await connect(door.port)
            try:
                return await client.ask(door, _ask())
            finally:
                client.transport.abort()
    except OSError as error:  # a timeout is one
        return type(error).__name__


def outcome(answers: Sequence[Answer | str], rows: int) -> Outcome:
    whole = [one for one in answers if isinstance(one, Answer) and one.whole]
    lost = Counter(_instead(one) for one in answers if isinstance(one, str) or not one.whole)
    times = sorted(one.seconds * 1e3 for one in whole) or [0.0]
    shares = Counter(one.target for one in whole)
    p50, p95 = (times[int(share * (len(times) - 1))] for share in (0.5, 0.95))
    return Outcome(len(answers), rows, dict(lost), dict(shares), round(p50, 1), round(p95, 1))


def _instead(answer: Answer | str) -> str:
    if isinstance(answer, str):
        return answer
    return "broken off" if answer.status == 200 else f"status {answer.status}"


def _told(lost: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {what}" for what, number in lost.items())


def _rows(front: Running) -> int:
    with closing(sqlite3.connect(f"file:{front.ledger}?mode=ro", uri=True)) as connection:
        return int(connection.execute(_SETTLED).fetchone()[0])


def _ask() -> Ask:
    return Ask(str(next(_tickets)), TOKENS)
