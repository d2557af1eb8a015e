"""vLLM's wire, from bytes that vLLM 0.32 wrote (tests/adapters/recorded), and what it has to be told."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from adapters.failure import failure
from router.config.thinking import as_served
from router.errors import UpstreamFailure
from router.types.call import Call
from router.types.engine import Served
from router.types.failure import ErrorKind
from router.types.request import Endpoint
from router.types.target import Contract, Quirks, Thinking, ThinkingField
from router.types.usage import Source
from tests.adapters.compatible import ADAPTER, HI, call

RECORDED = Path(__file__).with_name("recorded")
PARSED = Served(name="e", urls=("http://up/v1",), thinking_exact=True, thinking_written=8, thinking_forced=1)
UNPARSED = Served(name="e", urls=("http://up/v1",))
SWITCH = Thinking(contract=Contract.SWITCH, levels=("none", "high"), tokens=(0, 24_576))
ALWAYS = Thinking(contract=Contract.ALWAYS_ON, levels=("high",), tokens=(9_000,))
EXACT = Thinking(contract=Contract.EXACT, levels=("none", "low"), tokens=(0, 700), minimum=5)
LEVEL = Thinking(contract=Contract.LEVEL, levels=("low", "ultra"), tokens=(10, 20), streamed=True)


def asked(engine: Served | None, thinking: Thinking, body: dict[str, Any] | None = None, **fields: Any) -> Call:
    """A call of a target of vLLM as a policy makes it."""
    quirks = Quirks(thinking_field=ThinkingField.TOKEN_BUDGET, strict_tools=True)
    served = thinking if engine is None else as_served(thinking, engine)
    made = call(body, quirks=quirks, thinking=served, **fields)
    provider = structs.replace(made.target.provider, local=True)
    return structs.replace(made, target=structs.replace(made.target, engine=engine, provider=provider))


def sent(made: Call) -> dict[str, Any]:
    return msgspec.json.decode(ADAPTER.encode(made).body, type=dict[str, Any])


def control(made: Call) -> tuple[object, object, object]:
    """(whether it thinks, its budget, its effort) as the engine reads them."""
    body = sent(made)
    switch = body.get("chat_template_kwargs", {}).get("enable_thinking")
    return switch, body.get("thinking_token_budget"), body.get("reasoning_effort")


KWARGS: dict[str, Any] = {**HI, "chat_template_kwargs": {"enable_thinking": False, "tone": 1}}
OWN: dict[str, Any] = {**HI, "thinking_token_budget": 3}


@pytest.mark.parametrize(
    ("engine", "thinking", "body", "fields", "expected"),
    [
        # nobody asked: said all the same, unless the client said it
        (PARSED, SWITCH, HI, {}, (True, None, None)),
        (PARSED, ALWAYS, HI, {}, (True, None, None)),
        (PARSED, Thinking(), HI, {}, (False, None, None)),
        (UNPARSED, SWITCH, HI, {}, (True, None, None)),
        (UNPARSED, Thinking(), HI, {}, (None, None, None)),
        (None, SWITCH, HI, {}, (True, None, None)),
        (None, Thinking(), HI, {}, (None, None, None)),
        (PARSED, SWITCH, KWARGS, {}, (False, None, None)),
        (PARSED, SWITCH, KWARGS, {"thinking_budget": 100}, (True, 107, None)),
        # a budget means thoughts: 8 tokens of the template come on top, one that ends the thought is kept free
        (PARSED, SWITCH, HI, {"thinking_budget": 100}, (True, 107, None)),
        (PARSED, ALWAYS, HI, {"thinking_budget": 100}, (True, 107, None)),
        (PARSED, EXACT, HI, {"thinking_budget": 5}, (True, 12, None)),
        (PARSED, EXACT, HI, {"thinking_budget": 4}, (False, None, None)),
        (PARSED, SWITCH, HI, {"thinking_budget": 1}, (False, None, None)),
        (PARSED, SWITCH, HI, {"asked_effort": "low"}, (True, 1_031, None)),
        (PARSED, SWITCH, HI, {"asked_effort": "none"}, (False, None, None)),
        (PARSED, LEVEL, HI, {"asked_effort": "ultra"}, (True, None, "max")),
        (PARSED, LEVEL, HI, {"asked_effort": "low"}, (True, None, "low")),
        # without a parser the engine would refuse it
        (UNPARSED, SWITCH, HI, {"thinking_budget": 24_576}, (True, None, None)),
        (UNPARSED, SWITCH, HI, {"thinking_budget": 100}, (False, None, None)),
        (UNPARSED, EXACT, HI, {"thinking_budget": 100}, (False, None, None)),
        (UNPARSED, SWITCH, OWN, {}, (True, None, None)),
        (PARSED, SWITCH, OWN, {}, (True, 3, None)),
        (None, EXACT, HI, {"thinking_budget": 100}, (True, 100, None)),
        # completions have no template
        (PARSED, SWITCH, {"prompt": "a"}, {"endpoint": Endpoint.COMPLETIONS}, (None, None, None)),
    ],
)
def test_what_the_engine_is_told_of_thinking(
    engine: Served | None, thinking: Thinking, body: dict[str, Any], fields: dict[str, Any], expected: object
) -> None:
    assert control(asked(engine, thinking, body, **fields)) == expected


@pytest.mark.parametrize(
    ("thinking", "engine", "contract", "levels", "minimum"),
    [
        (SWITCH, PARSED, Contract.EXACT, ("none", "low", "medium", "high"), 2),
        (ALWAYS, PARSED, Contract.EXACT, ("low", "medium", "high"), 2),
        (EXACT, PARSED, Contract.EXACT, ("none", "low"), 5),
        (LEVEL, PARSED, Contract.LEVEL, ("low", "ultra"), 0),
        (Thinking(), PARSED, Contract.NONE, (), 0),
        (SWITCH, UNPARSED, Contract.SWITCH, ("none", "high"), 0),
        (EXACT, UNPARSED, Contract.SWITCH, ("none", "low"), 0),
        (structs.replace(EXACT, levels=("low",), tokens=(1,)), UNPARSED, Contract.ALWAYS_ON, ("low",), 0),
        (Thinking(), UNPARSED, Contract.NONE, (), 0),
    ],
)
def test_what_a_contract_becomes_at_an_engine(
    thinking: Thinking, engine: Served, contract: Contract, levels: tuple[str, ...], minimum: int
) -> None:
    found = as_served(thinking, engine)
    assert (found.contract, found.levels, found.minimum) == (contract, levels, minimum)
    assert len(found.tokens) == len(levels)
    assert list(found.tokens) == sorted(found.tokens)
    assert found.can_stop == thinking.can_stop


def stream(name: str, made: Call, piece: int) -> tuple[list[dict[str, Any]], Any]:
    """The chunks as a client reads them, fed in pieces of so many bytes; and the decoder."""
    decoder, data, out = ADAPTER.stream(made), (RECORDED / name).read_bytes(), b""
    for at in range(0, len(data), piece):
        out += decoder.feed(data[at : at + piece])
    lines = [line.removeprefix(b"data: ") for line in out.split(b"\n\n") if line]
    return [msgspec.json.decode(line) for line in lines], decoder


@pytest.mark.parametrize("piece", [1, 333, 100_000])
def test_a_stream_that_thinks(piece: int) -> None:
    made = asked(PARSED, SWITCH, stream=True, stream_usage=True)
    chunks, decoder = stream("vllm-thinks.sse", made, piece)
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert "".join(delta.get("reasoning") or "" for delta in deltas) == " The weather in Paris\n"
    assert "".join(delta.get("content") or "" for delta in deltas) == "1. Paris is a city in Western"
    assert {chunk["model"] for chunk in chunks} == {"auto"}
    assert (decoder.finished, decoder.finish_reason, decoder.has_answer) == (True, "length", True)
    usage = decoder.usage
    assert (usage.input_total, usage.output_visible, usage.output_reasoning) == (46, 9, 5)
    assert usage.reasoning_source is Source.REPORTED


def test_counts_in_every_event_are_the_last_ones() -> None:
    """As with --enable-force-include-usage; no event shows them."""
    chunks, decoder = stream("vllm-counts.sse", asked(PARSED, SWITCH, stream=True), 777)
    assert (decoder.usage.input_total, decoder.usage.output_visible, decoder.usage.output_reasoning) == (38, 4, 0)
    assert not any("usage" in chunk for chunk in chunks)


def test_a_call_in_pieces() -> None:
    chunks, decoder = stream("vllm-calls.sse", asked(PARSED, SWITCH, stream=True), 500)
    calls = [call for chunk in chunks for choice in chunk["choices"] for call in choice["delta"].get("tool_calls", ())]
    arguments = "".join(call["function"].get("arguments", "") for call in calls)
    assert calls[0]["function"]["name"] == "weather"
    assert msgspec.json.decode(arguments).keys() == {"city", "days"}
    assert (decoder.finished, decoder.finish_reason, decoder.has_answer) == (True, "tool_calls", True)


def test_an_engine_that_dies_is_no_clean_end() -> None:
    """It sends an error event, and `[DONE]` after it."""
    with pytest.raises(UpstreamFailure) as failed:
        stream("vllm-killed.sse", asked(PARSED, SWITCH, stream=True), 100_000)
    assert failed.value.failure.kind is ErrorKind.SERVER_ERROR


def test_content_null_is_an_empty_answer() -> None:
    reply = ADAPTER.decode(asked(PARSED, SWITCH), (RECORDED / "vllm-silent.json").read_bytes())
    assert (reply.has_answer, reply.finish_reason) == (False, "stop")
    assert reply.usage is not None
    assert (reply.usage.output_visible, reply.usage.output_reasoning) == (1, 14)


def uncounted(message: dict[str, Any]) -> bytes:
    """An answer of an engine without a parser: 10 tokens, not told apart."""
    usage = {"prompt_tokens": 5, "completion_tokens": 10, "total_tokens": 15, "completion_tokens_details": None}
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return msgspec.json.encode({"choices": [choice], "usage": usage})


@pytest.mark.parametrize(
    ("thinking", "message", "reasoning"),
    [
        (SWITCH, {"content": "<think>aaaaa</think>bbbbbbbbbbbbbbbbbbbb"}, 5),
        (SWITCH, {"content": "aaaaaaaaaaaa</think>bbbbbbbbbbbbbbbbbbbb"}, 5),
        (SWITCH, {"content": "<think>never closed"}, 10),
        (SWITCH, {"content": "an answer"}, 0),
        (Thinking(), {"content": "what is <think>? It ends with </think>"}, 0),
        (SWITCH, {"content": "bbbbb", "reasoning_content": "aaaaa"}, 5),
        (SWITCH, {"content": None, "reasoning": "aaaaa"}, 10),
        (SWITCH, {"content": ""}, 0),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
def test_thoughts_that_nobody_counts_are_estimated(
    thinking: Thinking, message: dict[str, Any], reasoning: int, streamed: bool
) -> None:
    made = asked(UNPARSED, thinking)
    usage = _streamed(made, uncounted(message)) if streamed else ADAPTER.decode(made, uncounted(message)).usage
    assert usage is not None
    assert (usage.output_reasoning, usage.output_total) == (reasoning, 10)
    assert usage.reasoning_source is Source.ESTIMATED


def _streamed(made: Call, whole: bytes) -> Any:
    """The same answer, a token at a time: a character or a mark."""
    answer = msgspec.json.decode(whole)
    message = answer["choices"][0]["message"]
    decoder = ADAPTER.stream(structs.replace(made, stream=True))
    for name in ("reasoning", "reasoning_content", "content"):
        for token in re.findall("</?think>|.", message.get(name) or ""):
            decoder.feed(_event({"choices": [{"index": 0, "delta": {name: token}, "finish_reason": None}]}))
    decoder.feed(_event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
    decoder.feed(_event({"choices": [], "usage": answer["usage"]}))
    return decoder.usage


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % msgspec.json.encode(chunk)


def test_elsewhere_silence_about_thoughts_stays_unknown() -> None:
    reply = ADAPTER.decode(call(), uncounted({"content": "b", "reasoning_content": "a"}))
    assert reply.usage is not None
    assert reply.usage.output_reasoning is None


SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
LOOKING = {"type": "object", "properties": {"city": {"type": "string", "pattern": "(?=a)b"}}}
NAMED = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("choice", "function", "strict"),
    [
        ("required", {"parameters": SCHEMA}, True),
        (NAMED, {"parameters": SCHEMA}, True),
        ("auto", {"parameters": SCHEMA}, None),
        (None, {"parameters": SCHEMA}, None),
        ("required", {"parameters": SCHEMA, "strict": False}, False),
        ("required", {}, None),
        ("required", {"parameters": {}}, None),
        ("required", {"parameters": LOOKING}, None),
    ],
)
def test_a_forced_call_keeps_to_its_schema(choice: object, function: dict[str, Any], strict: bool | None) -> None:
    tool = {"type": "function", "function": {"name": "f", **function}}
    body = {**HI, "tools": [tool]} | ({} if choice is None else {"tool_choice": choice})
    (found,) = sent(asked(PARSED, Thinking(), body))["tools"]
    assert found["function"].get("strict") is strict
    assert found["function"] == {"name": "f", **function} | ({} if strict is None else {"strict": strict})


def test_tools_that_can_t_be_read_are_the_engine_s_to_refuse() -> None:
    body = {**HI, "tools": "x", "tool_choice": "required"}
    assert sent(asked(PARSED, Thinking(), body))["tools"] == "x"


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, b'{"error":{"message":"moe is not a multimodal model","type":"BadRequestError"}}', "bad_request"),
        (
            400,
            b'{"error":{"message":"This model\'s maximum context length is 4096 tokens. However, your prompt contains'
            b' at least 4097 input tokens","type":"BadRequestError","param":"input_tokens","code":400}}',
            "context_length",
        ),
        (
            400,
            b'{"error":{"message":"max_tokens=5000 cannot be greater than max_model_len=4096. Please request fewer'
            b' output tokens.","type":"BadRequestError","param":"max_tokens","code":400}}',
            "context_length",
        ),
        (404, b'{"error":{"message":"The model `nope` does not exist.","type":"NotFoundError"}}', "model_missing"),
        (404, b'{"detail":"Not Found"}', "model_missing"),
        (
            503,
            b'{"error":{"message":"The engine is currently busy and cannot accept new requests.",'
            b'"type":"Service Unavailable","param":null,"code":503}}',
            "saturated",
        ),
    ],
)
def test_what_its_refusals_mean(status: int, body: bytes, kind: str) -> None:
    assert failure(status, {}, body).kind == kind
