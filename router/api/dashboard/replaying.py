"""Replays of pasted policies: in a process of their own, one at a time, and none for ever."""

import asyncio
import os
import signal
import sys
from contextlib import suppress

import msgspec
from msgspec import Struct

from router.errors import ClientError
from router.replay import Replayed, as_report
from router.report.report import Report

LIMIT_S = 120
"""A million requests take less than half of it."""
REFUSED = 3
"""Exit status of a process that says why it replays nothing."""
_COMMAND = (sys.executable, "-m", "router.trial")


class Trial(Struct, frozen=True):
    """`text`: the policy to try; `in_force`: the path of the other one; `since_ms`: Unix."""

    text: bytes
    in_force: str
    since_ms: int


class Replays:
    """Those of one gateway process."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._running = asyncio.Lock()
        self._limit_s = limit_s

    async def run(self, trial: Trial) -> Report:
        """Raises `ClientError`: 409 while there is another one, 504 where it takes too long, 500 where it broke."""
        if self._running.locked():
            raise _refused("Another replay is running: wait until it is done.")
        async with self._running:
            return await self._run(trial)

    async def _run(self, trial: Trial) -> Report:
        nowhere = asyncio.subprocess.DEVNULL
        pipe = asyncio.subprocess.PIPE
        # What broke may quote the policy: it is not heard. The child leads a group, and ends with its own children.
        child = await asyncio.create_subprocess_exec(
            *_COMMAND, stdin=pipe, stdout=pipe, stderr=nowhere, start_new_session=True
        )
        try:
            said, _ = await asyncio.wait_for(child.communicate(msgspec.msgpack.encode(trial)), self._limit_s)
        except TimeoutError:
            message = f"The replay took longer than {self._limit_s:g} s: try fewer days, or `lowpass replay`."
            raise ClientError(504, "replay_too_long", message, type="api_error") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            await child.wait()
        if child.returncode == REFUSED:
            raise _refused(said.decode())
        if child.returncode != 0:
            message = f"The replay broke (exit status {child.returncode}): `lowpass replay --policy FILE` tells more."
            raise ClientError(500, "internal_error", message, type="api_error")
        return as_report(msgspec.msgpack.decode(said, type=Replayed))


def _refused(message: str) -> ClientError:
    return ClientError(409, "replay_refused", message)
