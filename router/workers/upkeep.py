"""Keeps the ledger in order beside the requests, in a process that is there while there is something to do."""

import asyncio
import logging
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress

from router.ledger.ledger import Ledger
from router.ledger.upkeep import EVERY_S, needed
from router.types.clock import now_ms
from router.types.journal import LedgerUnavailable

_log = logging.getLogger("lowpass")


class Upkeep:
    """`launch()` in the running event loop of the first process; then `await stop()`."""

    def __init__(self, ledger: Ledger, keep_ms: int | None, every_s: float = EVERY_S) -> None:
        """`keep_ms`: how long rows are kept; None: for ever."""
        self._ledger, self._keep_ms, self._every_s = ledger, keep_ms, every_s
        self._process: Process | None = None
        self._life: asyncio.Future[None] | None = None

    def launch(self) -> None:
        self._life = asyncio.ensure_future(self._run_forever())

    async def stop(self) -> None:
        """Kills it, if need be: it may end at any moment."""
        if self._life is not None:
            self._life.cancel()
            await asyncio.wait([self._life])
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def _run_forever(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            try:
                if await asyncio.to_thread(needed, self._ledger, now_ms(), self._keep_ms):
                    await self._run()
            except (LedgerUnavailable, OSError) as error:
                _log.error("settled rows of the ledger could not be moved (%s), trying again", error)

    async def _run(self) -> None:
        """Standard input says that we live; a session of its own keeps a Ctrl-C in the terminal from it."""
        process = self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "router.ledger.upkeep"),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=PIPE,
            stdout=DEVNULL,
            stderr=PIPE,
            start_new_session=True,
        )
        assert process.stderr is not None  # noqa: S101
        said = await process.stderr.read()
        status = await process.wait()
        self._process = None
        if status:
            reason = (said.decode(errors="replace").strip().splitlines() or [f"exit status {status}"])[-1]
            raise OSError(reason)
