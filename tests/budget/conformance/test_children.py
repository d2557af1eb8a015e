"""Budgets split off others: their money is their parent's, and comes back to it."""

import pytest
from msgspec import structs

from router.types.account import Account, Amount, Child, Refused, Reservation, Unit
from tests.budget.conformance.desk import HOUR, NOW, Desk, account, after_a_kill, ask, at_desk, exactly, thinking
from tests.budget.conformance.stores import Maker

PARENT = account("p", 1_000)
END = NOW + HOUR
TIMED = account("p", 1_000, window_start_ms=NOW, since_ms=NOW, resets_at_ms=END)


async def split(desk: Desk, parent: Account, limit: int, name: str = "child", **fields: object) -> Account:
    """The account of a child that fits."""
    child = await desk.child(parent, limit, name, **fields)
    assert isinstance(child, Child), child
    return child.account()


def test_a_child_holds_its_limit_in_its_parent(maker: Maker) -> None:
    """The child spends from it, and its parent has no less for that."""

    async def work(desk: Desk) -> list[object]:
        child = await split(desk, PARENT, 400)
        held = await desk.hold([child], 300)
        refused = await desk.reserve([child], exactly(101))
        await desk.settle(held, 250)
        rest = await desk.reserve([PARENT], ask(1, 1_000, 1_000))
        assert isinstance(rest, Reservation)
        return [isinstance(refused, Refused), rest.granted.usd, await desk.balance(child), await desk.balance(PARENT)]

    assert at_desk(maker, work) == [True, 600, (250, 0), (0, 1_000)]


@pytest.mark.parametrize(
    ("parent", "limit", "expires"),
    [
        pytest.param(PARENT, 701, END, id="more than is left"),
        pytest.param(TIMED, 100, END + 1, id="outlives its parent's window"),
        pytest.param(TIMED, 100, None, id="for ever, its parent not"),
        pytest.param(structs.replace(PARENT, expires_at_ms=END), 100, END + 1, id="outlives its parent"),
    ],
)
def test_what_a_parent_refuses(maker: Maker, parent: Account, limit: int, expires: int | None) -> None:
    """300 are spent."""

    async def work(desk: Desk) -> tuple[Child | Refused, Child | None, tuple[int, int]]:
        await desk.spend(parent, 300)
        outcome = await desk.child(parent, limit, expires_at_ms=expires)
        return outcome, await desk.store.child("child"), await desk.balance(parent)

    outcome, child, balance = at_desk(maker, work)
    assert outcome == Refused(account=parent, spent=300, held=0, needed=limit)
    assert child is None
    assert balance == (300, 0)


@pytest.mark.parametrize(
    ("limit", "expires"), [(700, END), (1, NOW + 1)], ids=["all that is left, to the end", "one, for a moment"]
)
def test_a_child_as_large_and_as_long_as_can_be(maker: Maker, limit: int, expires: int) -> None:
    async def work(desk: Desk) -> tuple[int, int]:
        await desk.spend(TIMED, 300)
        await split(desk, TIMED, limit, expires_at_ms=expires)
        return await desk.balance(TIMED)

    assert at_desk(maker, work) == (300, limit)


@pytest.mark.parametrize(
    "fields",
    [{"limit": 0}, {"limit": -5}, {"unit": Unit.THINKING}, {"id": "taken"}, {"id": "request"}],
    ids=["nothing", "negative", "another unit", "an id in use", "the id of a request"],
)
def test_impossible_children(maker: Maker, fields: dict[str, object]) -> None:
    async def work(desk: Desk) -> tuple[int, int]:
        await split(desk, PARENT, 100, "taken")
        await desk.reserve([PARENT], exactly(50), request_id="request")
        with pytest.raises(ValueError, match=r"limit|id"):
            await desk.child(PARENT, **({"limit": 100, "name": "new"} | _named(fields)))  # type: ignore[arg-type]
        return await desk.balance(PARENT)

    assert at_desk(maker, work) == (0, 150)


def _named(fields: dict[str, object]) -> dict[str, object]:
    return {"name" if field == "id" else field: value for field, value in fields.items()}


def test_what_a_child_is_found_as(maker: Maker) -> None:
    """With everything it was made with, in the process that made it and in another."""
    fields = {"team": "red", "replaces": ("p", "q"), "key": "k-1", "created_ms": NOW - 5, "parent_window_ms": NOW}

    async def make(desk: Desk) -> list[object]:
        made = await desk.child(TIMED, 400, "child", **fields)
        await split(desk, TIMED, 100, "other", created_ms=NOW)
        return [made]

    async def find(desk: Desk, made: list[object]) -> list[object]:
        other = await desk.store.close("other", NOW + 7)
        return [*made, await desk.store.child("child"), *await desk.store.children(), other]

    made, found, listed, other = after_a_kill(maker, make, find)
    assert made == found == listed
    assert isinstance(made, Child)
    assert (made.team, made.replaces, made.key, made.closed_ms) == ("red", ("p", "q"), "k-1", None)
    assert isinstance(other, Child)
    assert other.closed_ms == NOW + 7


def test_a_child_that_nobody_knows(maker: Maker) -> None:
    async def work(desk: Desk) -> list[object]:
        nobody = account("who", 100, scope="split")
        refused = [await desk.reserve([nobody], exactly(1)), await desk.child(nobody, 1)]
        found = [await desk.store.child("who"), await desk.store.close("who", NOW), await desk.store.children()]
        return [*found, *[isinstance(outcome, Refused) for outcome in refused]]

    assert at_desk(maker, work) == [None, None, [], True, True]


def test_closing_returns_what_was_not_spent_once(maker: Maker) -> None:
    async def work(desk: Desk) -> list[object]:
        child = await split(desk, PARENT, 400)
        await desk.spend(child, 150)
        ends = [await desk.store.close("child", NOW + later) for later in (5, 6)]
        refused = await desk.reserve([child], exactly(1), NOW + 5)
        moments = [end.closed_ms for end in ends if end is not None]
        return [moments, isinstance(refused, Refused), await desk.balance(PARENT), await desk.balance(child)]

    assert at_desk(maker, work) == [[NOW + 5] * 2, True, (150, 0), (150, 0)]


def test_requests_in_progress_return_the_rest_when_they_end(maker: Maker) -> None:
    """Spent 100, held 200 of 400: 100 return at once; the holds can't grow; the rest returns as they are settled."""

    async def work(desk: Desk) -> list[object]:
        child = await split(desk, PARENT, 400)
        await desk.spend(child, 100)
        first, second = await desk.hold([child], 150), await desk.hold([child], 50)
        await desk.store.close("child", NOW)
        booked = [await desk.balance(PARENT)]
        same = await desk.store.extend(first, [child], Amount(10, 0), NOW)
        await desk.settle(first, 120)
        booked.append(await desk.balance(PARENT))
        await desk.settle(second, 10)
        return [same == first, *booked, await desk.balance(PARENT)]

    assert at_desk(maker, work) == [True, (0, 300), (0, 270), (230, 0)]


def test_a_charge_above_its_hold_reaches_the_parent_of_a_closed_child(maker: Maker) -> None:
    async def work(desk: Desk) -> tuple[int, int]:
        child = await split(desk, PARENT, 400)
        held = await desk.hold([child], 400)
        await desk.store.close("child", NOW)
        await desk.settle(held, 450)
        return await desk.balance(PARENT)

    assert at_desk(maker, work) == (450, 0)


def test_a_child_that_overruns_its_limit_is_seen_by_its_parent_at_once(maker: Maker) -> None:
    async def work(desk: Desk) -> list[tuple[int, int]]:
        child = await split(desk, PARENT, 400)
        grandchild = await split(desk, child, 400, "grandchild")
        await desk.settle(await desk.hold([grandchild], 400), 450)
        booked = [await desk.balance(PARENT), await desk.balance(child)]
        await desk.store.close("child", NOW)
        return [*booked, await desk.balance(PARENT)]

    assert at_desk(maker, work) == [(0, 450), (0, 450), (450, 0)]


def test_what_a_child_overran_by_is_returned_as_far_as_its_other_requests_spend_less(maker: Maker) -> None:
    async def work(desk: Desk) -> list[tuple[int, int]]:
        child = await split(desk, PARENT, 400)
        first, second = await desk.hold([child], 200), await desk.hold([child], 200)
        await desk.settle(first, 250)
        booked = [await desk.balance(PARENT)]
        await desk.settle(second, 100)
        return [*booked, await desk.balance(PARENT)]

    assert at_desk(maker, work) == [(0, 450), (0, 400)]


def test_a_child_of_a_child(maker: Maker) -> None:
    """What the grandchild keeps is the child's, and through it the parent's."""

    async def work(desk: Desk) -> list[tuple[int, int]]:
        child = await split(desk, PARENT, 400)
        grandchild = await split(desk, child, 300, "grandchild")
        assert isinstance(await desk.child(child, 101, "greedy"), Refused)
        assert isinstance(await desk.reserve([child], exactly(101)), Refused)
        await desk.spend(grandchild, 120)
        booked = [await desk.balance(PARENT), await desk.balance(child)]
        await desk.store.close("grandchild", NOW)
        return [*booked, await desk.balance(PARENT), await desk.balance(child)]

    assert at_desk(maker, work) == [(0, 400), (0, 300), (0, 400), (120, 0)]


def test_closing_a_child_closes_all_below(maker: Maker) -> None:
    """With a request in progress at the bottom: what it holds is held all the way up, and comes back all the way."""

    async def work(desk: Desk) -> list[object]:
        child = await split(desk, PARENT, 600)
        grandchild = await split(desk, child, 500, "grandchild")
        bottom = await split(desk, grandchild, 400, "bottom")
        await desk.spend(grandchild, 30)
        held = await desk.hold([bottom], 200)
        await desk.store.close("child", NOW)
        booked = [await desk.balance(one) for one in (PARENT, child, grandchild, bottom)]
        refused = [isinstance(await desk.reserve([one], exactly(1)), Refused) for one in (child, grandchild, bottom)]
        refused.append(isinstance(await desk.child(bottom, 1, "late"), Refused))
        await desk.settle(held, 90)
        after = [await desk.balance(one) for one in (PARENT, child, grandchild, bottom)]
        return [booked, all(refused), await desk.store.children(), after]

    assert at_desk(maker, work) == [
        [(0, 230), (0, 230), (30, 200), (0, 200)],
        True,
        [],
        [(120, 0), (120, 0), (120, 0), (90, 0)],
    ]


def test_an_expired_child_takes_no_request_and_is_folded_into_its_parent(maker: Maker) -> None:
    """In the window it was split off in; its own child goes first."""

    async def work(desk: Desk) -> list[object]:
        child = await split(desk, TIMED, 400, expires_at_ms=END)
        grandchild = await split(desk, child, 200, "grandchild", expires_at_ms=END - 1)
        await desk.spend(child, 70)
        await desk.spend(grandchild, 50)
        early = await desk.store.recover(END - 2), await desk.balance(TIMED)
        refused = [isinstance(await desk.reserve([one], exactly(1), END), Refused) for one in (child, grandchild)]
        await desk.store.recover(END)
        return [early, refused, await desk.balance(TIMED), await desk.store.children()]

    assert at_desk(maker, work) == [(0, (0, 400)), [True, True], (120, 0), []]


def test_an_expired_child_waits_for_its_requests(maker: Maker) -> None:
    """Of a process that lives; what it holds is never given away."""

    async def work(desk: Desk) -> list[tuple[int, int]]:
        child = await split(desk, PARENT, 400)
        held = await desk.hold([child], 250, END - 1)
        await desk.store.recover(END)
        spent, kept = await desk.balance(PARENT)
        assert spent + kept >= 250
        await desk.settle(held, 240)
        await desk.store.recover(END)
        return [await desk.balance(PARENT), await desk.balance(child)]

    assert at_desk(maker, work) == [(240, 0), (240, 0)]


def test_a_child_whose_process_died_is_charged_at_its_hold_and_corrected_later(maker: Maker) -> None:
    """The truth turns up after the child was folded into its parent: the parent learns of it too."""

    async def hold(desk: Desk) -> Reservation:
        return await desk.hold([await split(desk, PARENT, 400)], 250)

    async def late(desk: Desk, held: Reservation) -> list[tuple[int, int]]:
        await desk.opened.pass_time(desk.opened.lease_ms + 1)
        await desk.store.recover(END + desk.opened.lease_ms)
        await desk.store.recover(END + desk.opened.lease_ms)
        booked = [await desk.balance(PARENT)]
        await desk.settle(held, 40)
        return [*booked, await desk.balance(PARENT)]

    assert after_a_kill(maker, hold, late) == [(250, 0), (40, 0)]


def test_thinking_tokens_are_split_too(maker: Maker) -> None:
    parent = thinking("p", 1_000)

    async def work(desk: Desk) -> list[tuple[int, int]]:
        child = await split(desk, parent, 400)
        assert isinstance(await desk.reserve([child], exactly(0, 401)), Refused)
        await desk.settle(await desk.hold([child], 0, thinking=400), 380)
        await desk.store.close("child", NOW)
        return [await desk.balance(parent), await desk.balance(child)]

    assert at_desk(maker, work) == [(380, 0), (380, 0)]
