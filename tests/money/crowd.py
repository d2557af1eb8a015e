"""Many clients at the same moment: every one on a connection of its own, all sent before any is answered."""

import asyncio
import io
import json
from collections.abc import Mapping, Sequence
from http.client import HTTPException, HTTPResponse
from types import SimpleNamespace
from typing import Any, cast

from msgspec import Struct

from router.testing import LIMIT_S
from tests.gateway.running import CHAT, MESSAGES, Client, Reply


class Wish(Struct, frozen=True):
    """One request. `leaves_after`: bytes of the answer after which its client hangs up."""

    model: str
    fields: Mapping[str, Any] = {}
    headers: Mapping[str, str] = {}
    leaves_after: int | None = None

    def sent(self) -> bytes:
        body = json.dumps({"model": self.model, "messages": MESSAGES, **self.fields}).encode()
        lines = {"host": "localhost", "connection": "close", "content-length": str(len(body)), **self.headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"POST {CHAT} HTTP/1.1\r\n{head}\r\n".encode() + body


def crowd(gateway: Client, wishes: Sequence[Wish]) -> list[Reply]:
    """The answers in the order of the wishes; of those who left, and of connections that broke, status 0."""
    return asyncio.run(_all(gateway.address, wishes))


async def _all(address: tuple[str, int], wishes: Sequence[Wish]) -> list[Reply]:
    connections = [await asyncio.open_connection(*address) for _ in wishes]
    try:
        for (_, writer), wish in zip(connections, wishes, strict=True):
            writer.write(wish.sent())
        async with asyncio.timeout(LIMIT_S):
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


def _reply(data: bytes) -> Reply:
    response = HTTPResponse(cast(Any, SimpleNamespace(makefile=lambda mode: io.BytesIO(data))))
    try:
        response.begin()
        headers, body = response.getheaders(), response.read()
    except HTTPException:
        return Reply(0, {}, b"")
    return Reply(response.status, {name.lower(): value for name, value in headers}, body)
