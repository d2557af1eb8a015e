"""Each wire reports usage, shows thoughts, frames streams and refuses nonsense as its provider does."""

import json
from typing import Any

from router.testing.upstream import FLAVOURS, REASONING, TEXT, Upstream
from tests.tables import data, each_row
from tests.upstream.probe import CHAT, MESSAGES, chat, events, post, streamed

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
    holder = {"chunk": last, "finish": last, "choice": choice, "x_groq": last.get("x_groq", {})}[place]
    assert holder["usage"] == usage
    assert bool(choice.get("finish_reason")) is (place != "chunk")
    assert b"prompt_tokens" not in post(upstream, f"/{flavour}{CHAT}", streamed("missing-usage"))[2]


CACHES: dict[str, dict[str, object]] = data(__file__, "wires.yaml")["caches"]


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


@each_row("flavour, field", [*FIELDS.items(), ("mistral", "content")])
def test_flavours_show_the_thinking_text(upstream: Upstream, flavour: str, field: str) -> None:
    path = f"/{flavour}{CHAT}"
    message = json.loads(post(upstream, path, chat("reasoning"))[2])["choices"][0]["message"]
    if flavour == "mistral":
        assert [part["type"] for part in message[field]] == ["thinking", "text"]
        return
    chunks = events(post(upstream, path, streamed("reasoning"))[2])
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert message[field] == "".join(delta.get(field) or "" for delta in deltas) == "".join(REASONING)


def test_llamacpp_counts_one_choice_and_writes_choices_first(upstream: Upstream) -> None:
    reply = json.loads(post(upstream, f"/llamacpp{CHAT}", chat("many", n=3))[2])
    assert (len(reply["choices"]), reply["usage"]["completion_tokens"]) == (3, 10)
    assert (next(iter(reply)), list(reply)[-1]) == ("choices", "timings")


# Anthropic and Gemini


def anthropic(model: str, **more: object) -> dict[str, object]:
    return {"model": model, "max_tokens": 100, "messages": MESSAGES, **more}


@each_row("body, message", data(__file__, "wires.yaml")["anthropic"])
def test_anthropic_is_as_strict_as_the_real_one(upstream: Upstream, body: dict[str, object], message: str) -> None:
    status, _, reply = post(upstream, "/v1/messages", {**anthropic("normal"), **body})
    assert status == 400
    assert message in json.loads(reply)["error"]["message"]


TURNS = {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}


def test_gemini_is_as_strict_as_the_real_one(upstream: Upstream) -> None:
    both = {"thinkingConfig": {"thinkingBudget": 1, "thinkingLevel": "LOW"}}
    bodies: list[Any] = [{"generationConfig": {"max_tokens": 1}}, {"messages": []}, {"generationConfig": both}]
    for body in bodies:
        assert post(upstream, "/v1beta/models/normal:generateContent", TURNS | body)[0] == 400


@each_row(
    "wire, path, body, event",
    [
        ("openai", CHAT, chat("error-in-stream", stream=True), b'data: {"error":{"message":'),
        ("anthropic", "/v1/messages", anthropic("error-in-stream", stream=True), b"event: error\ndata: {"),
        ("anthropic", "/v1/messages", anthropic("normal", stream=True), b"event: message_stop\ndata: {"),
        ("gemini", "/v1beta/models/normal:streamGenerateContent?alt=sse", TURNS, b'"finishReason":"STOP"'),
    ],
)
def test_a_stream_is_framed_and_ends_as_its_wire_does(
    upstream: Upstream, wire: str, path: str, body: object, event: bytes
) -> None:
    status, _, reply = post(upstream, path, body)
    assert status == 200
    assert TEXT[0].encode() in reply.partition(event)[0], "an error comes after content"
    assert event in reply
    assert reply.endswith({"openai": b"\n\ndata: [DONE]\n\n", "anthropic": b"}\n\n", "gemini": b"}\r\n\r\n"}[wire])
