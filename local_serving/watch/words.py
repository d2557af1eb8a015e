"""A page of an engine's `/metrics` → `Load`: the same numbers, in the words of each kind of engine.

Names: vLLM 0.32 and llama.cpp's server as of 2026-10, both as they answer.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from msgspec import Struct

from local_serving.spec import EngineSpec, External, Llamacpp
from router.types.engine import Load

Words = Literal["vllm", "llamacpp"]
Sums = Mapping[str, float]
"""Metric → the sum over its labels: a replica may be several engines, and tell its requests apart by how they ended."""

_LARGEST = 2.0**53
"""Beyond it a float is no count."""


class _Vocabulary(Struct, frozen=True):
    """Which of an engine's metrics add up to each number."""

    running: str
    waiting: str
    cache: str
    rejected: tuple[str, ...] = ()
    preempted: tuple[str, ...] = ()
    prompt: tuple[str, ...] = ()
    cached: tuple[str, ...] = ()
    output: tuple[str, ...] = ()
    prefill_s: tuple[str, ...] = ()
    decode_s: tuple[str, ...] = ()
    queue_s: tuple[str, ...] = ()
    finished: tuple[str, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        lists = (self.rejected, self.preempted, self.prompt, self.cached, self.output, self.prefill_s)
        more = (self.decode_s, self.queue_s, self.finished)
        return frozenset([self.running, self.waiting, self.cache, *(name for each in lists + more for name in each)])


_VOCABULARIES: Mapping[str, _Vocabulary] = {
    "vllm": _Vocabulary(
        running="vllm:num_requests_running",
        waiting="vllm:num_requests_waiting",
        cache="vllm:kv_cache_usage_perc",
        rejected=("vllm:admission_rejections_total",),
        preempted=("vllm:num_preemptions_total",),
        prompt=("vllm:prompt_tokens_total",),
        cached=("vllm:prompt_tokens_cached_total",),
        output=("vllm:generation_tokens_total",),
        prefill_s=("vllm:request_prefill_time_seconds_sum",),
        decode_s=("vllm:request_decode_time_seconds_sum",),
        queue_s=("vllm:request_queue_time_seconds_sum",),
        finished=("vllm:request_success_total",),
    ),
    # It counts cached tokens apart, and neither requests nor their time in the queue.
    "llamacpp": _Vocabulary(
        running="llamacpp:requests_processing",
        waiting="llamacpp:requests_deferred",
        cache="llamacpp:kv_cache_usage_ratio",
        prompt=("llamacpp:prompt_tokens_total", "llamacpp:prompt_tokens_cached_total"),
        cached=("llamacpp:prompt_tokens_cached_total",),
        output=("llamacpp:tokens_predicted_total",),
        prefill_s=("llamacpp:prompt_seconds_total",),
        decode_s=("llamacpp:tokens_predicted_seconds_total",),
    ),
}
_NAMES = {words: known.names for words, known in _VOCABULARIES.items()}


def words_of(spec: EngineSpec) -> Words | None:
    """None: it has no metrics."""
    if isinstance(spec, External):
        return None if spec.metrics == "none" else spec.metrics
    return "llamacpp" if isinstance(spec, Llamacpp) else "vllm"


def load_of(page: bytes, words: Words, at_ms: int) -> Load | None:
    """None where the page does not say how many requests run: it is not such an engine's. Never raises."""
    known = _VOCABULARIES[words]
    sums, engines = _read(page, _NAMES[words], known.cache)
    if known.running not in sums:
        return None

    def total(names: Iterable[str]) -> float:
        return sum(sums.get(name, 0.0) for name in names)

    return Load(
        at_ms=at_ms,
        running=int(sums[known.running]),
        waiting=int(sums.get(known.waiting, 0.0)),
        kv_cache=min(sums[known.cache] / engines, 1.0) if engines else None,
        rejected=int(total(known.rejected)),
        preempted=int(total(known.preempted)),
        prompt=int(total(known.prompt)),
        cached=int(total(known.cached)),
        output=int(total(known.output)),
        prefill_s=total(known.prefill_s),
        decode_s=total(known.decode_s),
        queue_s=total(known.queue_s),
        finished=int(total(known.finished)),
    )


def _read(page: bytes, names: frozenset[str], cache: str) -> tuple[Sums, int]:
    """The sums, and how many engines told of their cache."""
    sums: dict[str, float] = {}
    engines = 0
    for name, value in _samples(page, names):
        sums[name] = sums.get(name, 0.0) + value
        engines += name == cache
    return sums, engines


def _samples(page: bytes, names: frozenset[str]) -> Iterator[tuple[str, float]]:
    """Lines of Prometheus' text format, `name{labels} value timestamp`, that are among `names` and hold a count."""
    for line in page.decode(errors="replace").split("\n"):
        name, brace, rest = line.partition("{")
        if not brace:
            name, _, rest = line.partition(" ")
        if name not in names:
            continue
        value = _count((rest.rpartition("}")[2] if brace else rest).split())
        if value is not None:
            yield name, value


def _count(fields: list[str]) -> float | None:
    """NaN, what is below 0 and what has no end count nothing."""
    try:
        value = float(fields[0])
    except (IndexError, ValueError):
        return None
    return value if 0 <= value < _LARGEST else None
