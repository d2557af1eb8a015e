"""Holds that grow, are charged, are charged twice, or are not known."""

import pytest

from router.types.account import Account, Amount, Hold, Refused, Reservation, Unit
from tests.budget.conformance.desk import NOW, Desk, account, ask, at_desk, exactly, thinking
from tests.budget.conformance.stores import Maker

POT = account("p", 1_000)
ONLY_A = {"targets": frozenset({"a"})}


@pytest.mark.parametrize(
    ("accounts", "more", "extra", "held"),
    [
        pytest.param([POT], (300, 0), (300, 0), [400], id="all of it"),
        pytest.param([POT], (900, 0), (900, 0), [1_000], id="all that is left"),
        pytest.param([POT], (901, 0), (900, 0), [1_000], id="not more than is left"),
        pytest.param([account("p", 100)], (1, 0), (0, 0), [100], id="nothing left"),
        pytest.param([POT, account("q", 150)], (300, 0), (50, 0), [150, 150], id="the same in all"),
        pytest.param([POT, thinking("t", 120)], (300, 300), (300, 20), [400, 120], id="each unit for itself"),
        pytest.param([thinking("t", 1_000)], (300, 50), (300, 50), [150], id="a unit that nothing limits"),
        pytest.param([POT, account("s", 1, hard=False)], (300, 0), (300, 0), [400, 400], id="a soft one follows"),
        pytest.param([account("s", 1, hard=False)], (300, 0), (300, 0), [400], id="nothing but a soft one"),
        pytest.param([POT, account("a", 150, **ONLY_A)], (300, 0), (50, 0), [150, 150], id="a target's account"),
        pytest.param([], (300, 50), (300, 50), [], id="no account at all"),
    ],
)
def test_a_hold_grows_by_what_all_have_left(
    maker: Maker, accounts: list[Account], more: tuple[int, int], extra: tuple[int, int], held: list[int]
) -> None:
    """100 of each unit are held before."""

    async def work(desk: Desk) -> tuple[Reservation, list[tuple[int, int]]]:
        first = await desk.hold(accounts, 100, thinking=100)
        grown = await desk.store.extend(first, accounts, Amount(*more), NOW)
        return grown, [await desk.balance(one) for one in accounts]

    grown, balances = at_desk(maker, work)
    assert grown.granted == Amount(100 + extra[0], 100 + extra[1])
    assert [hold.amount for hold in grown.holds] == held
    assert balances == [(0, amount) for amount in held]


def test_an_overdrawn_account_gives_no_more_and_takes_nothing_back(maker: Maker) -> None:
    async def work(desk: Desk) -> Reservation:
        first = await desk.hold([POT], 100)
        await desk.spend(POT, 2_000)
        return await desk.store.extend(first, [POT], Amount(50, 0), NOW)

    assert at_desk(maker, work).granted == Amount(100, 0)


def test_a_hold_that_has_ended_does_not_grow(maker: Maker) -> None:
    async def work(desk: Desk) -> tuple[Reservation, Reservation, tuple[int, int]]:
        first = await desk.hold([POT], 100)
        await desk.settle(first, 60)
        return first, await desk.store.extend(first, [POT], Amount(50, 0), NOW), await desk.balance(POT)

    first, same, balance = at_desk(maker, work)
    assert same == first
    assert balance == (60, 0)


@pytest.mark.parametrize("charge", [0, 1, 400, 1_400], ids=["nothing", "less", "all", "more"])
def test_a_charge_is_booked_in_full(maker: Maker, charge: int) -> None:
    """And again by any other charge: only the first counts."""

    async def work(desk: Desk) -> list[tuple[int, int]]:
        held = await desk.hold([POT, thinking("t", 9_000)], 400, thinking=30)
        await desk.settle(held, charge, 7)
        booked = [await desk.balance(POT)]
        for again in (charge, charge + 5, 0):
            await desk.settle(held, again, again)
            booked.append(await desk.balance(POT))
        return [*booked, await desk.balance(thinking("t", 9_000))]

    assert at_desk(maker, work) == [*[(charge, 0)] * 4, (7, 0)]


def test_a_charge_above_the_limit_shuts_the_account(maker: Maker) -> None:
    async def work(desk: Desk) -> Reservation | Refused:
        await desk.settle(await desk.hold([POT], 900), 1_200)
        return await desk.reserve([POT], ask(1, 1, 1))

    refused = at_desk(maker, work)
    assert refused == Refused(account=POT, spent=1_200, held=0, needed=1)
    assert (refused.left, refused.passing) == (-200, False)


def test_what_is_given_back_may_be_held_at_once(maker: Maker) -> None:
    async def work(desk: Desk) -> list[bool]:
        first = await desk.hold([POT], 900)
        before = await desk.reserve([POT], exactly(600))
        await desk.settle(first, 400)
        after = await desk.reserve([POT], exactly(600))
        return [isinstance(outcome, Reservation) for outcome in (before, after)]

    assert at_desk(maker, work) == [False, True]


def test_charges_are_one_a_hold(maker: Maker) -> None:
    async def work(desk: Desk) -> tuple[int, int]:
        held = await desk.hold([POT], 400)
        with pytest.raises(ValueError, match="one a hold"):
            desk.store.settle(held, [1, 2])
        return await desk.balance(POT)

    assert at_desk(maker, work) == (0, 400)


@pytest.mark.parametrize("known_once", [False, True], ids=["never held", "lost by the store"])
def test_a_hold_that_the_store_does_not_know_is_booked_once_and_logged(
    maker: Maker, known_once: bool, caplog: pytest.LogCaptureFixture
) -> None:
    foreign = Reservation("who-is-this", Amount(400, 0), (Hold("p", 0, Unit.USD, 400),))

    async def work(desk: Desk) -> tuple[Reservation, tuple[int, int]]:
        unknown = foreign
        if known_once:
            unknown = await desk.hold([POT], 400)
            await desk.opened.forget(unknown.request_id)
        for charge in (300, 300, 50):
            await desk.settle(unknown, charge)
        await desk.store.recover(NOW)
        await desk.store.recover(NOW)
        return unknown, await desk.balance(POT)

    unknown, balance = at_desk(maker, work)
    assert balance == (300, 0)
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1
    assert unknown.request_id in errors[0]


def test_what_is_settled_again_by_its_first_reservation_includes_what_it_grew(maker: Maker) -> None:
    """A hold that grew is given back whole, whichever of its two reservations is settled."""

    async def work(desk: Desk) -> tuple[int, int]:
        first = await desk.hold([POT], 100)
        await desk.store.extend(first, [POT], Amount(500, 0), NOW)
        await desk.settle(first, 80)
        return await desk.balance(POT)

    assert at_desk(maker, work) == (80, 0)
