"""Budgets split off others: their money is their parent's, and comes back to it."""

from typing import Any

import pytest
from msgspec import structs

from router.types.account import LEASE_MS, Account, Amount, Child, Refused, Unit
from tests.budget.conformance.desk import HOUR, NOW, Desk, account, ask, at_desk, thinking
from tests.tables import each_row

PARENT = account("p", 1_000)
END = NOW + HOUR
TIMED = account("p", 1_000, window_start_ms=NOW, since_ms=NOW, resets_at_ms=END)


@at_desk
async def test_a_child_holds_its_limit_in_its_parent(desk: Desk) -> None:
    """The child spends from it, and its parent has no less for that."""
    child = await desk.split(PARENT, 400)
    held = await desk.hold([child], 300)
    assert await desk.refuses(child, 101)
    await desk.settle(held, 250)
    assert (await desk.granted([PARENT], ask(1, 1_000, 1_000))).granted.usd == 600
    assert await desk.balances(child, PARENT) == [(250, 0), (0, 1_000)]


@each_row(
    "case, parent, limit, expires, fits",
    [
        ("more than is left", PARENT, 701, END, False),
        ("outlives its parent's window", TIMED, 100, END + 1, False),
        ("for ever, its parent not", TIMED, 100, None, False),
        ("outlives its parent", structs.replace(PARENT, expires_at_ms=END), 100, END + 1, False),
        ("as large and as long as can be", TIMED, 700, END, True),
        ("as short as can be", TIMED, 1, NOW + 1, True),
    ],
)
@at_desk
async def test_what_a_parent_grants_and_refuses(
    desk: Desk, case: str, parent: Account, limit: int, expires: int | None, fits: bool
) -> None:
    await desk.spend(parent, 300)
    outcome = await desk.child(parent, limit, expires_at_ms=expires)
    assert await desk.store.child("child") == (outcome if fits else None)
    assert fits or outcome == Refused(account=parent, spent=300, held=0, needed=limit)
    assert await desk.balance(parent) == (300, limit if fits else 0)


@each_row("fields", [{"limit": 0}, {"limit": -5}, {"unit": Unit.THINKING}, {"name": "taken"}, {"name": "request"}])
@at_desk
async def test_impossible_children(desk: Desk, fields: dict[str, object]) -> None:
    """Of no limit, of another unit, or with the id of a child or of a request."""
    await desk.split(PARENT, 100, "taken")
    await desk.reserve([PARENT], ask(50, 50, 50), request_id="request")
    with pytest.raises(ValueError, match=r"limit|id"):
        await desk.child(PARENT, **({"limit": 100, "name": "new"} | fields))  # type: ignore[arg-type]
    assert await desk.balance(PARENT) == (0, 150)


@at_desk
async def test_a_child_is_found_with_everything_it_was_made_with(desk: Desk) -> None:
    own: Any = {"team": "red", "replaces": ("p", "q"), "key": "k-1", "created_ms": NOW - 5, "parent_window_ms": NOW}
    made = await desk.child(TIMED, 400, "child", **own)
    await desk.split(TIMED, 100, "other", created_ms=NOW)
    await desk.killed()
    other = await desk.store.close("other", NOW + 7)
    assert [made] == [await desk.store.child("child")] == await desk.store.children()
    assert isinstance(made, Child)
    assert isinstance(other, Child)
    assert (made.team, made.replaces, made.key, made.closed_ms) == ("red", ("p", "q"), "k-1", None)
    assert other.closed_ms == NOW + 7


@at_desk
async def test_a_child_that_does_not_exist(desk: Desk) -> None:
    unknown = account("who", 100, scope="split")
    assert await desk.refuses(unknown, 1)
    assert isinstance(await desk.child(unknown, 1), Refused)
    assert [await desk.store.child("who"), await desk.store.close("who", NOW)] == [None, None]
    assert await desk.store.children() == []


@each_row("parent", [PARENT, thinking("p", 1_000)])
@at_desk
async def test_closing_returns_what_was_not_spent_once(desk: Desk, parent: Account) -> None:
    child = await desk.split(parent, 400)
    assert await desk.refuses(child, 401, thinking=401)
    await desk.settle(await desk.hold([child], 400, thinking=400), 150)
    for later in (5, 6):
        closed = await desk.store.close("child", NOW + later)
        assert closed is not None
        assert closed.closed_ms == NOW + 5
    assert await desk.refuses(child, 1, NOW + 5, thinking=1)
    assert await desk.balances(parent, child) == [(150, 0), (150, 0)]


@at_desk
async def test_requests_in_progress_return_the_rest_when_they_end(desk: Desk) -> None:
    """Spent 100, held 200 of 400: 100 return at once; the holds can't grow; the rest returns as they are settled."""
    child = await desk.split(PARENT, 400)
    await desk.spend(child, 100)
    first, second = await desk.hold([child], 150), await desk.hold([child], 50)
    await desk.store.close("child", NOW)
    assert await desk.balance(PARENT) == (0, 300)
    assert await desk.store.extend(first, [child], Amount(10, 0), NOW) == first
    await desk.settle(first, 120)
    assert await desk.balance(PARENT) == (0, 270)
    await desk.settle(second, 10)
    assert await desk.balance(PARENT) == (230, 0)


@at_desk
async def test_what_a_child_overruns_its_limit_by_is_its_parent_s_at_once(desk: Desk) -> None:
    """Its parent's parent's too; as far as its other requests spend less, it is returned."""
    child = await desk.split(PARENT, 400)
    grandchild = await desk.split(child, 400, "grandchild")
    first, second = await desk.hold([grandchild], 200), await desk.hold([grandchild], 200)
    await desk.settle(first, 250)
    assert await desk.balances(PARENT, child) == [(0, 450), (0, 450)]
    await desk.settle(second, 100)
    assert await desk.balances(PARENT, child) == [(0, 400), (0, 400)]
    last = await desk.hold([grandchild], 50)
    await desk.store.close("child", NOW)
    await desk.settle(last, 90)
    assert await desk.balances(PARENT, child) == [(440, 0), (440, 0)]


@at_desk
async def test_what_a_grandchild_keeps_is_the_child_s_and_the_parent_s(desk: Desk) -> None:
    child = await desk.split(PARENT, 400)
    grandchild = await desk.split(child, 300, "grandchild")
    assert isinstance(await desk.child(child, 101, "greedy"), Refused)
    assert await desk.refuses(child, 101)
    await desk.spend(grandchild, 120)
    assert await desk.balances(PARENT, child) == [(0, 400), (0, 300)]
    await desk.store.close("grandchild", NOW)
    assert await desk.balances(PARENT, child) == [(0, 400), (120, 0)]


@at_desk
async def test_closing_a_child_closes_all_below(desk: Desk) -> None:
    """With a request in progress at the bottom: what it holds is held all the way up, and comes back all the way."""
    child = await desk.split(PARENT, 600)
    grandchild = await desk.split(child, 500, "grandchild")
    bottom = await desk.split(grandchild, 400, "bottom")
    line = (PARENT, child, grandchild, bottom)
    await desk.spend(grandchild, 30)
    held = await desk.hold([bottom], 200)
    await desk.store.close("child", NOW)
    assert await desk.balances(*line) == [(0, 230), (0, 230), (30, 200), (0, 200)]
    assert all([await desk.refuses(one, 1) for one in line[1:]])
    assert isinstance(await desk.child(bottom, 1, "late"), Refused)
    await desk.settle(held, 90)
    assert await desk.store.children() == []
    assert await desk.balances(*line) == [(120, 0), (120, 0), (120, 0), (90, 0)]


@at_desk
async def test_an_expired_child_takes_no_request_and_is_folded_into_its_parent(desk: Desk) -> None:
    """In the window it was split off in; its own child goes first."""
    child = await desk.split(TIMED, 400, expires_at_ms=END)
    grandchild = await desk.split(child, 200, "grandchild", expires_at_ms=END - 1)
    await desk.spend(child, 70)
    await desk.spend(grandchild, 50)
    assert (await desk.store.recover(END - 2), await desk.balance(TIMED)) == (0, (0, 400))
    assert all([await desk.refuses(one, 1, END) for one in (child, grandchild)])
    await desk.store.recover(END)
    assert (await desk.balance(TIMED), await desk.store.children()) == ((120, 0), [])


@at_desk
async def test_an_expired_child_waits_for_the_requests_of_a_process_that_lives(desk: Desk) -> None:
    """What it holds is never given away."""
    child = await desk.split(PARENT, 400)
    held = await desk.hold([child], 250, END - 1)
    await desk.store.recover(END)
    assert sum(await desk.balance(PARENT)) >= 250
    await desk.settle(held, 240)
    await desk.store.recover(END)
    assert await desk.balances(PARENT, child) == [(240, 0), (240, 0)]


@at_desk
async def test_a_child_whose_process_died_is_charged_at_its_hold_and_corrected_later(desk: Desk) -> None:
    """The truth turns up after the child was folded into its parent: the parent learns of it too."""
    held = await desk.hold([await desk.split(PARENT, 400)], 250)
    await desk.killed()
    await desk.leases_end()
    for _ in range(2):
        await desk.store.recover(END + LEASE_MS)
    assert await desk.balance(PARENT) == (250, 0)
    await desk.settle(held, 40)
    assert await desk.balance(PARENT) == (40, 0)
