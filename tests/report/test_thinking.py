"""Where thinking goes, against a ledger that was added up by hand."""

from typing import Any

import pytest
from msgspec import structs

from router.ledger.ledger import Ledger
from router.types.target import Contract, Thinking
from router.types.task import Task
from router.types.usage import Usage
from tests.report.asking import cells, nano, reported
from tests.report.filled import Happened, Tried, fill, target, thinking
from tests.stores import Make
from tests.tables import each_row

PLAIN, DEEP = target("plain"), target("deep")
DEEP = structs.replace(DEEP, model=structs.replace(DEEP.model, thinking=Thinking(contract=Contract.LEVEL)))
POLICY = (DEEP, PLAIN)
WASTED = Usage(input_uncached=100, output_visible=0, output_reasoning=500)


def at_effort(effort: str, cost: int, for_thinking: int | None, usage: Usage, name: str = "deep", **more: Any) -> Tried:
    return Tried(name, cost, usage, thinking=for_thinking, more={"thinking": effort, **more})


# deep: thinks at two efforts and, asked by number, at budgets; plain never does; opaque does not say.
WEEK = (
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


@pytest.fixture(scope="module")
def week(new_ledger: Make) -> Ledger:
    return fill(new_ledger(), WEEK)


def test_tokens_and_money_by_target_and_effort(week: Ledger) -> None:
    found = reported(week, "thinking", POLICY)
    assert cells(found, "target", "effort", *TOKENS) == [
        ("deep", "effort=high", 2, 580, 560, 0, 1_900, 1_400),
        ("deep", "effort=low", 1, 30, 10, 0, 500, 100),
        ("deep", "budget<=1024", 2, 48, 8, 0, 20, 8),
        ("deep", "budget<=4096", 1, 24, 4, 0, 10, 4),
        ("deep", "budget>16384", 1, 24, 4, 0, 10, 4),
        ("opaque", "on", 1, 20, None, 1, 70, None),
        ("plain", "none", 1, 20, 0, 0, 50, 0),
        ("opaque", "none", 1, None, None, 0, 0, None),
    ]
    assert cells(found, "thinking_share", "thinking_cost_share")[0] == (560 / 580, 1_400 / 1_900)
    [plot] = found.plots
    marks = [(mark.label, mark.value) for mark in plot.marks]
    assert marks[:2] == [("deep · effort=high", 1_400), ("deep · effort=low", 100)]


def test_what_lowered_it_and_what_it_was_for_nothing(week: Ledger) -> None:
    found = reported(week, "thinking", POLICY, by="target")
    names = ("target", "lowered", "lowered_effort", "cut", "wasted", "wasted_tokens", "wasted_usd")
    assert cells(found, *names) == [
        ("deep", 0, 0, 1, 1, 500, 900),
        ("opaque", 1, 0, 1, 0, 0, 0),
        ("plain", 1, 1, 0, 0, 0, 0),
    ]


@each_row("by", ["", "target", "model", "effort", "task", "task,effort"])
def test_it_adds_up_with_spend(week: Ledger, by: str) -> None:
    found, spend = reported(week, "thinking", POLICY, by=by), reported(week, "spend")
    assert found.total("cost_usd") == spend.total("cost_usd")
    assert nano(found.total("cost_usd")) == sum(cost for (cost,) in cells(found, "cost_usd"))
    assert nano(found.total("thinking_usd")) == sum(cost or 0 for (cost,) in cells(found, "thinking_usd")) == 1_516
    assert found.total("attempts") == spend.total("attempts") == 10
    assert found.total("thinking_tokens") == spend.total("reasoning_tokens") == 586
    assert found.total("unknown") == 1


def test_a_target_that_does_not_tell_is_named_as_unknown(week: Ledger) -> None:
    """Only the policy knows that plain never thinks."""
    found = reported(week, "thinking", by="target")
    assert cells(found, "target", "thinking_tokens", "thinking_usd", "unknown") == [
        ("deep", 586, 1_516, 0),
        ("opaque", None, None, 1),
        ("plain", None, None, 1),
    ]
    assert "Unknown: " in found.note
    assert "Unknown: " not in reported(week, "thinking", by="target", where=("target=deep",)).note


def test_filters_hold(week: Ledger) -> None:
    found = reported(week, "thinking", POLICY, by="task", where=("effort=effort=low,effort=high",))
    assert cells(found, "task", "thinking_tokens") == [("chat", 560), ("code", 10)]


@each_row("happened", [[], [Happened()]], ids=["nothing", "no attempt"])
def test_where_no_target_was_asked_there_is_no_row(new_ledger: Make, happened: list[Happened]) -> None:
    found = reported(fill(new_ledger(), happened), "thinking")
    assert (found.rows, found.plots) == ((), ())
    assert nano(found.total("cost_usd")) == 0
    assert found.total("thinking_usd") is None


def test_one_request(ledger: Ledger) -> None:
    found = reported(fill(ledger, WEEK[:1]), "thinking")
    assert cells(found, "target", "thinking_usd", "thinking_cost_share") == [("deep", 600, 0.6)]
