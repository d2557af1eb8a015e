"""Holds: what a request is granted or refused; how holds grow, are charged, are charged twice, or are not known."""

import asyncio
from typing import Any

import pytest
from msgspec import structs

from router.types.account import Account, Amount, Hold, Refused, Reservation, Unit, unpaid
from tests.budget.conformance.desk import NOW, ONLY_A, Desk, account, ask, at_desk, exactly, thinking
from tests.tables import data, each_row

Pair = tuple[int, int]
"""USD, and tokens of thinking."""
WANTED = ask(100, 200, 1_000)
BOTH = ask(100, 200, 1_000, (10, 20, 100))
ROOM = account("p", 1_000)


HOLDS = data(__file__, "holds.yaml")


def pots(texts: list[str]) -> list[Account]:
    """`p 100`: its id and limit; `thinking`: it counts tokens; `soft`; `a`: only of the target a."""
    made = []
    for name, limit, *kinds in map(str.split, texts):
        of_target: dict[str, Any] = ONLY_A if "a" in kinds else {}
        make = thinking if "thinking" in kinds else account
        made.append(make(name, int(limit), hard="soft" not in kinds, **of_target))
    return made


@each_row("case, accounts, wanted, granted, held, room", [tuple(row.values()) for row in HOLDS["granted"]])
@at_desk
async def test_what_is_granted(
    desk: Desk, case: str, accounts: list[str], wanted: list[Any], granted: Pair, held: list[int], room: Pair
) -> None:
    """`wanted`: least, tight and whole of both units; `room`: how much more could be had."""
    reservation = await desk.granted(pots(accounts), ask(*wanted))
    assert (reservation.granted, reservation.room) == (Amount(*granted), Amount(*room))
    assert [hold.amount for hold in reservation.holds] == held
    expected = [(0, hold) for hold in held] + [(0, 0)] * (len(accounts) - len(held))
    assert await desk.balances(*pots(accounts)) == expected


@each_row("overdrawn", [account("p", 100), thinking("p", 100)])
@at_desk
async def test_a_request_that_needs_nothing_is_not_refused_by_an_overdrawn_account(
    desk: Desk, overdrawn: Account
) -> None:
    await desk.spend(overdrawn, 140)
    free = await desk.granted([overdrawn], ask(0, 5, 50, (0, 5, 50)))
    assert free.granted.of(overdrawn.unit) == 0
    assert await desk.balance(overdrawn) == (140, 0)


@each_row(
    "case, accounts, refused, needed",
    [
        ("spent and held count", [account("p", 599)], "p", 100),
        ("one of two", [account("q", 10**9), account("p", 599)], "p", 100),
        ("the first of two", [account("p", 599), account("q", 0)], "p", 100),
        ("thinking", [account("q", 10**9), thinking("p", 509)], "p", 10),
        ("the last", [account("q", 10**9), account("a", 10**9, **ONLY_A), account("p", 500)], "p", 100),
    ],
)
@at_desk
async def test_a_refusal_says_whose_and_leaves_nothing(
    desk: Desk, case: str, accounts: list[Account], refused: str, needed: int
) -> None:
    """300 are spent and 200 held before."""
    short = next(one for one in accounts if one.id == refused)
    await desk.spend(short, 300)
    await desk.hold([structs.replace(short, hard=False)], 200, thinking=200)
    before = await desk.balances(*accounts)
    outcome = await desk.reserve(accounts, BOTH)
    assert outcome == Refused(account=short, spent=300, held=200, needed=needed)
    assert outcome.left == short.limit - 500
    assert outcome.passing
    assert await desk.balances(*accounts) == before


@at_desk
async def test_a_target_that_its_account_does_not_pay_for_is_named(desk: Desk) -> None:
    accounts = [account("p", 10**9), account("a", 99, **ONLY_A), account("b", 999, targets=frozenset({"b"}))]
    reservation = await desk.granted(accounts, WANTED)
    assert unpaid(accounts, reservation) == {"a"}
    assert (reservation.at("b"), reservation.at("c")) == (Amount(999, 0), Amount(1_000, 0))


@at_desk
async def test_a_request_is_refused_where_accounts_of_some_targets_pay_for_none_of_its_own(desk: Desk) -> None:
    """The refusal names one that has room once its holds are settled, if there is any."""
    spent = account("a", 99, **ONLY_A)
    full = account("b", 1_050, targets=frozenset({"b"}))
    await desk.hold([full], 1_000)
    accounts, ask = [account("p", 10**9), spent, full], structs.replace(WANTED, targets=("a", "b"))
    assert await desk.reserve(accounts, ask) == Refused(account=full, spent=0, held=1_000, needed=ask.least.usd)
    reservation = await desk.granted(accounts, structs.replace(ask, targets=("a", "b", "c")))
    assert unpaid(accounts, reservation) == {"a", "b"}


@at_desk
async def test_an_id_reserves_once(desk: Desk) -> None:
    """Neither beside its first hold nor after its settlement, nor in another account; those beside it are served."""
    first, second = account("p", 1_000), account("q", 1_000)
    held = await desk.hold([first], 300)
    again, beside, elsewhere = await asyncio.gather(
        desk.store.reserve(held.request_id, [first], exactly(300), NOW),
        desk.reserve([second], exactly(7)),
        desk.store.reserve(held.request_id, [second], exactly(300), NOW),
        return_exceptions=True,
    )
    assert isinstance(beside, Reservation)
    for outcome in (again, elsewhere):
        assert isinstance(outcome, ValueError)
        assert held.request_id in str(outcome)
    await desk.settle(held, 200)
    with pytest.raises(ValueError, match=held.request_id):
        await desk.store.reserve(held.request_id, [first], exactly(1), NOW)
    with pytest.raises(ValueError, match="twice"):
        await desk.reserve([first, first], WANTED)
    assert await desk.balances(first, second) == [(200, 0), (0, 7)]


@each_row(
    "spent, others", [(spent, n) for spent in (0, 5_000) for n in ([], [account("q", 10**6), thinking("t", 10**6)])]
)
@at_desk
async def test_500_at_once_share_room_for_10(desk: Desk, spent: int, others: list[Account]) -> None:
    """Each wants 100 of 1,099 exactly: 10 get it, none gets the rest; in an account that was used before or never."""
    short = account("p", 1_099 + spent)
    if spent:
        await desk.spend(short, spent)
    outcomes = await asyncio.gather(*(desk.reserve([*others, short], exactly(100, 100)) for _ in range(500)))
    assert sum(isinstance(outcome, Reservation) for outcome in outcomes) == 10
    assert await desk.balances(short, *others) == [(spent, 1_000), *[(0, 1_000)] * len(others)]


@at_desk
async def test_a_request_that_is_cancelled_while_it_reserves_holds_nothing(desk: Desk) -> None:
    """Wherever it is by then: cancelled before it began, while it waited, and after its hold was made."""
    pot = account("p", 10**6)

    async def cancelled(turns: int) -> bool:
        task = asyncio.ensure_future(desk.reserve([pot], exactly(100)))
        for _ in range(turns):
            await asyncio.sleep(0)
        if task.done():
            reservation = task.result()
            assert isinstance(reservation, Reservation)
            await desk.settle(reservation, 0)
            return False
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert any([await cancelled(turns) for turns in range(6)])
    async with asyncio.timeout(60):
        await desk.store.settled()  # what was cancelled on its way is given back after that
        while await desk.balance(pot) != (0, 0):
            await desk.store.settled()


@each_row("case, accounts, more, extra, held", [tuple(row.values()) for row in HOLDS["grown"]])
@at_desk
async def test_a_hold_grows_by_what_all_have_left(
    desk: Desk, case: str, accounts: list[str], more: Pair, extra: Pair, held: list[int]
) -> None:
    """100 of each unit are held before."""
    bound = pots(accounts)
    first = await desk.hold(bound, 100, thinking=100)
    grown = await desk.store.extend(first, bound, Amount(*more), NOW)
    assert grown.granted == Amount(100 + extra[0], 100 + extra[1])
    assert [hold.amount for hold in grown.holds] == held
    assert await desk.balances(*bound) == [(0, amount) for amount in held]


@at_desk
async def test_an_overdrawn_account_gives_no_more_and_takes_nothing_back(desk: Desk) -> None:
    """Nor does a hold that has ended grow; one that grew is given back whole, whichever reservation is settled."""
    first = await desk.hold([ROOM], 100)
    grown = await desk.store.extend(first, [ROOM], Amount(500), NOW)
    assert grown.granted == Amount(600)
    await desk.spend(ROOM, 2_000)
    assert await desk.store.extend(grown, [ROOM], Amount(50), NOW) == grown
    await desk.settle(first, 80)
    assert await desk.store.extend(grown, [ROOM], Amount(50), NOW) == grown
    assert await desk.balance(ROOM) == (2_080, 0)


@each_row("charge", [0, 1, 400, 1_400])
@at_desk
async def test_a_charge_is_booked_in_full(desk: Desk, charge: int) -> None:
    """And again by any other charge: only the first counts."""
    thought = thinking("t", 9_000)
    held = await desk.hold([ROOM, thought], 400, thinking=30)
    await desk.settle(held, charge, 7)
    assert await desk.balance(ROOM) == (charge, 0)
    for again in (charge, charge + 5, 0):
        await desk.settle(held, again, again)
        assert await desk.balances(ROOM, thought) == [(charge, 0), (7, 0)]


@at_desk
async def test_a_charge_above_the_limit_shuts_the_account(desk: Desk) -> None:
    await desk.settle(await desk.hold([ROOM], 900), 1_200)
    refused = await desk.reserve([ROOM], ask(1, 1, 1))
    assert refused == Refused(account=ROOM, spent=1_200, held=0, needed=1)
    assert (refused.left, refused.passing) == (-200, False)


@at_desk
async def test_what_is_given_back_may_be_held_at_once(desk: Desk) -> None:
    first = await desk.hold([ROOM], 900)
    with pytest.raises(ValueError, match="one a hold"):
        desk.store.settle(first, [1, 2])
    assert await desk.refuses(ROOM, 600)
    await desk.settle(first, 400)
    await desk.hold([ROOM], 600)


@each_row("held_once", [False, True])
@at_desk
async def test_a_hold_that_the_store_does_not_know_is_booked_once_and_logged(
    desk: Desk, held_once: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Because it was never held there, or because the store lost it."""
    caplog.clear()
    unknown = Reservation("of-elsewhere", Amount(400, 0), (Hold("p", 0, Unit.USD, 400),))
    if held_once:
        unknown = await desk.hold([ROOM], 400)
        await desk.opened.forget(unknown.request_id)
    for charge in (300, 300, 50):
        await desk.settle(unknown, charge)
    await desk.store.recover(NOW)
    await desk.store.recover(NOW)
    assert await desk.balance(ROOM) == (300, 0)
    (error,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert unknown.request_id in error
