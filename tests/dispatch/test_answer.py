"""Whole answers of every endpoint, and streams once they are over, as verifiers read them."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from router.dispatch.answer import NOTHING, answers
from router.types.outcome import Answer, Asked, ToolCall
from router.types.plan import Cascade, Tactic
from router.types.request import Endpoint
from tests.dispatch.desk import Case, Opinion, run
from tests.dispatch.mouths import Said


def read(body: dict[str, Any]) -> tuple[Answer, ...]:
    return answers({name: Raw(json.dumps(value).encode()) for name, value in body.items()})


def chat(**message: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}]}


def response(*items: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"object": "response", "status": "completed", "output": list(items), **fields}


LOOK = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}}
CUSTOM = {"id": "d", "type": "custom", "custom": {"name": "shell", "input": "ls"}}
SPOKEN = {"type": "message", "content": [{"type": "output_text", "text": "H"}, {"type": "output_text", "text": "i"}]}
THOUGHT = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Well"}]}
CASES: dict[str, tuple[dict[str, Any], tuple[Answer, ...]]] = {
    "chat": (chat(content="Hi"), (Answer(text="Hi", finish_reason="stop"),)),
    "thoughts are none": (chat(content="Hi", reasoning_content="Well"), (Answer(text="Hi", finish_reason="stop"),)),
    "parts": (
        chat(content=[{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]),
        (Answer(text="Hi", finish_reason="stop"),),
    ),
    "refusal": (chat(content=None, refusal="No"), (Answer(refusal="No", finish_reason="stop"),)),
    "calls": (
        chat(content=None, tool_calls=[LOOK, CUSTOM]),
        (Answer(tool_calls=(ToolCall("look", '{"a":1}'), ToolCall("shell", "ls")), finish_reason="stop"),),
    ),
    "an old call": (
        chat(content=None, function_call=LOOK["function"]),
        (Answer(tool_calls=(ToolCall("look", '{"a":1}'),), finish_reason="stop"),),
    ),
    "several choices": (
        {"choices": [chat(content="a")["choices"][0], {"index": 1, "message": {"content": "b"}}]},
        (Answer(text="a", finish_reason="stop"), Answer(text="b")),
    ),
    "completions": (
        {"choices": [{"index": 0, "text": "On", "finish_reason": "length"}]},
        (Answer(text="On", finish_reason="length"),),
    ),
    "responses": (response(THOUGHT, SPOKEN), (Answer(text="Hi", finish_reason="stop"),)),
    "responses that call": (
        response({"type": "function_call", "name": "look", "arguments": "{}"}),
        (Answer(tool_calls=(ToolCall("look", "{}"),), finish_reason="tool_calls"),),
    ),
    "responses that refuse": (
        response({"type": "message", "content": [{"type": "refusal", "refusal": "No"}]}),
        (Answer(refusal="No", finish_reason="stop"),),
    ),
    "responses that were cut": (
        response(SPOKEN, status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
        (Answer(text="Hi", finish_reason="length"),),
    ),
    "no choices": ({"choices": []}, (NOTHING,)),
    "nothing": ({}, (NOTHING,)),
    "not what was promised": ({"choices": [7]}, (NOTHING,)),
    "an output that is none": ({"output": [None]}, (NOTHING,)),
}


@pytest.mark.parametrize("name", CASES)
def test_one_answer_for_each_choice(name: str) -> None:
    body, wanted = CASES[name]
    assert read(body) == wanted


HELLO, CUT = Said("Hello there."), Said("Hello there.", cut=True)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("said", "tactic", "endpoint", "heard"),
    [
        (HELLO, None, Endpoint.CHAT, ["Hello there."]),
        (HELLO, None, Endpoint.COMPLETIONS, ["Hello there."]),
        (CUT, None, Endpoint.CHAT, []),
        (HELLO, Cascade(2), Endpoint.CHAT, []),
    ],
    ids=["a plain one", "of completions", "one that breaks", "one that was looked at already"],
)
def test_what_nobody_has_looked_at_is_heard_when_it_is_over(
    tmp_path: Path, said: Said, tactic: Tactic | None, endpoint: Endpoint, heard: list[str], stream: bool
) -> None:
    told: list[Asked] = []
    scripts = {"weak": [said]} if tactic is None else {"weak": [said], "strong": [said]}
    case = Case(scripts=scripts, tactic=tactic, verify=Opinion(), stream=stream, endpoint=endpoint, later=told.append)
    given = run(tmp_path, case)
    assert [asked.answers[0].text for asked in told] == heard
    assert all((asked.target.id, asked.classes) == ("weak", frozenset({"internal"})) for asked in told)
    assert given.events.endswith(b"[DONE]\n\n") == (stream and said is HELLO)


def test_a_stream_whose_client_leaves_is_not_heard_and_is_settled(tmp_path: Path) -> None:
    told: list[Asked] = []
    case = Case(
        scripts={"weak": [Said("Hello " * 99)]}, tactic=None, stream=True, later=told.append, leaves_after_parts=1
    )
    given = run(tmp_path, case)
    assert told == []
    assert (given.row["status"], given.row["error"]) == (499, "client_gone")
