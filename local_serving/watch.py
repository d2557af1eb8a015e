"""How busy engines are."""

import asyncio
import ssl
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from math import nan
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from msgspec import structs

from local_serving.spec import EngineSpec, External, Llamacpp
from router.types.clock import now_ms
from router.types.target import EngineState, Load, Status
from router.types.yaml_file import load_data

# A page of an engine's `/metrics` → `Load`: the same numbers, in the words of each kind of engine (`metrics.yaml`).

Words = Literal["vllm", "llamacpp"]
_METRICS: Mapping[str, Mapping[str, list[str]]] = load_data(__file__, "metrics.yaml")
_LARGEST = 2.0**53
"""Beyond it a float is no count."""


def words_of(spec: EngineSpec) -> Words | None:
    """None: it has no metrics."""
    if isinstance(spec, External):
        return None if spec.metrics == "none" else spec.metrics
    return "llamacpp" if isinstance(spec, Llamacpp) else "vllm"


def load_of(page: bytes, words: Words, at_ms: int) -> Load | None:
    """None where the page does not say how many requests run: it is not such an engine's. Never raises."""
    metrics = _METRICS[words]
    # A replica may be several engines, and tell its requests apart by how they ended: a number has several samples.
    samples: dict[str, list[float]] = {name: [] for names in metrics.values() for name in names}
    for name, value in _samples(page, samples):
        samples[name].append(value)
    values_of = {number: [value for name in names for value in samples[name]] for number, names in metrics.items()}
    if not values_of["running"]:
        return None
    cache = values_of.pop("kv_cache")
    numbers: dict[str, Any] = {
        number: sum(values) if number.endswith("_s") else int(sum(values)) for number, values in values_of.items()
    }
    return Load(at_ms=at_ms, kv_cache=min(sum(cache) / len(cache), 1.0) if cache else None, **numbers)


def _samples(page: bytes, names: Collection[str]) -> Iterator[tuple[str, float]]:
    """Lines of Prometheus' text format, `name{labels} value timestamp`, that are among `names` and hold a count: NaN,
    what is below 0 and what has no end count nothing."""
    for line in page.decode(errors="replace").split("\n"):
        name, brace, rest = line.partition("{")
        if not brace:
            name, _, rest = line.partition(" ")
        if name not in names:
            continue
        value = nan
        with suppress(IndexError, ValueError):
            value = float((rest.rpartition("}")[2] if brace else rest).split()[0])
        if 0 <= value < _LARGEST:
            yield name, value


# Asks every replica how busy it is, again and again, beside the gateway's requests.

EVERY_S = 0.5
"""Between an answer and the next question."""
LIMIT_S = 5.0
"""An engine whose processes are busy with long prompts takes seconds to say that it is well."""
PATIENCE_S = 10.0
"""llama.cpp answers between two batches only: within seconds, under load on a small machine."""
STALE_MS = 5_000
"""A load as old as that says nothing any more."""
MOST_BYTES = 4_000_000
"""Of a page: vLLM's has some 100 kB for each of its ranks."""
_SERVING = (Status.READY, Status.DRAINING)


class ReplicaWatch:
    """`states` are those that it is given, with what each replica last said of itself.

    `launch()` inside the running event loop, then `await stop()`. `words`: by engine's name; others are not asked.
    """

    def __init__(self, states: Callable[[], Sequence[EngineState]], words: Mapping[str, Words | None]) -> None:
        self._given, self._words = states, words
        self._loads: dict[str, Load] = {}
        self._shown: tuple[Sequence[EngineState], tuple[EngineState, ...]] = ((), ())
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._watching: asyncio.Task[None] | None = None

    @property
    def states(self) -> tuple[EngineState, ...]:
        """The same object until something is new."""
        given, shown = self._given(), self._shown
        if given != shown[0]:
            loads = (self._loads.get(state.url) for state in given)
            states = (
                state if load is None else structs.replace(state, load=load)
                for state, load in zip(given, loads, strict=True)
            )
            self._shown = shown = given, tuple(states)
        return shown[1]

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
            # What is stale, and what was said by a replica that has been started anew since, counts no more.
            serving = {state.url for state in self._given() if state.status in _SERVING}
            oldest = now_ms() - STALE_MS
            for url in [url for url, load in self._loads.items() if load.at_ms < oldest or url not in serving]:
                del self._loads[url]
                self._shown = ((), ())
            await asyncio.sleep(EVERY_S)

    async def _ask(self, url: str, words: Words) -> None:
        try:
            load = await read(url, words)
            if load is not None:
                self._loads[url] = load
                self._shown = ((), ())
        finally:
            del self._asking[url]


async def read(url: str, words: Words | None, patience_s: float = PATIENCE_S) -> Load | None:
    """What the replica with this base URL says of itself now; None if it does not, or not within `patience_s`."""
    if words is None:
        return None
    with suppress(OSError, ValueError):
        page = await ask(url, "/metrics", limit_s=patience_s)
        return load_of(page.body, words, now_ms()) if page.status == 200 else None
    return None


class EngineReply(NamedTuple):
    status: int
    """0: that was not HTTP."""
    body: bytes


async def ask(url: str, path: str, method: str = "GET", limit_s: float = LIMIT_S) -> EngineReply:
    """`path` is of the server's root, whatever the base URL's. Raises `OSError`, and so `TimeoutError`."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    # As HTTP/1.0, so that the answer is not chunked and ends with the connection.
    root = parts.path.rstrip("/").removesuffix("/v1")
    head = f"{method} {root}{path} HTTP/1.0\r\nHost: {parts.netloc}\r\nContent-Length: 0\r\n\r\n"
    answer = bytearray()
    async with asyncio.timeout(limit_s):
        secure = ssl.create_default_context() if parts.scheme == "https" else None
        reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=secure)
        try:
            writer.write(head.encode())
            while len(answer) < MOST_BYTES and (piece := await reader.read(65536)):
                answer += piece
        finally:
            writer.close()
    status, _, body = bytes(answer).partition(b"\r\n\r\n")
    words = status.split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        return EngineReply(0, b"")
    return EngineReply(int(words[1]), body)
