"""The processes of a gateway: socket, local engines, event loops and shutdown."""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path

import msgspec
import uvloop

from local_serving import EngineError
from local_serving.recipe import EngineHome
from local_serving.spec import read
from local_serving.supervisor import Supervisor
from local_serving.watch import ReplicaWatch, format_of
from router.api.auth import keyring, ledger_of
from router.api.edge import DRAIN_S, HttpServer
from router.app import TICK_S, GatewayProcess
from router.config.check import Watcher, engines_needed
from router.config.load import load_policy, reload_policy
from router.config.policy import Config
from router.decide.replicas import can_serve
from router.errors import ConfigError
from router.ledger.migrate import LedgerTooNew
from router.observe.observer import JsonFormatter
from router.settings import SettingError, Settings, unread
from router.settings import read as settings_of
from router.types.account import LedgerUnavailable
from router.types.target import ServedEngine
from router.workers.background import Metering, Upkeep
from router.workers.pool import Worker, WorkerConfig, WorkerError, Workers

PATIENCE_S = 15.0
"""Seconds to wait for engines before serving without those that still start. vLLM takes minutes."""
_REASONS = (EngineError, LedgerTooNew, LedgerUnavailable, SettingError, WorkerError)
OnDrain = Callable[[Callable[[bool], None]], None]
OnOpen = Callable[[Settings, GatewayProcess, str], None]
_log = logging.getLogger("lowpass")


class StartError(Exception):
    """Why the gateway can't start, in one line."""


def run(settings: Settings) -> None:
    """Serves until a signal arrives. Raises `StartError` or `ConfigError`, and then leaves nothing running."""
    _prepare("%(name)s", settings.json_log)
    for name in unread(os.environ):
        _log.warning("%s is set, but this version does not read it", name)
    uvloop.run(serve(settings, _on_signals, _greet))


def work(post: WorkerConfig) -> None:
    """Runs a worker process: serves until the first process says so or exits, or a signal arrives."""
    try:
        settings = settings_of(os.environ, policy=Path(post.policy), host=post.host)
        _prepare(f"%(name)s worker {post.number}", settings.json_log)
        uvloop.run(_work(post, settings))
    except ConfigError as error:
        _log.error("%s", error)
        sys.exit(os.EX_CONFIG)  # the first process has read the policy, so this is an edit that may still be corrected
    except _REASONS as error:
        sys.exit(f"lowpass worker {post.number}: {error}")


async def serve(settings: Settings, on_drain: OnDrain, on_open: OnOpen, tick_s: float = TICK_S) -> None:
    """Runs one gateway with its engines and workers in the running event loop until it ends.

    `on_drain` receives the function that ends the gateway. `on_open` is called once it answers. Raises `StartError` or
    `ConfigError`, and then leaves nothing running.
    """
    try:
        await _serve(settings, on_drain, on_open, tick_s)
    except _REASONS as error:
        raise StartError(str(error)) from None


async def _serve(settings: Settings, on_drain: OnDrain, on_open: OnOpen, tick_s: float) -> None:
    ring = keyring(settings)
    if not settings.loopback and not ring.callers:
        raise StartError(
            f"{settings.host} can be reached from other machines and no key exists:"
            " make one with `lowpass keys create NAME`, or listen on 127.0.0.1"
        )
    specs = {name: read(name) for name in engines_needed(settings.policy)}
    supervisor = Supervisor(specs.values(), settings.logs, EngineHome(settings.engines, settings.vllm_python))
    engines = {name: supervisor.served[spec.name] for name, spec in specs.items()}
    watcher, config = _policy(settings, engines)
    with _listen(settings) as listener:
        post = WorkerConfig(listener.fileno(), str(settings.policy), settings.host, engines)
        watch = ReplicaWatch(lambda: supervisor.states, {spec.name: format_of(spec) for spec in specs.values()})
        workers = Workers(settings.workers, post, lambda: watch.states)
        upkeep = Upkeep(ledger_of(settings), settings.keep_rows_ms)
        hourly = {target.engine.name: target.hourly or 0 for target in config.targets.values() if target.engine}
        billed = [(spec, hourly.get(spec.name, 0)) for spec in specs.values()]  # as stated in the policy
        metering = Metering(ledger_of(settings), billed, lambda: watch.states)
        try:
            supervisor.launch()
            watch.launch()
            workers.launch()
            upkeep.launch()
            metering.launch()
            gateway = GatewayProcess(settings, watcher, config, ring, workers)
            await gateway.start()
            server = HttpServer(gateway.app)

            def drain(at_once: bool) -> None:
                server.drain(at_once)
                workers.drain(at_once)

            on_drain(drain)
            host, port = listener.getsockname()[:2]
            url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
            opened = _open(_Engines(supervisor, config), workers, lambda: on_open(settings, gateway, url))
            await _run(gateway, server, listener, opened, tick_s)
        finally:
            await metering.stop()
            await workers.stop(DRAIN_S)
            await upkeep.stop()
            await watch.stop()
            await supervisor.stop()


async def _open(engines: "_Engines", workers: Workers, on_open: Callable[[], None]) -> None:
    try:
        await engines.some_serve()
        await workers.ready()
        on_open()
        await engines.settled()
    finally:
        engines.leave()


async def _work(post: WorkerConfig, settings: Settings) -> None:
    worker = Worker(socket.socket(fileno=post.channel))
    watcher, config = _policy(settings, post.engines)
    gateway = GatewayProcess(settings, watcher, config, keyring(settings), worker)
    await gateway.start()
    server = HttpServer(gateway.app)

    async def report() -> None:
        await server.listens.wait()
        worker.ready(server.drain)

    _on_signals(server.drain)
    with socket.socket(fileno=post.listener) as listener:
        await _run(gateway, server, listener, report(), TICK_S)


async def _run(
    gateway: GatewayProcess,
    server: HttpServer,
    listener: socket.socket,
    opened: Coroutine[None, None, None],
    tick_s: float,
) -> None:
    """Serves until `server` drains. `opened` runs beside it and does what must be awaited and reported first."""
    opening = asyncio.ensure_future(opened)
    life = [asyncio.ensure_future(gateway.tick_forever(tick_s)), asyncio.ensure_future(server.serve([listener]))]
    try:
        await asyncio.wait([opening, *life], return_when=asyncio.FIRST_COMPLETED)
        if opening.done():
            opening.result()
        done, _ = await asyncio.wait(life, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        server.drain(False)
        life[0].cancel()
        opening.cancel()
        await asyncio.wait([opening, *life])
        await gateway.close()


class _Engines:
    """Follows the start of the engines. An engine that does not start makes only its own targets unavailable."""

    def __init__(self, supervisor: Supervisor, config: Config) -> None:
        self._supervisor, self._targets = supervisor, config.targets.values()
        self._starts = [asyncio.ensure_future(self._start(name)) for name in supervisor.served]

    async def some_serve(self) -> None:
        """Waits until all have started or failed. After `PATIENCE_S`, waits only until some target can be asked.

        Raises `StartError` if none can be.
        """
        pending = (await asyncio.wait(self._starts, timeout=PATIENCE_S))[1] if self._starts else set()
        while pending and not can_serve(self._targets, self._supervisor.states):
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        if not can_serve(self._targets, self._supervisor.states):
            raise StartError("; ".join(filter(None, [start.result() for start in self._starts])))
        if pending:
            _log.warning("%d local engines are still starting; their targets are asked once they serve", len(pending))

    async def settled(self) -> None:
        await asyncio.gather(*self._starts)

    def leave(self) -> None:
        for start in self._starts:
            start.cancel()

    async def _start(self, name: str) -> str:
        """Returns why the engine did not start; empty if it serves."""
        try:
            await self._supervisor.ready(name)
        except EngineError as error:
            _log.error("%s", error)
            return str(error)
        return ""


def _policy(settings: Settings, engines: Mapping[str, ServedEngine]) -> tuple[Watcher, Config]:
    """Returns watcher and config. The watcher is created first, so that no edit between the two is missed."""
    watcher = Watcher(settings.policy, lambda path: reload_policy(path, engines))
    return watcher, load_policy(settings.policy, engines)


def _prepare(name: str, as_json: bool) -> None:
    """Prepares interpreter and log, where the process is called `name`. Requests leave no cycles, so garbage is
    collected rarely; looking for it took 2 % of their time. Threads that scan long texts yield to the event loop ten
    times as often as by Python's default."""
    sys.setswitchinterval(0.0005)
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    handler = logging.StreamHandler()
    handler.setFormatter(
        JsonFormatter(name) if as_json else logging.Formatter(f"%(asctime)s %(levelname)s {name}: %(message)s")
    )
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def _on_signals(drain: Callable[[bool], None]) -> None:
    """Drains on the first signal, and ends at once on the second."""
    at_once = iter([False])
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, lambda: drain(next(at_once, True)))


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


def _greet(settings: Settings, gateway: GatewayProcess, url: str) -> None:
    """Prints how to use the gateway, once it answers."""
    ring = gateway.keyring
    access = "open to everybody on this machine: no key exists" if ring.open_to_all else "a key is needed"
    key, header = ("unused", "") if ring.open_to_all else ("lp-…", " -H 'authorization: Bearer lp-…'")
    workers = f"\n  workers    {settings.workers} processes behind this address" if settings.workers > 1 else ""
    sys.stdout.write(f"""
lowpass answers at {url}  ({access})

  curl {url}/v1/chat/completions{header} -H 'content-type: application/json' \\
    -d '{{"model": "auto", "messages": [{{"role": "user", "content": "Say hello."}}]}}'

  from openai import OpenAI
  client = OpenAI(base_url="{url}/v1", api_key="{key}")
  answer = client.chat.completions.create(model="auto", messages=[{{"role": "user", "content": "Say hello."}}])
  print(answer.choices[0].message.content, answer.usage.cost)

  dashboard  {url}/dashboard
  policy     {settings.policy}  (edits are picked up; `lowpass check` reads it over)
  ledger     {gateway.ledger_name}  (`lowpass report spend --by target`){workers}
""")
    sys.stdout.flush()


if __name__ == "__main__":
    work(msgspec.json.decode(sys.argv[1], type=WorkerConfig))
