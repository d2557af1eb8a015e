"""The load of engines."""

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

# Conversion of an engine's `/metrics` to `Load`, with the names of each kind of engine (`metrics.yaml`).

MetricFormat = Literal["vllm", "llamacpp"]
_METRICS: Mapping[str, Mapping[str, list[str]]] = load_data(__file__, "metrics.yaml")
_LARGEST = 2.0**53
"""Limit from which on a float is not an exact count."""


def format_of(spec: EngineSpec) -> MetricFormat | None:
    """Returns the format of an engine's metrics; None if it has none."""
    if isinstance(spec, External):
        return None if spec.metrics == "none" else spec.metrics
    return "llamacpp" if isinstance(spec, Llamacpp) else "vllm"


def load_of(page: bytes, metrics_format: MetricFormat, at_ms: int) -> Load | None:
    """Returns the load in a page of metrics; None if it lacks the number of running requests. Never raises."""
    metrics = _METRICS[metrics_format]
    # A replica may consist of several engines and count requests by outcome, so a number may have several samples.
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
    """Yields the samples in Prometheus' text format (`name{labels} value timestamp`) that are among `names`; skips NaN,
    negative and infinite values."""
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


# Polling of all replicas' loads, independent of the gateway's requests.

EVERY_S = 0.5
"""Time in seconds between an answer and the next poll."""
LIMIT_S = 5.0
"""Timeout in seconds of other requests; an engine that is busy with long prompts takes seconds to answer."""
PATIENCE_S = 10.0
"""Timeout of a poll in seconds; llama.cpp answers only between batches: within seconds on a small, busy machine."""
STALE_MS = 5_000
"""Age in ms from which on a load is discarded."""
MOST_BYTES = 4_000_000
"""Maximum size of a page; vLLM's has some 100 kB for each rank."""
_SERVING = (Status.READY, Status.DRAINING)


class ReplicaWatch:
    """Polls replicas; `states` are the given states with the last load of each replica.

    Call `launch()` in a running event loop, then `await stop()`. `formats`: metrics formats of polled engines, by name.
    """

    def __init__(self, states: Callable[[], Sequence[EngineState]], formats: Mapping[str, MetricFormat | None]) -> None:
        self._states, self._formats = states, formats
        self._loads: dict[str, Load] = {}
        self._cached: tuple[Sequence[EngineState], tuple[EngineState, ...]] = ((), ())
        self._polls: dict[str, asyncio.Task[None]] = {}
        self._watching: asyncio.Task[None] | None = None

    @property
    def states(self) -> tuple[EngineState, ...]:
        """States of all replicas with their loads; the same object until something changes."""
        given, shown = self._states(), self._cached
        if given != shown[0]:
            loads = (self._loads.get(state.url) for state in given)
            states = (
                state if load is None else structs.replace(state, load=load)
                for state, load in zip(given, loads, strict=True)
            )
            self._cached = shown = given, tuple(states)
        return shown[1]

    def launch(self) -> None:
        self._watching = asyncio.get_running_loop().create_task(self._watch(), name="watch of engines")

    async def stop(self) -> None:
        tasks = [task for task in (self._watching, *self._polls.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self) -> None:
        """Polls with at most one request to each replica at a time."""
        while True:
            for state in self._states():
                metrics_format = self._formats.get(state.name)
                if metrics_format is not None and state.status in _SERVING and state.url not in self._polls:
                    self._polls[state.url] = asyncio.ensure_future(self._ask(state.url, metrics_format))
            # Loads that are too old, or of a replica that no longer serves, are discarded.
            serving = {state.url for state in self._states() if state.status in _SERVING}
            oldest = now_ms() - STALE_MS
            for url in [url for url, load in self._loads.items() if load.at_ms < oldest or url not in serving]:
                del self._loads[url]
                self._cached = ((), ())
            await asyncio.sleep(EVERY_S)

    async def _ask(self, url: str, metrics_format: MetricFormat) -> None:
        try:
            load = await read(url, metrics_format)
            if load is not None:
                self._loads[url] = load
                self._cached = ((), ())
        finally:
            del self._polls[url]


async def read(url: str, metrics_format: MetricFormat | None, patience_s: float = PATIENCE_S) -> Load | None:
    """Returns the current load of the replica at a base URL; None if it is not reported within `patience_s`."""
    if metrics_format is None:
        return None
    with suppress(OSError, ValueError):
        page = await ask(url, "/metrics", limit_s=patience_s)
        return load_of(page.body, metrics_format, now_ms()) if page.status == 200 else None
    return None


class EngineReply(NamedTuple):
    status: int
    """Status code; 0 if the answer is not HTTP."""
    body: bytes


async def ask(url: str, path: str, method: str = "GET", limit_s: float = LIMIT_S) -> EngineReply:
    """Requests a path of the server's root. Raises `OSError`, which includes `TimeoutError`."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    # HTTP/1.0, so that the answer is not chunked and ends with the connection.
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
