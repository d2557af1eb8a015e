"""The gateway's side of child processes: started before they are needed, killed when they hang, replaced."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress

import msgspec
from msgspec import Struct

START_S = 30.0
"""How long the function's own imports may take."""
PAUSE_S = 5.0
"""After a start that failed, nobody tries again for so long."""
LONGEST_LINE = 65_536
"""Bytes of one answer, which is a number."""
_KEPT = ("PATH", "PYTHONPATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "SYSTEMROOT")
"""All that a child has of our environment: what else is there may be a secret."""
_NO_START = "it does not start"
_log = logging.getLogger(__name__)


class Crashed(Exception):
    """The process ended, or the function raised; says only the type of what it raised."""


class Nonsense(Exception):
    """The function said something that is neither a score, a yes or no, nor nothing."""


class Work(Struct, frozen=True):
    """What a child runs: "module:function"."""

    function: str
    memory_mb: int = 1_024
    processes: int = 1


class _Reply(Struct):
    score: float | None = None
    failed: str = ""
    nonsense: bool = False


_reply = msgspec.json.Decoder(_Reply)


class Pool:
    """Use inside one running event loop; `close()` at the end."""

    def __init__(self) -> None:
        self._crews: dict[Work, _Crew] = {}
        self._dismissed: list[_Crew] = []

    def keep(self, works: Iterable[Work]) -> None:
        """Starts the children of these, so that no request waits for imports, and ends all others."""
        wanted = set(works)
        for gone in self._crews.keys() - wanted:
            self._dismissed.append(self._crews.pop(gone))
            self._dismissed[-1].end()
        for work in wanted:
            self._crew(work).fill()

    async def call(self, work: Work, *told: object) -> float | None:
        """What the function says. Cancelled, it kills the child: set a time limit around it.

        Raises `Crashed` and `Nonsense`.
        """
        question, crew = msgspec.json.encode(told), self._crew(work)
        child = await crew.idle()
        try:
            reply = _reply.decode(await child.ask(question))
        except BaseException as error:
            # Half an answer may be under way: the next one must not get it.
            crew.lose(child)
            if isinstance(error, OSError | EOFError | ValueError):
                raise Crashed(type(error).__name__) from None
            raise
        crew.put(child)
        if reply.failed:
            raise Crashed(reply.failed)
        if reply.nonsense:
            raise Nonsense
        return reply.score

    async def close(self) -> None:
        self.keep(())
        await asyncio.gather(*(crew.ended() for crew in self._dismissed))
        self._dismissed.clear()

    def _crew(self, work: Work) -> "_Crew":
        if work not in self._crews:
            self._crews[work] = _Crew(work)
        return self._crews[work]


class _Crew:
    """The children of one function: some idle, some busy, some starting."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._idle: asyncio.Queue[_Child | None] = asyncio.Queue()
        self._all: set[_Child] = set()
        self._starts: set[asyncio.Task[None]] = set()
        self._count, self._waiting, self._not_before = 0, 0, 0.0
        self._over = False

    async def idle(self) -> "_Child":
        """Waits for one. Raises `Crashed` where none can be started."""
        if self._idle.empty():
            self.fill(at_least=False)
        if self._count == 0 and self._idle.empty():
            raise Crashed(_NO_START)
        self._waiting += 1
        try:
            child = await self._idle.get()
        finally:
            self._waiting -= 1
        if child is None:
            raise Crashed(_NO_START)
        return child

    def fill(self, at_least: bool = True) -> None:
        """One more, if there may be one; `at_least`: only if there is none yet."""
        loop = asyncio.get_running_loop()
        most = 1 if at_least else self._work.processes
        if self._over or self._count >= most or loop.time() < self._not_before:
            return
        self._count += 1
        task = loop.create_task(self._start())
        self._starts.add(task)
        task.add_done_callback(self._starts.discard)

    async def _start(self) -> None:
        child = _Child(self._work)
        self._all.add(child)
        try:
            await asyncio.wait_for(child.start(), START_S)
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            _log.warning("%s does not start (%s)", self._work.function, type(error).__name__)
            self._not_before = asyncio.get_running_loop().time() + PAUSE_S
            self.lose(child)
            for _ in range(self._waiting):
                self._idle.put_nowait(None)
            return
        self.put(child)

    def put(self, child: "_Child") -> None:
        if self._over:
            self.lose(child)
        else:
            self._idle.put_nowait(child)

    def lose(self, child: "_Child") -> None:
        self._count -= 1
        child.kill()
        # It stays until the system has confirmed its end, which nobody waits for here.
        self._all = {one for one in self._all if not one.over}
        if self._waiting:
            self.fill(at_least=False)

    def end(self) -> None:
        self._over = True
        for task in self._starts:
            task.cancel()
        for child in self._all:
            child.kill()

    async def ended(self) -> None:
        await asyncio.gather(*self._starts, *(child.gone() for child in self._all), return_exceptions=True)


class _Child:
    """A process of its own group, so that what it has started ends with it. Raises `OSError` and `EOFError`."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "router.outcomes.child.run", self._work.function, str(self._work.memory_mb)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=LONGEST_LINE,
            start_new_session=True,
            env={name: os.environ[name] for name in _KEPT if name in os.environ},
        )
        if process.stdin is None or process.stdout is None:
            raise EOFError
        self._in, self._out = process.stdin, process.stdout
        await self._line()

    async def ask(self, question: bytes) -> bytes:
        self._in.write(question + b"\n")
        await self._in.drain()
        return await self._line()

    def kill(self) -> None:
        process = self._process
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

    @property
    def over(self) -> bool:
        return self._process is not None and self._process.returncode is not None

    async def gone(self) -> None:
        if self._process is not None:
            await self._process.wait()

    async def _line(self) -> bytes:
        line = await self._out.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        return line
