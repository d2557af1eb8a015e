"""vLLM's wire, from bytes that vLLM 0.32 wrote (tests/adapters/recorded), and what it must be sent."""

import re
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from router.config.targets import as_served
from router.types.attempt import Call, CountSource, ErrorKind, StreamDecoder
from router.types.request import Endpoint
from router.types.target import Contract, Quirks, ServedEngine, Thinking, ThinkingField
from tests.adapters.calls import ADAPTER, HI, answer, call, chunk, cut, events, fails, message, sent, sse
from tests.tables import data, each_row

RECORDED = Path(__file__).with_name("recorded")
PARSED = ServedEngine(name="e", urls=("http://up/v1",), thinking_exact=True, thinking_written=8, thinking_forced=1)
UNPARSED = ServedEngine(name="e", urls=("http://up/v1",))
SWITCH = Thinking(contract=Contract.SWITCH, levels=("none", "high"), tokens=(0, 24_576))
ALWAYS = Thinking(contract=Contract.ALWAYS_ON, levels=("high",), tokens=(9_000,))
EXACT = Thinking(contract=Contract.EXACT, levels=("none", "low"), tokens=(0, 700), minimum=5)
LEVEL = Thinking(contract=Contract.LEVEL, levels=("low", "ultra"), tokens=(10, 20), streamed=True)


def asked(engine: ServedEngine | None, thinking: Thinking, body: dict[str, Any] | None = None, **fields: Any) -> Call:
    """A call of a target of vLLM as a policy makes it."""
    quirks = Quirks(thinking_field=ThinkingField.TOKEN_BUDGET, strict_tools=True)
    served = thinking if engine is None else as_served(thinking, engine)
    made = call(body, quirks=quirks, thinking=served, **fields)
    provider = structs.replace(made.target.provider, local=True)
    return structs.replace(made, target=structs.replace(made.target, engine=engine, provider=provider))


ENGINES = {"parsed": PARSED, "unparsed": UNPARSED, None: None}
KINDS = {"switch": SWITCH, "always": ALWAYS, "exact": EXACT, "level": LEVEL, "none": Thinking()}


@each_row("engine, kind, body, fields, expected", data(__file__, "vllm.yaml"))
def test_what_the_engine_is_told_of_thinking(
    engine: str | None, kind: str, body: dict[str, Any], fields: dict[str, Any], expected: list[object]
) -> None:
    """Whether to think, its budget, its effort."""
    asks = {name: Endpoint(value) if name == "endpoint" else value for name, value in fields.items()}
    told = sent(asked(ENGINES[engine], KINDS[kind], body if "prompt" in body else {**HI, **body}, **asks))
    switch = told.get("chat_template_kwargs", {}).get("enable_thinking")
    assert [switch, told.get("thinking_token_budget"), told.get("reasoning_effort")] == expected


@each_row(
    "thinking, engine, contract, levels, minimum",
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
    thinking: Thinking, engine: ServedEngine, contract: Contract, levels: tuple[str, ...], minimum: int
) -> None:
    served = as_served(thinking, engine)
    assert (served.contract, served.levels, served.minimum) == (contract, levels, minimum)
    assert len(served.tokens) == len(levels)
    assert list(served.tokens) == sorted(served.tokens)
    assert served.can_stop == thinking.can_stop


def stream(name: str, every: int = 500, **fields: Any) -> tuple[list[dict[str, Any]], Any]:
    """The chunks as a client reads them, fed in pieces of so many bytes; and the decoder."""
    decoder = ADAPTER.stream(asked(PARSED, SWITCH, stream=True, **fields))
    data = (RECORDED / name).read_bytes()
    return events(b"".join(map(decoder.feed, cut(data, list(range(every, len(data), every)))))), decoder


@each_row("every", [1, 333, 100_000])
def test_a_stream_that_thinks(every: int) -> None:
    chunks, decoder = stream("vllm-thinks.sse", every, stream_usage=True)
    turn = message(chunks)
    assert (turn["reasoning"], turn["content"]) == (" The weather in Paris\n", "1. Paris is a city in Western")
    assert {chunk["model"] for chunk in chunks} == {"auto"}
    assert (decoder.finished, decoder.finish_reason, decoder.has_answer) == (True, "length", True)
    usage = decoder.usage
    assert (usage.totals.input, usage.output_visible, usage.output_reasoning) == (46, 9, 5)
    assert usage.reasoning_source is CountSource.REPORTED


def test_counts_in_every_event_are_the_last_ones() -> None:
    """As with --enable-force-include-usage; no event shows them."""
    chunks, decoder = stream("vllm-counts.sse")
    assert (decoder.usage.totals.input, decoder.usage.output_visible, decoder.usage.output_reasoning) == (38, 4, 0)
    assert not any("usage" in chunk for chunk in chunks)


def test_a_call_in_pieces() -> None:
    chunks, decoder = stream("vllm-calls.sse")
    function = message(chunks)["tool_calls"][0]["function"]
    assert function["name"] == "weather"
    assert msgspec.json.decode(function["arguments"]).keys() == {"city", "days"}
    assert (decoder.finished, decoder.finish_reason, decoder.has_answer) == (True, "tool_calls", True)


def test_an_engine_that_dies_is_no_clean_end() -> None:
    """It sends an error event, and `[DONE]` after it."""
    with fails(ErrorKind.SERVER_ERROR):
        stream("vllm-killed.sse")


def test_content_null_is_an_empty_answer() -> None:
    reply = ADAPTER.decode(asked(PARSED, SWITCH), (RECORDED / "vllm-silent.json").read_bytes())
    assert (reply.has_answer, reply.finish_reason) == (False, "stop")
    assert reply.usage is not None
    assert (reply.usage.output_visible, reply.usage.output_reasoning) == (1, 14)


USAGE = {"prompt_tokens": 5, "completion_tokens": 10, "total_tokens": 15, "completion_tokens_details": None}


@each_row(
    "thinking, turn, reasoning",
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
def test_thoughts_that_the_engine_does_not_count_are_estimated(
    thinking: Thinking, turn: dict[str, Any], reasoning: int
) -> None:
    made = asked(UNPARSED, thinking)
    for usage in (ADAPTER.decode(made, answer(turn, usage=USAGE)).usage, token_by_token(made, turn).usage):
        assert usage is not None
        assert (usage.output_reasoning, usage.totals.output) == (reasoning, 10)
        assert usage.reasoning_source is CountSource.ESTIMATED
    elsewhere = ADAPTER.decode(call(), answer(turn, usage=USAGE)).usage
    assert elsewhere is not None
    assert elsewhere.output_reasoning is None


def token_by_token(made: Call, turn: dict[str, Any]) -> StreamDecoder:
    """The same answer streamed; a token is a character or a mark."""
    decoder = ADAPTER.stream(structs.replace(made, stream=True))
    for name in ("reasoning", "reasoning_content", "content"):
        for token in re.findall("</?think>|.", turn.get(name) or ""):
            decoder.feed(sse(chunk({name: token})))
    decoder.feed(sse(chunk({}, "stop"), chunk(usage=USAGE)))
    return decoder


SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
LOOKING = {"type": "object", "properties": {"city": {"type": "string", "pattern": "(?=a)b"}}}
NAMED = {"type": "function", "function": {"name": "f"}}


@each_row(
    "choice, function, strict",
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
    (declared,) = sent(asked(PARSED, Thinking(), body))["tools"]
    assert declared["function"] == {"name": "f", **function} | ({} if strict is None else {"strict": strict})
    unread = {**HI, "tools": "x", "tool_choice": "required"}
    assert sent(asked(PARSED, Thinking(), unread))["tools"] == "x", "the engine's to refuse"
