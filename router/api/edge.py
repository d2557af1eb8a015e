"""The HTTP server: uvicorn, and what it is told."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from router.api.asgi import App
from router.api.connection import ClientConnection, ServerTurns
from router.types.clock import monotonic_s

DRAIN_S = 10
"""How long requests in progress may take to finish after Ctrl-C."""
REVIEW_EVERY = 5
"""Ticks of uvicorn, a tenth of a second each, between two looks at all connections."""


class Server(uvicorn.Server):
    """Leaves the signals to us: uvicorn raises them again when it is done, and then the engines would outlive us."""

    def __init__(self, app: App) -> None:
        super().__init__(_config(app))
        self.listens = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.server_state = ServerTurns()
        await super().startup(sockets)
        self.listens.set()

    async def on_tick(self, counter: int) -> bool:
        if counter % REVIEW_EVERY == 0:
            now_s = monotonic_s()
            for connection in tuple(self.server_state.connections):
                if isinstance(connection, ClientConnection):
                    connection.review(now_s)
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def drain(self, at_once: bool) -> None:
        """Requests in progress may end by themselves, until `DRAIN_S` have passed or another call says `at_once`."""
        if not self.should_exit:
            asyncio.get_running_loop().call_later(DRAIN_S, self.drain, True)
        self.should_exit = True
        self.force_exit = self.force_exit or at_once


def _config(app: App) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=ClientConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
    )
