"""What the gateway costs in front of a real engine at eight concurrent streams.

Rounds with and without it take turns, so that a slow minute of the machine hits both. Throughput is compared pair by
pair. The added time to the first token is what passes between client and engine, in both directions: from the client's
last byte to the engine's first, and from the engine's first token to the client's. Differences of whole times, in which
the engine's own spread is a hundred times as large, stand beside it.
"""

import os
import random
import tempfile
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import uvloop
from msgspec import Struct

from bench.cpu import tree_seconds
from bench.load import LoadError
from bench.local.checkpoints import vllm
from bench.local.part import Goal, Unmeasured, missed
from bench.local.sites import embedded, engine, gateway, on_core, ours
from bench.local.streams import Answer, Ask, Door, keep_busy
from bench.local.tap import Tap
from local_serving.recipe import names
from local_serving.spec import Llamacpp, Vllm

STREAMS = 8
LEAST_THROUGHPUT = 0.97
"""Of what the engine gives without the gateway."""
MOST_ADDED_MS = 2.0
SEED = 20_261_121
_tickets = count(1)


class Size(Struct, frozen=True):
    pairs: int
    tapped: int
    """Rounds whose first tokens are timed at both ends."""
    requests: int
    """Of a round."""
    tokens: tuple[int, int]
    """Of an answer, least and most: with equal ones all streams would end and begin in step."""


WHOLE, QUICK = Size(12, 4, 32, (32, 96)), Size(3, 2, 16, (8, 24))


class Round(Struct, frozen=True):
    """Eight streams, kept busy until the last request is answered."""

    tokens_per_s: float
    first_ms: float
    """Median time to the first token."""
    cpu_us: float = 0.0
    """Of the gateway, per token."""


class Overhead(Struct, frozen=True, kw_only=True):
    """Of one engine. `added_ms` in order of size."""

    engine: str
    direct: tuple[Round, ...]
    through: tuple[Round, ...]
    added_ms: tuple[float, ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        """Of throughput, pair by pair."""
        return tuple(
            one.tokens_per_s / other.tokens_per_s for one, other in zip(self.through, self.direct, strict=True)
        )

    @property
    def goals(self) -> tuple[Goal, ...]:
        title, ratios, added = f"{self.engine}, {STREAMS} streams", self.ratios, median(self.added_ms)
        p95 = self.added_ms[int(0.95 * (len(self.added_ms) - 1))]
        apart = median(one.first_ms for one in self.through) - median(one.first_ms for one in self.direct)
        return (
            Goal(
                f"{title}: throughput ÷ that without the gateway",
                f"≥ {LEAST_THROUGHPUT}",
                f"{median(ratios):.3f} ({min(ratios):.3f}–{max(ratios):.3f} of {len(ratios)} pairs)",
                median(ratios) >= LEAST_THROUGHPUT,
                self._noise,
            ),
            Goal(
                f"{title}: added time to the first token, median",
                f"≤ {MOST_ADDED_MS:g} ms",
                f"{added:.2f} ms (p95 {p95:.2f} ms; medians of whole times are {apart:+.0f} ms apart)",
                added <= MOST_ADDED_MS,
                self._noise,
            ),
        )

    @property
    def _noise(self) -> str:
        rates = [one.tokens_per_s for one in self.direct]
        return f"rounds without it alone lie {min(rates):.0f}–{max(rates):.0f} tokens/s; load {os.getloadavg()[0]:.1f}"


class Overheads(Struct, frozen=True, kw_only=True):
    engines: tuple[Overhead, ...]
    absent: tuple[str, ...] = ()
    """What was not measured, and what it needs."""

    @property
    def goals(self) -> tuple[Goal, ...]:
        return tuple(goal for one in self.engines for goal in one.goals)

    @property
    def missed(self) -> tuple[str, ...]:
        return missed(self.goals)


def measure(quick: bool) -> Overheads:
    """The embedded engine with eight slots; and, with more time, vLLM where it is. Raises LoadError."""
    size = QUICK if quick else WHOLE
    found = (_in_front(embedded(name="llama.cpp", parallel=STREAMS), size),)
    if quick:
        return Overheads(engines=found)
    try:
        return Overheads(engines=(*found, _in_front(vllm("vllm", "smollm2", STREAMS), size)))
    except Unmeasured as reason:
        return Overheads(engines=found, absent=(str(reason),))


def _in_front(spec: Llamacpp | Vllm, size: Size) -> Overhead:
    model = spec.model if isinstance(spec, Llamacpp) else names(spec)[0]
    with (
        tempfile.TemporaryDirectory(prefix="lowpass-bench-") as name,
        engine(spec, Path(name)) as found,
        on_core(ours()),
    ):
        return uvloop.run(compare(spec.name, Door(found.port, model), Path(name) / "gateway", size))


async def compare(engine: str, direct: Door, home: Path, size: Size) -> Overhead:
    """Raises LoadError if an answer is not what was asked for."""
    tap = Tap(direct.port)
    ports = {"plain": direct.port, "tapped": await tap.open()}
    with gateway(home, policy(ports, direct.model)) as front:
        plain, tapped = (Door(front.port, name, front.key) for name in ports)
        for door in (direct, plain, tapped):
            await _answers(door, _asks(Size(0, 0, STREAMS, (2, 4))))
        pairs = [(await _round(direct, size), await _round(plain, size, front.pid)) for _ in range(size.pairs)]
        added = [one for _ in range(size.tapped) for one in await _added(tapped, tap, size)]
    tap.close()
    without, through = zip(*pairs, strict=True)
    return Overhead(engine=engine, direct=without, through=through, added_ms=tuple(sorted(added)))


def policy(ports: dict[str, int], model: str) -> dict[str, Any]:
    """A target for each of the ports, to be asked by its name."""
    card = {"name": model, "provider": "vllm", "context": 8192, "max_output": 4096, "capabilities": ["chat"]}
    card["price"] = {"input": 0.1, "output": 0.2}
    targets = {name: {"model": card, "base_url": f"http://127.0.0.1:{port}/v1"} for name, port in ports.items()}
    return {"version": 1, "targets": targets, "routes": {"auto": {"strategy": {"kind": "pinned", "target": "plain"}}}}


async def _round(door: Door, size: Size, pid: int = 0) -> Round:
    before = tree_seconds(pid) if pid else 0.0
    answers = await _answers(door, _asks(size))
    tokens = sum(one.tokens for one in answers)
    seconds = max(one.last for one in answers) - min(one.sent for one in answers)
    spent = tree_seconds(pid) - before if pid else 0.0
    first_ms = median((one.first - one.sent) * 1e3 for one in answers)
    return Round(tokens / seconds, first_ms, spent * 1e6 / tokens)


async def _added(door: Door, tap: Tap, size: Size) -> list[float]:
    """Milliseconds of each request between client and engine, there and back."""
    asks = _asks(size)
    answers = await _answers(door, asks)
    return [
        (inside.asked - answer.sent + answer.first - inside.first) * 1e3
        for ask, answer in zip(asks, answers, strict=True)
        for inside in (tap.times[ask.ticket],)
    ]


async def _answers(door: Door, asks: Sequence[Ask]) -> list[Answer]:
    answers = await keep_busy(door, asks, STREAMS)
    for ask, answer in zip(asks, answers, strict=True):
        if not answer.whole or answer.tokens != ask.tokens:
            what = f"status {answer.status}, {answer.tokens} tokens"
            raise LoadError(f"{door.model} on port {door.port}: {what} where {ask.tokens} were asked for")
    return answers


def _asks(size: Size) -> list[Ask]:
    """The same lengths each time; a ticket of its own makes every prompt new."""
    draw = random.Random(SEED)  # noqa: S311 - the same lengths each time
    return [Ask(str(next(_tickets)), draw.randint(*size.tokens)) for _ in range(size.requests)]
