"""What goes to a target, for every contract: the policy's effort wins, the budget caps, nothing is dropped silently."""

from typing import Any

from router.types.request import Endpoint
from router.types.target import Contract, Quirks, Thinking, ThinkingField
from tests.adapters.calls import ADAPTER, HI, call, sent
from tests.tables import each_row

C, F = Contract, ThinkingField
LEVELS = Thinking(contract=C.LEVEL, levels=("none", "low", "high"), tokens=(0, 1_000, 9_000))
ALWAYS_LEVELS = Thinking(contract=C.LEVEL, levels=("low", "high"), tokens=(1_000, 9_000))
UNSIZED = Thinking(contract=C.LEVEL, levels=("low", "high"))
EXACT = Thinking(contract=C.EXACT)
TARGET = Thinking(contract=C.TARGET, minimum=1_024)
SWITCH = Thinking(contract=C.SWITCH, tokens=(3_000,))
ALWAYS = Thinking(contract=C.ALWAYS_ON)

CASES = [
    # contract, policy, asked, budget → stated
    (LEVELS, None, None, None, "none"),
    (LEVELS, None, "high", None, "effort=high"),
    (LEVELS, "low", "high", None, "effort=high"),
    (LEVELS, "high", "low", None, "effort=low"),
    (LEVELS, None, "medium", None, "effort=low"),
    (LEVELS, None, "max", None, "effort=high"),
    (LEVELS, None, "none", None, "off"),
    (LEVELS, None, "high", 8_999, "effort=low"),
    (LEVELS, None, "high", 9_000, "effort=high"),
    (LEVELS, None, None, 1_500, "effort=low"),
    (LEVELS, None, "low", 50_000, "effort=low"),
    (LEVELS, None, None, 999, "off"),
    (ALWAYS_LEVELS, None, None, 5, "effort=low"),
    (ALWAYS_LEVELS, None, "none", None, "effort=low"),
    (ALWAYS_LEVELS, None, "minimal", None, "effort=low"),
    (UNSIZED, None, "high", 4_000, "effort=low"),
    (EXACT, None, None, 8, "budget=8"),
    (EXACT, None, None, 0, "off"),
    (EXACT, None, "medium", None, "budget=8192"),
    (EXACT, None, "high", 500, "budget=500"),
    (EXACT, "low", None, 5_000, "budget=1024"),
    (EXACT, None, "none", 500, "off"),
    (TARGET, None, None, 1_023, "off"),
    (TARGET, None, None, 1_024, "budget=1024"),
    (TARGET, None, "minimal", None, "budget=1024"),
    (SWITCH, None, "high", None, "on"),
    (SWITCH, None, "none", None, "off"),
    (SWITCH, None, None, 3_000, "on"),
    (SWITCH, None, "high", 2_999, "off"),
    (ALWAYS, None, None, 10, "always_on"),
    (ALWAYS, None, "none", None, "always_on"),
    (Thinking(), None, "high", 10, "none"),
]

FIELD = {C.LEVEL: F.REASONING_EFFORT, C.EXACT: F.TOKEN_BUDGET, C.TARGET: F.REASONING, C.SWITCH: F.THINKING_TYPE}


@each_row("thinking, policy, asked, budget, stated", CASES)
def test_what_is_stated_to_be_applied(
    thinking: Thinking, policy: str | None, asked: str | None, budget: int | None, stated: str
) -> None:
    quirks = Quirks(thinking_field=FIELD.get(thinking.contract, F.NONE))
    made = call(thinking=thinking, quirks=quirks, effort=policy, asked_effort=asked, thinking_budget=budget)
    assert ADAPTER.encode(made).thinking == stated


ON_1000 = {"asked_effort": None, "thinking_budget": 1_000}
OFF = {"asked_effort": "none"}
LOW = {"asked_effort": "low"}


def google(**config: object) -> dict[str, Any]:
    return {"extra_body": {"google": {"thinking_config": config}}}


def template(thinks: bool) -> dict[str, Any]:
    return {"chat_template_kwargs": {"enable_thinking": thinks}}


@each_row(
    "field, thinking, asked, expected",
    [
        (F.REASONING_EFFORT, LEVELS, LOW, {"reasoning_effort": "low"}),
        (F.REASONING_EFFORT, LEVELS, OFF, {"reasoning_effort": "none"}),
        (F.TOKEN_BUDGET, EXACT, ON_1000, {"thinking_token_budget": 1_000, **template(True)}),
        (F.TOKEN_BUDGET, EXACT, OFF, template(False)),
        (F.ENABLE_THINKING, EXACT, ON_1000, {"enable_thinking": True, "thinking_budget": 1_000}),
        (F.ENABLE_THINKING, SWITCH, OFF, {"enable_thinking": False}),
        (F.THINKING_TYPE, SWITCH, OFF, {"thinking": {"type": "disabled"}}),
        (F.THINKING_TYPE, LEVELS, LOW, {"thinking": {"type": "enabled"}, "reasoning_effort": "low"}),
        (F.REASONING, EXACT, ON_1000, {"reasoning": {"max_tokens": 1_000}}),
        (F.REASONING, LEVELS, LOW, {"reasoning": {"effort": "low"}}),
        (F.REASONING, LEVELS, OFF, {"reasoning": {"effort": "none"}}),
        (F.THINKING_CONFIG, EXACT, ON_1000, google(thinking_budget=1_000)),
        (F.THINKING_CONFIG, LEVELS, LOW, google(thinking_level="low")),
        (F.THINKING_CONFIG, EXACT, OFF, google(thinking_budget=0)),
        (F.NONE, Thinking(), LOW, {}),
    ],
)
def test_the_fields_that_a_provider_understands(
    field: ThinkingField, thinking: Thinking, asked: dict[str, Any], expected: dict[str, object]
) -> None:
    made = call({**HI, "reasoning_effort": "high"}, quirks=Quirks(thinking_field=field), thinking=thinking, **asked)
    assert sent(made) == {"model": "served-1", **HI, **expected}


@each_row(
    "field, given, expected",
    [
        (F.REASONING, {"reasoning": {"effort": "high", "exclude": True}}, {"exclude": True, "max_tokens": 9}),
        (
            F.TOKEN_BUDGET,
            {"chat_template_kwargs": {"enable_thinking": False, "tone": 1}},
            {"enable_thinking": True, "tone": 1},
        ),
        (
            F.THINKING_CONFIG,
            {
                "extra_body": {
                    "google": {"thinking_config": {"thinking_level": "high", "include_thoughts": True}, "x": 1}
                }
            },
            {"google": {"thinking_config": {"include_thoughts": True, "thinking_budget": 9}, "x": 1}},
        ),
    ],
)
def test_what_else_the_client_put_beside_the_control_stays(
    field: ThinkingField, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    (name,) = given
    made = call({**HI, **given}, quirks=Quirks(thinking_field=field), thinking=EXACT, thinking_budget=9)
    assert sent(made)[name] == expected


def test_responses_say_it_in_their_own_field() -> None:
    quirks = Quirks(responses=True, thinking_field=F.REASONING_EFFORT)
    body = {"input": "Hi", "reasoning": {"effort": "high", "summary": "auto"}}
    asked = call(body, quirks=quirks, thinking=LEVELS, asked_effort="medium", endpoint=Endpoint.RESPONSES)
    assert sent(asked)["reasoning"] == {"summary": "auto", "effort": "low"}
    plain = call(body, quirks=quirks, asked_effort="medium", endpoint=Endpoint.RESPONSES)
    assert "reasoning" not in sent(plain)


def test_a_control_that_the_wire_has_no_words_for_is_not_claimed() -> None:
    asked = call(quirks=Quirks(thinking_field=F.REASONING_EFFORT), thinking=EXACT, thinking_budget=9)
    assert ADAPTER.encode(asked).thinking == "none"
