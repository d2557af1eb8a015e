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
_to_worker_decoder: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
_to_first_decoder: msgspec.msgpack.Decoder[ToFirst] = msgspec.msgpack.Decoder(ToFirst)


def frame(message: ToWorker | ToFirst) -> bytes:
    encoded = msgspec.msgpack.encode(message)
    return len(encoded).to_bytes(_LENGTH_BYTES, "big") + encoded


async def messages_of_worker(reader: asyncio.StreamReader) -> AsyncIterator[ToFirst]:
    """Yields messages until the worker has exited."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
            yield _to_first_decoder.decode(await reader.readexactly(length))


def messages_of_first(channel: socket.socket) -> Iterator[ToWorker]:
    """Yields messages until the first process has exited. Blocks."""
    with channel.makefile("rb") as stream:
        while length := stream.read(_LENGTH_BYTES):
            yield _to_worker_decoder.decode(stream.read(int.from_bytes(length, "big")))


# The slot of one worker. When the worker dies, another takes its slot.

START_LIMIT_S = 60.0
"""Seconds after which a worker that does not serve yet is killed."""
LONG_SERVICE_S = 60.0
"""Seconds of service after which the next replacement starts without a longer pause."""
COUNT_LIMIT_S = 1.0
"""Seconds to wait for a worker's counters. After that, the ones known from before are used."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0
_log = logging.getLogger("lowpass")


class WorkerSlot:
    """Keeps one worker running. Await `keep_filled()` beside everything else; it returns after `drain()`."""

    def __init__(self, workers: "Workers", config: WorkerConfig) -> None:
        self.number = config.number
        self._loop = asyncio.get_running_loop()
        self.first_start: asyncio.Future[str] = self._loop.create_future()
        """Done when the first worker serves (empty text) or has failed (the reason)."""
        self._workers, self._config = workers, config
        self._ending = asyncio.Event()
        self._process: Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._serving_since: float | None = None
        self._dead_values: Values = {}
        self._live_values: Values = {}
        self._count_done: asyncio.Future[None] | None = None
        self._total_tasks: set[asyncio.Task[None]] = set()

    @property
    def values(self) -> Values:
        """The counters of its workers as far as known, including dead workers."""
        return together([self._dead_values, self._live_values])

    async def keep_filled(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._ending.is_set():
            status, reason, served_s = await self._run_worker()
            if self._ending.is_set():
                return
            # If the kernel or a person kills a starting worker, that tells nothing about the next one.
            if not self.first_start.done() and status >= 0 and status != os.EX_CONFIG:
                return self.first_start.set_result(reason)
            pause_s = _FIRST_PAUSE_S if served_s >= LONG_SERVICE_S else pause_s
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
        if self._count_done is None:
            self._count_done = self._loop.create_future()
            self.send(CountRequest())
        await asyncio.wait([self._count_done], timeout=COUNT_LIMIT_S)

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

    async def _run_worker(self) -> tuple[int, str, float]:
        """Runs one worker until it exits. Returns its exit status, why it ended, and for how many seconds it served."""
        try:
            process, reader = await self._spawn()
        except OSError as error:
            return 1, f"can't run {sys.executable}: {error.strerror}", 0.0
        self.send(Engines(self._workers.engines))
        start_timer = self._loop.call_later(START_LIMIT_S, self._kill_overdue)
        async for message in messages_of_worker(reader):
            if isinstance(message, Ready):
                start_timer.cancel()
            self._handle(message, process.pid)
        status = await process.wait()
        start_timer.cancel()
        reason = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        return status, reason, self._end_worker()

    async def _spawn(self) -> tuple[Process, asyncio.StreamReader]:
        """Starts a worker in its own session, so that a Ctrl-C in the terminal reaches it only by the channel."""
        ours, theirs = socket.socketpair()
        with theirs:
            config = msgspec.structs.replace(self._config, channel=theirs.fileno())
            try:
                process = self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", "router.server", msgspec.json.encode(config).decode()),
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                    stdin=DEVNULL,
                    pass_fds=(config.listener, config.channel),
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                raise
        reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        if self._ending.is_set():
            self.kill()
        return process, reader

    def _kill_overdue(self) -> None:
        _log.error("worker %d does not serve after %.0f s and is killed", self.number, START_LIMIT_S)
        self.kill()

    def _handle(self, message: ToFirst, pid: int) -> None:
        match message:
            case Ready():
                self._serving_since = self._loop.time()
                _log.info("worker %d serves, pid %d", self.number, pid)
                if not self.first_start.done():
                    self.first_start.set_result("")
            case WorkerCount():
                self._live_values = message.values
                self._finish_count()
            case TotalRequest():
                task = self._loop.create_task(self._send_total())
                self._total_tasks.add(task)
                task.add_done_callback(self._total_tasks.discard)

    def _finish_count(self) -> None:
        if self._count_done is not None:
            self._count_done.set_result(None)
            self._count_done = None

    async def _send_total(self) -> None:
        self.send(Total(await self._workers.values()))

    def _end_worker(self) -> float:
        """Returns for how many seconds the worker served. Its counters stay in the sum, as they must never fall."""
        serving_since, self._serving_since = self._serving_since, None
        self._dead_values, self._live_values = together([self._dead_values, counters(self._live_values)]), {}
        self._finish_count()
        if self._writer is not None:
            self._writer.close()
        self._process = self._writer = None
        return 0.0 if serving_since is None else self._loop.time() - serving_since


# The workers as the first process sees them.

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

    def __init__(self, count: int, args: WorkerConfig, engine_states: Callable[[], Sequence[EngineState]]) -> None:
        self.telemetry = Telemetry()
        self._engine_states = engine_states
        self._slots = [WorkerSlot(self, msgspec.structs.replace(args, number=number)) for number in range(2, count + 1)]
        self._slot_tasks: list[asyncio.Future[None]] = []
        self._engine_task: asyncio.Future[None] | None = None

    @property
    def engines(self) -> Sequence[EngineState]:
        return self._engine_states()

    def launch(self) -> None:
        """Starts every worker and returns at once."""
        self._slot_tasks = [asyncio.ensure_future(slot.keep_filled()) for slot in self._slots]
        if self._slots:
            self._engine_task = asyncio.ensure_future(self._send_engine_changes())

    async def ready(self) -> None:
        """Waits until all workers serve and know the current states of the engines. Raises `WorkerError`."""
        for slot in self._slots:
            if failure := await slot.first_start:
                raise WorkerError(f"worker {slot.number} does not start ({failure}); what it said of it is above")
            slot.send(Engines(self.engines))
        # Messages are read in order, so a worker that has answered this one knows the one before.
        await self.values()

    async def values(self) -> Values:
        """Returns the counters of all processes together. No counter is ever lower than in an earlier result."""
        await asyncio.gather(*(slot.count() for slot in self._slots))
        return together([self.telemetry.values(), *(slot.values for slot in self._slots)])

    def drain(self, at_once: bool = False) -> None:
        """Stops replacing workers. Serving workers finish their requests, or cut them off if `at_once`."""
        for slot in self._slots:
            slot.drain(at_once)

    async def stop(self, drain_s: float) -> None:
        """Returns when all workers have exited. Those that don't within `drain_s` + `GRACE_S` are killed."""
        self.drain()
        if self._engine_task is not None:
            self._engine_task.cancel()
        if self._slot_tasks:
            await asyncio.wait(self._slot_tasks, timeout=drain_s + GRACE_S)
        for slot in self._slots:
            slot.kill()
        await asyncio.gather(*self._slot_tasks)

    async def _send_engine_changes(self) -> None:
        sent = self.engines
        while True:
            await asyncio.sleep(ENGINES_EVERY_S)
            if sent != self.engines:
                sent = self.engines
                for slot in self._slots:
                    slot.send(Engines(sent))


# The processes as a worker sees them.


class Worker:
    """A worker's side. Use it inside one running event loop. Exits the process if the first process has exited."""

    def __init__(self, channel: socket.socket) -> None:
        self.telemetry = Telemetry()
        self.engines: Sequence[EngineState] = ()
        self._loop = asyncio.get_running_loop()
        self._channel = channel
        self._drain: Callable[[bool], None] | None = None
        self._awaited_totals: deque[asyncio.Future[Values]] = deque()
        Thread(target=self._listen, name="channel", daemon=True).start()

    def ready(self, drain: Callable[[bool], None]) -> None:
        """Reports that requests are served from now on. `drain(at_once)` is called when that must end."""
        self._drain = drain
        self._send(Ready())

    async def values(self) -> Values:
        total: asyncio.Future[Values] = self._loop.create_future()
        self._awaited_totals.append(total)
        self._send(TotalRequest())
        return await total

    def _listen(self) -> None:
        """Reads messages in a thread, so that the end is noticed even if the event loop is stuck."""
        try:
            for message in messages_of_first(self._channel):
                self._loop.call_soon_threadsafe(self._handle, message)
        finally:
            os._exit(1)

    def _handle(self, message: ToWorker) -> None:
        match message:
            case Engines():
                self.engines = message.states
            case CountRequest():
                self._send(WorkerCount(self.telemetry.values()))
            case Total():
                total = self._awaited_totals.popleft()
                if not total.done():
                    total.set_result(message.values)
            case Drain():
                if self._drain is not None:
                    self._drain(message.at_once)

    def _send(self, message: ToFirst) -> None:
        self._channel.sendall(frame(message))


Peers = Workers | Worker
"""The processes of a gateway as seen by one of them: `Workers` in the first process, `Worker` in the others."""
