"""What the gateway charges for a local engine, against what the engine's hours cost.

The measure is apart from all that the gateway goes by: the clients' own clocks say when at least one of their requests
was being answered. Nobody else uses the engine.
"""

import asyncio
import os
import random
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

from msgspec import Struct

from bench.children import cores
from bench.load import LoadError
from bench.local.part import Goal, missed
from bench.local.sites import Running, embedded, gateway, on_core, ours
from bench.local.streams import Answer, Ask, Door, connect
from local_serving.manifests import written
from local_serving.spec import EngineCost
from router.types.clock import now_ms
from router.types.price import NANO_PER_USD
from router.types.target import BilledHours

HOURLY_USD = Decimal("3.6")
"""0.001 USD a second."""
MOST_ERROR = 0.1
CLIENTS = 4
TURN_S = 15.0
"""Of this time the clients are busy for two thirds, and hardly at all for the rest."""
PATIENCE_S = 180.0
"""For the first price."""
SEED = 20_261_121
_PRICES = "SELECT count(*) FROM engine_prices"
_CHARGED = "SELECT coalesce(sum(cost), 0), count(*) FROM attempts WHERE started_ms >= ?"
_BEGINNING = "You are the assistant of a small shop for garden tools. Answer in a few friendly words. " * 6
_WORDS = ("spade", "rake", "hose", "seeds", "when", "where", "how", "much", "does", "it", "cost", "to", "send", "two")
_tickets = count(1)


class Size(Struct, frozen=True):
    """Seconds of load at measured prices; 0: not at all."""

    marginal: float
    full: float


WHOLE, QUICK = Size(300.0, 150.0), Size(40.0, 0.0)


class Run(Struct, frozen=True):
    """`due_usd`: what the hours cost that are counted; `charged_usd`: what the ledger says of the same requests."""

    counted: str
    seconds: float
    busy_s: float
    requests: int
    first_price_s: float
    """From the first request on."""
    prices: int
    """So many were in force."""
    due_usd: float
    charged_usd: float

    @property
    def error(self) -> float:
        return self.charged_usd / self.due_usd - 1


class Found(Struct, frozen=True):
    marginal: Run
    full: Run | None

    @property
    def goals(self) -> tuple[Goal, ...]:
        return tuple(_goal(run) for run in (self.marginal, self.full) if run is not None)

    @property
    def missed(self) -> tuple[str, ...]:
        return missed(self.goals)


def _goal(run: Run) -> Goal:
    return Goal(
        f"{run.seconds:.0f} s of mixed load: charged, of the price of {run.counted} hours",
        f"within {MOST_ERROR:.0%}",
        f"{run.error:+.1%} ({run.requests} requests; first price after {run.first_price_s:.0f} s)",
        abs(run.error) <= MOST_ERROR,
        f"load {os.getloadavg()[0]:.1f}",
    )


def measure(quick: bool) -> Found:
    """Raises LoadError if a gateway does not start, or measures nothing."""
    size = QUICK if quick else WHOLE
    with tempfile.TemporaryDirectory(prefix="lowpass-bench-") as name, on_core(ours()):
        full = _run(Path(name) / "full", BilledHours.FULL, size.full) if size.full else None
        return Found(_run(Path(name) / "marginal", BilledHours.MARGINAL, size.marginal), full)


def _run(home: Path, counted: BilledHours, seconds: float) -> Run:
    home.mkdir()
    spec = home / "engine.yaml"
    spec.write_text(written(embedded(name="cost", cost=EngineCost(host_hour_usd=HOURLY_USD, counted=counted))))
    with gateway(home, policy(spec), cores().all) as front:
        return asyncio.run(_measured(front, counted, seconds))


def policy(spec: Path) -> dict[str, Any]:
    targets = {"engine": {"model": "local/smollm2-135m-instruct", "engine": str(spec)}}
    routes = {"auto": {"strategy": {"kind": "cheapest", "targets": ["engine"]}}}
    return {"version": 1, "targets": targets, "routes": routes}


async def _measured(front: Running, counted: BilledHours, seconds: float) -> Run:
    began = perf_counter()
    await _load(front, lambda: _one(front, _PRICES)[0] > 0 or perf_counter() > began + PATIENCE_S)
    first_price_s = perf_counter() - began
    if not _one(front, _PRICES)[0]:
        raise LoadError(f"there is no measured price after {PATIENCE_S:g} s")
    since_ms, start = now_ms(), perf_counter()
    answers = await _load(front, lambda: perf_counter() > start + seconds)
    took, busy = perf_counter() - start, busy_s(answers)
    nano, requests = _one(front, _CHARGED, since_ms)
    due = (took if counted is BilledHours.FULL else busy) * float(HOURLY_USD) / 3_600
    prices = _one(front, _PRICES)[0]
    return Run(
        counted.value,
        *(round(took, 1), round(busy, 1), requests, round(first_price_s, 1), prices),
        *(round(due, 6), round(nano / NANO_PER_USD, 6)),
    )


async def _load(front: Running, over: Callable[[], bool]) -> list[Answer]:
    """Returns when all are answered. Raises LoadError if one is not."""
    answers: list[Answer] = []
    await asyncio.gather(*(_client(front, number, over, answers) for number in range(CLIENTS)))
    if wrong := next((one for one in answers if not one.whole), None):
        raise LoadError(f"status {wrong.status} in the load")
    return answers


async def _client(front: Running, number: int, over: Callable[[], bool], answers: list[Answer]) -> None:
    draw = random.Random(SEED + number)  # noqa: S311 - the same requests each time
    door = Door(front.port, "auto", front.key)
    await asyncio.sleep(draw.random())
    while not over():
        client = await connect(front.port)
        answers.append(await client.ask(door, _ask(draw)))
        client.transport.abort()
        busy = perf_counter() % TURN_S < TURN_S * 2 / 3
        await asyncio.sleep(draw.expovariate(4.0 if busy else 0.3))


def _ask(draw: random.Random) -> Ask:
    """Short and long; one in three begins as others did."""
    words = " ".join(draw.choices(_WORDS, k=draw.choice((5, 40, 150))))
    ticket = str(next(_tickets))
    if draw.random() < 1 / 3:
        return Ask("of today", draw.choice((8, 24, 64)), f"{_BEGINNING}{words} {ticket}")
    return Ask(ticket, draw.choice((8, 24, 64)), words)


def busy_s(answers: list[Answer]) -> float:
    """In which at least one was on its way."""
    total, until = 0.0, 0.0
    for one in sorted(answers, key=lambda one: one.sent):
        total += max(0.0, one.last - max(one.sent, until))
        until = max(until, one.last)
    return total


def _one(front: Running, query: str, *values: int) -> tuple[int, ...]:
    with closing(sqlite3.connect(f"file:{front.ledger}?mode=ro", uri=True)) as connection:
        found: tuple[int, ...] = connection.execute(query, values).fetchone()
        return found
