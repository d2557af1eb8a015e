"""The Redis server is killed, paused, cut off and emptied: no request hangs, no booking is lost or made twice."""

import asyncio
from itertools import count
from random import Random

import pytest

from router.budget.redis.link import RedisRefused, address
from router.budget.redis.store import LARGEST, RedisBudgets
from router.types.account import Amount, Balance, Refused, Reservation
from router.types.secret import Secret
from router.types.store import StoreUnavailable
from tests.budget.conformance.desk import NOW, account, exactly
from tests.budget.redis_gateways import POT, Gateways, at_gateways, back, balance, eventually

_numbers = count(1)


async def reserve(store: RedisBudgets, usd: int) -> Reservation | Refused:
    return await store.reserve(f"request-{next(_numbers)}", [POT], exactly(usd), NOW)


async def hold(store: RedisBudgets, usd: int) -> Reservation:
    granted = await reserve(store, usd)
    assert isinstance(granted, Reservation)
    return granted


def refused_without_waiting(store: RedisBudgets) -> bool:
    """The first step of the call ends it."""
    try:
        reserve(store, 1).send(None)
    except StoreUnavailable:
        return True
    return False


def test_a_paused_server_hangs_nobody_and_comes_back_by_itself() -> None:
    async def work(gateways: Gateways) -> list[object]:
        async with gateways.opened() as store:
            kept = await hold(store, 500)
            gateways.server.pause()
            outcomes = await asyncio.gather(*(reserve(store, 100) for _ in range(20)), return_exceptions=True)
            at_once = refused_without_waiting(store)
            store.settle(kept, [300])
            await store.settled()
            gateways.server.resume()
            await back(store)
            # What was asked of the paused server has been granted by it, and given back.
            await eventually(lambda: _is(store, Balance(300, 0)))
            granted = await reserve(store, 9_700)
            await store.settled()
            return [{type(one) for one in outcomes}, at_once, type(granted), gateways.rows()]

    assert at_gateways(work) == [{StoreUnavailable}, True, Reservation, Balance(300, 9_700)]


async def _is(store: RedisBudgets, expected: Balance) -> bool:
    return await balance(store) == expected


def test_no_call_hangs_on_a_paused_server() -> None:
    async def work(gateways: Gateways) -> list[object]:
        async with gateways.opened() as store:
            kept = await hold(store, 500)
            gateways.server.pause()
            calls = (
                reserve(store, 1),
                store.extend(kept, [POT], Amount(1), NOW),
                store.recover(NOW),
                store.balances([POT]),
                store.values("pot", 0),
                store.child("child"),
                store.children(),
                store.close("child", NOW),
            )
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            return [type(one) for one in outcomes]

    assert set(at_gateways(work)) == {StoreUnavailable}


def test_what_is_asked_of_a_server_that_is_gone_is_refused_and_what_is_settled_waits() -> None:
    async def work(gateways: Gateways) -> list[object]:
        async with gateways.opened() as store:
            open_ = [await hold(store, 100) for _ in range(10)]
            gateways.server.kill()
            await eventually(lambda: not store.available)
            for number, one in enumerate(open_):
                store.settle(one, [number])
                store.settle(one, [99])
            await store.settled()
            with pytest.raises(StoreUnavailable):
                await store.extend(open_[0], [POT], Amount(1), NOW)
            with pytest.raises(StoreUnavailable):
                await store.recover(NOW)
            during = gateways.rows()
            gateways.server.start()
            await back(store)
            return [during, await balance(store), gateways.rows()]

    assert at_gateways(work) == [Balance(0, 1_000), Balance(45, 0), Balance(45, 0)]


@pytest.mark.parametrize("seed", range(4))
def test_kill_9_under_load_loses_nothing_and_overspends_nothing(seed: int) -> None:
    """Two gateways, an append-only file that is synced always; the server is killed three times at random moments."""
    random = Random(seed)  # noqa: S311

    async def spend(store: RedisBudgets, charged: list[int], stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                granted = await reserve(store, random.randint(20, 60))
            except StoreUnavailable:
                await asyncio.sleep(0.005)
                continue
            if isinstance(granted, Refused):
                await asyncio.sleep(0.005)
                continue
            await asyncio.sleep(random.random() / 100)
            charged.append(random.randint(0, granted.granted.usd // 4))
            store.settle(granted, [charged[-1]])
            await store.settled()

    async def work(gateways: Gateways) -> None:
        charged: list[int] = []
        stop = asyncio.Event()
        async with gateways.opened() as one, gateways.opened() as other:
            workers = [asyncio.create_task(spend(store, charged, stop)) for store in (one, other) * 16]
            for _ in range(3):
                await asyncio.sleep(random.random() / 5)
                gateways.server.kill()
                gateways.server.start()
                await back(one)
                await back(other)
            stop.set()
            await asyncio.gather(*workers)
            await back(one)
            await back(other)
            found = await balance(one)
            assert found == gateways.rows() == Balance(sum(charged), 0)
            assert 0 < found.spent <= POT.limit

    at_gateways(work)


def test_a_connection_that_breaks_under_load_is_made_anew() -> None:
    async def work(gateways: Gateways) -> None:
        async with gateways.opened() as store:
            spent = 0
            for _ in range(5):
                asked = [asyncio.ensure_future(reserve(store, 10)) for _ in range(20)]
                await asyncio.sleep(0)
                with gateways.server.client() as client:
                    client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                outcomes = await asyncio.gather(*asked, return_exceptions=True)
                granted = [one for one in outcomes if isinstance(one, Reservation)]
                assert len(granted) + sum(isinstance(one, StoreUnavailable) for one in outcomes) == 20
                for one in granted:
                    store.settle(one, [7])
                    spent += 7
                await back(store)
            await eventually(lambda: _is(store, Balance(spent, 0)))
            assert gateways.rows() == Balance(spent, 0)

    at_gateways(work)


def test_scripts_that_the_server_forgot_are_sent_again() -> None:
    async def work(gateways: Gateways) -> tuple[Balance, bool]:
        async with gateways.opened() as store:
            kept = await hold(store, 100)
            with gateways.server.client() as client:
                client.script_flush()
            more = await asyncio.gather(*(hold(store, 10) for _ in range(5)))
            for one in (kept, *more):
                store.settle(one, [3])
            await store.settled()
            return await balance(store), store.available

    assert at_gateways(work) == (Balance(18, 0), True)


def test_a_request_that_is_cancelled_while_it_waits_holds_nothing() -> None:
    async def work(gateways: Gateways) -> Balance:
        async with gateways.opened() as store:
            asked = asyncio.ensure_future(reserve(store, 500))
            await asyncio.sleep(0)
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
            await store.settled()
            return await balance(store)

    assert at_gateways(work) == Balance(0, 0)


@pytest.mark.parametrize("gateways", [1, 2])
def test_a_server_that_lost_its_data_gets_it_from_the_ledger_before_anything_is_admitted(gateways: int) -> None:
    async def work(all_: Gateways) -> None:
        async with all_.opened() as one, all_.opened() as other:
            stores = (one, other)[:gateways]
            ended, open_ = await hold(one, 4_000), await hold(one, 5_000)
            one.settle(ended, [3_500])
            await one.settled()
            all_.server.forget()
            for store in stores:
                await back(store)
            outcome = await reserve(stores[-1], 2_000)
            assert isinstance(outcome, Refused)
            assert (outcome.spent, outcome.held) == (3_500, 5_000)
            one.settle(open_, [4_500])
            await back(one)
            assert await balance(one) == all_.rows() == Balance(8_000, 0)

    at_gateways(work)


def test_counters_that_are_emptied_while_the_server_runs_are_noticed() -> None:
    async def work(gateways: Gateways) -> tuple[Balance, Balance]:
        async with gateways.opened() as store:
            kept = await hold(store, 9_000)
            with gateways.server.client() as client:
                client.flushall()
            with pytest.raises(StoreUnavailable):
                await reserve(store, 9_000)
            store.settle(kept, [8_000])
            await back(store)
            return await balance(store), gateways.rows()

    assert at_gateways(work) == (Balance(8_000, 0), Balance(8_000, 0))


def test_a_server_that_is_not_there_at_the_start_is_waited_for_in_the_background() -> None:
    async def work(gateways: Gateways) -> tuple[bool, bool, Balance]:
        async with gateways.opened() as store:
            before, at_once = store.available, refused_without_waiting(store)
            gateways.server.start()
            await back(store)
            await hold(store, 5)
            return before, at_once, await balance(store)

    assert at_gateways(work, started=False) == (False, True, Balance(0, 5))


@pytest.mark.parametrize("login", ["", ":letmein-wrong@", "nobody:letmein-wrong@"], ids=["none", "password", "user"])
def test_a_wrong_password_is_one_clear_error_that_does_not_show_it(
    login: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(gateways: Gateways) -> str:
        url = gateways.server.url.reveal().replace("unix://", f"unix://{login}")
        with pytest.raises(RedisRefused) as caught:
            async with gateways.opened(Secret(url)):
                pass
        return str(caught.value)

    told = at_gateways(work, "--requirepass", "letmein-right")
    assert "LOWPASS_REDIS_URL" in told
    assert "letmein" not in told + caplog.text


def test_the_right_password_is_let_in() -> None:
    async def work(gateways: Gateways) -> bool:
        url = gateways.server.url.reveal().replace("unix://", "unix://:letme%2Fin@")
        async with gateways.opened(Secret(url)) as store:
            return store.available

    assert at_gateways(work, "--requirepass", "letme/in")


def test_a_password_that_changes_under_a_running_gateway_ends_in_waiting_not_in_a_crash(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(gateways: Gateways) -> None:
        async with gateways.opened() as store:
            with gateways.server.client() as client:
                client.config_set("requirepass", "letmein-new")
                client.execute_command("AUTH", "letmein-new")
                client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                await eventually(lambda: "LOWPASS_REDIS_URL" in caplog.text)
                assert refused_without_waiting(store)
                client.config_set("requirepass", "")
            await back(store)
            await hold(store, 5)

    at_gateways(work)
    assert "letmein" not in caplog.text


@pytest.mark.parametrize(
    "url",
    [
        "redis://:p4ssword@host:notaport",
        "http://:p4ssword@host",
        "redis://:p4ssword@host/x",
        "redis://:p4ssword@h?nope=1",
    ],
)
def test_an_address_that_can_not_be_read_is_an_error_without_its_password(url: str) -> None:
    with pytest.raises(RedisRefused) as caught:
        address(Secret(url))
    assert "redis://" in str(caught.value)
    assert "p4ssword" not in str(caught.value)


def test_an_address_is_read() -> None:
    found = address(Secret("rediss://me:a%40b@budgets.example:7000/3?ssl_ca_certs=/ca.pem"))
    assert (found.host, found.port, found.user, found.database) == ("budgets.example", 7000, "me", 3)
    assert (found.tls, found.ca_file) == (True, "/ca.pem")
    assert found.password is not None
    assert found.password.reveal() == "a@b"
    assert str(found) == "budgets.example:7000"


@pytest.mark.parametrize(("limit", "whole"), [(LARGEST + 1, 5), (LARGEST, LARGEST + 1)])
def test_amounts_that_lua_can_not_count_are_refused_before_anything_is_asked(limit: int, whole: int) -> None:
    async def work(gateways: Gateways) -> Balance:
        async with gateways.opened() as store:
            with pytest.raises(ValueError, match=str(LARGEST)):
                await store.reserve("r", [account("pot", limit)], exactly(whole), NOW)
            kept = await store.reserve("s", [account("pot", LARGEST)], exactly(LARGEST), NOW)
            assert isinstance(kept, Reservation)
            with pytest.raises(ValueError, match=str(LARGEST)):
                store.settle(kept, [LARGEST + 1])
            store.settle(kept, [LARGEST - 1])
            await store.settled()
            return await balance(store)

    assert at_gateways(work) == Balance(LARGEST - 1, 0)


def test_a_full_server_admits_nothing_and_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def work(gateways: Gateways) -> Balance:
        async with gateways.opened() as store:
            kept = await hold(store, 100)
            with gateways.server.client() as client:
                client.config_set("maxmemory", "1")
                with pytest.raises(StoreUnavailable):
                    await reserve(store, 1)
                store.settle(kept, [60])
                await eventually(lambda: "OOM" in caplog.text)
                client.config_set("maxmemory", "0")
            await back(store)
            return await balance(store)

    assert at_gateways(work) == Balance(60, 0)


def test_a_server_that_may_forget_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    async def work(gateways: Gateways) -> None:
        with gateways.server.client() as client:
            client.config_set("appendonly", "no")
            client.config_set("maxmemory", str(2**30))
            client.config_set("maxmemory-policy", "allkeys-lru")
        async with gateways.opened():
            pass

    at_gateways(work)
    assert "appendonly" in caplog.text
    assert "noeviction" in caplog.text


def test_the_probe_speaks_to_redis_and_to_nothing_else() -> None:
    """Something else listens there: no hang, no crash."""

    async def work(gateways: Gateways) -> bool:
        path = gateways.ledger.parent / "other"

        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        server = await asyncio.start_unix_server(answer, path)
        async with server, gateways.opened(Secret(f"unix://{path}")) as store:
            return store.available

    assert at_gateways(work) is False
