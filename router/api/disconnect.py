"""Notices that a client hung up. Only what runs longer than a sweep gets a task that watches.

Then its request is cancelled; or it is read to its end, where it would be billed all the same.
"""

import asyncio
from typing import Any

from router.api.asgi import Receive
from router.dispatch.how import Presence

SWEEP_S = 0.1
MOST_READ_ON, READ_ON_S = 256, 120
"""Requests whose clients left that are read on at the same time, and seconds for which they are: then they are
cancelled, and charged what they may have cost."""


class Visit:
    """A request in progress. `gone`: its task has been cancelled, since its client has left; `id`: once it has one."""

    __slots__ = ("gone", "id", "over", "presence", "receive", "swept", "task", "watcher")

    def __init__(self, receive: Receive, task: "asyncio.Task[Any] | None") -> None:
        self.receive, self.task, self.id = receive, task, ""
        self.watcher: asyncio.Task[None] | None = None
        self.presence = Presence()
        self.swept = self.gone = self.over = False

    def cancel(self) -> None:
        if self.task is not None:
            self.gone = True
            self.task.cancel()


class Visits:
    """All requests in progress; use inside one running event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._visits: set[Visit] = set()
        self._read_on = 0
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
            visit.cancel()
        tasks = [visit.task for visit in self._visits if visit.task is not None]
        if tasks:
            await asyncio.wait(tasks)

    def _sweep(self) -> None:
        self._timer = self._loop.call_later(SWEEP_S, self._sweep)
        for visit in self._visits:
            if visit.swept and visit.watcher is None:
                visit.watcher = self._loop.create_task(self._watch(visit))
            visit.swept = True

    async def _watch(self, visit: Visit) -> None:
        while (await visit.receive())["type"] != "http.disconnect":
            pass
        if visit.presence.reads_on and self._read_on < MOST_READ_ON:
            visit.presence.gone = True
            self._read_on += 1
            try:
                await asyncio.sleep(READ_ON_S)
            finally:
                self._read_on -= 1
        if not visit.over:
            visit.cancel()
