"""Spec → what targets are told of it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal

from local_serving.plan import plan
from local_serving.reader import SpecError, is_path, known, read
from local_serving.spec import EngineCost, EngineError, EngineSpec, External, Llamacpp
from router.types.price import Price, nano_from_usd
from router.types.target import ServedEngine

NOWHERE = ("http://127.0.0.1:9/v1",)
"""Stands for an engine in commands that launch nothing; port 9 discards (RFC 863)."""


class Unlaunched(Mapping[str, ServedEngine]):
    """Engines as they would be, were they launched: those that come with lowpass, and those of `names` that are paths
    of specs. Each is read when it is asked for; one whose spec is wrong says what is."""

    def __init__(self, names: Iterable[str]) -> None:
        self._read: dict[str, ServedEngine | None] = dict.fromkeys((*known(), *filter(is_path, names)))

    def __getitem__(self, name: str) -> ServedEngine:
        engine = self._read[name]
        if engine is None:
            try:
                engine = served(read(name), NOWHERE)
            except SpecError as error:
                rows = ((f"{row.file}:{row.line}:{row.column}: {row.what}", row.remedy) for row in error.problems)
                engine = ServedEngine(name=name, urls=NOWHERE, mistakes=tuple(rows))
            self._read[name] = engine
        return engine

    def __iter__(self) -> Iterator[str]:
        return iter(self._read)

    def __len__(self) -> int:
        return len(self._read)


def served(spec: EngineSpec, urls: Sequence[str]) -> ServedEngine:
    """`urls`: a base URL for each replica."""
    reasoning, adapters = (None, ()) if isinstance(spec, Llamacpp) else (spec.reasoning, spec.adapters)
    # Thinking tokens in what ends a thought: all before its last word, the mark; no token is shorter than a byte.
    end = reasoning.end.rstrip().encode() if reasoning else b""
    return ServedEngine(
        name=spec.name,
        urls=tuple(urls),
        model="" if isinstance(spec, Llamacpp) else next(iter(spec.served), ""),
        adapters=frozenset(adapter if isinstance(adapter, str) else adapter.name for adapter in adapters),
        slots=spec.parallel,
        hourly=spec.replicas * nano_from_usd(spec.cost.host_hour_usd + gpus(spec) * spec.cost.gpu_hour_usd),
        planned=_planned(spec),
        counted=spec.cost.counted,
        thinking_exact=reasoning is not None,
        thinking_written=reasoning.written if reasoning else 0,
        thinking_forced=len(end) - len(end.split()[-1]) if end else 0,
    )


def _planned(spec: EngineSpec) -> Price | None:
    """At the likely speed; None where the spec has no price per hour, or not all is known that a plan needs."""
    try:
        expected = None if isinstance(spec, External) or spec.cost == EngineCost() else plan(spec)
    except EngineError:
        return None
    if expected is None or expected.usd is None:
        return None
    rates = [nano_from_usd(Decimal(guess.likely)) for guess in (expected.usd.input, expected.usd.output)]
    version = f"planned: {expected.device} at {expected.hourly} USD/h"
    return Price(input=rates[0], output=rates[1], version=version)


def gpus(spec: EngineSpec) -> int:
    """Of one replica."""
    if isinstance(spec, Llamacpp):
        return 0
    if isinstance(spec, External):
        return spec.gpus
    spread = spec.parallelism
    return spread.tensor * spread.pipeline * spread.data if spec.gpu else 0
