"""Servers that somebody else runs: never started or stopped, only asked whether they serve."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from local_serving.launch import probe
from local_serving.launch.replica import Replica
from local_serving.spec import EngineError, External
from router.types.engine import EngineState, Status

ASK_EVERY_S = 1.0
LOST_AFTER = 3
"""Failures in a row until a server that served counts as gone."""


class Watched:
    """As `Engine` is used."""

    def __init__(self, spec: External, changed: Callable[[], None]) -> None:
        self.spec, self.urls, self._changed = spec, spec.urls, changed
        self._states = [
            EngineState(name=spec.name, model=spec.model, status=Status.STARTING, replica=number, url=url)
            for number, url in enumerate(spec.urls)
        ]
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def states(self) -> Sequence[EngineState]:
        return tuple(self._states)

    def launch(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._watch(number)) for number in range(len(self.urls))]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for number in range(len(self.urls)):
            self._update(number, Status.STOPPED)

    async def drain(self, limit_s: float) -> None:
        """It goes on without us."""
        await self.stop()

    def replica(self, number: int) -> Replica:
        raise EngineError(f"{self.spec.name} is run by somebody else: drain or wake it there")

    def error(self, what: str) -> EngineError:
        reason = next((f": {state.last_error}" for state in self._states if state.last_error), "")
        return EngineError(f"engine {self.spec.name} {what}{reason}")

    async def _watch(self, number: int) -> None:
        failures = 0
        while True:
            why = await self._asked(self.urls[number])
            failures = failures + 1 if why else 0
            if not why:
                self._update(number, Status.READY)
            elif failures >= LOST_AFTER or self._states[number].status is not Status.READY:
                self._update(number, Status.FAILED, why)
            await asyncio.sleep(ASK_EVERY_S)

    async def _asked(self, url: str) -> str:
        """Why it does not serve; empty: it does."""
        try:
            if await probe.serves(url, self._names()):
                return ""
        except probe.Stranger as stranger:
            return f"{stranger}: correct `urls` or `served` in the spec of {self.spec.name}"
        except OSError as error:
            return f"{url} does not answer ({error.strerror or type(error).__name__}): start it, or correct `urls`"
        return f"{url} says that it is not well"

    def _names(self) -> tuple[str, ...]:
        """llama.cpp answers to any name."""
        anything = self.spec.metrics == "llamacpp"
        return self.spec.served or (() if anything else (self.spec.model, self.spec.model.rpartition("/")[2]))

    def _update(self, number: int, status: Status, why: str = "") -> None:
        before = self._states[number]
        self._states[number] = msgspec.structs.replace(before, status=status, last_error=why or before.last_error)
        if self._states[number] != before:
            self._changed()
