"""Anthropic and Gemini: whole and streamed replies agree, and nonsense is refused."""

import json
import re
from typing import Any

import pytest

from tests.upstream import TEXT, Upstream, reported
from tests.upstream.probe import CHAT, MESSAGES, Reply, chat, events, post


def anthropic(model: str, **more: object) -> dict[str, object]:
    return {"model": model, "max_tokens": 100, "messages": MESSAGES, **more}


@pytest.mark.parametrize("model", ["normal", "cached", "reasoning", "parallel-tools", "refusal", "cumulative-usage"])
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
    usage, told = whole["usage"], reported("anthropic", model)
    assert told is not None
    cached = usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"]
    assert (usage["input_tokens"], usage["input_tokens"] + cached) == (told.uncached, told.input)
    assert usage["output_tokens_details"]["thinking_tokens"] == told.reasoning
    assert re.search(rb"^event: message_start\ndata: \{", body)


def _text(block: dict[str, Any]) -> str:
    """What a block or a delta says."""
    if "input" in block:
        return json.dumps(block["input"], ensure_ascii=False, separators=(",", ":"))
    return next((str(block[name]) for name in ("text", "thinking", "partial_json") if name in block), "")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"frequency_penalty": 1}, "frequency_penalty: Extra inputs are not permitted"),
        ({"max_tokens": None}, "max_tokens: Field required"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages: Input should be 'user' or 'assistant'"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, "must be greater than `thinking.budget_tokens`"),
        ({"thinking": {"type": "enabled", "budget_tokens": 10}}, "greater than or equal to 1024"),
    ],
)
def test_anthropic_is_as_strict_as_the_real_one(upstream: Upstream, body: dict[str, object], said: str) -> None:
    status, _, reply = post(upstream, "/v1/messages", {**anthropic("normal"), **body})
    assert status == 400
    assert said in json.loads(reply)["error"]["message"]


def gemini(upstream: Upstream, model: str, verb: str = "generateContent", **more: object) -> Reply:
    body = {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}], **more}
    return post(upstream, f"/v1beta/models/{model}:{verb}", body)


@pytest.mark.parametrize("model", ["normal", "cached", "reasoning", "tools", "split-frames", "empty-length"])
def test_gemini_grows_the_candidate_it_gives_whole(upstream: Upstream, model: str) -> None:
    whole = json.loads(gemini(upstream, model)[2])
    body = gemini(upstream, model, "streamGenerateContent?alt=sse")[2]
    grown = events(body)
    parts = [part for event in grown for part in event["candidates"][0]["content"].get("parts", [])]
    text = "".join(part.get("text", "") for part in whole["candidates"][0]["content"].get("parts", []))
    assert "".join(part.get("text", "") for part in parts) == text
    assert grown[-1]["usageMetadata"] == whole["usageMetadata"]
    assert grown[-1]["candidates"][0]["finishReason"] == whole["candidates"][0]["finishReason"]
    usage, told = whole["usageMetadata"], reported("gemini", model)
    assert told is not None
    assert (usage["promptTokenCount"], usage.get("thoughtsTokenCount")) == (told.input, told.reasoning)
    assert usage["totalTokenCount"] == told.input + told.output
    assert body.endswith(b"\r\n\r\n")


def test_gemini_is_as_strict_as_the_real_one(upstream: Upstream) -> None:
    assert gemini(upstream, "normal", generationConfig={"max_tokens": 1})[0] == 400
    assert gemini(upstream, "normal", messages=[])[0] == 400
    both = {"thinkingConfig": {"thinkingBudget": 1, "thinkingLevel": "LOW"}}
    assert gemini(upstream, "normal", generationConfig=both)[0] == 400


ENDS = {
    "openai": (CHAT, chat, b'{"error":{"message":'),
    "anthropic": ("/v1/messages", anthropic, b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"'),
}


@pytest.mark.parametrize("wire", ENDS)
def test_an_error_in_a_stream_comes_after_content(upstream: Upstream, wire: str) -> None:
    path, body, error = ENDS[wire]
    status, _, reply = post(upstream, path, body("error-in-stream", stream=True))
    assert status == 200
    assert TEXT[0].encode() in reply.partition(error)[0]
    assert error in reply
    assert reply.endswith(b"data: [DONE]\n\n") is (wire == "openai")
