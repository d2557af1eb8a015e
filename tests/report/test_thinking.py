"""Where thinking goes, and which models it makes dearer than their list prices say: added up by hand."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from router.types.attempt import Usage
from router.types.price import Price
from router.types.target import Contract, Target, Task, Thinking
from tests.report.asking import cells, reported, totals
from tests.report.filled import USD, Happened, Tried, target, thinking
from tests.tables import data, each_row


def priced(name: str, into: int, out: int, contract: Contract = Contract.LEVEL, model: str = "") -> Target:
    """USD for a million tokens."""
    made = target(name, model or f"house/{name}")
    price = Price(input=into * USD, output=out * USD, version="list")
    return structs.replace(made, model=structs.replace(made.model, price=price, thinking=Thinking(contract=contract)))


POLICY = (priced("deep", 1, 1), target("plain"))
WASTED = Usage(input_uncached=100, output_visible=0, output_reasoning=500)


def at_effort(effort: str, cost: int, for_thinking: int | None, usage: Usage, name: str = "deep", **more: Any) -> Tried:
    return Tried(name, cost, usage, thinking=for_thinking, more={"thinking": effort, **more})


# deep: thinks at two efforts and, asked by number, at budgets; plain never does; opaque does not say.
THOUGHT = (
    Happened(tried=(at_effort("effort=high", 1_000, 600, thinking(60)),)),
    Happened(tried=(at_effort("effort=low", 500, 100, thinking(10)),), task=Task.CODE),
    Happened(
        tried=(
            at_effort("effort=high", 900, 800, WASTED, finish_reason="length", answered=False),
            Tried("plain", 50, thinking(None)),
        ),
        lowered=("effort", "output"),
    ),
    *(Happened(tried=(at_effort(f"budget={number}", 10, 4, thinking(4)),)) for number in (7, 1_024, 1_025, 99_999)),
    Happened(tried=(at_effort("on", 70, None, thinking(None), "opaque", finish_reason="length"),), lowered=("output",)),
    Happened(tried=(Tried("opaque", usage=None, outcome="connect"),)),
    Happened(),
)
TOKENS = ("attempts", "output_tokens", "thinking_tokens", "unknown", "cost_usd", "thinking_usd")


def test_tokens_and_money_by_target_and_effort() -> None:
    result = reported(THOUGHT, "thinking", POLICY)
    assert [list(row) for row in cells(result, "target", "effort", *TOKENS)] == data(__file__, "thinking.yaml")
    assert totals(result, *TOKENS) == (10, 746, 586, 1, 2_560, 1_516)
    assert cells(result, "thinking_share", "thinking_cost_share")[0] == (560 / 580, 1_400 / 1_900)
    marks = [(mark.label, mark.value) for mark in result.plots[0].marks]
    assert marks[:2] == [("deep · effort=high", 1_400), ("deep · effort=low", 100)]


def test_what_lowered_it_and_what_it_was_for_nothing() -> None:
    result = reported(THOUGHT, "thinking", POLICY, by="target")
    names = ("target", "lowered", "lowered_effort", "cut", "wasted", "wasted_tokens", "wasted_usd")
    assert cells(result, *names) == [
        ("deep", 0, 0, 1, 1, 500, 900),
        ("opaque", 1, 0, 1, 0, 0, 0),
        ("plain", 1, 1, 0, 0, 0, 0),
    ]


def test_a_target_that_does_not_tell_is_named_as_unknown() -> None:
    """Only the policy knows that plain never thinks."""
    result = reported(THOUGHT, "thinking", by="target")
    assert cells(result, "target", "thinking_tokens", "thinking_usd", "unknown") == [
        ("deep", 586, 1_516, 0),
        ("opaque", None, None, 1),
        ("plain", None, None, 1),
    ]
    assert "Unknown: " in result.note
    assert "Unknown: " not in reported(THOUGHT, "thinking", by="target", where=("target=deep",)).note


def test_filters_hold_and_where_no_target_was_asked_there_is_no_row() -> None:
    result = reported(THOUGHT, "thinking", POLICY, by="task", where=("effort=effort=low,effort=high",))
    assert cells(result, "task", "thinking_tokens") == [("chat", 560), ("code", 10)]
    nowhere = reported([Happened()], "thinking")
    assert (nowhere.rows, nowhere.plots, totals(nowhere, "cost_usd", "thinking_usd")) == ((), (), (0, None))


CHEAP, DEAR = priced("cheap", 1, 2), priced("dear", 3, 6)
TARGETS = (CHEAP, DEAR, priced("mute", 2, 4, Contract.NONE))


def answers(name: str, number: int, cost: int, thinking: int | None, **about: Any) -> list[Happened]:
    """Each of 100 tokens in and 20 out."""
    return [Happened(tried=(Tried(name, cost, model=f"house/{name}", thinking=thinking),), **about)] * number


CODE: dict[str, Any] = {"task": Task.CODE, "difficulty": 0.5}
REVERSED = (
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


def test_reversals_are_what_one_works_out_by_hand() -> None:
    """Cells weigh by 10 × 5 ÷ 15 and 5 × 5 ÷ 10: cheap costs 15,714 an answer, 10,714 of that for thinking."""
    result = reported(REVERSED, "price-reversal", TARGETS)
    names = ("model", "than", "answers", "list_usd", "than_list_usd", "cost_usd", "than_cost_usd")
    lists = [round((price * 100 + 2 * price * 20) / 120 * USD) for price in (1, 2, 3)]
    assert cells(result, *names) == [
        ("house/mute", "house/dear", 10, lists[1], lists[2], 30_000, 8_000),
        ("house/cheap", "house/dear", 25, lists[0], lists[2], 15_714, 8_000),
    ]
    mute, cheap = cells(result, "dearer", "without_thinking", "thinking_part")
    assert mute == pytest.approx((30 / 8, 30 / 7, -1 / 22))
    assert cheap == pytest.approx((15_714.2857 / 8_000, 5 / 7, 9_714.2857 / 7_714.2857))
    # nothing varies
    assert cells(result, "dearer_low") == cells(result, "dearer") == cells(result, "dearer_high")
    [plot] = result.plots
    assert [mark.label for mark in plot.marks] == ["house/mute : house/dear", "house/cheap : house/dear"]
    assert plot.marks[0].value == plot.marks[0].high == 30 / 8
    assert result.note.startswith("2 of the 3 pairs of models that can be compared.")
    code = reported(REVERSED, "price-reversal", TARGETS, where=("task=code",))
    assert cells(code, "model", "cost_usd") == [("house/cheap", 10_000)]
    assert reported(REVERSED, "price-reversal", TARGETS, until="2026-11-01").rows == ()


def test_thinking_that_is_not_known_is_not_none() -> None:
    result = reported([*REVERSED, *answers("cheap", 1, 20_000, None)], "price-reversal", TARGETS)
    assert cells(result, "model", "without_thinking") == [("house/mute", pytest.approx(30 / 7)), ("house/cheap", None)]


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
def test_without_list_prices_nothing_is_compared(targets: Sequence[Target], says: str) -> None:
    result = reported(REVERSED, "price-reversal", targets)
    assert result.rows == ()
    assert says in result.note
