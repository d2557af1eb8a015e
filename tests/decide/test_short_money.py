"""Where money is short: what is forecast, chosen, told, held and sent is one and the same."""

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from router.api.parse import parse
from router.choose import choose, index
from router.config.load import load_policy
from router.decide.explain import explain
from router.decide.health import Health
from router.estimate.forecast import Forecaster, ForecastInput
from router.estimate.learn import TargetStats
from router.estimate.pass_rate import PassRateModel
from router.types.account import ENDLESS, Amount, BudgetBound
from router.types.attempt import AttemptSample
from router.types.request import Caller, Endpoint
from router.types.target import Secret
from tests.dispatch.values import budget

FILE = Path(__file__).with_name("short_money.yaml")
RULES = index(load_policy(FILE), Secret("test"))
TARGETS, CALLER = tuple(RULES.config.targets.values()), Caller()
TEXTS = ("Hello!", "Prove that there are infinitely many primes of the form 4k+3.", "Translate:\n" + "Ça va? " * 900)
EFFORTS = ("none", "low", "medium", "high")
FIELDS = {"stream": st.booleans(), "max_tokens": st.integers(1, 9_000), "reasoning_effort": st.sampled_from(EFFORTS)}


@given(
    st.sampled_from(("pays", "plans", "orders", "saves")),
    st.sampled_from(TEXTS),
    st.fixed_dictionaries({}, optional=FIELDS),
    st.floats(3, 10).map(lambda power: round(10**power)),
    st.booleans(),
)
def test_what_is_told_is_what_is_sent(route: str, text: str, fields: dict[str, Any], nano: int, streamed: bool) -> None:
    """And no target is refused that would fit at any effort. `streamed`: targets are known to answer piece by piece."""
    learned, rates = TargetStats(), PassRateModel(TARGETS)
    for target in TARGETS if streamed else ():
        learned.observe(AttemptSample(target=target.id, largest=1))
    body = msgspec.json.encode({"model": route, "messages": [{"role": "user", "content": text}], **fields})
    request = parse(Endpoint.CHAT, "0" * 32, body, ((b"x-lowpass-budget-usd", f"{nano / 1e9:.9f}".encode()),))
    known = (RULES, request, CALLER, RULES.screen.alone(request, CALLER), Health(time.monotonic))
    decision, _ = choose(*known, Forecaster(TARGETS, learned, rates))
    document, steps, seen = explain(decision), decision.plan.steps, decision.classification
    hold = budget(request, bound=BudgetBound(caps=decision.caps, thinking=decision.thinking))
    refused = asyncio.run(hold.open(held := hold.ask(steps), steps, 0, 0))
    fits = Forecaster(TARGETS, learned, rates).afforded(
        TARGETS, ForecastInput(request, seen), Amount(nano, ENDLESS), None
    )
    payable = {target.id for target, made in zip(TARGETS, fits, strict=True) if made is not None}
    if refused is not None:
        assert not payable
        return
    for step, told in zip(steps, document.considered, strict=True):
        sent = hold.fit(step)
        assert sent is not None
        assert (sent.effort, sent.max_output, sent.lowered) == (told.effort, step.estimate.cap, ())
        assert max(held.whole.usd if step is steps[0] else 0, step.estimate.cost) <= step.estimate.hold <= nano
        assert msgspec.json.decode(told.hold_usd) == step.estimate.hold / 1e9
    dear = {row.target for row in document.weighed if row.why == "over_cost"}
    dear |= {row.target for row in document.dropped if row.reason == "over_cost"}
    assert payable == RULES.config.targets.keys() - dear
