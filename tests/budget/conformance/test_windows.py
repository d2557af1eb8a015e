"""Windows are sums over timestamps: nothing is reset, and nothing that was booked moves."""

from msgspec import structs

from router.budget.window import rolling
from router.types.account import Account, Amount, Refused, Reservation
from tests.budget.conformance.desk import HOUR, NOW, Desk, account, at_desk, exactly
from tests.budget.conformance.stores import Maker

NOON = NOW // HOUR * HOUR


def hourly(now_ms: int, limit: int = 1_000) -> Account:
    start = now_ms // HOUR * HOUR
    return account("p", limit, window_start_ms=start, since_ms=start, resets_at_ms=start + HOUR)


def last_hour(now_ms: int, limit: int = 1_000, **fields: object) -> Account:
    span = rolling(3_600, now_ms)
    return account("p", limit, window_start_ms=span.start, since_ms=span.since, resets_at_ms=span.resets_at, **fields)


def test_a_new_window_starts_empty_and_the_old_one_keeps_its_holds(maker: Maker) -> None:
    old, new = hourly(NOON), hourly(NOON + HOUR)

    async def work(desk: Desk) -> list[tuple[int, int]]:
        first = await desk.hold([old], 1_000, NOON)
        await desk.hold([new], 900, NOON + HOUR)
        before = [await desk.balance(old), await desk.balance(new)]
        await desk.settle(first, 600)
        return [*before, await desk.balance(old), await desk.balance(new)]

    assert at_desk(maker, work) == [(0, 1_000), (0, 900), (600, 0), (0, 900)]


def test_a_clock_that_goes_back_finds_the_window_as_it_left_it(maker: Maker) -> None:
    old, new = hourly(NOON), hourly(NOON + HOUR)

    async def work(desk: Desk) -> list[tuple[int, int]]:
        await desk.spend(old, 300, NOON)
        await desk.spend(new, 900, NOON + HOUR)
        await desk.hold([old], 700, NOON)
        assert isinstance(await desk.reserve([old], exactly(1), NOON), Refused)
        return [await desk.balance(old), await desk.balance(new)]

    assert at_desk(maker, work) == [(300, 700), (900, 0)]


def test_a_hold_grows_in_the_window_it_was_made_in(maker: Maker) -> None:
    """Its stream went on into the next window, which is used up: its own still has room."""
    old, new = hourly(NOON), hourly(NOON + HOUR)

    async def work(desk: Desk) -> tuple[Reservation, list[tuple[int, int]]]:
        first = await desk.hold([old], 100, NOON)
        await desk.spend(new, 1_000, NOON + HOUR)
        grown = await desk.store.extend(first, [new], structs.replace(first.granted, usd=950), NOON + HOUR)
        return grown, [await desk.balance(old), await desk.balance(new)]

    grown, balances = at_desk(maker, work)
    assert grown.granted.usd == 1_000
    assert balances == [(0, 1_000), (1_000, 0)]


def test_what_was_spent_slides_out_of_a_rolling_window(maker: Maker) -> None:
    """600 at noon, 300 half an hour later: they come back one after the other."""
    moments = [NOON + minutes * 60_000 for minutes in (30, 59, 61, 89, 92)]

    async def work(desk: Desk) -> list[tuple[int, int]]:
        await desk.spend(last_hour(NOON), 600, NOON)
        await desk.spend(last_hour(moments[0]), 300, moments[0])
        return [await desk.balance(last_hour(moment)) for moment in moments]

    assert at_desk(maker, work) == [(900, 0), (900, 0), (300, 0), (300, 0), (0, 0)]


def test_an_open_hold_counts_however_long_ago_it_was_made(maker: Maker) -> None:
    later = NOON + 5 * HOUR

    async def work(desk: Desk) -> list[object]:
        old = await desk.hold([last_hour(NOON)], 700, NOON)
        balance = await desk.balance(last_hour(later))
        refused = await desk.reserve([last_hour(later)], exactly(301), later)
        await desk.hold([last_hour(later)], 300, later)
        await desk.settle(old, 650)
        return [balance, isinstance(refused, Refused), await desk.balance(last_hour(later))]

    assert at_desk(maker, work) == [(0, 700), True, (0, 300)]


def test_a_rolling_hold_grows_by_what_is_left_now(maker: Maker) -> None:
    later = NOON + 2 * HOUR

    async def work(desk: Desk) -> tuple[int, tuple[int, int]]:
        old = await desk.hold([last_hour(NOON)], 100, NOON)
        await desk.spend(last_hour(NOON), 900, NOON)
        await desk.spend(last_hour(later), 500, later)
        grown = await desk.store.extend(old, [last_hour(later)], structs.replace(old.granted, usd=950), later)
        return grown.granted.usd, await desk.balance(last_hour(later))

    assert at_desk(maker, work) == (500, (500, 500))


def test_a_rolling_hold_that_is_as_old_as_its_window_grows_beside_older_ones(maker: Maker) -> None:
    """Its window begins just where the account counts from now: that makes it no calendar window."""
    second = NOON + 60_000

    async def work(desk: Desk) -> Reservation:
        await desk.hold([last_hour(NOON)], 500, NOON)
        held = await desk.hold([last_hour(second)], 200, second)
        return await desk.store.extend(held, [last_hour(second + HOUR)], Amount(usd=1_000), second + HOUR)

    assert at_desk(maker, work).granted.usd == 500


def test_what_a_fast_clock_booked_ahead_counts_in_a_rolling_window(maker: Maker) -> None:
    async def work(desk: Desk) -> tuple[int, int]:
        await desk.spend(last_hour(NOON + HOUR), 400, NOON + HOUR)
        return await desk.balance(last_hour(NOON))

    assert at_desk(maker, work) == (400, 0)


def test_which_values_of_a_scope_have_an_account(maker: Maker) -> None:
    """Those with a booking since then, or a hold; "key" is not "key2", and no account is made by a question."""

    def of(budget: str, value: str, start_ms: int) -> Account:
        name = f"{budget}|{value}"
        return account(
            name, 1_000, budget=budget, scope="key", value=value, window_start_ms=start_ms, since_ms=start_ms
        )

    async def work(desk: Desk) -> list[list[str]]:
        await desk.spend(of("key", "old", NOON), 10, NOON)
        await desk.spend(of("key", "a|b é", NOON + HOUR), 10, NOON + HOUR)
        await desk.hold([of("key", "held", NOON + HOUR)], 10, NOON + HOUR)
        await desk.hold([of("key2", "other", NOON + HOUR)], 10, NOON + HOUR)
        await desk.balance(of("key", "asked", NOON + HOUR))
        return [sorted(await desk.store.values(*asked)) for asked in (("key", NOON + HOUR), ("key", NOON), ("none", 0))]

    assert at_desk(maker, work) == [["a|b é", "held"], ["a|b é", "held", "old"], []]
