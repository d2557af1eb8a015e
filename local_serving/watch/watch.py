"""Asks every replica how busy it is, again and again, beside the gateway's requests."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from msgspec import structs

from local_serving.watch.words import Words, load_of
from router.types.clock import now_ms
from router.types.engine import EngineState, Load, Status

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
