"""A Python module that runs in a process of its own and answers lines with lines: the gateway's side of it."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress


class ChildProcess:
    """`python -m module arguments`; its first line says that it is ready. Raises `OSError`, `EOFError` once it is gone.

    `own_session`: in a session and group of its own, so that what it has started ends with it.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        longest_line: int,
        env: Mapping[str, str] | None = None,
        own_session: bool = False,
    ) -> None:
        """`longest_line`: bytes of one answer."""
        self._command = (sys.executable, "-m", module, *arguments)
        self._longest, self._env, self._own_session = longest_line, env, own_session
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=self._longest,
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
        """Once the system has confirmed its end."""
        if self._process is not None:
            await self._process.wait()

    async def _line(self) -> bytes:
        line = await self._out.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        return line
