"""Each wire reports usage, shows thoughts and refuses nonsense as its provider does, whole and streamed."""

import json
import re
from typing import Any

from router.testing.upstream import FLAVOURS, OPENROUTER_COST_USD, REASONING, TEXT, Upstream, reported
from tests.tables import each_row
from tests.upstream.probe import CHAT, MESSAGES, Reply, chat, events, post, streamed

# OpenAI's, by flavour


def flavour_usage(upstream: Upstream, flavour: str, model: str, **more: object) -> tuple[Any, Any]:
    """The usage of a whole reply, and the last event of a stream."""
    path = f"/{flavour}{CHAT}"
    whole = json.loads(post(upstream, path, chat(model, **more))[2])
    return whole["usage"], events(post(upstream, path, streamed(model, **more))[2])[-1]


@each_row("flavour", FLAVOURS)
def test_flavours_place_their_usage_where_they_really_do(upstream: Upstream, flavour: str) -> None:
    usage, last = flavour_usage(upstream, flavour, "reasoning")
    place = FLAVOURS[flavour].usage_place
    (choice,) = last["choices"] or [{}]
    found = {"chunk": last, "finish": last, "choice": choice, "x_groq": last.get("x_groq", {})}[place]
    assert found["usage"] == usage
    assert bool(choice.get("finish_reason")) is (place != "chunk")
    assert b"prompt_tokens" not in post(upstream, f"/{flavour}{CHAT}", streamed("missing-usage"))[2]


CACHES: dict[str, dict[str, object]] = {
    "deepseek": {"prompt_tokens": 84, "prompt_cache_hit_tokens": 40, "prompt_cache_miss_tokens": 44},
    "xai": {"prompt_tokens": 84, "completion_tokens": 10, "total_tokens": 94},
    "mistral": {"prompt_tokens": 84, "completion_tokens": 10, "total_tokens": 94},
    "openrouter": {
        "cost": OPENROUTER_COST_USD, "prompt_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 32}
    },
    "llamacpp": {"completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 40}},
    "moonshot": {"cached_tokens": 40},
}  # fmt: skip


@each_row("flavour, expected", CACHES.items())
def test_flavours_count_the_cache_their_way(upstream: Upstream, flavour: str, expected: dict[str, object]) -> None:
    usage, _ = flavour_usage(upstream, flavour, "cached")
    assert {name: usage[name] for name in expected} == expected


def test_flavours_count_thinking_their_way(upstream: Upstream) -> None:
    flavours = ("openai", "xai", "mistral", "vllm")
    usages = {flavour: flavour_usage(upstream, flavour, "reasoning")[0] for flavour in flavours}
    counts = {name: (usage["completion_tokens"], usage["total_tokens"]) for name, usage in usages.items()}
    assert counts == {"openai": (40, 60), "xai": (10, 60), "mistral": (40, 60), "vllm": (40, 60)}
    assert "completion_tokens_details" not in usages["mistral"]


FIELDS = {"vllm": "reasoning", "groq": "reasoning", "deepseek": "reasoning_content", "llamacpp": "reasoning_content"}


@each_row("flavour, field", FIELDS.items())
def test_flavours_show_the_thinking_text(upstream: Upstream, flavour: str, field: str) -> None:
    path = f"/{flavour}{CHAT}"
    message = json.loads(post(upstream, path, chat("reasoning"))[2])["choices"][0]["message"]
    deltas = [
        event["choices"][0]["delta"]
        for event in events(post(upstream, path, streamed("reasoning"))[2])
        if event["choices"]
    ]
    assert message[field] == "".join(delta.get(field) or "" for delta in deltas) == "".join(REASONING)


def test_mistral_thinks_in_content_parts(upstream: Upstream) -> None:
    message = json.loads(post(upstream, f"/mistral{CHAT}", chat("reasoning"))[2])["choices"][0]["message"]
    assert [part["type"] for part in message["content"]] == ["thinking", "text"]


def test_llamacpp_counts_one_choice_and_writes_choices_first(upstream: Upstream) -> None:
    body = post(upstream, f"/llamacpp{CHAT}", chat("many", n=3))[2]
    reply = json.loads(body)
    assert (len(reply["choices"]), reply["usage"]["completion_tokens"]) == (3, 10)
    assert (next(iter(reply)), list(reply)[-1]) == ("choices", "timings")


# Anthropic and Gemini


def anthropic(model: str, **more: object) -> dict[str, object]:
    return {"model": model, "max_tokens": 100, "messages": MESSAGES, **more}


@each_row("model", ["normal", "cached", "reasoning", "parallel-tools", "refusal", "cumulative-usage"])
def test_anthropic_grows_the_message_it_gives_whole(upstream: Upstream, model: str) -> None:
    whole = json.loads(post(upstream, "/v1/messages", anthropic(model))[2])
    body = post(upstream, "/v1/messages", anthropic(model, stream=True))[2]
    grown: dict[int, str] = {}
    for event in events(body):
        if event["type"] == "content_block_delta":
            grown[event["index"]] = grown.get(event["index"], "") + _text(event["delta"])
    assert list(grown.values()) == [_text(block) for block in whole["content"]]
    delta = [event for event in events(body) if event["type"] == "message_delta"][-1]
    assert (delta["usage"], delta["delta"]["stop_reason"]) == (whole["usage"], whole["stop_reason"])
    usage, counted = whole["usage"], reported("anthropic", model)
    assert counted is not None
    cached = usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"]
    assert (usage["input_tokens"], usage["input_tokens"] + cached) == (counted.uncached, counted.input)
    assert usage["output_tokens_details"]["thinking_tokens"] == counted.reasoning
    assert re.search(rb"^event: message_start\ndata: \{", body)


def _text(block: dict[str, Any]) -> str:
    """What a block or a delta says."""
    if "input" in block:
        return json.dumps(block["input"], ensure_ascii=False, separators=(",", ":"))
    return next((str(block[name]) for name in ("text", "thinking", "partial_json") if name in block), "")


@each_row(
    "body, message",
    [
        ({"frequency_penalty": 1}, "frequency_penalty: Extra inputs are not permitted"),
        ({"max_tokens": None}, "max_tokens: Field required"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages: Input should be 'user' or 'assistant'"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, "must be greater than `thinking.budget_tokens`"),
        ({"thinking": {"type": "enabled", "budget_tokens": 10}}, "greater than or equal to 1024"),
    ],
)
def test_anthropic_is_as_strict_as_the_real_one(upstream: Upstream, body: dict[str, object], message: str) -> None:
    status, _, reply = post(upstream, "/v1/messages", {**anthropic("normal"), **body})
    assert status == 400
    assert message in json.loads(reply)["error"]["message"]


def gemini(upstream: Upstream, model: str, verb: str = "generateContent", **more: object) -> Reply:
    body = {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}], **more}
    return post(upstream, f"/v1beta/models/{model}:{verb}", body)


@each_row("model", ["normal", "cached", "reasoning", "tools", "split-frames", "empty-length"])
def test_gemini_grows_the_candidate_it_gives_whole(upstream: Upstream, model: str) -> None:
    whole = json.loads(gemini(upstream, model)[2])
    body = gemini(upstream, model, "streamGenerateContent?alt=sse")[2]
    grown = events(body)
    parts = [part for event in grown for part in event["candidates"][0]["content"].get("parts", [])]
    text = "".join(part.get("text", "") for part in whole["candidates"][0]["content"].get("parts", []))
    assert "".join(part.get("text", "") for part in parts) == text
    assert grown[-1]["usageMetadata"] == whole["usageMetadata"]
    assert grown[-1]["candidates"][0]["finishReason"] == whole["candidates"][0]["finishReason"]
    usage, counted = whole["usageMetadata"], reported("gemini", model)
    assert counted is not None
    assert (usage["promptTokenCount"], usage.get("thoughtsTokenCount")) == (counted.input, counted.reasoning)
    assert usage["totalTokenCount"] == counted.input + counted.output
    assert body.endswith(b"\r\n\r\n")


def test_gemini_is_as_strict_as_the_real_one(upstream: Upstream) -> None:
    both = {"thinkingConfig": {"thinkingBudget": 1, "thinkingLevel": "LOW"}}
    bodies: list[Any] = [{"generationConfig": {"max_tokens": 1}}, {"messages": []}, {"generationConfig": both}]
    for body in bodies:
        assert gemini(upstream, "normal", **body)[0] == 400


ENDS = {
    "openai": (CHAT, chat, b'{"error":{"message":'),
    "anthropic": ("/v1/messages", anthropic, b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"'),
}


@each_row("wire", ENDS)
def test_an_error_in_a_stream_comes_after_content(upstream: Upstream, wire: str) -> None:
    path, body, error = ENDS[wire]
    status, _, reply = post(upstream, path, body("error-in-stream", stream=True))
    assert status == 200
    assert TEXT[0].encode() in reply.partition(error)[0]
    assert error in reply
    assert reply.endswith(b"data: [DONE]\n\n") is (wire == "openai")
