"""Fitted before it is refused: less thinking, then a shorter answer, then a cheaper target, then another route."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.gateway.running import Gateway, Reply, local, ordered, target
from tests.money.books import IN, OUT, PRICE, pot, row_of
from tests.upstream import Upstream

LEAST = 256
"""Tokens of output below which a cap leaves no room for an answer."""
LEVELS = {"contract": "level", "levels": ["none", "low", "high"], "tokens": [0, 300, 3_000]}
ALWAYS = {"contract": "always_on", "levels": ["on"], "tokens": [300]}
THINKERS: Mapping[str, dict[str, Any]] = {
    "exact": {"contract": "exact", "levels": ["none", "low", "high"], "tokens": [0, 300, 3_000]},
    "level": LEVELS,
    "switch": {"contract": "switch", "levels": ["on"], "tokens": [300]},
    "always": ALWAYS,
    "none": {"contract": "none"},
}
USES = ("narrow", "told", "mind", "capped")
"""Each has targets of its own, which learn from nothing else."""
LOWERED = [
    (20_000, "", "effort=high"),
    (3_600, "output", "effort=high"),
    (1_500, "effort, output", "effort=low"),
    (450, "effort, output", "off"),
]
"""Tokens that there is money for, what is lowered, and the control that is sent."""


def thinker(url: str, use: str, name: str) -> dict[str, Any]:
    """vLLM's fields say a number, and on or off; OpenAI's a word."""
    place = local if name in ("exact", "switch") else target
    model = f"say-20@{use}" if name == "none" else f"say-20-think-300@{use}"
    return place(url, model, thinking=THINKERS[name], price=PRICE, max_output=5_000)


def policy(url: str) -> dict[str, Any]:
    wide = {"price": PRICE, "max_output": 5_000}
    targets = {
        "plain": target(url, "say-40", **wide),
        "dear": target(url, "say-40", price={"input": 100, "output": 10_000}, max_output=5_000),
        "silent": target(url, "say-20-think-300", flavour="mistral", provider="mistral", thinking=ALWAYS, **wide),
        "free": local(url, "say-40", price={"input": 0, "output": 0}),
        **{f"{use}-{name}": thinker(url, use, name) for use in USES for name in THINKERS},
        **{f"high-{tokens}": thinker(url, f"high-{tokens}", "level") for tokens, *_ in LOWERED},
    }
    routes = {
        "dear-first": ordered("dear", "plain"),
        "thinks-first": ordered("narrow-always", "plain"),
        "rich": ordered("dear"),
        "richer": ordered("dear"),
        "poor": ordered("plain"),
        "gratis": ordered("free"),
        "untold": ordered("silent"),
        **{f"mind/{name}": ordered(f"mind-{name}") for name in THINKERS},
        **{f"capped/{name}": ordered(f"capped-{name}") for name in THINKERS},
    }
    downgrades = {"rich": "gratis", "richer": "poor"}
    budgets: list[dict[str, Any]] = [
        {"id": name, "limit_usd": 1, "window": "lifetime", "routes": [name], "exhausted": {"downgrade": goal}}
        for name, goal in downgrades.items()
    ]
    budgets.append({"id": "poor", "limit_usd": 0.000001, "window": "lifetime", "routes": ["poor"]})
    budgets.append({"id": "untold", "limit_thinking_tokens": 1_500, "window": "lifetime", "routes": ["untold"]})
    for name in THINKERS:
        mind = {"limit_thinking_tokens": 1_500, "window": "lifetime", "routes": [f"mind/{name}"]}
        capped = {"limit_usd": 100, "window": "lifetime", "routes": [f"capped/{name}"], "thinking_cap": 200}
        budgets += [{"id": f"mind/{name}", **mind}, {"id": f"capped/{name}", **capped}]
    classes = {"internal": {}, "careful": {"thinking_cap": 400}}
    sensitivity = {"classes": classes, "default": "internal"}
    return {"version": 1, "targets": targets, "routes": routes, "budgets": budgets, "sensitivity": sensitivity}


def dollars(tokens: int) -> dict[str, str]:
    """A limit of the caller's own that pays for the prompt and so many tokens of output."""
    return {"x-lowpass-budget-usd": f"{(100 * IN + tokens * OUT) / 1e9:.9f}"}


def text(reply: Reply) -> str:
    return str(reply.json["choices"][0]["message"]["content"] or "")


@pytest.mark.parametrize(("tokens", "lowered", "control"), LOWERED)
def test_first_less_thinking_then_a_shorter_answer(
    gateway: Gateway, upstream: Upstream, tokens: int, lowered: str, control: str
) -> None:
    reply = gateway.chat(f"high-{tokens}", reasoning_effort="high", headers=dollars(tokens))
    assert reply.status == 200
    assert (reply.headers.get("x-lowpass-lowered", ""), reply.headers["x-lowpass-thinking"]) == (lowered, control)
    sent = upstream.last.json
    assert sent["reasoning_effort"] == {"off": "none"}.get(control, control.removeprefix("effort="))
    assert ("max_completion_tokens" in sent) == ("output" in lowered)
    assert int(str(sent.get("max_completion_tokens", 0))) <= tokens
    row = row_of(gateway, reply)
    assert row["lowered"] == lowered
    assert row["attempts"][0]["thinking"] == control
    assert text(reply)


def test_then_a_cheaper_target(gateway: Gateway) -> None:
    reply = gateway.chat("dear-first", headers=dollars(2_000))
    assert (reply.status, reply.headers["x-lowpass-model"]) == (200, "plain")
    assert [one["target"] for one in row_of(gateway, reply)["attempts"]] == ["plain"]
    thoughtless = gateway.chat("thinks-first", headers=dollars(LEAST + 40))
    assert (thoughtless.status, thoughtless.headers["x-lowpass-model"]) == (200, "plain")


@pytest.mark.parametrize("stream", [False, True])
def test_then_another_route(gateway: Gateway, upstream: Upstream, stream: bool) -> None:
    """A dollar does not pay for 256 tokens of the dear target."""
    reply = gateway.chat("rich", stream=stream)
    assert reply.status == 200
    assert (reply.headers["x-lowpass-model"], reply.headers["x-lowpass-lowered"]) == ("free", "route")
    row = row_of(gateway, reply)
    assert (row["requested"], row["route"], row["target"], row["lowered"]) == ("rich", "gratis", "free", "route")
    assert [one["target"] for one in row["attempts"]] == ["free"]
    assert gateway.get(f"/v1/decisions/{reply.headers['x-lowpass-decision']}").json["chosen"] == "free"
    assert pot(gateway, "rich")["spent"] == 0


def test_the_other_route_has_budgets_too(gateway: Gateway, upstream: Upstream) -> None:
    reply = gateway.chat("richer")
    assert (reply.status, reply.error["budget"]["id"]) == (402, "poor")
    row = row_of(gateway, reply)
    assert (row["state"], row["cost"], row["error"]) == ("released", 0, "budget_exceeded")
    assert upstream.requests == []


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", [*(f"narrow-{name}" for name in THINKERS), "plain"])
def test_a_cap_always_leaves_room_for_an_answer(gateway: Gateway, upstream: Upstream, name: str, stream: bool) -> None:
    """Whatever there is: either it is refused before anything is sent, or it says something."""
    answered = 0
    for tokens in (50, 200, LEAST, 300, 400, 550, 600, 800, 1_300, 4_000):
        upstream.clear()
        reply = gateway.chat(name, headers=dollars(tokens), stream=stream, reasoning_effort="high")
        if reply.status == 402:
            assert upstream.requests == []
            continue
        assert reply.status == 200
        answered += 1
        assert b"word" in reply.body
        cap = upstream.last.json.get("max_completion_tokens", upstream.last.json.get("max_tokens"))
        row = row_of(gateway, reply)
        # Once answers are known to be short, less is room enough.
        assert cap is None or int(str(cap)) >= LEAST or row["attempts"][0]["finish_reason"] == "stop"
        assert (row["attempts"][0]["answered"], row["overrun"]) == (1, 0)
        assert row["cost"] <= 100 * IN + tokens * OUT
    assert answered >= 4


def said(upstream: Upstream) -> tuple[object, object, object]:
    """(effort, budget, on or off) in the words of the wire."""
    body: Any = upstream.last.json
    switch = body.get("chat_template_kwargs") or {}
    return body.get("reasoning_effort"), body.get("thinking_token_budget"), switch.get("enable_thinking")


CAPS: dict[str, dict[str, Any]] = {
    # Contract → cap → what is said, and the header; None: it is refused.
    "exact": {"700": ((None, 700, True), "budget=700"), "0": ((None, None, False), "off")},
    "level": {"700": (("low", None, None), "effort=low"), "100": (("none", None, None), "off")},
    "switch": {"300": ((None, None, True), "on"), "299": ((None, None, False), "off")},
    "always": {"300": ((None, None, None), "always_on"), "299": None},
    "none": {"0": ((None, None, None), "none")},
}


@pytest.mark.parametrize(("name", "cap"), [(name, cap) for name, caps in CAPS.items() for cap in caps])
def test_a_cap_on_thinking_by_contract(gateway: Gateway, upstream: Upstream, name: str, cap: str) -> None:
    reply = gateway.chat(f"told-{name}", headers={"x-lowpass-thinking-budget": cap})
    expected = CAPS[name][cap]
    if expected is None:
        assert (reply.status, reply.error["code"]) == (403, "no_eligible_target")
        return
    assert reply.status == 200
    effort, budget, on = said(upstream)
    # vLLM's word beside its number says no more than the number.
    assert ((None if name in ("exact", "switch") else effort), budget, on) == expected[0]
    assert reply.headers["x-lowpass-thinking"] == expected[1]
    assert (row_of(gateway, reply)["reasoning_tokens"] or 0) <= int(cap)


@pytest.mark.parametrize(
    ("model", "headers", "number"),
    [
        ("told-exact", {"x-lowpass-data-class": "careful"}, 400),
        ("capped/exact", {}, 200),
        ("capped/exact", {"x-lowpass-data-class": "careful"}, 200),
        ("capped/exact", {"x-lowpass-data-class": "careful", "x-lowpass-thinking-budget": "100"}, 100),
        ("told-exact", {"x-lowpass-data-class": "careful", "x-lowpass-thinking-budget": "900"}, 400),
    ],
)
def test_the_least_cap_of_class_budget_and_header_holds(
    gateway: Gateway, upstream: Upstream, model: str, headers: dict[str, str], number: int
) -> None:
    reply = gateway.chat(model, headers=headers, reasoning_effort="high")
    assert (reply.status, reply.headers["x-lowpass-thinking"]) == (200, f"budget={number}")
    assert said(upstream)[1] == number
    assert row_of(gateway, reply)["reasoning_tokens"] == min(number, 300)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("exact", (200, "budget=200")),
        ("level", (200, "off")),
        ("switch", (200, "off")),
        ("always", (402, None)),
        ("none", (200, "none")),
    ],
)
def test_a_budget_s_cap_by_contract(gateway: Gateway, name: str, expected: tuple[int, str | None]) -> None:
    reply = gateway.chat(f"capped/{name}", reasoning_effort="high")
    assert (reply.status, reply.headers.get("x-lowpass-thinking")) == expected
    assert (row_of(gateway, reply)["reasoning_tokens"] or 0) <= 200


@pytest.mark.parametrize("name", THINKERS)
def test_a_budget_of_thinking_tokens_by_contract(gateway: Gateway, upstream: Upstream, name: str) -> None:
    """Request after request until nothing is left to think with: then without a thought, or not at all."""
    replies = [gateway.chat(f"mind/{name}", reasoning_effort="high") for _ in range(12)]
    budget = pot(gateway, f"mind%2F{name}")
    assert (budget["spent"] <= budget["limit"], budget["held"]) == (True, 0)
    thought = [row_of(gateway, reply)["thinking"] for reply in replies]
    assert sum(thought) == budget["spent"]
    last = replies[-1]
    if name == "always":
        assert thought[0] == 300
        assert (last.status, last.error["budget"]["unit"]) == (402, "thinking_tokens")
        assert "thinking tokens" in last.error["message"]
    elif name == "none":
        assert budget["spent"] == 0
    else:
        assert thought[0] > 0
        assert (last.status, last.headers["x-lowpass-thinking"], thought[-1]) == (200, "off", 0)
        assert "effort" in last.headers["x-lowpass-lowered"]
        assert text(last)


@pytest.mark.parametrize("stream", [False, True])
def test_thoughts_that_a_provider_does_not_count_apart_are_all_it_said(gateway: Gateway, stream: bool) -> None:
    before = pot(gateway, "untold")["spent"]
    row = row_of(gateway, gateway.chat("untold", stream=stream))
    assert (row["reasoning_tokens"], row["thinking"]) == (None, 320)
    budget = pot(gateway, "untold")
    assert (budget["spent"], budget["held"]) == (before + 320, 0)
