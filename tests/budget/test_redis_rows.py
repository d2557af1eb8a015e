"""The ledger's rows of a gateway that died just after Redis had confirmed its settlements."""

from router.budget.redis import RedisBudgets
from router.ledger.journal import SqliteJournal
from router.ledger.write import LEASE_MS
from router.types.account import Balance, Reservation
from tests.budget.conformance.desk import NOW, exactly
from tests.budget.conformance.redis_store import books
from tests.budget.redis_gateways import POT, Gateways, at_gateways, balance


async def dies_before_it_writes(gateways: Gateways) -> None:
    """Its rows go to a ledger that nobody reads, and its lease runs out."""
    await SqliteJournal(gateways.ledger).end()
    journal = SqliteJournal(gateways.ledger.with_name("lost.db"))
    dying = RedisBudgets(gateways.server.url, journal, lambda: books(gateways.ledger), LEASE_MS)
    await dying.start()
    for number in range(3):
        granted = await dying.reserve(f"r{number}", [POT], exactly(5), NOW)
        assert isinstance(granted, Reservation)
        if number:
            dying.settle(granted, [number])
    await dying.settled()
    with gateways.server.client() as client:
        client.zadd("{lowpass}:owners", {journal.owner: 0})
    await dying._server.stop()  # it says nothing more
    await journal.end()


def test_whoever_buries_it_writes_them() -> None:
    async def work(gateways: Gateways) -> tuple[int, Balance, Balance, Balance]:
        await dies_before_it_writes(gateways)
        async with gateways.opened() as store:
            recovered = await store.recover(NOW)
            await store.settled()
            first = gateways.rows()
            await store.recover(NOW)
            await store.settled()
            return recovered, first, gateways.rows(), await balance(store)

    assert at_gateways(work) == (1, Balance(1 + 2 + 5, 0), Balance(8, 0), Balance(8, 0))
