"""Windows are sums over timestamps: nothing is reset, and nothing that was booked moves."""

from msgspec import structs

from router.types.account import Account, Amount
from tests.budget.conformance.desk import HOUR, NOW, Desk, account, at_desk, hourly, last_hour

NOON = NOW // HOUR * HOUR
OLD, NEW = hourly(NOON), hourly(NOON + HOUR)


@at_desk
async def test_a_new_window_starts_empty_and_the_old_one_is_as_it_was_left(desk: Desk) -> None:
    first = await desk.hold([OLD], 1_000, NOON)
    await desk.hold([NEW], 900, NOON + HOUR)
    assert await desk.balances(OLD, NEW) == [(0, 1_000), (0, 900)]
    await desk.settle(first, 600)
    await desk.hold([OLD], 400, NOON)
    assert await desk.refuses(OLD, 1, NOON)
    assert await desk.balances(OLD, NEW) == [(600, 400), (0, 900)]


@at_desk
async def test_a_hold_grows_in_the_window_it_was_made_in(desk: Desk) -> None:
    """Its stream went on into the next window, which is used up: its own still has room."""
    first = await desk.hold([OLD], 100, NOON)
    await desk.spend(NEW, 1_000, NOON + HOUR)
    grown = await desk.store.extend(first, [NEW], structs.replace(first.granted, usd=950), NOON + HOUR)
    assert grown.granted.usd == 1_000
    assert await desk.balances(OLD, NEW) == [(0, 1_000), (1_000, 0)]


@at_desk
async def test_what_was_spent_slides_out_of_a_rolling_window(desk: Desk) -> None:
    """600 at noon, 300 half an hour later: they come back one after the other. Of a fast clock they count before."""
    moments = [NOON + minutes * 60_000 for minutes in (30, 59, 60, 61, 89, 92)]
    await desk.spend(last_hour(NOON), 600, NOON)
    await desk.spend(last_hour(moments[0]), 300, moments[0])
    balances = await desk.balances(*(last_hour(moment) for moment in [NOON - HOUR, *moments]))
    assert balances == [(900, 0), (900, 0), (900, 0), (900, 0), (300, 0), (300, 0), (0, 0)]


@at_desk
async def test_an_open_hold_counts_however_long_ago_it_was_made(desk: Desk) -> None:
    later = NOON + 5 * HOUR
    old = await desk.hold([last_hour(NOON)], 700, NOON)
    assert await desk.balance(last_hour(later)) == (0, 700)
    assert await desk.refuses(last_hour(later), 301, later)
    await desk.hold([last_hour(later)], 300, later)
    await desk.settle(old, 650)
    assert await desk.balance(last_hour(later)) == (0, 300)


@at_desk
async def test_a_rolling_hold_grows_by_what_is_left_now(desk: Desk) -> None:
    later = NOON + 2 * HOUR
    old = await desk.hold([last_hour(NOON)], 100, NOON)
    await desk.spend(last_hour(NOON), 900, NOON)
    await desk.spend(last_hour(later), 500, later)
    grown = await desk.store.extend(old, [last_hour(later)], structs.replace(old.granted, usd=950), later)
    assert grown.granted.usd == 500
    assert await desk.balance(last_hour(later)) == (500, 500)


@at_desk
async def test_a_rolling_hold_that_is_as_old_as_its_window_grows_beside_older_ones(desk: Desk) -> None:
    """Its window begins just where the account counts from now: that makes it no calendar window."""
    second = NOON + 60_000
    await desk.hold([last_hour(NOON)], 500, NOON)
    held = await desk.hold([last_hour(second)], 200, second)
    grown = await desk.store.extend(held, [last_hour(second + HOUR)], Amount(usd=1_000), second + HOUR)
    assert grown.granted.usd == 500


@at_desk
async def test_which_values_of_a_scope_have_an_account(desk: Desk) -> None:
    """Those with a booking since then, or a hold; "key" is not "key2", and no account is made by a question."""

    def of(budget: str, value: str, start: int) -> Account:
        own = {"budget": budget, "scope": "key", "value": value, "window_start_ms": start, "since_ms": start}
        return account(f"{budget}|{value}", 1_000, **own)

    await desk.spend(of("key", "old", NOON), 10, NOON)
    await desk.spend(of("key", "a|b é", NOON + HOUR), 10, NOON + HOUR)
    await desk.hold([of("key", "held", NOON + HOUR)], 10, NOON + HOUR)
    await desk.hold([of("key2", "other", NOON + HOUR)], 10, NOON + HOUR)
    await desk.balance(of("key", "asked", NOON + HOUR))
    assert sorted(await desk.store.values("key", NOON + HOUR)) == ["a|b é", "held"]
    assert sorted(await desk.store.values("key", NOON)) == ["a|b é", "held", "old"]
    assert await desk.store.values("none", 0) == []
