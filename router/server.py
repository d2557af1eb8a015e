"""One gateway process: its socket, its local engines, its event loop, its end."""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
import uvloop

from local_serving.spec import EngineError, read
from local_serving.supervisor import Supervisor
from router.app import Gateway, keyring, load_policy
from router.banner import banner
from router.config import Watcher, engines_needed
from router.ledger.migrate import LedgerTooNew
from router.settings import SettingError, Settings, unread
from router.types.journal import LedgerUnavailable

DRAIN_S = 10
"""How long requests in progress may take to finish after Ctrl-C."""
_log = logging.getLogger("lowpass")


class StartError(Exception):
    """Why the gateway can't start, in one line."""


def run(settings: Settings) -> None:
    """Serves until a signal ends it. Raises `StartError` or `ConfigError`; nothing is left running then."""
    _quiet_collector()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for name in unread(os.environ):
        _log.warning("%s is set, but this version does not read it", name)
    try:
        uvloop.run(_serve(settings))
    except (EngineError, LedgerTooNew, LedgerUnavailable, SettingError) as error:
        raise StartError(str(error)) from None


async def _serve(settings: Settings) -> None:
    ring = keyring(settings)
    if not settings.loopback and not ring.callers:
        raise StartError(
            f"{settings.host} can be reached from other machines and no key exists:"
            " make one with `lowpass keys create NAME`, or listen on 127.0.0.1"
        )
    specs = {name: read(name) for name in engines_needed(settings.policy)}
    supervisor = Supervisor(specs.values(), settings.logs)
    engines = {name: supervisor.endpoints[spec.name] for name, spec in specs.items()}
    watcher = Watcher(settings.policy, lambda path: load_policy(path, engines))
    config = load_policy(settings.policy, engines)
    with _listen(settings) as listener:
        try:
            supervisor.launch()
            gateway = Gateway(settings, watcher, config, ring, lambda: supervisor.states)
            try:
                await _run(gateway, listener, supervisor, banner(settings, _url(listener), ring, gateway.ledger_name))
            finally:
                await gateway.close()
        finally:
            await supervisor.stop()


async def _run(gateway: Gateway, listener: socket.socket, supervisor: Supervisor, greeting: str) -> None:
    server = _Server(_uvicorn(gateway))
    _on_signal(server.stop)
    ticking = asyncio.ensure_future(gateway.tick_forever())
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        for name in supervisor.endpoints:
            await supervisor.ready(name)
        sys.stdout.write(greeting)
        sys.stdout.flush()
        done, _ = await asyncio.wait([serving, ticking], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        server.stop()
        ticking.cancel()
        await asyncio.wait([serving, ticking])


class _Server(uvicorn.Server):
    """Leaves the signals to us: uvicorn raises them again when it is done, and then the engines would outlive us."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        """Requests in progress may end by themselves, until `DRAIN_S` have passed or a second call comes."""
        if self.should_exit:
            self.force_exit = True
        else:
            self.should_exit = True
            asyncio.get_running_loop().call_later(DRAIN_S, self.stop)


def _uvicorn(gateway: Gateway) -> uvicorn.Config:
    return uvicorn.Config(
        gateway.app,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=75,
    )


def _quiet_collector() -> None:
    """A request leaves no cycles behind: looking for them after every 700 allocations is 2 % of its time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _on_signal(stop: Callable[[], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        where = f"{settings.host}:{settings.port}"
        raise StartError(f"{where} can't be used ({error.strerror}): stop what listens there, or pass --port") from None
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
