"""Pairs of which the cheaper by list was dearer in fact, against ledgers that were worked out by hand."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from router.ledger.ledger import Ledger
from router.types.price import Price
from router.types.target import Contract, Target, Thinking
from router.types.task import Task
from tests.report.asking import cells, reported
from tests.report.filled import USD, Happened, Tried, fill, target
from tests.stores import Make
from tests.tables import each_row


def priced(name: str, into: int, out: int, contract: Contract = Contract.LEVEL, model: str = "") -> Target:
    """USD for a million tokens."""
    made = target(name, model or f"house/{name}")
    price = Price(input=into * USD, output=out * USD, version="list")
    return structs.replace(made, model=structs.replace(made.model, price=price, thinking=Thinking(contract=contract)))


CHEAP, DEAR = priced("cheap", 1, 2), priced("dear", 3, 6)
TARGETS = (CHEAP, DEAR, priced("mute", 2, 4, Contract.NONE))


def answers(name: str, number: int, cost: int, thinking: int | None, **about: Any) -> list[Happened]:
    """Each of 100 tokens in and 20 out."""
    return [Happened(tried=(Tried(name, cost, model=f"house/{name}", thinking=thinking),), **about)] * number


CODE: dict[str, Any] = {"task": Task.CODE, "difficulty": 0.5}
WEEK = (
    *answers("cheap", 10, 20_000, 15_000),
    *answers("dear", 5, 8_000, 1_000),
    *answers("cheap", 5, 10_000, 5_000, **CODE),
    *answers("dear", 5, 8_000, 1_000, **CODE),
    # none to compare with, or too few
    *answers("cheap", 50, 1, 0, task=Task.MATHS),
    *answers("dear", 4, 1_000_000, 0, task=Task.MATHS),
    *answers("mute", 5, 30_000, None),
    *answers("dear", 9, 77, 0, route="judge"),
)


@pytest.fixture(scope="module")
def week(new_ledger: Make) -> Ledger:
    return fill(new_ledger(), WEEK)


def test_reversals_are_what_one_works_out_by_hand(week: Ledger) -> None:
    """Cells weigh by 10 × 5 ÷ 15 and 5 × 5 ÷ 10: cheap costs 15,714 an answer, 10,714 of that for thinking."""
    found = reported(week, "price-reversal", TARGETS)
    names = ("model", "than", "answers", "list_usd", "than_list_usd", "cost_usd", "than_cost_usd")
    lists = [round((price * 100 + 2 * price * 20) / 120 * USD) for price in (1, 2, 3)]
    assert cells(found, *names) == [
        ("house/mute", "house/dear", 10, lists[1], lists[2], 30_000, 8_000),
        ("house/cheap", "house/dear", 25, lists[0], lists[2], 15_714, 8_000),
    ]
    mute, cheap = cells(found, "dearer", "without_thinking", "thinking_part")
    assert mute == pytest.approx((30 / 8, 30 / 7, -1 / 22))
    assert cheap == pytest.approx((15_714.2857 / 8_000, 5 / 7, 9_714.2857 / 7_714.2857))
    # nothing varies
    assert cells(found, "dearer_low") == cells(found, "dearer") == cells(found, "dearer_high")
    [plot] = found.plots
    assert [mark.label for mark in plot.marks] == ["house/mute : house/dear", "house/cheap : house/dear"]
    assert plot.marks[0].value == plot.marks[0].high == 30 / 8
    assert found.note.startswith("2 of the 3 pairs of models that can be compared.")


def test_thinking_that_is_not_known_is_not_none(ledger: Ledger) -> None:
    fill(ledger, [*WEEK, *answers("cheap", 1, 20_000, None)])
    found = dict(cells(reported(ledger, "price-reversal", TARGETS), "model", "without_thinking"))
    assert found == {"house/mute": pytest.approx(30 / 7), "house/cheap": None}


@each_row(
    "targets, says",
    [
        ([], "has no list prices"),
        ([target("cheap", "house/cheap")], "has no list prices"),
        ([CHEAP], "0 of the 0 pairs"),
        ([CHEAP, priced("dear", 1, 2)], "0 of the 0 pairs"),
        ([priced("cheap", 3, 6), priced("dear", 1, 2)], "0 of the 1 pairs"),
        ([CHEAP, DEAR, priced("eu", 2, 2, model="house/cheap")], "house/cheap"),
    ],
)
def test_without_list_prices_nothing_is_compared(week: Ledger, targets: Sequence[Target], says: str) -> None:
    found = reported(week, "price-reversal", targets)
    assert found.rows == ()
    assert says in found.note


def test_filters_and_windows_hold(week: Ledger) -> None:
    code = reported(week, "price-reversal", TARGETS, where=("task=code",))
    assert cells(code, "model", "cost_usd") == [("house/cheap", 10_000)]
    assert reported(week, "price-reversal", TARGETS, until="2026-11-01").rows == ()


@each_row("happened", [[], answers("cheap", 1, 1, 0)], ids=["nothing", "one request"])
def test_a_ledger_of_nothing_and_of_one_request(new_ledger: Make, happened: list[Happened]) -> None:
    assert reported(fill(new_ledger(), happened), "price-reversal", TARGETS).rows == ()
