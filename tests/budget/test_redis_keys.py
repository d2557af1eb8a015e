"""Where budgets are in Redis: in one slot of a cluster, under keys that are named, and not for ever."""

import re
from typing import Any

from router.budget.redis.store import IDLE_SESSION_MS, RedisBudgets
from router.types.account import Amount, Balance, Child, Reservation, Unit
from router.types.ids import new_id
from router.types.lease import LEASE_MS
from tests.budget.conformance.desk import HOUR, NOW, ONLY_A, account, ask, hourly, last_hour, thinking
from tests.budget.redis_gateways import POT, Gateways, at_own_redis, at_redis, back, balance, eventually, hold
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
async def test_every_step_runs_on_a_cluster_and_all_keys_are_of_one_slot(gateways: Gateways) -> None:
    with gateways.server.client() as client:
        client.execute_command("CLUSTER", "ADDSLOTS", *range(16_384))
        await eventually(lambda: bool(client.execute_command("CLUSTER INFO")["cluster_state"] == "ok"))
        async with gateways.opened() as store:
            assert await every_step(store, client) == BALANCES
            keys = [str(key) for key in client.scan_iter()]
            assert len(keys) > 10
            assert len({client.execute_command("CLUSTER KEYSLOT", key) for key in keys}) == 1


@at_redis
async def test_scripts_touch_no_key_that_they_are_not_given(gateways: Gateways) -> None:
    lines: list[dict[str, str]] = []
    with gateways.server.client() as client, gateways.server.client() as watcher, watcher.monitor() as monitor:
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
async def test_what_is_over_goes_away_by_itself(gateways: Gateways, store: RedisBudgets) -> None:
    """All keys of a settled request, of a window that has passed and of an idle session have an end."""
    session = account("talks|s1", 1_000, budget="talks", scope="session", value="s1")
    granted = await store.reserve("r", [ALICE, ROLLING, session, POT], ask(5, 5, 5), NOW)
    assert isinstance(granted, Reservation)
    store.settle(granted, [5] * 4)
    await store.settled()
    await store.recover(NOW)
    with gateways.server.client() as client:
        left = {str(key).partition(":")[2]: int(str(client.pttl(key))) for key in client.scan_iter()}
    assert 0 < left.pop("probe", 1) <= 1_000
    bounded = {name: ms for name, ms in left.items() if ms >= 0}
    assert left.keys() - bounded.keys() == {"epoch", "owners", "policies", "a:pot", "v:hourly", "v:talks"}
    assert set(bounded) == {"r:r", "a:hourly|alice", "a:rolling", "a:talks|s1"}
    assert HOUR // 4 < bounded["r:r"] <= HOUR // 2
    assert DAY < bounded["a:hourly|alice"] <= DAY + HOUR
    assert bounded["a:talks|s1"] > IDLE_SESSION_MS - HOUR


@each_row("at, step, spent", [(last_hour, 36_000, 7 * 101), (hourly, HOUR, 7)])
@at_redis
async def test_an_account_keeps_no_windows_that_nothing_counts(
    gateways: Gateways, store: RedisBudgets, at: Any, step: int, spent: int
) -> None:
    for number in range(600):
        now = NOW + number * step
        store.settle(await hold(store, 7, at(now, "p", 10**9), now=now), [7])
    await store.settled()
    assert await balance(store, at(now, "p", 10**9)) == Balance(spent, 0)
    with gateways.server.client() as client:
        assert int(str(client.hlen("{lowpass}:a:p"))) <= 402


@at_redis
async def test_the_values_of_windows_that_have_passed_are_dropped(gateways: Gateways, store: RedisBudgets) -> None:
    for number in range(60):
        now, own = NOW + number * HOUR, {"budget": "keys", "scope": "key", "value": f"k{number}"}
        await hold(store, 7, hourly(now, f"keys|k{number}", 100, **own), now=now // HOUR * HOUR)
    with gateways.server.client() as client:
        left = client.zrange("{lowpass}:v:keys", 0, -1)
    assert set(left) == {f"k{number}" for number in range(35, 60)}


@at_redis
async def test_two_deployments_share_a_server_under_tags_of_their_own(gateways: Gateways) -> None:
    async with gateways.opened(tag="a") as left, gateways.opened(tag="b") as right:
        await hold(left, 5)
        with gateways.server.client() as client:
            assert {re.sub(":.*", "", str(key)) for key in client.scan_iter()} == {"{a}", "{b}"}
        await back(right)
        assert await balance(right) == Balance(0, 0)
