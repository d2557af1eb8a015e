"""The processes of a gateway and their communication."""

import asyncio
import logging
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from threading import Thread

import msgspec
from msgspec import Struct

from router.observe.metrics import Telemetry, Values, counters, together
from router.types.target import EngineState, ServedEngine

# Messages between the first process and a worker: each is its length in four bytes, and then msgpack.

_LENGTH_BYTES = 4


class WorkerConfig(Struct, frozen=True):
    """Arguments of a new worker. `listener` and `channel` are file descriptors; `engines` are by the policy's names."""

    listener: int
    policy: str
    host: str
    engines: Mapping[str, ServedEngine]
    number: int = 1
    channel: int = -1


class Engines(Struct, frozen=True, tag=True):
    """Tells workers the states of the local engines."""

    states: Sequence[EngineState]


class CountRequest(Struct, frozen=True, tag=True):
    """Asks a worker for its counters."""


class Total(Struct, frozen=True, tag=True):
    """The counters of all processes together."""

    values: Values


class Drain(Struct, frozen=True, tag=True):
    """Tells a worker that the first process ends. `at_once`: it must not wait for requests in progress."""

    at_once: bool


class Ready(Struct, frozen=True, tag=True):
    """Tells the first process that the worker serves."""


class WorkerCount(Struct, frozen=True, tag=True):
    """The counters of a worker."""

    values: Values


class TotalRequest(Struct, frozen=True, tag=True):
    """Asks the first process for the counters of all processes."""


ToWorker = Engines | CountRequest | Total | Drain
ToFirst = Ready | WorkerCount | TotalRequest
_to_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
_to_first: msgspec.msgpack.Decoder[ToFirst] = msgspec.msgpack.Decoder(ToFirst)


def frame(message: ToWorker | ToFirst) -> bytes:
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


async def to_first(reader: asyncio.StreamReader) -> AsyncIterator[ToFirst]:
    """Yields messages until the worker has exited."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
            yield _to_first.decode(await reader.readexactly(length))


def to_worker(channel: socket.socket) -> Iterator[ToWorker]:
    """Yields messages until the first process has exited. Blocks."""
    with channel.makefile("rb") as stream:
        while head := stream.read(_LENGTH_BYTES):
            yield _to_worker.decode(stream.read(int.from_bytes(head, "big")))


# The slot of one worker. When the worker dies, another takes its slot.

START_LIMIT_S = 60.0
"""Seconds after which a worker that does not serve yet is killed."""
STEADY_S = 60.0
"""Seconds of service after which the next replacement starts without a longer pause."""
COUNT_LIMIT_S = 1.0
"""Seconds to wait for a worker's counters. After that, the ones known from before are used."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0
_log = logging.getLogger("lowpass")


class WorkerSlot:
    """Keeps one worker running. Await `keep_filled()` beside everything else; it returns after `drain()`."""

    def __init__(self, crew: "Workers", post: WorkerConfig) -> None:
        self.number = post.number
        self._loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[str] = self._loop.create_future()
        """Done when the first worker serves (empty text) or has failed (the reason)."""
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
        """The counters of its workers as far as known, including dead workers."""
        return together([self._before, self._last])

    async def keep_filled(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._ending.is_set():
            status, reason, served_s = await self._live()
            if self._ending.is_set():
                return
            # If the kernel or a person kills a starting worker, that tells nothing about the next one.
            if not self.opened.done() and status >= 0 and status != os.EX_CONFIG:
                return self.opened.set_result(reason)
            pause_s = _FIRST_PAUSE_S if served_s >= STEADY_S else pause_s
            _log.error("worker %d ended: %s; another starts in %.1f s", self.number, reason, pause_s)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def send(self, message: ToWorker) -> None:
        """Sends a message to the worker, if there is one."""
        if self._writer is not None:
            self._writer.write(frame(message))

    async def count(self) -> None:
        """Updates `values` if the worker answers in time. A stuck worker is not asked again."""
        if self._serving_since is None:
            return
        if self._counting is None:
            self._counting = self._loop.create_future()
            self.send(CountRequest())
        await asyncio.wait([self._counting], timeout=COUNT_LIMIT_S)

    def drain(self, at_once: bool) -> None:
        """Ends the slot. The worker finishes its requests; one that does not serve yet is killed."""
        self._ending.set()
        if self._serving_since is None:
            self.kill()
        self.send(Drain(at_once))

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def _live(self) -> tuple[int, str, float]:
        """Runs one worker until it exits. Returns its exit status, why it ended, and for how many seconds it served."""
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
        reason = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        return status, reason, self._bury()

    async def _spawn(self) -> tuple[Process, asyncio.StreamReader]:
        """Starts a worker in its own session, so that a Ctrl-C in the terminal reaches it only by the channel."""
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
                self._serving_since = self._loop.time()
                _log.info("worker %d serves, pid %d", self.number, pid)
                if not self.opened.done():
                    self.opened.set_result("")
            case WorkerCount():
                self._last = message.values
                self._counted()
            case TotalRequest():
                task = self._loop.create_task(self._send_total())
                self._sums.add(task)
                task.add_done_callback(self._sums.discard)

    def _counted(self) -> None:
        if self._counting is not None:
            self._counting.set_result(None)
            self._counting = None

    async def _send_total(self) -> None:
        self.send(Total(await self._crew.values()))

    def _bury(self) -> float:
        """Returns for how many seconds the worker served. Its counters stay in the sum, as they must never fall."""
        since, self._serving_since = self._serving_since, None
        self._before, self._last = together([self._before, counters(self._last)]), {}
        self._counted()
        if self._writer is not None:
            self._writer.close()
        self._process = self._writer = None
        return 0.0 if since is None else self._loop.time() - since


# The crew as the first process sees it.

GRACE_S = 5.0
"""Seconds that a worker gets beyond its time to drain, before SIGKILL."""
ENGINES_EVERY_S = 0.2
"""Seconds between two checks whether workers must be told new engine states."""


class WorkerError(Exception):
    """A worker does not start. Says why."""


class Workers:
    """The first process and `count` - 1 workers, in the running event loop.

    Call `launch()`, then `await ready()`; in any case `await stop()` at the end.
    """

    def __init__(self, count: int, post: WorkerConfig, engines: Callable[[], Sequence[EngineState]]) -> None:
        self.telemetry = Telemetry()
        self._states = engines
        self._seats = [WorkerSlot(self, msgspec.structs.replace(post, number=number)) for number in range(2, count + 1)]
        self._lives: list[asyncio.Future[None]] = []
        self._telling: asyncio.Future[None] | None = None

    @property
    def engines(self) -> Sequence[EngineState]:
        return self._states()

    def launch(self) -> None:
        """Starts every worker and returns at once."""
        self._lives = [asyncio.ensure_future(seat.keep_filled()) for seat in self._seats]
        if self._seats:
            self._telling = asyncio.ensure_future(self._tell_engines())

    async def ready(self) -> None:
        """Waits until all workers serve and know the current states of the engines. Raises `WorkerError`."""
        for seat in self._seats:
            if failure := await seat.opened:
                raise WorkerError(f"worker {seat.number} does not start ({failure}); what it said of it is above")
            seat.send(Engines(self.engines))
        # Messages are read in order, so a worker that has answered this one knows the one before.
        await self.values()

    async def values(self) -> Values:
        """Returns the counters of all processes together. No counter is ever lower than in an earlier result."""
        await asyncio.gather(*(seat.count() for seat in self._seats))
        return together([self.telemetry.values(), *(seat.values for seat in self._seats)])

    def drain(self, at_once: bool = False) -> None:
        """Stops replacing workers. Serving workers finish their requests, or cut them off if `at_once`."""
        for seat in self._seats:
            seat.drain(at_once)

    async def stop(self, drain_s: float) -> None:
        """Returns when all workers have exited. Those that don't within `drain_s` + `GRACE_S` are killed."""
        self.drain()
        if self._telling is not None:
            self._telling.cancel()
        if self._lives:
            await asyncio.wait(self._lives, timeout=drain_s + GRACE_S)
        for seat in self._seats:
            seat.kill()
        await asyncio.gather(*self._lives)

    async def _tell_engines(self) -> None:
        sent = self.engines
        while True:
            await asyncio.sleep(ENGINES_EVERY_S)
            if sent != self.engines:
                sent = self.engines
                for seat in self._seats:
                    seat.send(Engines(sent))


# The crew as a worker sees it.


class Worker:
    """A worker's side. Use it inside one running event loop. Exits the process if the first process has exited."""

    def __init__(self, channel: socket.socket) -> None:
        self.telemetry = Telemetry()
        self.engines: Sequence[EngineState] = ()
        self._loop = asyncio.get_running_loop()
        self._channel = channel
        self._drain: Callable[[bool], None] | None = None
        self._totals: deque[asyncio.Future[Values]] = deque()
        Thread(target=self._listen, name="channel", daemon=True).start()

    def ready(self, drain: Callable[[bool], None]) -> None:
        """Reports that requests are served from now on. `drain(at_once)` is called when that must end."""
        self._drain = drain
        self._send(Ready())

    async def values(self) -> Values:
        total: asyncio.Future[Values] = self._loop.create_future()
        self._totals.append(total)
        self._send(TotalRequest())
        return await total

    def _listen(self) -> None:
        """Reads messages in a thread, so that the end is noticed even if the event loop is stuck."""
        try:
            for message in to_worker(self._channel):
                self._loop.call_soon_threadsafe(self._take, message)
        finally:
            os._exit(1)

    def _take(self, message: ToWorker) -> None:
        match message:
            case Engines():
                self.engines = message.states
            case CountRequest():
                self._send(WorkerCount(self.telemetry.values()))
            case Total():
                total = self._totals.popleft()
                if not total.done():
                    total.set_result(message.values)
            case Drain():
                if self._drain is not None:
                    self._drain(message.at_once)

    def _send(self, message: ToFirst) -> None:
        self._channel.sendall(frame(message))


Crew = Workers | Worker
"""The processes of a gateway as seen by one of them: `Workers` in the first process, `Worker` in the others."""
