"""One gateway process: its socket, its local engines, its event loop, its end."""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn

from local_serving.spec import EngineError, read
from local_serving.supervisor import Supervisor
from router.app import Gateway, keyring, load_policy
from router.config import Watcher, engines_needed
from router.settings import Settings

ENGINE_READY_S = 60.0
DRAIN_S = 10
"""How long requests in progress may take to finish after Ctrl-C."""


class ServeError(Exception):
    """Why the gateway can't start, in one line."""


async def serve(settings: Settings, announce: Callable[[str, bool], None]) -> None:
    """Runs until a signal ends it. `announce(url, open_to_all)` is called once it answers requests.

    Raises `ServeError`, `EngineError` or `ConfigError` when it can't start; nothing is left running then.
    """
    ring = keyring(settings)
    if not settings.loopback and not ring.callers:
        raise ServeError(
            f"{settings.host} can be reached from other machines and no key exists:"
            " make one with `lowpass keys create NAME`, or listen on 127.0.0.1"
        )
    listener = _listen(settings)
    supervisor = Supervisor([read(name) for name in engines_needed(settings.policy)], settings.logs)
    engines = dict(supervisor.endpoints)
    try:
        watcher = Watcher(settings.policy, lambda path: load_policy(path, engines))
        config = load_policy(settings.policy, engines)
        await supervisor.launch()
        gateway = Gateway(settings, watcher, config, ring, supervisor.states)
        try:
            await _run(gateway, listener, supervisor, lambda: announce(_url(listener), ring.open_to_all))
        finally:
            gateway.close()
    finally:
        listener.close()
        await supervisor.stop()


async def _run(gateway: Gateway, listener: socket.socket, supervisor: Supervisor, announce: Callable[[], None]) -> None:
    config = uvicorn.Config(
        gateway.app,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        proxy_headers=False,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=DRAIN_S,
    )
    server = uvicorn.Server(config)
    async with asyncio.TaskGroup() as tasks:
        ticking = tasks.create_task(gateway.tick_forever())
        serving = tasks.create_task(server.serve(sockets=[listener]))
        try:
            for name in supervisor.endpoints:
                await supervisor.ready(name, ENGINE_READY_S)
            announce()
            await serving
        finally:
            server.should_exit = True
            ticking.cancel()


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        where = f"{settings.host}:{settings.port}"
        raise ServeError(f"{where} can't be used ({error.strerror}): stop what listens there, or pass --port") from None
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
