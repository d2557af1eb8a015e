"""What several attempts of one request may think and spend together."""

from typing import cast

import pytest
from msgspec import structs

from router.dispatch.purse import Purse
from router.dispatch.room import Room
from router.estimate.estimate import estimate
from router.estimate.learn import Learned
from router.types.account import Bound
from router.types.attempt import Attempt
from router.types.plan import Candidate
from router.types.price import Cost, CostSource
from router.types.store import BudgetStore
from router.types.target import Contract, Target, Thinking
from router.types.usage import Usage
from tests.decide.values import request, target

EXACT = Thinking(contract=Contract.EXACT, levels=("none", "low", "high"), tokens=(0, 700, 5_000))
ALWAYS = Thinking(contract=Contract.ALWAYS_ON, levels=("high",), tokens=(5_000,))
CAP = 1_000


def thought(place: Target, tokens: int) -> Attempt:
    usage, cost = Usage(output_reasoning=tokens), Cost(0, CostSource.PRICED, "test")
    return Attempt(target=place, outcome="ok", started_ms=0, total_ms=1, usage=usage, cost=cost)


@pytest.mark.parametrize(
    ("thinking", "before", "granted"),
    [(EXACT, (), CAP), (EXACT, (800,), 200), (EXACT, (300, 300), 400), (ALWAYS, (800,), None)],
    ids=["the first", "the second", "the third", "one that can't be held to the rest"],
)
def test_a_cap_on_thinking_is_for_all_attempts_together(
    thinking: Thinking, before: tuple[int, ...], granted: int | None
) -> None:
    place, asked, learned = target(thinking=thinking, max_output=10_000), request(effort="high"), Learned()
    purse = Purse(cast(BudgetStore, None), learned, Room(), asked, Bound(thinking=CAP))
    purse.attempts += [thought(place, tokens) for tokens in before]
    found = purse.fit(Candidate(place, estimate(place, asked, learned)))
    assert (None if found is None else found.thinking_budget) == granted


def test_what_is_given_after_all_is_paid_for_once() -> None:
    purse = Purse(cast(BudgetStore, None), Learned(), Room(), request(), Bound())
    first, second = (purse.set_aside(thought(target(name), 1)) for name in ("a", "b"))
    assert [one.passed_over for one in purse.attempts] == [True, True]
    given = purse.take_back(first)
    assert purse.attempts == [second]
    assert given == structs.replace(first, passed_over=False)
