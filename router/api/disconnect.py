"""Notices that a client hung up. Only what runs longer than a sweep gets a task that watches."""

import asyncio
from typing import Any

from router.api.asgi import Receive

SWEEP_S = 0.1


class Visit:
    """A request in progress. `gone`: its client has left, and its task has been cancelled; `id`: once it has one."""

    __slots__ = ("gone", "id", "over", "receive", "swept", "task", "watcher")

    def __init__(self, receive: Receive, task: "asyncio.Task[Any] | None") -> None:
        self.receive, self.task, self.id = receive, task, ""
        self.watcher: asyncio.Task[None] | None = None
        self.swept = self.gone = self.over = False


class Visits:
    """All requests in progress; use inside one running event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._visits: set[Visit] = set()
        self._timer = self._loop.call_later(SWEEP_S, self._sweep)

    def __len__(self) -> int:
        return len(self._visits)

    @property
    def ids(self) -> set[str]:
        return {visit.id for visit in self._visits}

    def enter(self, receive: Receive) -> Visit:
        visit = Visit(receive, asyncio.current_task())
        self._visits.add(visit)
        return visit

    def leave(self, visit: Visit) -> None:
        visit.over = True
        self._visits.discard(visit)
        if visit.watcher is not None:
            visit.watcher.cancel()

    async def end(self) -> None:
        """Cancels what is still in progress, and waits until its money is settled."""
        self._timer.cancel()
        for visit in self._visits:
            visit.gone = True
            if visit.task is not None:
                visit.task.cancel()
        tasks = [visit.task for visit in self._visits if visit.task is not None]
        if tasks:
            await asyncio.wait(tasks)

    def _sweep(self) -> None:
        self._timer = self._loop.call_later(SWEEP_S, self._sweep)
        for visit in self._visits:
            if visit.swept and visit.watcher is None:
                visit.watcher = self._loop.create_task(_watch(visit))
            visit.swept = True


async def _watch(visit: Visit) -> None:
    while (await visit.receive())["type"] != "http.disconnect":
        pass
    if not visit.over and visit.task is not None:
        visit.gone = True
        visit.task.cancel()
