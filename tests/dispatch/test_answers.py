"""Answers of every endpoint, whole or folded from a stream: as verifiers read them, and when two are the same."""

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from openai.types import Completion
from openai.types.chat import ChatCompletion

from router.dispatch import tactics
from router.dispatch.meter import AnswerCollector
from router.dispatch.tactics import NOTHING, answers, comparable
from router.testing.upstream import Break
from router.types.attempt import AnswerChoice, ToolCall
from router.types.decision import Cascade, Tactic
from router.types.request import Endpoint
from tests.dispatch.planned import Case, Opinion, run
from tests.dispatch.scripted import Reply
from tests.tables import data, each_row


def chat(**message: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}]}


def response(*items: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"object": "response", "status": "completed", "output": list(items), **fields}


LOOK = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}}
CUSTOM = {"id": "d", "type": "custom", "custom": {"name": "shell", "input": "ls"}}
PARTS = {"type": "message", "content": [{"type": "output_text", "text": "H"}, {"type": "output_text", "text": "i"}]}
THOUGHT = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Well"}]}
REFUSAL = {"type": "message", "content": [{"type": "refusal", "refusal": "No"}]}
HI, NO = AnswerChoice(text="Hi", finish_reason="stop"), AnswerChoice(refusal="No", finish_reason="stop")
EMPTY: list[dict[str, Any]] = [{"choices": []}, {}, {"choices": [7]}, {"output": [None]}]
CALLS = (ToolCall("look", '{"a":1}'), ToolCall("shell", "ls"))


@each_row(
    "body, expected",
    [
        (chat(content="Hi"), (HI,)),
        (chat(content="Hi", reasoning_content="Well"), (HI,)),
        (chat(content=[{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]), (HI,)),
        (chat(content=None, refusal="No"), (NO,)),
        (chat(content=None, tool_calls=[LOOK, CUSTOM]), (AnswerChoice(tool_calls=CALLS, finish_reason="stop"),)),
        (chat(function_call=LOOK["function"]), (AnswerChoice(tool_calls=CALLS[:1], finish_reason="stop"),)),
        ({"choices": [*chat(content="Hi")["choices"], {"message": {"content": "b"}}]}, (HI, AnswerChoice(text="b"))),
        ({"choices": [{"text": "On", "finish_reason": "length"}]}, (AnswerChoice(text="On", finish_reason="length"),)),
        (response(THOUGHT, PARTS), (HI,)),
        (
            response({"type": "function_call", "name": "look", "arguments": '{"a":1}'}),
            (AnswerChoice(tool_calls=CALLS[:1], finish_reason="tool_calls"),),
        ),
        (response(REFUSAL), (NO,)),
        (
            response(PARTS, status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
            (AnswerChoice(text="Hi", finish_reason="length"),),
        ),
        *((body, (NOTHING,)) for body in EMPTY),
    ],
)
def test_one_answer_for_each_choice(body: dict[str, Any], expected: tuple[AnswerChoice, ...]) -> None:
    assert answers({name: Raw(json.dumps(value).encode()) for name, value in body.items()}) == expected


HELLO, CUT = Reply("Hello there."), Reply("Hello there.", breaks=Break.CUT)


@each_row("stream", [False, True], ids=["whole", "stream"])
@each_row(
    "reply, tactic, endpoint, context",
    [
        (HELLO, None, Endpoint.CHAT, [HELLO.text]),
        (HELLO, None, Endpoint.COMPLETIONS, [HELLO.text]),
        (CUT, None, Endpoint.CHAT, []),
        (HELLO, Cascade(2), Endpoint.CHAT, [HELLO.text]),
    ],
)
def test_an_answer_is_heard_once_before_it_is_given_or_when_it_is_over(
    tmp_path: Path, reply: Reply, tactic: Tactic | None, endpoint: Endpoint, context: list[str], stream: bool
) -> None:
    verifier, scripts = Opinion(), {"weak": [reply]} | ({"strong": [reply]} if tactic else {})
    case = Case(scripts=scripts, tactic=tactic, verify=verifier, watched=True, stream=stream, endpoint=endpoint)
    given = run(tmp_path, case)
    assert [asked.answers[0].text for asked in verifier.questions] == context
    assert all((asked.target.id, asked.classes) == ("weak", frozenset({"internal"})) for asked in verifier.questions)
    assert given.body.endswith(b"[DONE]\n\n") == (stream and reply is HELLO)


@each_row("tactic", [Cascade(2), None])
def test_a_streamed_response_is_asked_for_by_chat(tmp_path: Path, tactic: Tactic | None) -> None:
    verifier, scripts = Opinion(), {"weak": [HELLO], "strong": [HELLO]}
    case = Case(scripts=scripts, tactic=tactic, verify=verifier, watched=True, stream=True, endpoint=Endpoint.RESPONSES)
    given = run(tmp_path, case)
    events = [json.loads(line[6:]) for line in given.body.splitlines() if line.startswith(b"data: {")]
    assert [events[0]["type"], events[-1]["type"]] == ["response.created", "response.completed"]
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == given.text == HELLO.text
    whole = events[-1]["response"]
    assert (whole["output"][-1]["content"][0]["text"], whole["usage"]["output_tokens"]) == (HELLO.text, 5)
    assert [asked.answers[0].text for asked in verifier.questions] == [HELLO.text]


def test_a_stream_whose_client_leaves_is_not_heard_and_is_settled(tmp_path: Path) -> None:
    verifier, scripts = Opinion(), {"weak": [Reply("Hello " * 99)]}
    case = Case(scripts=scripts, tactic=None, verify=verifier, watched=True, stream=True, leaves_after_part=True)
    row = run(tmp_path, case).row
    assert (verifier.questions, row["status"], row["error"]) == ([], 499, "client_gone")


HEAD = {"id": "c1", "object": "chat.completion.chunk", "created": 7, "model": "auto"}


def delta(index: int = 0, finish_reason: str | None = None, **fields: Any) -> dict[str, Any]:
    return {**HEAD, "choices": [{"index": index, "delta": fields, "logprobs": None, "finish_reason": finish_reason}]}


def folded(endpoint: Endpoint, *chunks: dict[str, Any]) -> dict[str, Any]:
    fold = AnswerCollector(endpoint)
    for chunk in chunks:
        fold.feed(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    fold.feed(b"data: [DONE]\n\n")
    return {name: json.loads(bytes(raw)) for name, raw in fold.body().items()}


@each_row("chunks, message", data(__file__, "folded.yaml"))
def test_a_stream_of_a_chat_is_folded(chunks: list[dict[str, Any]], message: dict[str, Any]) -> None:
    """Into the answer that the same model gives without a stream."""
    answer = folded(Endpoint.CHAT, *(delta(**chunk) for chunk in chunks))
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"] == {"role": "assistant", **message}
    answer["choices"][0]["finish_reason"] = answer["choices"][0]["finish_reason"] or "stop"
    ChatCompletion.model_validate(answer, strict=True)


def test_choices_are_told_apart_and_their_log_probabilities_kept() -> None:
    first, second, third = delta(1, content="b"), delta(0, content="a"), delta(0, "stop", content="a")
    for chunk in (second, third):
        token = {"token": "a", "logprob": -0.1, "bytes": [97], "top_logprobs": []}
        chunk["choices"][0]["logprobs"] = {"content": [token], "refusal": None}
    answer = folded(Endpoint.CHAT, first, second, third, delta(1, finish_reason="length"))
    assert [choice["message"]["content"] for choice in answer["choices"]] == ["aa", "b"]
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["stop", "length"]
    assert len(answer["choices"][0]["logprobs"]["content"]) == 2


def test_streams_of_other_endpoints_are_folded() -> None:
    head = {"id": "c", "object": "text_completion", "created": 1, "model": "auto"}
    part = {"index": 0, "text": "On", "logprobs": None, "finish_reason": None}
    parts = (part, {**part, "text": "ce", "finish_reason": "stop"})
    answer = folded(Endpoint.COMPLETIONS, *({**head, "choices": [part]} for part in parts))
    assert Completion.model_validate(answer, strict=True).choices[0].text == "Once"
    begun = {"type": "response.created", "response": {"id": "r", "status": "in_progress"}}
    done = {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": [1]}}
    assert folded(Endpoint.RESPONSES, begun, {"type": "response.output_text.delta"}, done) == done["response"]
    assert folded(Endpoint.CHAT) == {}


LONG = "I looked at it from both sides first. "
SAME = [[text.replace("LONG", LONG) for text in row] for row in data(__file__, "same_answers.yaml")]


def normal(text: str) -> str | None:
    return comparable(AnswerChoice(text=text, finish_reason="stop"))


@each_row("forms", SAME, ids=lambda forms: forms[0])
def test_one_answer_in_many_words(forms: list[str]) -> None:
    normals = {form: normal(form) for form in forms}
    assert set(normals.values()) == {normal(forms[0])}, normals
    assert normals[forms[0]]


def test_different_answers_differ() -> None:
    firsts = {forms[0] for forms in SAME} | {"A", "London", "43", "1.2.3", "[1]", "[]", "yes", "no"}
    assert len({normal(first) for first in firsts}) == len(firsts)


@each_row("text", [text.replace("LONG", LONG) for text in data(__file__, "longer_answers.yaml")])
def test_an_answer_that_says_more_cannot_be_compared(text: str) -> None:
    assert normal(text) is None


@each_row(
    "text, finish_reason, refusal",
    [("", "stop", ""), ("  \n", "stop", ""), ("4", "length", ""), ("4", "content_filter", ""), ("4", "stop", "No")],
)
def test_no_answer_is_nothing(text: str, finish_reason: str, refusal: str) -> None:
    assert (
        comparable(AnswerChoice(text=text, finish_reason=finish_reason, refusal=refusal)) == tactics.NORMALISE_NOTHING
    )


def test_calls_are_their_names_and_arguments() -> None:
    def calls(*named: tuple[str, str]) -> str | None:
        return comparable(AnswerChoice(tool_calls=tuple(ToolCall(*call) for call in named), finish_reason="tool_calls"))

    once = calls(("look", '{"a": 1, "b": "x"}'), ("go", ""))
    assert once == calls(("go", "{}"), ("look", '{"b":"x","a":1.0}'))
    assert len({once, calls(("look", '{"a": 2, "b": "x"}'), ("go", "")), calls(("look", "{a"))}) == 3


@given(st.text(max_size=300) | st.text("0123456789.,/ -e\\{}boxedfrac", max_size=80))
def test_any_text_comes_to_something_and_always_to_the_same(text: str) -> None:
    assert normal(text) == normal(text)
    assert normal(f"  {text}\n") == normal(text)


@given(st.decimals(-(10**12), 10**12, places=4))
def test_a_number_is_the_same_in_all_its_forms(number: object) -> None:
    assert normal(f"{number}") == normal(f"{number:,}") == normal(f"\\boxed{{{number}}}")
    assert normal(f"The answer is {number}.") == normal(f"{number}")
