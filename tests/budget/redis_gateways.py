"""Gateways at a Redis server, which a test may kill, pause and empty."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial, wraps
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvloop
from redis.exceptions import ConnectionError

from router.budget.redis.store import RedisBudgets
from router.ledger.journal import SqliteJournal
from router.types.account import LEASE_MS, Account, Balance, Refused, Reservation, StoreUnavailable
from router.types.target import Secret
from tests.budget.conformance.desk import NOW, account, exactly, without
from tests.budget.conformance.stores import books, in_redis
from tests.budget.redis_process import LONG_S, RedisProcess, shared_server
from tests.ledger.books import rows

Test = Callable[..., Awaitable[None]]
POT = account("pot", 10_000)
_numbers = count(1)


class Gateways:
    """All at one server, with one ledger."""

    def __init__(self, server: RedisProcess, folder: Path) -> None:
        self.server, self.ledger = server, folder / "lowpass.db"

    @asynccontextmanager
    async def opened(self, url: Secret | None = None, tag: str = "lowpass", **more: Any) -> AsyncIterator[RedisBudgets]:
        journal = SqliteJournal(self.ledger)
        try:
            async with in_redis(url or self.server.url, journal, tag, **more) as store:
                yield store
        finally:
            await journal.end()

    @asynccontextmanager
    async def dying(self) -> AsyncIterator[tuple[RedisBudgets, str]]:
        """One whose rows go to a ledger that is lost, and its name; then it is silent, and its lease is over."""
        await SqliteJournal(self.ledger).end()
        journal = SqliteJournal(self.ledger.with_name("lost.db"))
        store = RedisBudgets(self.server.url, journal, lambda: books(self.ledger), LEASE_MS)
        await store.start()
        yield store, journal.owner
        with self.server.client() as client:
            client.zadd("{lowpass}:owners", {journal.owner: 0})
        await store.server.stop()
        await journal.end()

    def rows(self, name: str = POT.id) -> Balance:
        """What the ledger says about an account."""
        query = (
            "SELECT coalesce(sum(charged), 0) spent, coalesce(sum((charged IS NULL) * held), 0) held"
            " FROM bookings WHERE account = ?"
        )
        (row,) = rows(self.ledger, query, name)
        return Balance(row["spent"], row["held"])


def at_redis(test: Test) -> Callable[..., None]:
    """The test runs in the event loop that gateways run in, at an empty server that it does not harm.

    It is given what it names of: the `server`, a `client` of it, `gateways` there, and the `store` that one has open.
    """
    return _at(_emptied, None, test)


def at_own_redis(
    *options: str, started: bool = True, at: Callable[[Gateways, RedisBudgets], object] | None = None
) -> Callable[[Test], Callable[..., None]]:
    """As `at_redis`, at a server of its own. A test may name `at` too, which is made for it."""

    @contextmanager
    def server() -> Iterator[RedisProcess]:
        with RedisProcess(*options) as process:
            if not started:
                process.kill()
            yield process

    return partial(_at, server, at)


@contextmanager
def _emptied() -> Iterator[RedisProcess]:
    with shared_server().client() as client:
        client.flushall()
        yield shared_server()


def _at(
    server: Callable[[], AbstractContextManager[RedisProcess]],
    at: Callable[[Gateways, RedisBudgets], object] | None,
    test: Test,
) -> Callable[..., None]:
    wanted = inspect.signature(test).parameters

    async def work(process: RedisProcess, folder: str, given: dict[str, Any]) -> None:
        gateways = Gateways(process, Path(folder))
        given |= {"server": process, "gateways": gateways}
        async with AsyncExitStack() as stack:
            if "client" in wanted:
                given["client"] = stack.enter_context(process.client())
            if "store" in wanted or at is not None:
                given["store"] = await stack.enter_async_context(gateways.opened())
            if at is not None:
                given["at"] = at(gateways, given["store"])
            await test(**{name: given[name] for name in wanted})

    @wraps(test)
    def run(**others: Any) -> None:
        with TemporaryDirectory() as folder, server() as process:
            uvloop.run(work(process, folder, others))

    made = ("at",) if at is not None else ()
    run.__signature__ = without(test, "server", "client", "gateways", "store", *made)  # type: ignore[attr-defined]
    return run


def pause(server: RedisProcess, *stores: Any) -> None:
    """The server stands still, and what these ask of it is given up soon."""
    for link in [store.server.link for store in stores]:
        if link is not None:
            link.timeout_s = 0.05
            link.check_overdue()  # its timer was set for the patience before
    server.pause()


async def reserve(store: RedisBudgets, usd: int, *accounts: Account, now: int = NOW) -> Reservation | Refused:
    return await store.reserve(f"r-{next(_numbers)}", accounts or [POT], exactly(usd), now)


async def hold(store: RedisBudgets, usd: int, *accounts: Account, now: int = NOW) -> Reservation:
    granted = await reserve(store, usd, *accounts, now=now)
    assert isinstance(granted, Reservation), granted
    return granted


async def eventually(done: Callable[[], bool | Awaitable[object]]) -> None:
    """What can't be reached yet is asked again."""
    async with asyncio.timeout(LONG_S):
        while True:
            with suppress(StoreUnavailable, OSError, ConnectionError):
                outcome = done()
                if outcome if isinstance(outcome, bool) else await outcome:
                    return
            await asyncio.sleep(0.005)


async def back(*stores: RedisBudgets) -> None:
    """They answer again, and everything is settled that was queued."""
    for store in stores:
        await eventually(partial(store.balances, [POT]))
        await store.settled()


async def balance(store: RedisBudgets, at: Account = POT) -> Balance:
    (booked,) = await store.balances([at])
    return booked


async def comes_to(store: RedisBudgets, expected: Balance) -> None:
    async def is_there() -> bool:
        return await balance(store) == expected

    await eventually(is_there)
