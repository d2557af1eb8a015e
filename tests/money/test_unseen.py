"""Costs that nobody sees: usage missing, wrong or late; no cap or price; options dropped; another model served."""

import asyncio
import json
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from adapters.catalog import shipped
from router.api.parse import parse
from router.estimate.price import charge
from router.testing import lowpass
from router.testing.upstream import WORD, Answer, Behaviour, Page, Recorded, Tokens, Upstream
from router.types.attempt import Usage
from router.types.clock import new_id
from router.types.request import Caller, Endpoint
from tests.gateway.running import MESSAGES, Gateway, serving, target, until
from tests.money import books
from tests.money.books import IN, NANO, OUT, PRICE, account, budgets, row_of, rules, within
from tests.money.crowd import Wish, crowd
from tests.tables import data, each_row

ALWAYS = {"contract": "always_on", "levels": ["on"], "tokens": [5_000]}


def reporting(more: dict[str, Any] | None = None, **counts: Any) -> Page:
    usage = {"prompt_tokens": 20, **counts}
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hi", **(more or {})}, "finish_reason": "stop"}
    return Page((json.dumps({"id": "c", "object": "chat.completion", "choices": [choice], "usage": usage}).encode(),))


WRONG = {row["name"]: row for row in data(__file__, "wrong.yaml")}
NEGATIVE = reporting(completion_tokens=-500, total_tokens=-480)
SAYS = {"silent": "missing-usage", "negative": "negative"}
SAYS |= {"slow": books.GATED, "deaf": "say-300-ms-2-deaf", "endless": "say-20000-deaf", "hidden": "hidden"}
SAYS |= {name: name for name in ("found", "absurdly", "at-once", "unread")} | {"no-cap": "say-40", "lost": "say-40"}
LONG_WORDS = [(WORD, 1), ("Wasserfallstufen ", 1), ("водопадная ", 1), ("водопадная ", 25)]
KEPT = {f"kept-{number}": f"kept-{number}" for number in range(18)}
LONG = [f"long-{number}" for number in range(len(LONG_WORDS))]
SAYS |= KEPT | {name: name for name in (*LONG, *WRONG)}
"""Routes, each with a budget of its own name, and what their only target does."""
RICH = ("negative", "silent", "endless", "found", "absurdly", *WRONG, *LONG, *[*KEPT][15:])


def policy(url: str) -> dict[str, Any]:
    targets = {f"at-{name}": target(url, behaviour, price=PRICE) for name, behaviour in SAYS.items()}
    targets |= {"always": target(url, "reasoning", thinking=ALWAYS)}
    limits = dict.fromkeys(SAYS, 5.0) | dict.fromkeys(KEPT, 0.5) | dict.fromkeys(RICH, 1_000.0)
    limits |= {"no-cap": 0.1, "at-once": 0.05, "deaf": 0.05}
    return rules(targets, {name: f"at-{name}" for name in SAYS}, budgets(limits))


@pytest.fixture(autouse=True, scope="module")
def wrong(upstream_server: Upstream) -> None:
    books.saying(upstream_server, "negative", NEGATIVE)
    books.saying(upstream_server, "unread", Page((b'{"id": "c", "choices": [], "usage": NaN}',)))
    for name, row in WRONG.items():
        says = {key: "x" * (value or 0) or None for key, value in row.get("says", {}).items()}
        books.saying(upstream_server, name, reporting(says, **row["usage"]))


@each_row("route, stream", [("silent", False), ("silent", True), ("negative", False), ("unread", False)])
def test_cost_observability_usage_that_is_missing(gateway: Gateway, route: str, stream: bool) -> None:
    """It is estimated, marked, and charged, never nothing; so are negative usage and answers that can't be read."""
    before, _ = account(gateway, route)
    row = row_of(gateway, gateway.chat(route, stream=stream))
    (attempt,) = row["attempts"]
    assert (attempt["usage_source"], attempt["cost_source"]) == ("estimated", "estimated")
    assert attempt["flagged"] == (route == "negative")
    assert min(attempt["output_visible"], row["cost"]) > 0
    assert account(gateway, route) == (before + row["cost"], 0)


@each_row("reported", [0, 10**15])
def test_usage_that_can_not_be_true_is_estimated_from_the_text(
    gateway: Gateway, upstream: Upstream, reported: int
) -> None:
    """Not from the JSON around it, of which a stream has forty times as much."""
    spoken, counted = Answer(text=(WORD,) * 600), Tokens(uncached=min(20, reported), visible=reported)
    upstream.behaviours["absurdly"] = Behaviour(answer=lambda *_: spoken, tokens=counted)
    for stream in (False, True):
        (attempt,) = row_of(gateway, gateway.chat("absurdly", stream=stream))["attempts"]
        assert (attempt["output_visible"], attempt["usage_source"], attempt["flagged"]) == (858, "estimated", 1)


@each_row("stream, finish", product([False, True], ["length", "stop"]))
def test_an_answer_without_usage_had_the_tokens_that_its_text_may_have(
    gateway: Gateway, upstream: Upstream, stream: bool, finish: str
) -> None:
    """Fifty digits, which are a token each, up to a cap or without one."""
    spoken = Answer(text=("7",) * 50, finish=finish)
    upstream.behaviours["absurdly"] = Behaviour(answer=lambda *_: spoken, reports="missing")
    capped: dict[str, Any] = {"max_completion_tokens": 50} if finish == "length" else {}
    row = row_of(gateway, gateway.chat("absurdly", stream=stream, **capped))
    assert (row["attempts"][0]["output_visible"], row["cost"]) == (50, row["input_tokens"] * IN + 50 * OUT)


@each_row("name", WRONG)
def test_cost_observability_usage_that_is_wrong(gateway: Gateway, name: str) -> None:
    """The larger reading is charged, in full; what no answer can have cost is marked for whoever reads the books."""
    reply = gateway.chat(name, max_completion_tokens=50)
    row, told = row_of(gateway, reply), WRONG[name]
    cost = told.get("input", 20) * IN + told["output"] * OUT + told.get("usd", 0) * NANO
    (attempt,) = row["attempts"]
    assert row["cost"] == cost == round(reply.json["usage"]["cost"] * NANO)
    assert bool(row["overrun"]) == (cost > row["held"])
    assert attempt["flagged"] or row["overrun"]
    assert account(gateway, name) == (cost, 0)
    assert gateway.chat(name, max_completion_tokens=50).status == 200


def test_cost_observability_usage_that_comes_after_its_lease_was_recovered(
    gateway: Gateway, upstream: Upstream
) -> None:
    """Its gateway was taken for dead and the hold was charged: what the answer cost takes its place, once."""
    with books.waiting(gateway, upstream, "slow") as (identifier, end):
        dead = "UPDATE live_requests SET lease_until_ms = 1, owner = 'a dead one' WHERE id = ?"
        books.change(gateway, dead, identifier)
        gateway.tick()
        recovered = gateway.row(identifier)
        assert recovered["state"] == "recovered"
        assert account(gateway, "slow") == (recovered["held"], 0)
        assert end().body.endswith(b"data: [DONE]\n\n")
    row = until(lambda: row if (row := gateway.row(identifier))["state"] == "settled" else None)
    assert row["cost"] == 20 * IN + 100 * OUT
    assert account(gateway, "slow") == (row["cost"], 0)


def test_a_request_that_ended_without_a_settlement_is_charged_at_its_hold_by_the_living_process(
    gateway: Gateway,
) -> None:
    """A defect of ours is played: a stream was opened, and what serves it is gone."""
    before, _ = account(gateway, "lost")

    async def lose() -> str:
        body = json.dumps({"model": "lost", "messages": MESSAGES, "stream": True, "max_completion_tokens": 40})
        request = parse(Endpoint.CHAT, new_id(), body.encode(), ())
        await gateway.app._pipeline.serve(request, Caller())
        return request.id

    lost = asyncio.run_coroutine_threadsafe(lose(), gateway.loop).result()
    gateway.tick()
    row = until(lambda: row if (row := gateway.row(lost))["state"] == "recovered" else None)
    assert (row["cost"], row["target"]) == (row["held"], "at-lost")
    assert "planned for at-lost (1)" in " ".join(gateway.lowpass("report", "egress")[1].split())
    assert account(gateway, "lost") == (before + row["held"], 0)


def test_primitive_missing_a_request_without_a_cap(gateway: Gateway, upstream: Upstream) -> None:
    """Nobody said max_tokens: what is sent bounds it, or the stream is metered; nothing is spent beyond the budget."""
    replies = crowd(gateway, [Wish("no-cap", {"stream": number % 2 == 0}) for number in range(60)])
    assert {reply.status for reply in replies} == {200, 402}
    assert within(gateway, "no-cap") > 0.05
    assert {row_of(gateway, reply)["overrun"] for reply in replies} == {0}


def written_ms(recorded: Recorded) -> float:
    """For how long an upstream wrote: on a busy machine more is there when a stream is ended, and is charged."""
    return ((recorded.wait().finished or 0) - recorded.received) * 1_000


def test_primitive_missing_a_provider_that_hears_no_cap(gateway: Gateway, upstream: Upstream) -> None:
    """An answer that runs on past its cap is ended, charged and marked; for the next one more is held as it grows."""
    first, second = (row_of(gateway, gateway.chat("deaf", max_completion_tokens=100)) for _ in range(2))
    assert first["error"] == "cap_exceeded"
    most = max(160, written_ms(upstream.requests[-2]) / 2)
    assert 100 * OUT < first["cost"] < min(most, 290) * OUT, "it would have said 300 words"
    assert (second["overrun"], second["cost"] <= second["held"]) == (0, True)
    assert account(gateway, "deaf")[0] == first["cost"] + second["cost"] <= 0.05 * NANO


def test_primitive_missing_an_endless_answer_to_a_cap(gateway: Gateway) -> None:
    """A stream ends there, says why, and what had come is charged. A whole one was written: all is charged."""
    asked = {"model": "endless", "stream": True, "input": "Say hello.", "max_output_tokens": 50}
    reply = gateway.post("/v1/responses", asked)
    row = row_of(gateway, reply)
    (attempt,) = row["attempts"]
    assert b"cap_exceeded" in reply.body[-2_000:]
    assert (row["error"], attempt["outcome"], attempt["finish_reason"]) == ("cap_exceeded", "ok", "length")
    assert 50 < reply.body.count(b'"delta":"') < 600, "some hundred pieces come at once"
    assert 50 < attempt["output_visible"] < 20_000, "and what lay unread then was written"
    row = row_of(gateway, gateway.chat("endless", max_completion_tokens=50))
    assert (row["error"], row["attempts"][0]["output_visible"]) == (None, 20_000)


@each_row("name, word, size", [(f"long-{n}", *row) for n, row in enumerate(LONG_WORDS)])
def test_a_stream_past_its_cap_is_cut_there(
    gateway: Gateway, upstream: Upstream, name: str, word: str, size: int
) -> None:
    """Tokens come one by one, or many at once, in any language; the budget has room for hundreds of such answers."""
    answer, counted = Answer(text=(word * size,) * (3_000 // size)), Tokens(uncached=20, visible=3_000)
    upstream.behaviours[name] = Behaviour(answer=lambda *_: answer, tokens=counted, pause_s=0.001)
    row = row_of(gateway, gateway.chat(name, stream=True, max_completion_tokens=100))
    assert (row["error"], row["overrun"]) == ("cap_exceeded", 1)
    written = max(130, written_ms(upstream.last))
    assert row["attempts"][0]["output_visible"] < written * len(word) * max(size // 5, 1) / 3.5
    within(gateway, name)


def test_a_stream_that_keeps_to_its_cap_is_never_ended_however_it_is_cut_into_pieces(
    gateway: Gateway, upstream: Upstream
) -> None:
    """Nor charged anything but what its provider reports."""
    for seed in range(36):
        drawn, name = Random(seed), f"kept-{seed % len(KEPT)}"  # noqa: S311 - drawn
        size, together, cap = drawn.randint(2, 9), drawn.choice([1, 1, 2, 7, 30, 80]), drawn.choice([80, 120, 200])
        words = [drawn.choice("xж") * drawn.randint(1, size) + " " for _ in range(cap)]
        answer = Answer(text=tuple("".join(words[at : at + together]) for at in range(0, cap, together)))
        counted, pause_s = Tokens(uncached=20, visible=cap), drawn.choice([0, 0.001])
        upstream.behaviours[name] = Behaviour(answer=lambda *_, it=answer: it, tokens=counted, pause_s=pause_s)
        row = row_of(gateway, gateway.chat(name, stream=True, max_completion_tokens=cap))
        assert (row["error"], row["cost"]) == (None, 20 * IN + cap * OUT), seed


def test_what_lay_unread_when_a_stream_is_ended_is_charged(gateway: Gateway, upstream: Upstream) -> None:
    """A target whose words came one by one sends 600 in one write, and the budget has room for some four hundred."""
    event = {"choices": [{"index": 0, "delta": {"content": WORD}, "finish_reason": None}]}
    page = Page((b"data: %b\n\n" % json.dumps(event).encode() * 600,), headers={"content-type": "text/event-stream"})
    slow = Behaviour(answer=lambda *_: Answer(text=(WORD,) * 40), tokens=Tokens(uncached=20, visible=40), pause_s=0.002)
    for behaviour in (slow, slow, Behaviour(page=lambda _: page)):
        upstream.behaviours["at-once"] = behaviour
        row = row_of(gateway, gateway.chat("at-once", stream=True))
    assert row["error"] in ("budget_exceeded", "cap_exceeded")
    assert 560 * OUT < row["cost"] < 1_000 * OUT


CUSTOM = {"index": 0, "id": "c", "type": "custom", "custom": {"name": "f", "input": "x" * 999}}
DETAILS = {"type": "reasoning.text", "text": "x" * 999}


@each_row("hidden", [{"tool_calls": [CUSTOM]}, {"unknown": "x" * 999}, {"reasoning_details": [DETAILS]}])
def test_what_a_stream_holds_beside_its_text_is_bounded_by_its_cap_too(
    gateway: Gateway, upstream: Upstream, hidden: dict[str, object]
) -> None:
    choice = {"index": 0, "delta": {"content": "", **hidden}, "finish_reason": None}
    event = f"data: {json.dumps({'id': 'c', 'choices': [choice]})}\n\n".encode()
    books.saying(upstream, "hidden", Page((event * 1_000,) * 3, headers={"content-type": "text/event-stream"}))
    reply = gateway.chat("hidden", stream=True, max_completion_tokens=10)
    row = row_of(gateway, reply)
    assert len(reply.body) < 2_500_000
    assert (row["error"], row["attempts"][0]["output_visible"] >= 10) == ("cap_exceeded", True)


@each_row("row", data(__file__, "beside_output.yaml"))
def test_what_a_provider_s_own_tools_have_found_and_what_it_repeats_is_no_output(
    gateway: Gateway, upstream: Upstream, row: dict[str, Any]
) -> None:
    row = json.loads(json.dumps(row).replace("LONG", "x" * 90_000))
    events = [json.dumps(event).encode() for event in row["answer"]]
    page = Page((b"".join(b"data: %b\n\n" % event for event in events) + b"data: [DONE]\n\n",))
    books.saying(upstream, "found", page if "stream" in row["asked"] else Page((events[0],)))
    (attempt,) = row_of(gateway, gateway.post(f"/v1/{row['path']}", {"model": "found", **row["asked"]}))["attempts"]
    assert (attempt["usage_source"], attempt["output_visible"]) == ("reported", 60)


def test_option_silently_dropped_a_thinking_budget_is_honoured_or_refused(gateway: Gateway, upstream: Upstream) -> None:
    reply = gateway.chat("always", headers={"x-lowpass-thinking-budget": "700"})
    assert (reply.status, reply.error["code"]) == (403, "no_eligible_target")
    assert [dropped["reason"] for dropped in reply.error["targets"]] == ["thinking"]
    assert upstream.requests == []


@each_row("header", ["x-lowpass-thinking-budgets", "x-lowpass-max-budget", "x-lowpass-budget_usd"])
def test_option_silently_dropped_a_misspelt_header(gateway: Gateway, upstream: Upstream, header: str) -> None:
    reply = gateway.chat("no-cap", headers={header: "1"})
    assert (reply.status, reply.error["param"]) == (400, header)
    assert "x-lowpass-budget-usd" in reply.error["message"]
    assert upstream.requests == []


@each_row("row", data(__file__, "served.yaml"))
def test_the_model_that_served_is_the_one_that_is_charged(
    tmp_path_factory: pytest.TempPathFactory, upstream: Upstream, row: tuple[str, str, str, bool, bool]
) -> None:
    model, served, charged, stream, odd = row
    provider, _, name = model.partition("/")
    tokens = Tokens(uncached=20, visible=300)
    upstream.behaviours[name] = Behaviour(answer=lambda *_: Answer(text=(WORD,) * 300), tokens=tokens, served=served)
    url = upstream.base_url(provider) if provider == "openai" else upstream.url
    own = rules({"it": {"model": model, "base_url": url, "api_key": "sk-upstream"}}, {"auto": "it"}, [])
    with serving(tmp_path_factory.mktemp("served"), own) as gateway:
        assert gateway.chat("auto").status == 200
        booked = gateway.settled(gateway.chat("auto", stream=stream).id)
        card, _ = shipped().models[charged]
        assert booked["attempts"][0]["model_served"] == served
        assert booked["cost"] == charge(card.price, Usage(input_uncached=20, output_visible=300)).nano
        assert gateway.rows("SELECT subject FROM incidents WHERE kind = 'other_model'") == [{"subject": "it"}] * odd
        gateway.check_books()
        assert gateway.lowpass("ledger", "verify")[0] == 0


@each_row("stream", [False, True])
def test_a_dearer_model_that_serves_is_held_for(
    tmp_path_factory: pytest.TempPathFactory, upstream: Upstream, stream: bool
) -> None:
    """A stream is from its first event on, a whole answer once another one said so, to whichever process. The policy's
    prices count as the catalog's do."""
    spoken, counted = Answer(text=(WORD,) * 300), Tokens(uncached=20, visible=300)
    upstream.behaviours["dear"] = Behaviour(answer=lambda *_: spoken, tokens=counted)
    upstream.behaviours["slug"] = Behaviour(answer=lambda *_: spoken, tokens=counted, served="dear", pause_s=0.002)
    dear = {name: 10 * rate for name, rate in PRICE.items()}
    targets = {name: target(upstream.url, name, price=price) for name, price in (("slug", PRICE), ("dear", dear))}
    cost = 10 * (20 * IN + 300 * OUT)
    limit = 10 * cost / NANO
    own = rules(targets, {"auto": "slug"}, budgets({"auto": limit}))
    home = tmp_path_factory.mktemp("dear")
    with serving(home, own) as gateway:
        assert gateway.settled(gateway.chat("auto", stream=stream).id)["cost"] == cost
    with serving(home, own) as gateway:
        replies = crowd(gateway, [Wish("auto", {"stream": stream}) for _ in range(40)])
        assert {reply.status for reply in replies} == {200, 402}
        assert 0.7 * limit < within(gateway, "auto")
        incidents = gateway.rows("SELECT reason FROM incidents WHERE kind = 'other_model'")
        assert incidents == [{"reason": "asked for slug, served by dear and charged at its price"}]
        gateway.check_books()


def test_a_new_process_knows_which_targets_keep_their_caps(tmp_path: Path, upstream: Upstream) -> None:
    """A text of eleven bytes a token is let be then, where budgets are short."""
    spoken = Answer(text=("слово ",) * 60, finish="length")
    upstream.behaviours["kept"] = Behaviour(answer=lambda *_: spoken, tokens=Tokens(uncached=20, visible=60))
    own = rules({"at": target(upstream.url, "kept", price=PRICE)}, {"auto": "at"}, budgets({"auto": 1}))
    for headers in ({}, {"x-lowpass-budget-usd": f"{200 * OUT / NANO}"}):
        with serving(tmp_path, own) as gateway:
            row = row_of(gateway, gateway.chat("auto", stream=True, headers=headers, max_completion_tokens=60))
            assert (row["error"], row["attempts"][0]["output_visible"]) == (None, 60)


def test_regions_and_fees_that_cost_more_are_in_every_estimate_and_check_says_so(tmp_path: Path) -> None:
    models = [model for model, place in shipped().models.values() if place in ("anthropic", "openai")]
    ruled = [(model, rule) for model in models for rule in (model.price.rules if model.price else ())]
    dear = [(model, rule) for model, rule in ruled if rule.region and not rule.service_tier]
    targets: dict[str, Any] = {"searches": {"model": "perplexity/sonar-pro", "api_key": "x"}}
    for number, (model, rule) in enumerate(dear):
        targets |= {f"near-{number}": {"model": model.id, "api_key": "x", "region": rule.region}}
        targets |= {f"any-{number}": {"model": model.id, "api_key": "x"}}
    pairs = {str(number): [f"near-{number}", f"any-{number}"] for number in range(len(dear))} | {"fee": ["searches"]}
    routes = {name: {"strategy": {"kind": "cheapest", "targets": pair}} for name, pair in pairs.items()}
    policy = tmp_path / "policy.yaml"
    policy.write_text(json.dumps({"version": 1, "targets": targets, "routes": routes}))
    checked = lowpass(tmp_path, "check", "--policy", str(policy)).output
    for number, (model, rule) in enumerate(dear):
        request = tmp_path / "request.json"
        request.write_text(json.dumps({"model": str(number), "messages": MESSAGES}))
        explained = json.loads(lowpass(tmp_path, "explain", "--policy", str(policy), str(request), "--json").output)
        first, second = explained["considered"]
        assert first["target"] == f"any-{number}"
        over, under = rule.times
        assert second["cost_usd"] == pytest.approx(first["cost_usd"] * over / under, abs=1e-9), "to a nano-USD"
        assert f"near-{number}: in region {rule.region} {model.id} costs {over / under:g} times" in checked
    request.write_text(json.dumps({"model": "fee", "messages": MESSAGES, "max_tokens": 100}))
    explained = json.loads(lowpass(tmp_path, "explain", "--policy", str(policy), str(request), "--json").output)
    (searches,) = explained["considered"]
    assert len(dear) > 5
    assert 0.014 < searches["cost_usd"] < searches["hold_usd"] < 0.017
