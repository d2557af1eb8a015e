"""Fitted before it is refused: less thinking, then a shorter answer, then a cheaper target, then another route."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from router.testing.upstream import WORD, Upstream
from tests.gateway.running import Gateway, Reply, local, serving, target
from tests.money.books import IN, OUT, PRICE, budgets, pot, row_of, rules, thoughts, within
from tests.tables import data, each_row

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
LOWERED = [(20_000, "", "effort=high"), (3_600, "output", "effort=high"), (1_500, "effort, output", "effort=low")]
LOWERED += [(450, "effort, output", "off")]
"""Tokens that there is money for, what is lowered, and the control that is sent."""
SHAPES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "pieces": ("-ms-2", {}),
    "whole": ("", {}),
    "hidden": ("-think-300", {"thinking": ALWAYS}),
}
HOW = ("high", "left")
"""By a header, or by what a budget has left."""


def thinker(url: str, use: str, name: str) -> dict[str, Any]:
    """vLLM's fields say a number, and on or off; OpenAI's a word."""
    place = local if name in ("exact", "switch") else target
    model = f"say-20@{use}" if name == "none" else f"say-20-think-300@{use}"
    return place(url, model, thinking=THINKERS[name], price=PRICE, max_output=5_000)


def policy(url: str) -> dict[str, Any]:
    wide = {"price": PRICE, "max_output": 5_000}
    dear = {"input": 100, "output": 10_000}
    targets = {
        "plain": target(url, "say-40", **wide),
        "dear": target(url, "say-40", price=dear, max_output=5_000),
        "silent": target(url, "say-20-think-300", flavour="mistral", provider="mistral", thinking=ALWAYS, **wide),
        "free": local(url, "say-40", price={"input": 0, "output": 0}),
        **{f"{use}-{name}": thinker(url, use, name) for use in USES for name in THINKERS},
        **{f"{how}-{tokens}": thinker(url, f"{how}-{tokens}", "level") for how in HOW for tokens, *_ in LOWERED},
    }
    routes = {"dear-first": "dear plain", "thinks-first": "narrow-always plain", "rich": "dear", "richer": "dear"}
    routes |= {"poor": "plain", "gratis": "free", "untold": "silent"}
    routes |= {f"{use}/{name}": f"{use}-{name}" for use in ("mind", "capped") for name in THINKERS}
    routes |= {f"{how}/{tokens}": f"{how}-{tokens}" for how in HOW for tokens, *_ in LOWERED}
    limits = budgets({"rich": 1}, exhausted={"downgrade": "gratis"}) + budgets({"poor": 0.000001})
    limits += budgets({f"left/{tokens}": float(dollars(tokens)["x-lowpass-budget-usd"]) for tokens, *_ in LOWERED})
    limits += budgets({"richer": 1}, exhausted={"downgrade": "poor"})
    limits += budgets({f"capped/{name}": 100 for name in THINKERS}, thinking_cap=200)
    targets["slow"] = target(url, "say-10-think-200-ms-2", thinking=LEVELS, max_output=1_000)
    routes |= {"crowd": "slow", "lent": "told-exact"}
    limits += thoughts({"lent": 1_000, "crowd": 4_300, "untold": 1_500, **{f"mind/{name}": 1_500 for name in THINKERS}})
    sensitivity = {"classes": {"internal": {}, "careful": {"thinking_cap": 400}}, "default": "internal"}
    return rules(targets, routes, limits, sensitivity=sensitivity)


def dollars(tokens: int) -> dict[str, str]:
    """A limit of the caller's own that pays for the prompt and so many tokens of output."""
    return {"x-lowpass-budget-usd": f"{(100 * IN + tokens * OUT) / 1e9:.9f}"}


def text(reply: Reply) -> str:
    return str(reply.json["choices"][0]["message"]["content"] or "")


@each_row("how", HOW)
@each_row("tokens, lowered, control", LOWERED)
def test_first_less_thinking_then_a_shorter_answer(
    gateway: Gateway, upstream: Upstream, tokens: int, lowered: str, control: str, how: str
) -> None:
    """The decision tells what is sent, and no more is held than it tells."""
    limit = dollars(tokens)
    reply = gateway.chat(f"{how}/{tokens}", reasoning_effort="high", headers=limit if how == "high" else {})
    assert reply.status == 200
    assert (reply.headers.get("x-lowpass-lowered", ""), reply.headers["x-lowpass-thinking"]) == (lowered, control)
    sent = upstream.last.json
    assert sent["reasoning_effort"] == {"off": "none"}.get(control, control.removeprefix("effort="))
    assert ("max_completion_tokens" in sent) == ("output" in lowered)
    assert int(str(sent.get("max_completion_tokens", 0))) <= tokens
    row = row_of(gateway, reply)
    assert (row["lowered"], row["attempts"][0]["thinking"]) == (lowered, control)
    (told,) = gateway.get(f"/v1/decisions/{reply.id}").json["considered"]
    assert (told["effort"], ", ".join(told["lowered"])) == (sent["reasoning_effort"], lowered)
    assert row["held"] / 1e9 <= told["hold_usd"] <= float(limit["x-lowpass-budget-usd"])
    assert told["max_output"] == sent.get("max_completion_tokens", 5_000)
    assert text(reply)


def test_then_a_cheaper_target(gateway: Gateway) -> None:
    reply = gateway.chat("dear-first", headers=dollars(2_000))
    assert (reply.status, reply.headers["x-lowpass-model"]) == (200, "plain")
    assert [attempt["target"] for attempt in row_of(gateway, reply)["attempts"]] == ["plain"]
    thoughtless = gateway.chat("thinks-first", headers=dollars(LEAST + 40))
    assert (thoughtless.status, thoughtless.headers["x-lowpass-model"]) == (200, "plain")


@each_row("stream", [False, True])
def test_then_another_route(gateway: Gateway, upstream: Upstream, stream: bool) -> None:
    """A dollar does not pay for 256 tokens of the dear target."""
    reply = gateway.chat("rich", stream=stream)
    assert reply.status == 200
    assert (reply.headers["x-lowpass-model"], reply.headers["x-lowpass-lowered"]) == ("free", "route")
    row = row_of(gateway, reply)
    assert (row["requested"], row["route"], row["target"], row["lowered"]) == ("rich", "gratis", "free", "route")
    assert [attempt["target"] for attempt in row["attempts"]] == ["free"]
    assert gateway.get(f"/v1/decisions/{reply.headers['x-lowpass-decision']}").json["chosen"] == "free"
    assert pot(gateway, "rich")["spent"] == 0


def test_the_other_route_has_budgets_too(gateway: Gateway, upstream: Upstream) -> None:
    reply = gateway.chat("richer")
    assert (reply.status, reply.error["budget"]["id"]) == (402, "poor")
    row = row_of(gateway, reply)
    assert (row["state"], row["cost"], row["error"]) == ("released", 0, "budget_exceeded")
    assert upstream.requests == []


@each_row("stream", [False, True])
@each_row("name", [*(f"narrow-{name}" for name in THINKERS), "plain"])
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


def asked(upstream: Upstream) -> tuple[object, object, object]:
    """(effort, budget, on or off) in the words of the wire."""
    body: Any = upstream.last.json
    switch = body.get("chat_template_kwargs") or {}
    return body.get("reasoning_effort"), body.get("thinking_token_budget"), switch.get("enable_thinking")


@each_row("name, cap, words, control", data(__file__, "fit.yaml"))
def test_a_cap_on_thinking_by_contract(
    gateway: Gateway, upstream: Upstream, name: str, cap: str, words: object, control: str | None
) -> None:
    reply = gateway.chat(f"told-{name}", headers={"x-lowpass-thinking-budget": cap})
    if control is None:
        assert (reply.status, reply.error["code"]) == (403, "no_eligible_target")
        return
    assert (reply.status, reply.headers["x-lowpass-thinking"]) == (200, control)
    effort, budget, on = asked(upstream)
    # vLLM's word beside its number says no more than the number.
    assert [None if name in ("exact", "switch") else effort, budget, on] == words
    assert (row_of(gateway, reply)["reasoning_tokens"] or 0) <= int(cap)


@each_row("model, data_class, header, number", data(__file__, "caps.yaml"))
def test_the_least_cap_of_class_budget_and_header_holds(
    gateway: Gateway, upstream: Upstream, model: str, data_class: str, header: str, number: int
) -> None:
    headers = {"x-lowpass-data-class": data_class, "x-lowpass-thinking-budget": header}
    named = {name: value for name, value in headers.items() if value}
    reply = gateway.chat(model, headers=named, reasoning_effort="high")
    assert (reply.status, reply.headers["x-lowpass-thinking"]) == (200, f"budget={number}")
    assert asked(upstream)[1] == number
    assert row_of(gateway, reply)["reasoning_tokens"] == min(number, 300)


CAPPED = [("exact", "budget=200"), ("level", "off"), ("switch", "off"), ("always", None), ("none", "none")]


@each_row("name, control", CAPPED)
def test_a_budget_s_cap_by_contract(gateway: Gateway, name: str, control: str | None) -> None:
    reply = gateway.chat(f"capped/{name}", reasoning_effort="high")
    assert (reply.status, reply.headers.get("x-lowpass-thinking")) == (200 if control else 402, control)
    assert (row_of(gateway, reply)["reasoning_tokens"] or 0) <= 200


@each_row("name", THINKERS)
def test_a_budget_of_thinking_tokens_by_contract(gateway: Gateway, upstream: Upstream, name: str) -> None:
    """Request after request until nothing is left to think with: then without a thought, or not at all."""
    replies = [gateway.chat(f"mind/{name}", reasoning_effort="high") for _ in range(12)]
    spent = within(gateway, f"mind/{name}")
    thought = [row_of(gateway, reply)["thinking"] for reply in replies]
    assert sum(thought) == spent
    if name in ("level", "switch", "always"):  # told no number, they are capped by what is left to think with
        first = upstream.requests[0].json
        assert int(str(first.get("max_completion_tokens", first.get("max_tokens", 5_000)))) <= 1_500
    last = replies[-1]
    if name == "always":
        assert thought[0] == 300
        assert (last.status, last.error["budget"]["unit"]) == (402, "thinking_tokens")
        assert "thinking tokens" in last.error["message"]
    elif name == "none":
        assert spent == 0
    else:
        assert thought[0] > 0
        assert (last.status, last.headers["x-lowpass-thinking"], thought[-1]) == (200, "off", 0)
        assert "effort" in last.headers["x-lowpass-lowered"]
        assert text(last)


def test_what_is_split_off_a_budget_of_thinking_tokens_is_all_its_requests_think(gateway: Gateway) -> None:
    child = gateway.post("/v1/budgets/lent/split", {"limit_thinking_tokens": 400}).json["id"]
    reply = gateway.chat("lent", reasoning_effort="high", headers={"x-lowpass-budget": child})
    assert (reply.status, reply.headers["x-lowpass-thinking"]) == (200, "budget=400")
    assert row_of(gateway, reply)["thinking"] == 300
    shown = [(pot(gateway, name)["spent"], pot(gateway, name)["held"]) for name in (child, "lent")]
    assert shown == [(300, 0), (0, 400)]
    assert gateway.request("DELETE", f"/v1/budgets/{child}").status == 200
    assert within(gateway, "lent") == 300


@each_row("stream", [False, True])
def test_thoughts_that_a_provider_does_not_count_apart_are_all_it_said(gateway: Gateway, stream: bool) -> None:
    before = pot(gateway, "untold")["spent"]
    row = row_of(gateway, gateway.chat("untold", stream=stream))
    assert (row["reasoning_tokens"], row["thinking"]) == (None, 320)
    budget = pot(gateway, "untold")
    assert (budget["spent"], budget["held"]) == (before + 320, 0)


def test_a_crowd_thinks_as_long_as_its_budget_lasts(gateway: Gateway) -> None:
    """There is room for four holds at a time, and for the thoughts of all twenty."""
    with ThreadPoolExecutor(20) as pool:
        replies = list(pool.map(lambda _: gateway.chat("crowd", stream=True, reasoning_effort="high"), range(20)))
    assert {reply.status for reply in replies} == {200}
    controls = gateway.rows(
        "SELECT a.thinking, COUNT(*) AS count FROM attempts AS a JOIN requests AS r ON r.id = a.request_id"
        " WHERE r.route = 'crowd' GROUP BY a.thinking"
    )
    assert controls == [{"thinking": "effort=high", "count": 20}]
    assert pot(gateway, "crowd")["spent"] == 4_000


@each_row("shape", SHAPES)
def test_among_short_answers_a_long_one_is_whole(upstream: Upstream, tmp_path: Path, shape: str) -> None:
    """What is held for it covers the cap that is sent, and grows with its stream where none is."""
    manner, thinking = SHAPES[shape]

    def saying(tokens: int) -> dict[str, Any]:
        named = {"frontier": target(upstream.url, f"say-{tokens}{manner}", max_output=64_000, price=PRICE, **thinking)}
        return rules(named, {"auto": "frontier"}, [{"id": "day", "limit_usd": 100, "window": "day"}])

    with serving(tmp_path, saying(10)) as gateway:
        for _ in range(40):
            gateway.chat("auto", stream=shape == "pieces")
        gateway.write_policy(saying(3_000))
        gateway.tick()
        for words in ("Write an essay of 3,000 words about steel.", "Plan 14 days in Japan in detail, hour by hour."):
            reply = gateway.chat("auto", words)
            cap = int(str(upstream.last.json.get("max_completion_tokens", 3_000)))
            assert (text(reply), reply.json["choices"][0]["finish_reason"]) == (WORD * 3_000, "stop")
            row = row_of(gateway, reply)
            assert row["held"] >= max(row["cost"], cap * OUT)
