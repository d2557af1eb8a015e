"""Where budgets are in Redis: in one slot of a cluster, under keys that are named, and not for ever."""

import asyncio
import re
import socket
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import redis
import uvloop

from router.budget.redis.store import IDLE_SESSION_MS, RedisBudgets
from router.budget.window import rolling
from router.ledger.write import LEASE_MS
from router.types.account import Account, Amount, Balance, Child, Reservation, Unit
from router.types.ids import new_id
from router.types.secret import Secret
from tests.budget.conformance.desk import HOUR, NOW, account, ask, exactly, thinking
from tests.budget.redis_gateways import POT, Gateways, at_gateways, back, balance, eventually
from tests.budget.redis_process import RedisProcess

DAY = 24 * HOUR
HOURLY = {
    "window_start_ms": NOW // HOUR * HOUR,
    "since_ms": NOW // HOUR * HOUR,
    "resets_at_ms": NOW // HOUR * HOUR + HOUR,
}
EVERY_KIND = (
    account("hourly|alice", 10_000, budget="hourly", scope="key", value="alice", **HOURLY),
    account("rolling", 10_000, window_start_ms=NOW - 1, since_ms=NOW - HOUR, resets_at_ms=NOW + HOUR),
    account("target", 100, targets=frozenset({"a"})),
    account("soft", 1, hard=False),
    thinking("thoughts", 1_000),
    POT,
)


async def every_step(store: RedisBudgets, client: "redis.Redis") -> list[Balance]:
    """All that the store can do, children that are overrun and closed with holds included."""
    granted = await store.reserve(new_id(), EVERY_KIND, ask(10, 50, 300, (1, 2, 3)), NOW)
    assert isinstance(granted, Reservation)
    granted = await store.extend(granted, EVERY_KIND, Amount(20, 1), NOW)
    store.settle(granted, [7] * len(granted.holds))
    opened = []
    for name, parent in (("child", POT), ("grandchild", _child("child", "pot", ("pot",)).account())):
        above = ("pot",) if name == "child" else ("child", "pot")
        child = await store.split(parent, _child(name, parent.id, above), NOW)
        assert isinstance(child, Child)
        held = await store.reserve(new_id(), [child.account()], exactly(100), NOW)
        assert isinstance(held, Reservation)
        opened.append(held)
    await store.close("child", NOW)
    for held in opened:
        store.settle(held, [2_000])
    await store.settled()
    lost = await store.reserve(new_id(), EVERY_KIND[:1], exactly(5), NOW)
    assert isinstance(lost, Reservation)
    (owner,) = _names(client.zrange("{lowpass}:owners", 0, -1))
    client.zincrby("{lowpass}:owners", -10 * LEASE_MS, owner)
    client.zadd("{lowpass}:owners", {"dead": 1})
    await store.recover(NOW)
    await store.values("hourly", 0)
    await store.children()
    return await store.balances(EVERY_KIND)


def _child(name: str, parent: str, above: tuple[str, ...]) -> Child:
    return Child(
        id=name,
        parent=parent,
        parent_window_ms=0,
        replaces=above,
        unit=Unit.USD,
        limit=1_000 if name == "child" else 500,
        created_ms=NOW,
        expires_at_ms=None,
        key="key",
    )


def _names(reply: object) -> list[str]:
    assert isinstance(reply, list)
    return [str(name) for name in reply]


def _stands(client: "redis.Redis") -> bool:
    found: object = client.execute_command("CLUSTER INFO")  # type: ignore[no-untyped-call]
    return isinstance(found, dict) and found["cluster_state"] == "ok"


def test_every_step_runs_on_a_cluster_and_all_keys_are_of_one_slot() -> None:
    async def work(gateways: Gateways) -> tuple[list[Balance], set[object], bool]:
        with gateways.server.client() as client:
            client.execute_command("CLUSTER", "ADDSLOTS", *range(16_384))
            await eventually(lambda: _stands(client))
            async with gateways.opened() as store:
                balances = await every_step(store, client)
                keys = [str(key) for key in client.scan_iter()]
                return balances, {client.execute_command("CLUSTER KEYSLOT", key) for key in keys}, len(keys) > 10

    balances, slots, many = at_gateways(work, "--cluster-enabled", "yes")
    assert balances == at_gateways(_alone)
    assert balances[-1] == Balance(4_007, 0)
    assert len(slots) == 1
    assert many


async def _alone(gateways: Gateways) -> list[Balance]:
    with gateways.server.client() as client:
        async with gateways.opened() as store:
            return await every_step(store, client)


def test_scripts_touch_no_key_that_they_are_not_given() -> None:
    async def work(gateways: Gateways) -> list[dict[str, str]]:
        seen: list[dict[str, str]] = []
        with gateways.server.client() as client, gateways.server.client() as watcher, watcher.monitor() as monitor:
            async with gateways.opened() as store:
                await every_step(store, client)
                client.echo("over")
                while not seen or seen[-1]["command"] != "ECHO over":
                    seen.append(monitor.next_command())
        return seen

    given: set[str] = set()
    scripts = touched = 0
    for line in at_gateways(work):
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


def _port() -> int:
    """Free, as is the port of the cluster's bus, 10,000 above it."""
    while True:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = int(one.getsockname()[1])
            try:
                other.bind(("127.0.0.1", port + 10_000))
            except (OSError, OverflowError):
                continue
            return port


def test_the_node_of_a_cluster_that_has_the_budgets_is_found() -> None:
    """The address names another node, which points to it."""

    async def work(folder: Path, other: RedisProcess, port: int) -> Balance:
        async with Gateways(other, folder).opened(Secret(f"redis://127.0.0.1:{port}")) as store:
            granted = await store.reserve("r", [POT], exactly(5), NOW)
            assert isinstance(granted, Reservation)
            return await balance(store)

    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        ports = [_port(), _port()]
        options = [("--cluster-enabled", "yes", "--bind", "127.0.0.1", "--port", str(port)) for port in ports]
        nodes = [stack.enter_context(RedisProcess(*one)) for one in options]
        clients = [stack.enter_context(node.client()) for node in nodes]
        slot = clients[0].execute_command("CLUSTER KEYSLOT", "{lowpass}:epoch")
        assert isinstance(slot, int)
        clients[0].execute_command("CLUSTER ADDSLOTS", *(one for one in range(16_384) if one != slot))
        clients[1].execute_command("CLUSTER ADDSLOTS", slot)
        clients[0].execute_command("CLUSTER MEET", "127.0.0.1", ports[1])
        asyncio.run(eventually(lambda: all(_stands(client) for client in clients)))
        assert uvloop.run(work(folder, nodes[0], ports[0])) == Balance(0, 5)
        assert clients[1].execute_command("HGET", "{lowpass}:a:pot", "h:0") == "5"


def test_what_is_over_goes_away_by_itself() -> None:
    """All keys of a settled request, of a window that has passed and of an idle session have an end."""
    session = account("talks|s1", 1_000, budget="talks", scope="session", value="s1")

    async def work(gateways: Gateways) -> dict[str, int]:
        async with gateways.opened() as store:
            granted = await store.reserve("r", [EVERY_KIND[0], EVERY_KIND[1], session, POT], exactly(5), NOW)
            assert isinstance(granted, Reservation)
            store.settle(granted, [5] * 4)
            await store.settled()
            await store.recover(NOW)
            await asyncio.sleep(1.1)
            with gateways.server.client() as client:
                return {str(key).partition(":")[2]: int(str(client.pttl(key))) for key in client.scan_iter()}

    left = at_gateways(work)
    bounded = {name: ms for name, ms in left.items() if ms >= 0}
    assert left.keys() - bounded.keys() == {"epoch", "owners", "a:pot", "v:hourly", "v:talks"}
    assert set(bounded) == {"r:r", "a:hourly|alice", "a:rolling", "a:talks|s1"}
    assert HOUR // 4 < bounded["r:r"] <= HOUR // 2
    assert DAY < bounded["a:hourly|alice"] <= DAY + HOUR
    assert bounded["a:talks|s1"] > IDLE_SESSION_MS - HOUR


@pytest.mark.parametrize("kind", ["rolling", "hour"])
def test_an_account_keeps_no_windows_that_nothing_counts(kind: str) -> None:
    def at(now: int) -> Account:
        if kind == "hour":
            start = now // HOUR * HOUR
            return account("p", 10**9, window_start_ms=start, since_ms=start, resets_at_ms=start + HOUR)
        span = rolling(3_600, now)
        return account("p", 10**9, window_start_ms=span.start, since_ms=span.since, resets_at_ms=span.resets_at)

    async def work(gateways: Gateways) -> tuple[int, Balance]:
        step = HOUR if kind == "hour" else 36_000
        async with gateways.opened() as store:
            for number in range(1_000):
                now = NOW + number * step
                granted = await store.reserve(f"r{number}", [at(now)], exactly(7), now)
                assert isinstance(granted, Reservation)
                store.settle(granted, [7])
            await store.settled()
            (found,) = await store.balances([at(now)])
            with gateways.server.client() as client:
                return int(str(client.hlen("{lowpass}:a:p"))), found

    fields, found = at_gateways(work)
    assert fields <= 402
    assert found == Balance(7 if kind == "hour" else 7 * 101, 0)


def test_the_values_of_windows_that_have_passed_are_dropped() -> None:
    def at(number: int) -> Account:
        start = (NOW // HOUR + number) * HOUR
        own = {"window_start_ms": start, "since_ms": start, "resets_at_ms": start + HOUR}
        return account(f"keys|k{number}", 100, budget="keys", scope="key", value=f"k{number}", **own)

    async def work(gateways: Gateways) -> list[str]:
        async with gateways.opened() as store:
            for number in range(60):
                granted = await store.reserve(f"r{number}", [at(number)], exactly(7), at(number).window_start_ms)
                assert isinstance(granted, Reservation)
            with gateways.server.client() as client:
                return sorted(_names(client.zrange("{lowpass}:v:keys", 0, -1)), key=lambda name: int(name[1:]))

    left = at_gateways(work)
    assert left == [f"k{number}" for number in range(35, 60)]


def test_two_deployments_share_a_server_under_tags_of_their_own() -> None:
    async def work(gateways: Gateways) -> tuple[Balance, set[str]]:
        async with gateways.opened(tag="a") as one, gateways.opened(tag="b") as other:
            assert isinstance(await one.reserve("r", [POT], exactly(5), NOW), Reservation)
            with gateways.server.client() as client:
                names = {re.sub(":.*", "", str(key)) for key in client.scan_iter()}
            await back(other)
            return await balance(other), names

    assert at_gateways(work) == (Balance(0, 0), {"{a}", "{b}"})
