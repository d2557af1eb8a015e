"""A stream folded into one answer is the answer that the same model gives without a stream."""

import json
from typing import Any

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion

from router.dispatch.fold import Fold
from router.types.request import Endpoint

HEAD = {"id": "c1", "object": "chat.completion.chunk", "created": 7, "model": "auto"}


def delta(index: int = 0, finish_reason: str | None = None, **said: Any) -> dict[str, Any]:
    return {**HEAD, "choices": [{"index": index, "delta": said, "logprobs": None, "finish_reason": finish_reason}]}


def tool(index: int, **function: Any) -> dict[str, Any]:
    identity = {"id": f"call-{index}", "type": "function"} if "name" in function else {}
    return {"index": index, **identity, "function": function}


def folded(endpoint: Endpoint, *chunks: dict[str, Any]) -> dict[str, Any]:
    fold = Fold(endpoint)
    for chunk in chunks:
        fold.feed(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    fold.feed(b"data: [DONE]\n\n")
    return {name: json.loads(bytes(raw)) for name, raw in fold.body().items()}


TOKEN = {"token": "a", "logprob": -0.1, "bytes": [97], "top_logprobs": []}
CASES: dict[str, tuple[tuple[dict[str, Any], ...], dict[str, Any]]] = {
    "text": (
        (delta(role="assistant", content=""), delta(content="Hel"), delta(content="lo"), delta(finish_reason="stop")),
        {"role": "assistant", "content": "Hello"},
    ),
    "thoughts": (
        (delta(role="assistant", reasoning_content="I "), delta(reasoning_content="think"), delta(content="so")),
        {"role": "assistant", "content": "so", "reasoning_content": "I think"},
    ),
    "refusal": ((delta(refusal="I "), delta(refusal="won't")), {"content": None, "refusal": "I won't"}),
    "tools, in turn and in one chunk": (
        (
            delta(role="assistant", tool_calls=[tool(0, name="f", arguments="")]),
            delta(tool_calls=[tool(0, arguments='{"a"'), tool(1, name="g", arguments="{")]),
            delta(tool_calls=[tool(0, arguments=":1}"), tool(1, arguments="}")]),
            delta(finish_reason="tool_calls"),
        ),
        {
            "content": None,
            "tool_calls": [
                {"id": "call-0", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
                {"id": "call-1", "type": "function", "function": {"name": "g", "arguments": "{}"}},
            ],
        },
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_was_said_in_parts_is_said_at_once(name: str) -> None:
    chunks, message = CASES[name]
    answer = folded(Endpoint.CHAT, *chunks)
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"] == {"role": "assistant", **message}
    answer["choices"][0]["finish_reason"] = answer["choices"][0]["finish_reason"] or "stop"
    ChatCompletion.model_validate(answer, strict=True)


def test_choices_are_told_apart_and_their_log_probabilities_kept() -> None:
    first, second = delta(1, content="b"), delta(0, content="a")
    second["choices"][0]["logprobs"] = {"content": [TOKEN], "refusal": None}
    more = delta(0, content="a", finish_reason="stop")
    more["choices"][0]["logprobs"] = {"content": [TOKEN], "refusal": None}
    answer = folded(Endpoint.CHAT, first, second, more, delta(1, finish_reason="length"))
    assert [choice["message"]["content"] for choice in answer["choices"]] == ["aa", "b"]
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["stop", "length"]
    assert len(answer["choices"][0]["logprobs"]["content"]) == 2


def test_a_completion() -> None:
    chunks = [
        {"id": "c", "object": "text_completion", "created": 1, "model": "auto", "choices": [choice]}
        for choice in (
            {"index": 0, "text": "On", "logprobs": None, "finish_reason": None},
            {"index": 0, "text": "ce", "logprobs": None, "finish_reason": "stop"},
        )
    ]
    answer = folded(Endpoint.COMPLETIONS, *chunks)
    assert Completion.model_validate(answer, strict=True).choices[0].text == "Once"


def test_a_response_is_its_last_state() -> None:
    begun = {"type": "response.created", "response": {"id": "r", "status": "in_progress"}}
    done = {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": [1]}}
    assert folded(Endpoint.RESPONSES, begun, {"type": "response.output_text.delta"}, done) == done["response"]


def test_nothing_is_nothing() -> None:
    assert folded(Endpoint.CHAT) == {}
