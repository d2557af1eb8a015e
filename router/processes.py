"""A Python module that runs in its own process and answers lines with lines, as seen from the gateway."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress


class ChildProcess:
    """Runs `python -m module arguments`; its first line means ready. Raises `OSError`, and `EOFError` once it is gone.

    `own_session`: runs it in its own session and process group, so that what it has started ends with it.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        longest_line: int,
        env: Mapping[str, str] | None = None,
        own_session: bool = False,
    ) -> None:
        """`longest_line` is the maximum size of an answer in bytes."""
        self._command = (sys.executable, "-m", module, *arguments)
        self._max_line, self._env, self._own_session = longest_line, env, own_session
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=self._max_line,
            start_new_session=self._own_session,
            env=self._env,
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
                if self._own_session:
                    os.killpg(process.pid, signal.SIGKILL)
                else:
                    process.kill()

    @property
    def over(self) -> bool:
        return self._process is not None and self._process.returncode is not None

    async def gone(self) -> None:
        """Waits until the process has exited."""
        if self._process is not None:
            await self._process.wait()

    async def _line(self) -> bytes:
        line = await self._out.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        return line
