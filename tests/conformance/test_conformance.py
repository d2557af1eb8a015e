"""Every wire × every behaviour × plain and streamed: what the official client sees, and what the ledger keeps."""

import json
import time
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import openai
import pytest

from router.dispatch import http
from router.testing.upstream import BEHAVIOURS, RETRY_AFTER_S, TEXT, Tokens, Upstream
from router.testing.upstream.behaviours import Break
from tests.conformance import client as official
from tests.conformance import expected
from tests.conformance.expected import ANSWERS, CASES, DYING, EARLY, WIRES, Case, End, ending, kind, outcomes
from tests.gateway.canned import PAUSE, canned
from tests.gateway.running import MESSAGES, Gateway, ordered, serving, usd
from tests.tables import each_row
from tests.upstream.probe import post

TARGET = attrgetter("target")
PROVIDERS = {"llamacpp": "llama_cpp"}
"""Whose name in the catalog is not the wire's."""
SECRET = "sk-upstream-secret"
HASTE = {Break.SILENCE: {"first_ms": 250}, Break.HANG: {"between_ms": 250}}
"""Timeouts of the targets that hang."""
_CAPABILITIES = ["chat", "tools", "json_schema", "vision", "completions", "embeddings", "logprobs", "n"]
_NEEDED = {"many": "n", "logprobs": "logprobs"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, upstream_server: Upstream) -> Iterator[Gateway]:
    spoilt = {_name(case): (200, _in_two_breaths(upstream_server, case)) for case in CASES if _spoils(case)}
    ends = {f"{wire}-{EARLY}": (200, spoilt[f"{wire}-error-in-stream"][1].partition(PAUSE)[0]) for wire in WIRES}
    with canned(spoilt | ends) as late:
        places = {case: f"{late.url}/{_name(case)}" if _spoils(case) else upstream_server.url for case in CASES}
        targets = {case.target: _target(places[case], case) for case in CASES}
        for wire in WIRES:
            targets[f"{wire}/{EARLY}"] = _target(f"{late.url}/{wire}-{EARLY}", Case(wire, "normal", streamed=True))
        policy = {"version": 1, "targets": targets, "routes": {"auto": ordered(CASES[0].target)}}
        with serving(tmp_path_factory.mktemp("conformance"), policy) as gateway:
            yield gateway
            gateway.check_books()
            assert SECRET not in gateway.log.read_text()


@pytest.fixture(scope="module")
def client(gateway: Gateway) -> Iterator[openai.OpenAI]:
    with gateway.client() as client:
        yield client


@pytest.fixture(autouse=True)
def _fresh(upstream: Upstream) -> None:
    """It remembers no other test's requests, and has made no mistake."""


def _spoils(case: Case) -> bool:
    """A stream that goes bad: it must be read apart from what came before, or it is a failure without an answer."""
    return case.streamed and case.row.breaks in (Break.ERROR, Break.GARBAGE)


def _name(case: Case) -> str:
    return f"{case.wire}-{case.behaviour}"


def _in_two_breaths(upstream: Upstream, case: Case) -> bytes:
    """What the scripted upstream says, with a pause before it goes bad."""
    asked: dict[str, Any] = {"model": case.model, "messages": MESSAGES, "stream": True, "max_tokens": 100}
    if case.wire == "gemini":
        asked = {"contents": [{"parts": [{"text": "Hello"}]}]}
    _, _, data = post(upstream, case.path, asked)
    newline = b"\r\n" if case.wire == "gemini" else b"\n"
    end = data.index(newline * 2, data.index(TEXT[1].encode())) + 2 * len(newline)
    return data[:end] + PAUSE + data[end:]


def _target(url: str, case: Case) -> dict[str, Any]:
    lacking = {_NEEDED[behaviour] for wire, behaviour in expected.LACKS if wire == case.wire}
    capabilities = [name for name in _CAPABILITIES if name not in lacking]
    model = {"name": case.model, "provider": PROVIDERS.get(case.wire, case.wire), "capabilities": capabilities}
    return {
        "model": {**model, "context": 2_000_000, "max_output": 1_300_000, "price": expected.RATES},
        "base_url": f"{url}{case.prefix}",
        "api_key": SECRET,
        "retries": expected.ASKED_AGAIN.get(case.behaviour, 0),
        "timeouts": HASTE.get(case.row.breaks, {}) if case.row.breaks else {},
    }


def test_every_case_has_one_end_and_every_exception_a_case() -> None:
    assert len(CASES) == len(WIRES) * len(BEHAVIOURS) * 2
    assert {(case.wire, case.behaviour) for case in CASES} >= {*expected.LACKS, *expected.OTHER_KINDS}
    assert {case.behaviour for case in CASES} >= {*expected.ASKS, *expected.ASKED_AGAIN}


@each_row("case", [case for case in ending(End.ANSWERED) if case.behaviour != DYING], TARGET, at_once=8)
def test_an_answer_and_its_row(client: openai.OpenAI, gateway: Gateway, upstream: Upstream, case: Case) -> None:
    check_answer(official.ask(client, case), gateway, case)
    assert asked(upstream, case) == len(outcomes(case))


def asked(upstream: Upstream, case: Case) -> int:
    """How often; Gemini's wire has the model in the path, the others in the body."""
    return sum(f"/{case.model}:" in seen.path or f'"{case.model}"'.encode() in seen.body for seen in upstream.requests)


def check_answer(seen: official.Seen, gateway: Gateway, case: Case) -> None:
    for got, wanted in zip(seen.choices, expected.said(case), strict=True):
        assert official.same(got, wanted), (got, wanted)
    assert seen.ids == {expected.IDS.get(case.wire, "chatcmpl-upstream")}
    assert seen.models == {case.target}
    assert len(seen.created) == 1
    row = gateway.row(seen.request_id)
    check_row(row, case, status=200, error=None, finish=expected.said(case)[0].finish)
    assert seen.headers["x-lowpass-model"] == row["target"] == case.target
    (usage,) = seen.usages
    assert usage == usage_of(row["attempts"][-1], row["cost"])
    assert not (case.streamed and seen.last_has_choices)
    if not case.streamed:
        assert float(seen.headers["x-lowpass-cost-usd"]) == usd(row["cost"])


@each_row("case", ending(End.BROKEN), TARGET, at_once=8)
def test_a_broken_stream_raises_and_is_charged(client: openai.OpenAI, gateway: Gateway, case: Case) -> None:
    text, error, request_id = official.broken(client, case)
    assert error is not None, "the stream ended as if it were whole"
    assert text == expected.pieces(case)
    _, type_, code = ANSWERS[kind(case)]
    assert isinstance(error.body, dict)
    assert (error.type, error.code, error.body["kind"]) == (type_, code, kind(case))
    check_row(gateway.settled(request_id), case, status=200, error=kind(case), finish="")


@each_row("case", ending(End.REFUSED), TARGET, at_once=8)
def test_a_failure_before_the_answer_is_a_status(client: openai.OpenAI, gateway: Gateway, case: Case) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        official.ask(client, case)
    status, type_, code = ANSWERS[kind(case)]
    _, message, param = expected.complaint(case)
    error = caught.value
    assert (error.status_code, error.type, error.code, error.param) == (status, type_, code, param)
    assert message in error.message
    assert isinstance(error.body, dict)
    assert error.body["kind"] == kind(case)
    assert [attempt["outcome"] for attempt in error.body["attempts"]] == outcomes(case)
    limited = case.row.fault == "rate" or (case.row.fault, case.wire) == ("quota", "gemini")
    assert error.response.headers.get("retry-after") == (str(RETRY_AFTER_S) if limited else None)
    row = gateway.settled(error.response.headers["x-request-id"])
    assert (row["status"], row["error"], row["target"]) == (status, kind(case), None)
    assert [attempt["outcome"] for attempt in row["attempts"]] == outcomes(case)
    assert row["cost"] == sum(attempt["cost"] for attempt in row["attempts"])
    for attempt in row["attempts"]:
        broken = not case.streamed and case.behaviour in ("cut", "cut-after-first", "bad-sse-json")
        if attempt["outcome"] == "timeout" or broken:  # it has read the prompt, or answered, and will charge for that
            assert (attempt["usage_source"], attempt["cost_source"]) == ("estimated", "estimated")
            assert attempt["cost"] > 0
        else:
            assert_uncharged(attempt, case)


@each_row("case", ending(End.LACKING), TARGET, at_once=8)
def test_what_a_wire_can_t_carry_is_sent_to_nobody(
    client: openai.OpenAI, gateway: Gateway, upstream: Upstream, case: Case
) -> None:
    with pytest.raises(openai.PermissionDeniedError) as caught:
        official.ask(client, case)
    assert caught.value.code == "no_eligible_target"
    assert asked(upstream, case) == 0


@each_row("wire", WIRES)
def test_usage_comes_only_when_asked_but_is_always_kept(client: openai.OpenAI, gateway: Gateway, wire: str) -> None:
    for behaviour in ("normal", "usage-in-last-content", "cumulative-usage"):
        case = Case(wire, behaviour, streamed=True)
        seen = official.ask(client, case, usage=False)
        assert seen.usages == []
        assert seen.last_has_choices
        check_row(gateway.row(seen.request_id), case, status=200, error=None, finish="stop")


@each_row("wire", WIRES)
def test_a_stream_ends_once_and_a_broken_one_never(gateway: Gateway, wire: str) -> None:
    for behaviour in ("normal", "cut", "error-in-stream"):
        case = Case(wire, behaviour, streamed=True)
        reply = gateway.chat(case.target, stream=True)
        events = reply.body.split(b"\n\n")
        assert events.pop() == b""
        assert all(event.startswith(b"data: ") for event in events)
        assert events.count(b"data: [DONE]") == (behaviour == "normal")
        chunks = [json.loads(event[len(b"data: ") :]) for event in events if event != b"data: [DONE]"]
        if behaviour == "normal":
            assert events[-1] == b"data: [DONE]"
            assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
        else:
            assert list(chunks[-1]) == ["error"]
            assert not any("error" in chunk for chunk in chunks[:-1])


@each_row("wire", WIRES)
def test_a_stream_without_its_own_end_was_cut(gateway: Gateway, wire: str) -> None:
    reply = gateway.chat(f"{wire}/{EARLY}", stream=True)
    *_, last = reply.body.removesuffix(b"\n\n").split(b"\n\n")
    assert TEXT[1].encode() in reply.body
    assert json.loads(last.removeprefix(b"data: "))["error"]["kind"] == "cut"
    row = gateway.row(reply.id)
    assert (row["state"], row["error"], row["attempts"][0]["outcome"]) == ("settled", "cut", "cut")
    assert row["cost"] > 0


@each_row("wire", WIRES)
@each_row("streamed", [False, True])
def test_a_connection_that_dies_under_the_next_request_costs_nobody_anything(
    client: openai.OpenAI, gateway: Gateway, upstream: Upstream, wire: str, streamed: bool
) -> None:
    for case in (Case(wire, DYING, streamed), Case(wire, "normal", streamed)):
        check_answer(official.ask(client, case), gateway, case)
        time.sleep(2 * http.QUIET_S)  # of the idle connections, the latest that has rested is used again
    first, lost, repeated = upstream.requests
    assert first.connection == lost.connection != repeated.connection
    assert lost.body == repeated.body


def check_row(row: dict[str, Any], case: Case, *, status: int, error: str | None, finish: str | None) -> None:
    """The request, its attempts, their counts and their costs."""
    assert (row["state"], row["status"], row["error"]) == ("settled", status, error)
    assert (row["requested"], row["stream"], row["endpoint"]) == (case.target, case.streamed, "chat")
    assert [attempt["outcome"] for attempt in row["attempts"]] == outcomes(case)
    *failed, last = row["attempts"]
    for attempt in failed:
        assert_uncharged(attempt, case)
    wanted, counted = expected.tokens(case), buckets(last)
    assert counted == wanted if wanted else min(counted.uncached, counted.visible) > 0
    assert (last["usage_source"], last["reasoning_source"], last["cost_source"]) == expected.sources(case)
    odd = case.behaviour == "zero-usage" or (case.wire, case.behaviour) == ("openrouter", "huge")
    assert (last["input_audio"], last["output_audio"], bool(last["violations"])) == (0, 0, odd)
    assert last["cost"] == row["cost"] == expected.cost_nano(case, counted)
    assert (last["target"], last["upstream_status"]) == (case.target, 200)
    assert (last["finish_reason"], last["model_served"]) == (finish, expected.served(case))
    totals = (row["input_tokens"], row["output_tokens"], row["reasoning_tokens"])
    assert totals == (counted.input, counted.output, counted.reasoning)


def assert_uncharged(attempt: dict[str, Any], case: Case) -> None:
    """A failed attempt has no counts, not zeros, and costs nothing."""
    status, _, _ = expected.complaint(case)
    assert (attempt["target"], attempt["upstream_status"]) == (case.target, status)
    assert (attempt["input_uncached"], attempt["output_visible"], attempt["usage_source"]) == (None, None, None)
    assert (attempt["cost"], attempt["finish_reason"]) == (0, "")


def buckets(attempt: dict[str, Any]) -> Tokens:
    columns = {"uncached": "input_uncached", "visible": "output_visible", "reasoning": "output_reasoning"}
    names = (*columns, "cache_read", "cache_write", "cache_write_1h")
    return Tokens(**{name: attempt[columns.get(name, name)] for name in names})


def usage_of(attempt: dict[str, Any], cost: int) -> dict[str, Any]:
    """What the client must read of an attempt's counts; unknown reasoning is null."""
    counted = buckets(attempt)
    written = counted.cache_write + counted.cache_write_1h
    cached = {"cached_tokens": counted.cache_read, "cache_write_tokens": written, "audio_tokens": 0}
    return {
        "prompt_tokens": counted.input,
        "completion_tokens": counted.output,
        "total_tokens": counted.input + counted.output,
        "prompt_tokens_details": cached,
        "completion_tokens_details": {"reasoning_tokens": counted.reasoning, "audio_tokens": 0},
        "cost": usd(cost),
    }
