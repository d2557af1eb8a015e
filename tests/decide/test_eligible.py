"""The hard filter: every reason, and which one is told first."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from router.decide.eligible import Gate, refusal
from router.decide.requirements import Requirements
from router.types.request import Caller, Limits
from router.types.target import Capability, Contract, Quirks, Target, Thinking
from tests.decide.values import LOCAL, PRICE, REMOTE, gate, request, target

ALWAYS = Thinking(contract=Contract.ALWAYS_ON, levels=("on",), tokens=(500,))
LOCAL_ONLY = Requirements(local_only=True)
EU_ONLY = Requirements(regions=("eu",))
NOT_CN = Requirements(jurisdictions_not=("CN",))
TOOLS = frozenset({Capability.CHAT, Capability.TOOLS})
RESPONSES = frozenset({Capability.CHAT, Capability.RESPONSES})
CHINESE = replace(REMOTE, jurisdiction="CN")
NOWHERE = replace(REMOTE, jurisdiction="")
WITH_RESPONSES = replace(REMOTE, quirks=Quirks(responses=True))


def asks(**limits: Any) -> Gate:
    return gate(asked=request(limits=Limits(**limits)))


REFUSED: dict[str, tuple[Target, Gate, str]] = {
    "key for other targets": (target(), gate(caller=Caller(targets=frozenset({"other"}))), "not_allowed"),
    "local only": (target(), gate(requirements=LOCAL_ONLY), "data_class"),
    "wrong region": (target(region="us"), gate(requirements=EU_ONLY), "data_class"),
    "unstated region": (target(), gate(requirements=EU_ONLY), "data_class"),
    "excluded jurisdiction": (target(provider=CHINESE), gate(requirements=NOT_CN), "data_class"),
    "unstated jurisdiction": (target(provider=NOWHERE), gate(requirements=NOT_CN), "data_class"),
    "caller's region": (target(region="us"), asks(region="eu"), "region"),
    "caller's region, none stated": (target(), asks(region="eu"), "region"),
    "no tools": (target(), gate(asked=request(needs=TOOLS)), "capability"),
    "no responses": (target(), gate(asked=request(needs=RESPONSES)), "capability"),
    "too long": (target(context=10), gate(asked=request(prompt_bytes=1_000)), "context"),
    "always thinks": (target(thinking=ALWAYS), asks(thinking_budget=499), "thinking"),
    "always thinks, unmeasured": (
        target(thinking=Thinking(contract=Contract.ALWAYS_ON)),
        asks(thinking_budget=9_999),
        "thinking",
    ),
    "no price": (target(price=None), gate(), "unpriced"),
    "circuit open": (target(), gate(resting=lambda name: 7.0), "circuit_open"),
}
ADMITTED: dict[str, tuple[Target, Gate]] = {
    "plain": (target(), gate()),
    "key for this target": (target(), gate(caller=Caller(targets=frozenset({"t"})))),
    "local meets every class": (target(provider=LOCAL), gate(requirements=LOCAL_ONLY)),
    "local needs no region": (target(provider=LOCAL), gate(requirements=EU_ONLY)),
    "local is in the caller's region": (target(provider=LOCAL), asks(region="eu")),
    "right region": (target(region="eu"), gate(requirements=EU_ONLY)),
    "right region twice": (target(region="eu"), asks(region="eu")),
    "allowed jurisdiction": (target(), gate(requirements=NOT_CN)),
    "has tools": (target(capabilities=TOOLS), gate(asked=request(needs=TOOLS))),
    "provider has responses": (target(provider=WITH_RESPONSES), gate(asked=request(needs=RESPONSES))),
    "thinks within the budget": (target(thinking=ALWAYS), asks(thinking_budget=500)),
    "thinking can be turned off": (target(), asks(thinking_budget=0)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_its_reason(case: str) -> None:
    place, rules, reason = REFUSED[case]
    dropped = refusal(place, rules)
    assert dropped is not None
    assert (dropped.target, dropped.reason) == ("t", reason)
    assert dropped.detail


@pytest.mark.parametrize("case", ADMITTED)
def test_admitted(case: str) -> None:
    assert refusal(*ADMITTED[case]) is None


def test_the_first_of_several_reasons_is_told() -> None:
    """Mending them one after the other shows every reason, in the order of the filter."""
    worst = gate(
        asked=request(needs=TOOLS, prompt_bytes=10**6, limits=Limits(region="eu", thinking_budget=1)),
        caller=Caller(targets=frozenset({"other"})),
        requirements=LOCAL_ONLY,
        resting=lambda name: 1.0,
    )
    place = target(price=None, thinking=ALWAYS)
    mended: list[Callable[[Gate, Target], tuple[Gate, Target]]] = [
        lambda g, t: (replace(g, caller=Caller()), t),
        lambda g, t: (replace(g, guard=gate().guard), t),
        lambda g, t: (g, replace(t, region="eu")),
        lambda g, t: (replace(g, request=replace(g.request, needs=frozenset({Capability.CHAT}))), t),
        lambda g, t: (replace(g, request=replace(g.request, prompt_bytes=1)), t),
        lambda g, t: (replace(g, request=replace(g.request, limits=Limits(region="eu"))), t),
        lambda g, t: (g, replace(t, model=replace(t.model, price=PRICE))),
        lambda g, t: (replace(g, resting=lambda name: 0.0), t),
    ]
    reasons = []
    for mend in mended:
        dropped = refusal(place, worst)
        reasons.append(dropped and dropped.reason)
        worst, place = mend(worst, place)
    order = ["not_allowed", "data_class", "region", "capability", "context", "thinking", "unpriced", "circuit_open"]
    assert reasons == order
    assert refusal(place, worst) is None
