"""Many clients at the same moment: every one on a connection of its own, all sent before any is answered."""

import asyncio
import io
import json
from collections.abc import Mapping, Sequence
from http.client import HTTPException, HTTPResponse
from typing import Any, cast

from msgspec import Struct

from tests.gateway.running import CHAT, MESSAGES, Gateway, Reply

PATIENCE_S = 40


class Wish(Struct, frozen=True):
    """One request. `leaves_after`: bytes of the answer after which its client hangs up."""

    model: str
    fields: Mapping[str, Any] = {}
    headers: Mapping[str, str] = {}
    leaves_after: int | None = None

    def sent(self) -> bytes:
        body = json.dumps({"model": self.model, "messages": MESSAGES, **self.fields}).encode()
        lines = {"host": "x", "connection": "close", "content-length": str(len(body)), **self.headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"POST {CHAT} HTTP/1.1\r\n{head}\r\n".encode() + body


def crowd(gateway: Gateway, wishes: Sequence[Wish]) -> list[Reply]:
    """The answers in the order of the wishes; of those who left, and of connections that broke, status 0."""
    return asyncio.run(_all(gateway.address, wishes))


async def _all(address: tuple[str, int], wishes: Sequence[Wish]) -> list[Reply]:
    connections = [await asyncio.open_connection(*address) for _ in wishes]
    try:
        for (_, writer), wish in zip(connections, wishes, strict=True):
            writer.write(wish.sent())
        async with asyncio.timeout(PATIENCE_S):
            reads = (_read(*connection, wish) for connection, wish in zip(connections, wishes, strict=True))
            return await asyncio.gather(*reads)
    finally:
        for _, writer in connections:
            writer.close()


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wish: Wish) -> Reply:
    try:
        if wish.leaves_after is None:
            return _reply(await reader.read(-1))
        await reader.readexactly(wish.leaves_after)
        writer.transport.abort()
    except (OSError, asyncio.IncompleteReadError):
        pass
    return Reply(0, {}, b"")


class _Wire:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def _reply(data: bytes) -> Reply:
    if not data:
        return Reply(0, {}, b"")
    response = HTTPResponse(cast(Any, _Wire(data)))
    try:
        response.begin()
        body = response.read()
    except HTTPException:
        return Reply(0, {}, b"")
    return Reply(response.status, {name.lower(): value for name, value in response.getheaders()}, body)
