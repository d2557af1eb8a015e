"""The Redis server is killed, paused, cut off and emptied: no request hangs, no booking is lost or made twice."""

import asyncio
import os
import sqlite3
from contextlib import closing
from decimal import Decimal
from functools import partial
from random import Random
from typing import Any

import pytest

from router.accounting import reconcile
from router.budget.budget import Budget
from router.budget.redis.store import RedisBudgets
from router.ledger.ledger import SqliteLedger
from router.types.account import Amount, Balance, Refused, Reservation, StoreUnavailable
from router.types.target import Secret
from tests.budget import redis_gateways
from tests.budget.conformance.desk import NOW
from tests.budget.redis_gateways import POT, Gateways, at_own_redis, at_redis, back, balance, eventually, hold, reserve
from tests.ledger import plain
from tests.ledger.books import rows
from tests.tables import each_row


def refused_without_waiting(store: RedisBudgets) -> bool:
    """The first step of the call ends it."""
    try:
        reserve(store, 1).send(None)
    except StoreUnavailable:
        return True
    return False


@at_own_redis()
async def test_no_call_hangs_on_a_paused_server_which_comes_back_by_itself(
    gateways: Gateways, store: RedisBudgets
) -> None:
    kept = await hold(store, 500)
    redis_gateways.pause(gateways.server, store)
    calls: list[Any] = [reserve(store, 100) for _ in range(20)]
    calls += [store.extend(kept, [POT], Amount(1), NOW), store.recover(NOW), store.balances([POT])]
    calls += [store.values("pot", 0), store.child("child"), store.children(), store.close("child", NOW)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}
    assert refused_without_waiting(store)
    store.settle(kept, [300])
    await store.settled()
    gateways.server.resume()
    await back(store)
    # What was asked of the paused server has been granted by it, and given back.
    await redis_gateways.comes_to(store, Balance(300, 0))
    await hold(store, 9_700)
    await store.settled()
    assert gateways.rows() == Balance(300, 9_700)


@at_redis
async def test_a_slow_server_is_waited_for_while_it_answers(gateways: Gateways) -> None:
    """Replies trickle through a pipe: all of them take several times as long as the server may be silent."""

    async def trickle(from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_unix_connection(f"{gateways.server.folder}/socket")

        async def onward() -> None:
            while data := await from_client.read(65_536):
                to_server.write(data)
            to_server.close()

        onwards = asyncio.create_task(onward())
        while data := await from_server.read(100 if slow else 65_536):
            to_client.write(data)
            await asyncio.sleep(0.02 if slow else 0)
        to_client.close()
        await onwards

    slow: list[bool] = []
    path = f"{gateways.server.folder}/pipe"
    async with await asyncio.start_unix_server(trickle, path), gateways.opened(Secret(f"unix://{path}")) as store:
        link = store.server.link
        assert link is not None
        link.timeout_s = 0.8
        slow.append(True)
        await asyncio.gather(*[hold(store, 10) for _ in range(500)])
        assert store.server.link is link
        slow.clear()
        assert await balance(store) == Balance(0, 5_000)


@at_own_redis()
async def test_what_is_asked_of_a_server_that_is_gone_is_refused_and_what_is_settled_waits(
    gateways: Gateways, store: RedisBudgets
) -> None:
    held = [await hold(store, 100) for _ in range(10)]
    gateways.server.kill()
    await eventually(lambda: not store.available)
    for number, reservation in enumerate(held):
        store.settle(reservation, [number])
        store.settle(reservation, [99])
    await store.settled()
    for call in (store.extend(held[0], [POT], Amount(1), NOW), store.recover(NOW)):
        with pytest.raises(StoreUnavailable):
            await call
    assert gateways.rows() == Balance(0, 1_000)
    gateways.server.start()
    await back(store)
    assert await balance(store) == gateways.rows() == Balance(45, 0)


async def spend(store: RedisBudgets, random: Random, charged: list[int], stop: asyncio.Event) -> None:
    while not stop.is_set():
        try:
            granted = await reserve(store, random.randint(20, 60))
        except StoreUnavailable:
            granted = None
        if not isinstance(granted, Reservation):
            await asyncio.sleep(0.005)
            continue
        for _ in range(random.randint(0, 20)):
            await asyncio.sleep(0)
        charged.append(random.randint(0, granted.granted.usd // 4))
        store.settle(granted, [charged[-1]])
        await store.settled()


@pytest.mark.parametrize("seeds", [1, pytest.param(8, marks=[pytest.mark.nightly, pytest.mark.timeout(900)])])
def test_kill_9_under_load_loses_nothing_and_overspends_nothing(seeds: int) -> None:
    """Two gateways, an append-only file that is synced always; the server is killed three times at random moments."""

    @at_own_redis()
    async def work(gateways: Gateways, random: Random) -> None:
        charged: list[int] = []
        stop = asyncio.Event()
        async with gateways.opened() as left, gateways.opened() as right:
            workers = [asyncio.create_task(spend(store, random, charged, stop)) for store in (left, right) * 16]
            for _ in range(3):
                moment = len(charged) + random.randint(1, 150)
                await eventually(partial(lambda moment: len(charged) >= moment, moment))
                gateways.server.kill()
                gateways.server.start()
                await back(left, right)
            stop.set()
            await asyncio.gather(*workers)
            await back(left, right)
            assert await balance(left) == gateways.rows() == Balance(sum(charged), 0)
            assert 0 < sum(charged) <= POT.limit

    for seed in range(seeds):
        work(random=Random(seed))  # noqa: S311


@at_own_redis()
async def test_a_step_that_a_crash_cut_short_is_not_booked_by_a_later_start(
    gateways: Gateways, store: RedisBudgets
) -> None:
    await hold(store, 60)
    gateways.server.kill()
    (file,) = gateways.server.folder.glob("*.aof")
    os.truncate(file, file.stat().st_size - 20)  # the last of its commands is broken off
    for held in (0, 5):
        gateways.server.start()
        await back(store)
        assert await balance(store) == Balance(0, held)
        await hold(store, 5)
        gateways.server.kill()


@at_redis
async def test_a_connection_that_breaks_under_load_is_made_anew(
    gateways: Gateways, client: Any, store: RedisBudgets
) -> None:
    spent = 0
    for _ in range(5):
        asked = [asyncio.ensure_future(reserve(store, 10)) for _ in range(20)]
        await asyncio.sleep(0)
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        granted = [outcome for outcome in outcomes if isinstance(outcome, Reservation)]
        assert len(granted) + sum(isinstance(outcome, StoreUnavailable) for outcome in outcomes) == 20
        for reservation in granted:
            store.settle(reservation, [7])
            spent += 7
        await back(store)
    await redis_gateways.comes_to(store, Balance(spent, 0))
    assert gateways.rows() == Balance(spent, 0)


@at_redis
async def test_scripts_that_the_server_forgot_are_sent_again(client: Any, store: RedisBudgets) -> None:
    kept = await hold(store, 100)
    client.script_flush()
    more = await asyncio.gather(*(hold(store, 10) for _ in range(5)))
    for reservation in (kept, *more):
        store.settle(reservation, [3])
    await store.settled()
    assert await balance(store) == Balance(18, 0)
    assert store.available


@each_row("both", [False, True])
@at_own_redis()
async def test_a_server_that_lost_its_data_gets_it_from_the_ledger_before_anything_is_admitted(
    gateways: Gateways, both: bool
) -> None:
    """By one gateway, or by two at once."""
    async with gateways.opened() as left, gateways.opened() as right:
        stores = (left, right) if both else (left,)
        ended, held = await hold(left, 4_000), await hold(left, 5_000)
        left.settle(ended, [3_500])
        await left.settled()
        gateways.server.forget()
        await back(*stores)
        outcome = await reserve(stores[-1], 2_000)
        assert isinstance(outcome, Refused)
        assert (outcome.spent, outcome.held) == (3_500, 5_000)
        left.settle(held, [4_500])
        await back(left)
        assert await balance(left) == gateways.rows() == Balance(8_000, 0)
        assert rows(gateways.ledger, "SELECT 1 FROM incidents") == []


@at_own_redis()
async def test_what_a_server_with_older_data_lacks_is_charged_again(gateways: Gateways, store: RedisBudgets) -> None:
    older = b""
    for charge in (300, 20):
        store.settle(await hold(store, 500), [charge])
        await store.settled()
        (file,) = gateways.server.folder.glob("*.aof")
        older = file.read_bytes() if charge == 300 else older
    gateways.server.kill()
    file.write_bytes(older)
    gateways.server.start()
    await back(store)
    await store.settled()
    assert await balance(store) == gateways.rows() == Balance(320, 0)


@at_redis
async def test_what_the_ledger_lacked_when_redis_was_emptied_is_charged_once(gateways: Gateways, client: Any) -> None:
    """Rows of one were on their way, of another gone with a ledger that was put back; of a third the truth is late."""
    async with gateways.opened() as store, gateways.dying() as (dying, _):
        late, lost, crashed = await hold(store, 900), await hold(store, 800), await hold(dying, 700)
        for request, charge in ((late, 30), (lost, 200)):
            store.settle(request, [charge])
        await store.settled()
        with closing(sqlite3.connect(gateways.ledger)) as ledger, ledger:
            opened = "UPDATE bookings SET charged = NULL, state = 'held' WHERE request_id = ?"
            ledger.execute(opened, (late.request_id,))
            ledger.execute("DELETE FROM bookings WHERE request_id = ?", (lost.request_id,))
            row = (crashed.request_id, POT.id, 0, 700, 700, "recovered")
            ledger.execute("INSERT INTO bookings VALUES (?, ?, ?, ?, ?, ?)", row)
        client.flushall()
        with pytest.raises(StoreUnavailable):
            await reserve(store, 9_000)
        await back(store)
        await store.recover(NOW)
        assert await balance(store) == gateways.rows() == Balance(30 + 200 + 700, 0)
        incidents = partial(rows, gateways.ledger, "SELECT reason FROM incidents WHERE subject = 'redis'")
        await eventually(lambda: bool(incidents()))
        (incident,) = incidents()
        assert incident["reason"].endswith("of 1 requests that are charged 0.0000002 USD and 0 thinking tokens")
        await back(dying)
        dying.settle(crashed, [4])
        await dying.settled()
        assert await balance(store) == Balance(30 + 200 + 4, 0)


@at_own_redis(started=False)
async def test_a_server_that_is_not_there_at_the_start_is_waited_for_in_the_background(
    gateways: Gateways, store: RedisBudgets
) -> None:
    assert not store.available
    assert refused_without_waiting(store)
    gateways.server.start()
    await back(store)
    await hold(store, 5)
    assert await balance(store) == Balance(0, 5)


@at_own_redis()
async def test_a_password_that_changes_under_a_running_gateway_ends_in_waiting_not_in_a_crash(
    client: Any, store: RedisBudgets, caplog: pytest.LogCaptureFixture
) -> None:
    client.config_set("requirepass", "letmein-new")
    client.execute_command("AUTH", "letmein-new")
    client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    await eventually(lambda: "LOWPASS_REDIS_URL" in caplog.text)
    assert refused_without_waiting(store)
    client.config_set("requirepass", "")
    await back(store)
    await hold(store, 5)
    assert "letmein" not in caplog.text


@at_own_redis()
async def test_a_full_server_admits_nothing_and_loses_nothing(
    client: Any, store: RedisBudgets, caplog: pytest.LogCaptureFixture
) -> None:
    kept = await hold(store, 100)
    client.config_set("maxmemory", "1")
    with pytest.raises(StoreUnavailable):
        await reserve(store, 1)
    store.settle(kept, [60])
    await eventually(lambda: "OOM" in caplog.text)
    client.config_set("maxmemory", "0")
    await back(store)
    assert await balance(store) == Balance(60, 0)


@at_redis
async def test_rows_of_a_gateway_that_died_after_redis_had_its_settlements_are_written_by_the_next(
    gateways: Gateways,
) -> None:
    async with gateways.dying() as (dying, _):
        for charge in (None, 1, 2):
            granted = await hold(dying, 5)
            if charge:
                dying.settle(granted, [charge])
        await dying.settled()
    async with gateways.opened() as store:
        assert await store.recover(NOW) == 1
        for _ in range(2):
            await store.settled()
            assert await balance(store) == gateways.rows() == Balance(1 + 2 + 5, 0)
            await store.recover(NOW)


@at_redis
async def test_a_recovered_row_costs_what_redis_held_and_what_was_moved_is_not_booked_again(gateways: Gateways) -> None:
    """A gateway dies before it wrote what it was granted; another request of it was settled, and moved to the past."""
    async with gateways.dying() as (dying, _):
        crashed, moved = await hold(dying, 5), await hold(dying, 5)
        await dying.extend(crashed, [POT], Amount(2), NOW)
        dying.settle(moved, [3])
        await dying.settled()
    held = plain.request(crashed.request_id, state="held", held=999, held_thinking=0, cost=None)
    plain.put(SqliteLedger(gateways.ledger), "requests", **held)
    with closing(sqlite3.connect(gateways.ledger)) as ledger, ledger:
        ledger.execute("INSERT INTO names VALUES (7, 'pot')")
        ledger.execute("INSERT INTO past_bookings VALUES (?, 7, 0, 5, 3)", (moved.request_id,))
    async with gateways.opened() as store:
        assert await store.recover(NOW) == 1
        await store.settled()
        assert await balance(store) == Balance(3 + 7, 0)
    assert gateways.rows() == Balance(7, 0)
    (row,) = rows(gateways.ledger, "SELECT state, cost, held FROM live_requests")
    assert row == {"state": "recovered", "cost": 7, "held": 7}


@at_redis
async def test_bookings_that_stayed_held_are_ended_as_redis_says(gateways: Gateways, client: Any) -> None:
    """The gateway that settled or recovered them died before it wrote that; of one Redis knows nothing."""
    async with gateways.dying() as (dying, name):
        settled, recovered, unknown = [await hold(dying, 5) for _ in range(3)]
        dying.settle(settled, [3])
        await dying.settled()
        client.hdel(f"{{lowpass}}:r:{recovered.request_id}", "o")
        client.hset(f"{{lowpass}}:r:{recovered.request_id}", "r", "1")
        client.delete(f"{{lowpass}}:r:{unknown.request_id}", f"{{lowpass}}:o:{name}")
    held = [(granted.request_id, "pot", 0, 5) for granted in (settled, recovered, unknown)]
    with closing(sqlite3.connect(gateways.ledger)) as ledger, ledger:
        ledger.executemany("INSERT INTO bookings VALUES (?, ?, ?, ?, NULL, 'held')", held)
    async with gateways.opened(held_long=lambda: held) as store:
        await store.recover(NOW)
    bookings = rows(gateways.ledger, "SELECT request_id, charged, state FROM bookings")
    charged = {row["request_id"]: (row["charged"], row["state"]) for row in bookings}
    assert charged[settled.request_id] == (3, "settled")
    assert charged[recovered.request_id] == charged[unknown.request_id] == (5, "recovered")
    incidents = rows(gateways.ledger, "SELECT kind, subject FROM incidents")
    assert incidents == [{"kind": "lost_booking", "subject": unknown.request_id}]


@at_redis
async def test_rows_and_bookings_that_differ_after_a_crash_become_equal(gateways: Gateways) -> None:
    """Of a request that cost 3 the gateway had told Redis and not the ledger; of another one the other way round."""
    async with gateways.dying() as (dying, _):
        told_redis, told_ledger = [await hold(dying, 5) for _ in range(2)]
        dying.settle(told_redis, [3])
        await dying.settled()
    ledger, budgets = SqliteLedger(gateways.ledger), [Budget(id=POT.id, limit_usd=Decimal(1), window="lifetime")]
    plain.put(ledger, "requests", **plain.request(told_redis.request_id, state="recovered", held=5, cost=5))
    plain.put(ledger, "requests", **plain.request(told_ledger.request_id, cost=3))
    async with gateways.opened() as store:
        assert await store.recover(NOW) == 1
        assert await balance(store) == Balance(3 + 5, 0)
        for _ in range(2):
            await reconcile(store, store._journal, ledger, ledger, budgets, NOW)
            await store.settled()
            assert await balance(store) == gateways.rows() == Balance(3 + 3, 0)
    assert rows(gateways.ledger, "SELECT DISTINCT cost FROM live_requests") == [{"cost": 3}]
    assert len(rows(gateways.ledger, "SELECT 1 FROM incidents WHERE kind = 'lost_booking'")) == 2
