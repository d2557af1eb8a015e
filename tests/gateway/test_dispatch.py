"""Retries, fallbacks and decisions as an OpenAI client sees them, and the row that each leaves."""

import json
from pathlib import Path
from typing import Any

import openai
import pytest

from router.testing.upstream import RETRY_AFTER_S, TEXT, Behaviour, Page, Upstream
from tests.gateway.canned import PAUSE, canned
from tests.gateway.running import CHAT, MESSAGES, Gateway, ordered, serving, target, tried, usd, user
from tests.tables import each_row

NORMAL_NANO = 20 * 1_000 + 10 * 2_000
"""20 tokens in, 10 out, at 1 and 2 USD per million."""
PAUSE_S = 120
# The first target of a route → how its attempt ended.
FALLS_BACK = {
    "error-500": "server_error",
    "rate-limited": "rate_limited",
    "hang": "timeout",
    "bad-json": "bad_response",
}
FALLS_BACK |= {"no-such-model": "model_missing", "refused-connection": "connect", "context-length": "context_length"}
FALLS_BACK |= {"content-filter": "content_filter"} | {name: name for name in ("overloaded", "cut", "auth", "quota")}
TOOLS = [{"type": "function", "function": {"name": "f"}}]
KINDS = {False: "plain", True: "stream"}


def policy(url: str) -> dict[str, Any]:
    targets = {"spare": target(url, "normal")}
    routes: dict[str, Any] = {"all-fail": ordered("first-bad", "second-bad"), "too-late": ordered("slow", "never")}
    routes["small-first"] = ordered("small", "spare")
    for kind in KINDS.values():
        for name in FALLS_BACK:
            impatient = {"timeouts": {"first_ms": 300}} if name == "hang" else {}
            targets[f"{kind}-{name}"] = target(url, f"{name}@{kind}", **impatient)
            routes[f"{kind}/{name}"] = ordered(f"{kind}-{name}", "spare")
        for name in ("flaky", "rate-limited-once"):
            targets[f"{kind}-{name}"] = target(url, f"{name}@{kind}", retries=2)
        targets[f"{kind}-refused-connection"]["base_url"] = "http://127.0.0.1:9/v1"
    targets |= {"first-bad": target(url, "error-500@all"), "second-bad": target(url, "overloaded@all")}
    targets |= {"slow": target(url, "hang@deadline", retries=3), "never": target(url, "normal@deadline")}
    targets["small"] = target(url, "normal", capabilities=["chat"])
    return {"version": 1, "targets": targets, "routes": routes}


def own(**targets: Any) -> dict[str, Any]:
    return {"version": 1, "targets": targets, "routes": {"auto": ordered(*targets)}}


def ask(gateway: Gateway, model: str, *, stream: bool) -> tuple[str, Any, Any, str]:
    """Text, usage, headers and model of an answer to the official client."""
    options: Any = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    with gateway.client() as client:
        raw = client.chat.completions.with_raw_response.create(model=model, messages=MESSAGES, **options)
        answer: Any = raw.parse()
        if not stream:
            return answer.choices[0].message.content, answer.usage, raw.headers, answer.model
        chunks = list(answer)
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    return text, chunks[-1].usage, raw.headers, chunks[0].model


@each_row("name, stream", [(n, s) for n in FALLS_BACK for s in KINDS if not (s and n == "cut")])
def test_a_failing_target_is_replaced_by_the_next(gateway: Gateway, name: str, stream: bool) -> None:
    kind = KINDS[stream]
    text, usage, headers, model = ask(gateway, f"{kind}/{name}", stream=stream)
    assert (text, model, headers["x-lowpass-model"]) == ("".join(TEXT), f"{kind}/{name}", "spare")
    row = gateway.settled(headers["x-lowpass-decision"])
    assert tried(row) == [(f"{kind}-{name}", FALLS_BACK[name]), ("spare", "ok")]
    assert (row["state"], row["target"], row["status"], row["error"]) == ("settled", "spare", 200, None)
    # A provider that fell silent, or broke off, has read the prompt and charges for that; others charge nothing.
    first, charged = row["attempts"][0], name in ("hang", "cut")
    assert (first["cost"] > 0, first["cost_source"]) == (charged, "estimated" if charged else "priced")
    assert row["cost"] == NORMAL_NANO + first["cost"]
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cost) == (20, 10, usd(row["cost"]))


CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
CHUNK |= {"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}]}
PIECE = f"data: {json.dumps(CHUNK)}\n\n".encode()
OVERLOADED = b'data: {"error":{"message":"overloaded","type":"server_error","code":"overloaded"}}\n\ndata: [DONE]\n\n'
SPOILT = {
    "error": (OVERLOADED, "server_error"),
    "not-json": (b'data: {"choices":[{"del\n\ndata: [DONE]\n\n', "bad_response"),
    "not-sse": (b"<html>", "cut"),
    "array": (b"data: [1]\n\n", "bad_response"),
}


def test_a_stream_that_goes_bad_ends_with_an_error_event(tmp_path: Path) -> None:
    with (
        canned({name: (200, PIECE + PAUSE + data) for name, (data, _) in SPOILT.items()}) as server,
        serving(tmp_path, own(**{name: target(server.url, "m", flavour=name) for name in SPOILT})) as gateway,
    ):
        for name, (_, kind) in SPOILT.items():
            reply = gateway.chat(name, stream=True)
            assert (reply.status, b'"Hi"' in reply.body, b"[DONE]" in reply.body) == (200, True, False)
            assert f'"kind":"{kind}"'.encode() in reply.body.split(b"\n\n")[-2], name
            row = gateway.settled(reply.id)
            assert (tried(row), row["status"], row["error"]) == ([(name, kind)], 200, kind)
            with pytest.raises(openai.APIError), gateway.client() as client:
                list(client.chat.completions.create(model=name, messages=MESSAGES, stream=True))
        gateway.check_books()


@each_row("stream", [False, True])
@each_row("name, first", [("flaky", "server_error"), ("rate-limited-once", "rate_limited")])
def test_the_same_target_is_asked_again(
    gateway: Gateway, upstream: Upstream, stream: bool, name: str, first: str
) -> None:
    target = f"{KINDS[stream]}-{name}"
    row = gateway.settled(ask(gateway, target, stream=stream)[2]["x-lowpass-decision"])
    assert (tried(row), row["cost"]) == ([(target, first), (target, "ok")], NORMAL_NANO)
    sooner, later = row["attempts"]
    pause_ms = later["started_ms"] - sooner["started_ms"] - sooner["total_ms"]
    # The pause before it is asked again is ours.
    assert row["overhead_us"] >= (pause_ms - 3) * 1_000 > 50_000
    if first == "rate_limited":
        sooner, later = upstream.requests[-2:]
        assert later.received - sooner.received >= RETRY_AFTER_S


def rests(upstream: Upstream) -> dict[str, Any]:
    """A target that asks for a long pause, and is not asked again before."""
    body = json.dumps({"error": {"message": "Slow down.", "type": "rate_limit_error"}}).encode()
    headers = {"content-type": "application/json", "retry-after": str(PAUSE_S), "x-ratelimit-remaining-tokens": "0"}
    upstream.behaviours["rests"] = Behaviour(page=lambda _: Page((body,), 429, headers))
    return target(upstream.url, "rests", retries=1)


def test_a_long_retry_after_sends_the_request_to_the_next_target_at_once(tmp_path: Path, upstream: Upstream) -> None:
    with serving(tmp_path, own(limited=rests(upstream), spare=target(upstream.url, "normal"))) as gateway:
        for expected in ([("limited", "rate_limited"), ("spare", "ok")], [("spare", "ok")]):
            upstream.clear()
            assert tried(gateway.settled(gateway.chat("auto").id)) == expected
            assert len(upstream.requests) == len(expected)


def test_a_bad_request_is_no_other_target_s_problem(tmp_path: Path, upstream: Upstream) -> None:
    error = {"error": {"message": "No such role.", "type": "invalid_request_error", "param": "messages[0].role"}}
    with canned({"picky": (400, json.dumps(error).encode())}) as picky:
        targets = {"first": target(picky.url, "m", flavour="picky"), "spare": target(upstream.url, "normal")}
        with serving(tmp_path, own(**targets)) as gateway:
            for stream in (False, True):
                reply = gateway.chat("auto", stream=stream)
                assert (reply.status, reply.error["message"]) == (400, "No such role.")
                assert reply.error["param"] == "messages[0].role"
                assert tried(gateway.settled(reply.id)) == [("first", "bad_request")]
    assert upstream.requests == []


def test_when_all_targets_fail_the_client_learns_what_was_tried(gateway: Gateway) -> None:
    reply = gateway.chat("all-fail")
    assert [reply.error[name] for name in ("code", "type", "kind")] == ["upstream_error", "api_error", "overloaded"]
    rows = [(row["target"], row["outcome"], row["status"]) for row in reply.error["attempts"]]
    assert rows == [("first-bad", "server_error", 500), ("second-bad", "overloaded", 503)]
    row = gateway.settled(reply.id)
    assert (row["state"], row["error"], row["cost"]) == ("settled", "overloaded", 0)
    assert reply.status == row["status"] == 503


def test_a_deadline_ends_the_search(gateway: Gateway, upstream: Upstream) -> None:
    """Once the time is up no other is asked: the answer could not be used, but it would be charged."""
    reply = gateway.chat("too-late", headers={"x-lowpass-deadline-ms": "1000"})
    assert reply.status == 504
    assert tried(gateway.settled(reply.id)) == [("slow", "timeout")]
    assert len(upstream.requests) == 1


def test_while_all_that_may_serve_it_rest_the_client_is_told_when_to_come_back(
    tmp_path: Path, upstream: Upstream
) -> None:
    """Another target of the route that could never serve it does not turn that into a refusal for good."""
    cannot = target(upstream.url, "normal", capabilities=["embeddings"])
    with serving(tmp_path, own(rests=rests(upstream), cannot=cannot)) as gateway:
        first, reply = gateway.chat("auto"), gateway.chat("auto")
        assert (first.status, first.headers["x-ratelimit-remaining-tokens"]) == (429, "0")
        assert (reply.status, reply.error["code"]) == (429, "rate_limit_exceeded")
        assert 1 <= int(reply.headers["retry-after"]) <= PAUSE_S
        assert len(upstream.requests) == 1
        row = gateway.settled(reply.id)
        assert (row["state"], row["status"], row["cost"], row["attempts"]) == ("released", 429, 0, [])


def test_time_in_which_a_target_was_waited_for_is_not_ours(gateway: Gateway) -> None:
    """300 ms pass before the first target is given up."""
    row = gateway.settled(gateway.chat("plain/hang").id)
    assert 0 < row["overhead_us"] <= (row["total_ms"] + 1 - 300) * 1_000


@each_row("path", [CHAT, "/v1/route"])
def test_an_unknown_model_is_named_with_those_that_are_known(gateway: Gateway, path: str) -> None:
    reply = gateway.post(path, {"model": "gpt-unknown", "messages": MESSAGES})
    assert (reply.status, reply.error["code"], reply.error["param"]) == (404, "model_not_found", "model")
    assert "all-fail, too-late" in reply.error["message"]


def test_a_route_can_be_asked_for_without_calling_a_target(gateway: Gateway, upstream: Upstream) -> None:
    body = {"model": "small-first", "messages": MESSAGES, "tools": TOOLS}
    decided = gateway.post("/v1/route", body).json
    assert (upstream.requests, decided["chosen"]) == ([], "spare")
    assert [dropped["reason"] for dropped in decided["dropped"]] == ["capability"]
    assert gateway.get(f"/v1/decisions/{decided['id']}").json == decided
    answer = gateway.post(CHAT, body)
    assert answer.headers["x-lowpass-model"] == decided["chosen"]
    gateway.tick()  # its text is read after the answer
    served = gateway.get(f"/v1/decisions/{answer.headers['x-lowpass-decision']}").json
    assert {**served, "id": ""} == {**decided, "id": ""}


def test_an_answer_explains_itself_when_asked(gateway: Gateway) -> None:
    assert gateway.chat("spare", headers={"x-lowpass-explain": "1"}).json["lowpass"]["chosen"] == "spare"
    assert "lowpass" not in gateway.chat("spare").json
    assert gateway.get("/v1/decisions/nobody").status == 404


def test_what_a_route_does_not_choose_by_is_read_after_the_answer_and_teaches(
    tmp_path: Path, upstream: Upstream
) -> None:
    """Length, task and difficulty: refused requests are read too, and what answers were like is known at once."""
    targets = {name: target(upstream.url, "say-10") for name in ("pinned", "other")}
    budget = {"id": "none", "limit_usd": "0.000000001", "tags": ["poor"]}
    rules = {"version": 1, "targets": targets, "routes": {"plain": ordered("pinned")}, "budgets": [budget]}
    coding = "Write a Python function that merges two sorted linked lists, and explain its complexity."
    with serving(tmp_path, rules) as gateway:
        replies = [gateway.chat("plain", f"{coding} ({number})") for number in range(8)]
        refused = gateway.chat("plain", coding, {"x-lowpass-tags": "poor"})
        assert (refused.status, {reply.status for reply in replies}) == (402, {200})
        assert all("x-lowpass-difficulty" not in reply.headers for reply in replies)
        told = gateway.post("/v1/feedback", {"id": replies[0].id, "passed": True})
        assert (told.status, gateway.rows("SELECT task, difficulty > 0 AS hard FROM outcomes")) == (
            200,
            [{"task": "code", "hard": 1}],
        )
        gateway.tick()
        for reply in (*replies, refused):
            assert (gateway.settled(reply.id)["task"], gateway.row(reply.id)["difficulty"] > 0) == ("code", True)
            assert gateway.get(f"/v1/decisions/{reply.id}").json["classification"]["traits"]
        expected = gateway.post("/v1/route", {"model": "plain", "messages": user(coding)}).json["considered"][0]
        assert expected["output_tokens"] < 300
