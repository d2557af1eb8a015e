"""What a request is granted, and that a refusal leaves nothing behind."""

import asyncio
from collections.abc import Sequence

import pytest
from msgspec import structs

from router.types.account import AMPLE, Account, Amount, Ask, Refused, Reservation
from router.types.store import unpaid
from tests.budget.conformance.desk import NOW, Desk, account, ask, at_desk, exactly, thinking
from tests.budget.conformance.stores import Maker

WANTED = ask(100, 200, 1_000)
BOTH = ask(100, 200, 1_000, (10, 20, 100))
NO_THOUGHT = ask(100, 200, 1_000, (0, 20, 100))
ONLY_A = {"targets": frozenset({"a"})}


@pytest.mark.parametrize(
    ("accounts", "wanted", "granted", "held"),
    [
        pytest.param([account("p", 1_000 * AMPLE)], WANTED, (1_000, 0), [1_000], id="ample room: the whole"),
        pytest.param([account("p", 1_000 * AMPLE - 1)], WANTED, (200, 0), [200], id="less: the quantile"),
        pytest.param([account("p", 200)], WANTED, (200, 0), [200], id="the quantile just fits"),
        pytest.param([account("p", 150)], WANTED, (150, 0), [150], id="what is left"),
        pytest.param([account("p", 100)], WANTED, (100, 0), [100], id="the least just fits"),
        pytest.param(
            [account("p", 10**9), account("q", 150)], WANTED, (150, 0), [150, 150], id="one short: the same in all"
        ),
        pytest.param(
            [account("p", 10**9), thinking("t", 15)], BOTH, (1_000, 15), [1_000, 15], id="each unit for itself"
        ),
        pytest.param([thinking("t", 10**9)], BOTH, (1_000, 100), [100], id="a unit that nothing limits: the whole"),
        pytest.param(
            [account("p", 10**9), thinking("t", 0)], NO_THOUGHT, (1_000, 0), [1_000, 0], id="nothing left or needed"
        ),
        pytest.param([account("s", 1, hard=False)], WANTED, (1_000, 0), [1_000], id="a soft one refuses nothing"),
        pytest.param(
            [account("s", 1, hard=False), account("p", 150)], WANTED, (150, 0), [150, 150], id="a soft one follows"
        ),
        pytest.param(
            [account("p", 10**9), account("a", 150, **ONLY_A)], WANTED, (1_000, 0), [1_000, 150], id="a target has less"
        ),
        pytest.param(
            [account("p", 150), account("a", 10**9, **ONLY_A)], WANTED, (150, 0), [150, 150], id="a target has more"
        ),
        pytest.param(
            [account("p", 10**9), account("a", 100, **ONLY_A)], WANTED, (1_000, 0), [1_000, 100], id="a target's least"
        ),
        pytest.param(
            [account("p", 10**9), account("a", 99, **ONLY_A)], WANTED, (1_000, 0), [1_000], id="a target left out"
        ),
        pytest.param([account("a", 150, **ONLY_A)], WANTED, (1_000, 0), [150], id="nothing but a target"),
        pytest.param([account("a", 1, hard=False, **ONLY_A)], WANTED, (1_000, 0), [1_000], id="a target's soft one"),
        pytest.param([], WANTED, (1_000, 0), [], id="no account at all"),
    ],
)
def test_what_is_granted(
    maker: Maker, accounts: list[Account], wanted: Ask, granted: tuple[int, int], held: list[int]
) -> None:
    async def work(desk: Desk) -> tuple[Reservation | Refused, list[tuple[int, int]]]:
        reservation = await desk.reserve(accounts, wanted)
        return reservation, [await desk.balance(one) for one in accounts]

    reservation, balances = at_desk(maker, work)
    assert isinstance(reservation, Reservation)
    assert reservation.granted == Amount(*granted)
    assert [hold.amount for hold in reservation.holds] == held
    assert balances == [(0, hold) for hold in held] + [(0, 0)] * (len(accounts) - len(held))


@pytest.mark.parametrize("overdrawn", [account("p", 100), thinking("p", 100)], ids=["usd", "thinking"])
def test_whoever_needs_nothing_is_not_refused_by_an_overdrawn_account(maker: Maker, overdrawn: Account) -> None:
    async def work(desk: Desk) -> tuple[Reservation | Refused, tuple[int, int]]:
        await desk.spend(overdrawn, 140)
        free = await desk.reserve([overdrawn], ask(0, 5, 50, (0, 5, 50)))
        return free, await desk.balance(overdrawn)

    free, balance = at_desk(maker, work)
    assert isinstance(free, Reservation)
    assert free.granted.of(overdrawn.unit) == 0
    assert balance == (140, 0)


@pytest.mark.parametrize(
    ("accounts", "refused", "needed"),
    [
        pytest.param([account("p", 599)], "p", 100, id="spent and held count"),
        pytest.param([account("q", 10**9), account("p", 599)], "p", 100, id="one of two"),
        pytest.param([account("p", 599), account("q", 0)], "p", 100, id="the first of two"),
        pytest.param([account("q", 10**9), thinking("p", 509)], "p", 10, id="thinking"),
        pytest.param([account("q", 10**9), account("a", 10**9, **ONLY_A), account("p", 500)], "p", 100, id="the last"),
    ],
)
def test_a_refusal_says_whose_and_leaves_nothing(
    maker: Maker, accounts: list[Account], refused: str, needed: int
) -> None:
    """300 are spent and 200 held before."""
    short = next(one for one in accounts if one.id == refused)

    async def work(desk: Desk) -> tuple[Reservation | Refused, list[tuple[int, int]], list[tuple[int, int]]]:
        await desk.spend(short, 300)
        await desk.hold([structs.replace(short, hard=False)], 200, thinking=200)
        before = [await desk.balance(one) for one in accounts]
        outcome = await desk.reserve(accounts, BOTH)
        return outcome, before, [await desk.balance(one) for one in accounts]

    outcome, before, after = at_desk(maker, work)
    assert outcome == Refused(account=short, spent=300, held=200, needed=needed)
    assert outcome.left == short.limit - 500
    assert outcome.passing
    assert before == after


def test_a_target_that_its_account_does_not_pay_for_is_named(maker: Maker) -> None:
    accounts = [account("p", 10**9), account("a", 99, targets=frozenset({"a"})), account("b", 999, **_only("b"))]

    async def work(desk: Desk) -> Reservation | Refused:
        return await desk.reserve(accounts, WANTED)

    reservation = at_desk(maker, work)
    assert isinstance(reservation, Reservation)
    assert unpaid(accounts, reservation) == {"a"}
    assert reservation.at("b") == Amount(999, 0)
    assert reservation.at("c") == Amount(1_000, 0)


def _only(target: str) -> dict[str, frozenset[str]]:
    return {"targets": frozenset({target})}


def test_an_id_reserves_once(maker: Maker) -> None:
    """Neither beside its first hold nor after its settlement, nor in another account; those beside it are served."""
    first, second = account("p", 1_000), account("q", 1_000)

    async def work(desk: Desk) -> list[tuple[int, int]]:
        held = await desk.hold([first], 300)
        tries = [
            desk.store.reserve(held.request_id, [first], exactly(300), NOW),
            desk.reserve([second], exactly(7)),
            desk.store.reserve(held.request_id, [second], exactly(300), NOW),
        ]
        again, beside, elsewhere = await asyncio.gather(*tries, return_exceptions=True)
        assert isinstance(beside, Reservation)
        await desk.settle(held, 200)
        late = await asyncio.gather(
            desk.store.reserve(held.request_id, [first], exactly(1), NOW), return_exceptions=True
        )
        for outcome in (again, elsewhere, *late):
            assert isinstance(outcome, ValueError)
            assert held.request_id in str(outcome)
        return [await desk.balance(first), await desk.balance(second)]

    assert at_desk(maker, work) == [(200, 0), (0, 7)]


def test_a_request_is_not_charged_to_one_account_twice(maker: Maker) -> None:
    async def work(desk: Desk) -> tuple[int, int]:
        with pytest.raises(ValueError, match="twice"):
            await desk.reserve([account("p", 1_000)] * 2, WANTED)
        return await desk.balance(account("p", 1_000))

    assert at_desk(maker, work) == (0, 0)


@pytest.mark.parametrize("warm", [False, True], ids=["never used", "used"])
@pytest.mark.parametrize("others", [[], [account("q", 10**6), thinking("t", 10**6)]], ids=["alone", "with others"])
def test_500_at_once_share_room_for_10(maker: Maker, warm: bool, others: Sequence[Account]) -> None:
    """Each wants 100 of 1,099 exactly: 10 get it, nobody gets the rest."""
    short = account("p", 1_099 + 5_000 * warm)

    async def work(desk: Desk) -> tuple[int, list[tuple[int, int]]]:
        if warm:
            await desk.spend(short, 5_000)
        wanted = exactly(100, 100)
        outcomes = await asyncio.gather(*(desk.reserve([*others, short], wanted) for _ in range(500)))
        granted = sum(isinstance(outcome, Reservation) for outcome in outcomes)
        return granted, [await desk.balance(one) for one in (short, *others)]

    assert at_desk(maker, work) == (10, [(5_000 * warm, 1_000), *[(0, 1_000)] * len(others)])


def test_a_request_that_is_cancelled_while_it_reserves_holds_nothing(maker: Maker) -> None:
    """Wherever it is by then: cancelled before it began, while it waited, and after its hold was made."""
    pot = account("p", 10**6)

    async def cancelled(desk: Desk, turns: int) -> bool:
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

    async def work(desk: Desk) -> tuple[list[bool], tuple[int, int]]:
        ends = [await cancelled(desk, turns) for turns in range(6)]
        # What was cancelled on its way to a server may be given back a moment later.
        for _ in range(100):
            await desk.store.settled()
            if (await desk.balance(pot))[1] == 0:
                break
            await asyncio.sleep(0.01)
        return ends, await desk.balance(pot)

    ends, balance = at_desk(maker, work)
    assert any(ends)
    assert balance == (0, 0)


@pytest.mark.parametrize(
    ("accounts", "room"),
    [
        pytest.param([account("p", 1_000)], (800, 0), id="what is left beyond the hold"),
        pytest.param([account("p", 1_000), account("q", 500)], (300, 0), id="of the narrowest"),
        pytest.param([account("p", 150)], (0, 0), id="nothing"),
        pytest.param([account("p", 1_000 * AMPLE)], (1_000 * AMPLE - 1_000, 0), id="beyond the whole"),
        pytest.param([account("p", 1_000), thinking("t", 50)], (800, 30), id="each unit for itself"),
        pytest.param([account("s", 1, hard=False)], (0, 0), id="a soft one has none to tell of"),
        pytest.param([account("p", 1_000), account("a", 300, **ONLY_A)], (800, 0), id="a target's is its own"),
    ],
)
def test_how_much_more_could_be_had(maker: Maker, accounts: list[Account], room: tuple[int, int]) -> None:
    async def case(desk: Desk) -> None:
        granted = await desk.reserve(accounts, BOTH)
        assert isinstance(granted, Reservation)
        assert (granted.room.usd, granted.room.thinking) == room

    at_desk(maker, case)
