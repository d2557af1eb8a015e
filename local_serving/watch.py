"""How busy engines are."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct, structs

from local_serving.spec.spec import EngineSpec, External, Llamacpp
from router.types.clock import now_ms
from router.types.target import EngineState, Load, Status

# A page of an engine's `/metrics` → `Load`: the same numbers, in the words of each kind of engine.
#
# Names: vLLM 0.32 and llama.cpp's server as of 2026-10, both as they answer.

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


# Asks every replica how busy it is, again and again, beside the gateway's requests.

EVERY_S = 0.5
"""Between an answer and the next question."""
PATIENCE_S = 10.0
"""llama.cpp answers between two batches only: within seconds, under load on a small machine."""
STALE_MS = 5_000
"""A load as old as that says nothing any more."""
MOST_BYTES = 4_000_000
"""Of a page: vLLM's has some 100 kB for each of its ranks."""
_SERVING = (Status.READY, Status.DRAINING)


class Watch:
    """`states` are those that it is given, with what each replica last said of itself.

    `launch()` inside the running event loop, then `await stop()`. `words`: by engine's name; others are not asked.
    """

    def __init__(self, states: Callable[[], Sequence[EngineState]], words: Mapping[str, Words | None]) -> None:
        self._given, self._words = states, words
        self._loads: dict[str, Load] = {}
        self._told: tuple[Sequence[EngineState], tuple[EngineState, ...]] = ((), ())
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._watching: asyncio.Task[None] | None = None

    @property
    def states(self) -> tuple[EngineState, ...]:
        """The same object until something is new."""
        given, told = self._given(), self._told
        if given != told[0]:
            self._told = told = given, tuple(map(self._with_load, given))
        return told[1]

    def launch(self) -> None:
        self._watching = asyncio.get_running_loop().create_task(self._watch(), name="watch of engines")

    async def stop(self) -> None:
        tasks = [task for task in (self._watching, *self._asking.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self) -> None:
        """One question at a time to each: late answers never pile up."""
        while True:
            for state in self._given():
                words = self._words.get(state.name)
                if words is not None and state.status in _SERVING and state.url not in self._asking:
                    self._asking[state.url] = asyncio.ensure_future(self._ask(state.url, words))
            self._forget()
            await asyncio.sleep(EVERY_S)

    async def _ask(self, url: str, words: Words) -> None:
        try:
            load = await read(url, words)
            if load is not None:
                self._loads[url] = load
                self._told = ((), ())
        finally:
            del self._asking[url]

    def _forget(self) -> None:
        """What is stale, and what was said by a replica that has been started anew since."""
        serving = {state.url for state in self._given() if state.status in _SERVING}
        oldest = now_ms() - STALE_MS
        for url in [url for url, load in self._loads.items() if load.at_ms < oldest or url not in serving]:
            del self._loads[url]
            self._told = ((), ())

    def _with_load(self, state: EngineState) -> EngineState:
        load = self._loads.get(state.url)
        return state if load is None else structs.replace(state, load=load)


async def read(url: str, words: Words, patience_s: float = PATIENCE_S) -> Load | None:
    """What the replica with this base URL says of itself now; None if it does not, or not within `patience_s`."""
    with suppress(OSError, TimeoutError, ValueError):
        page = await asyncio.wait_for(_get(url.removesuffix("/v1") + "/metrics"), patience_s)
        return load_of(page, words, now_ms())
    return None


async def _get(url: str) -> bytes:
    """The body of a 200; else empty. HTTP/1.0, so that it ends with the connection and is never chunked."""
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    reader, writer = await asyncio.open_connection(
        parts.hostname, parts.port or (443 if secure else 80), ssl=secure or None
    )
    try:
        writer.write(b"GET %b HTTP/1.0\r\nHost: %b\r\n\r\n" % (parts.path.encode(), parts.netloc.encode()))
        answer = bytearray()
        while len(answer) < MOST_BYTES and (some := await reader.read(65_536)):
            answer += some
    finally:
        writer.close()
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    return body if head.split(b" ", 2)[1:2] == [b"200"] else b""
