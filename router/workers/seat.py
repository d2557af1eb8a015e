"""The place of one worker: when it dies, another one takes it."""

import asyncio
import logging
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from contextlib import suppress

import msgspec

from router.telemetry import Values, counters, together
from router.workers.crew import Crew
from router.workers.messages import (
    Count,
    Counted,
    Drain,
    Engines,
    Post,
    Ready,
    Sum,
    ToFirst,
    Total,
    ToWorker,
    frame,
    to_first,
)

START_LIMIT_S = 60.0
"""A worker that does not serve by then is killed."""
MOST_KILLED = 5
"""Times that the first worker may be killed while it starts, by the kernel or a person, before the gateway gives up."""
STEADY_S = 60.0
"""After serving this long, the next replacement is prompt again."""
COUNT_LIMIT_S = 1.0
"""How long a worker is waited for when its counters are asked for; then the ones known from before stand."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0
_log = logging.getLogger("lowpass")


class Seat:
    """Await `keep_filled()` beside everything else; `drain()` lets it return."""

    def __init__(self, crew: Crew, post: Post) -> None:
        self.number = post.number
        self._loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[str] = self._loop.create_future()
        """Done when the first worker serves, with an empty text; or when it failed, with the reason."""
        self._crew, self._post = crew, post
        self._ending = asyncio.Event()
        self._process: Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._serving_since: float | None = None
        self._before: Values = {}
        self._last: Values = {}
        self._counting: asyncio.Future[None] | None = None
        self._sums: set[asyncio.Task[None]] = set()

    @property
    def values(self) -> Values:
        """What its workers are known to have counted, dead ones included."""
        return together([self._before, self._last])

    async def keep_filled(self) -> None:
        pause_s, killed = _FIRST_PAUSE_S, 0
        while not self._ending.is_set():
            status, reason, served_s = await self._live()
            if self._ending.is_set():
                return
            killed += status < 0
            if not self.opened.done() and (status >= 0 or killed == MOST_KILLED):
                return self.opened.set_result(reason)
            pause_s = _FIRST_PAUSE_S if served_s >= STEADY_S else pause_s
            _log.error("worker %d ended: %s; another starts in %.1f s", self.number, reason, pause_s)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def send(self, message: ToWorker) -> None:
        """To the worker; without one, to nobody."""
        if self._writer is not None:
            self._writer.write(frame(message))

    async def count(self) -> None:
        """Brings `values` up to date, as far as the worker answers in time. One that is stuck is not asked again."""
        if self._serving_since is None:
            return
        if self._counting is None:
            self._counting = self._loop.create_future()
            self.send(Count())
        await asyncio.wait([self._counting], timeout=COUNT_LIMIT_S)

    def drain(self, at_once: bool) -> None:
        """The worker finishes its requests and is not replaced; one that does not serve yet is killed."""
        self._ending.set()
        if self._serving_since is None:
            self.kill()
        self.send(Drain(at_once))

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def _live(self) -> tuple[int, str, float]:
        """One worker, to its end: its exit status, why it ended, and for how many seconds it served."""
        try:
            process, reader = await self._spawn()
        except OSError as error:
            return 1, f"can't run {sys.executable}: {error.strerror}", 0.0
        self.send(Engines(self._crew.engines))
        overdue = self._loop.call_later(START_LIMIT_S, self._kill_late)
        async for message in to_first(reader):
            if isinstance(message, Ready):
                overdue.cancel()
            self._take(message, process.pid)
        status = await process.wait()
        overdue.cancel()
        return status, _reason(status), self._bury()

    async def _spawn(self) -> tuple[Process, asyncio.StreamReader]:
        """A session of its own keeps a Ctrl-C in the terminal from it: the end comes through the channel, once."""
        ours, theirs = socket.socketpair()
        with theirs:
            post = msgspec.structs.replace(self._post, channel=theirs.fileno())
            try:
                process = self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", "router.server", msgspec.json.encode(post).decode()),
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                    stdin=DEVNULL,
                    pass_fds=(post.listener, post.channel),
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                raise
        reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        if self._ending.is_set():
            self.kill()
        return process, reader

    def _kill_late(self) -> None:
        _log.error("worker %d does not serve after %.0f s and is killed", self.number, START_LIMIT_S)
        self.kill()

    def _take(self, message: ToFirst, pid: int) -> None:
        match message:
            case Ready():
                self._serves(pid)
            case Counted():
                self._last = message.values
                self._counted()
            case Sum():
                task = self._loop.create_task(self._tell_total())
                self._sums.add(task)
                task.add_done_callback(self._sums.discard)

    def _serves(self, pid: int) -> None:
        self._serving_since = self._loop.time()
        _log.info("worker %d serves, pid %d", self.number, pid)
        if not self.opened.done():
            self.opened.set_result("")

    def _counted(self) -> None:
        if self._counting is not None:
            self._counting.set_result(None)
            self._counting = None

    async def _tell_total(self) -> None:
        self.send(Total(await self._crew.values()))

    def _bury(self) -> float:
        """For how many seconds it served. A counter must never fall, so what it counted stays in the sum."""
        since, self._serving_since = self._serving_since, None
        self._before, self._last = together([self._before, counters(self._last)]), {}
        self._counted()
        if self._writer is not None:
            self._writer.close()
        self._process = self._writer = None
        return 0.0 if since is None else self._loop.time() - since


def _reason(status: int) -> str:
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
