"""What each verifier makes of answers: right, wrong, or nothing to do with it."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from router.api.parse import parse
from router.outcomes.verifiers.number import last, readings
from router.types.outcome import Answer
from router.types.request import Endpoint
from tests.outcomes.values import asking, expecting, saying, verifier

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CLOCK = {"type": "function", "function": {"name": "clock"}}
SHELL = {"type": "custom", "custom": {"name": "shell"}}
PLAIN = asking()
CALL = ("weather", '{"city": "Cologne"}')


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ('{"name": "Ada", "age": 36}', 1.0),
        ('{"name": "Ada"}', 1.0),
        ('{"age": 36}', 0.0),
        ('{"name": "Ada", "age": 36.5}', 0.0),
        ('{"name": "Ada", "more": 1}', 0.0),
        ('```json\n{"name": "Ada"}\n```', 0.0),
        ("Ada, 36", 0.0),
        ("", 0.0),
    ],
)
def test_json_schema(text: str, score: float) -> None:
    """Of the request, or else of the policy."""
    assert verifier("json_schema").check(asking(response_format=FORM), saying(text)) == score
    assert verifier("json_schema", schema=PERSON).check(PLAIN, saying(text)) == score


def test_json_schema_where_none_is_asked_for() -> None:
    own = verifier("json_schema")
    assert own.check(PLAIN, saying("Ada")) is None
    assert own.check(asking(response_format={"type": "text"}), saying("Ada")) is None
    assert own.check(asking(response_format=FORM), saying("", CALL)) is None
    an_object = asking(response_format={"type": "json_object"})
    assert [own.check(an_object, saying(text)) for text in ("{}", "[]", "Ada")] == [1.0, 0.0, 0.0]


def test_a_schema_of_the_policy_that_is_none_is_told() -> None:
    for schema, place in (({"type": "nonsense"}, "type"), ({"$ref": "http://127.0.0.1:9/x"}, "its top")):
        with pytest.raises(ValidationError, match=f"a JSON Schema: correct it at {place}"):
            verifier("json_schema", schema=schema)


@pytest.mark.parametrize(
    ("calls", "score"),
    [
        ([CALL], 1.0),
        ([CALL, ("clock", "")], 1.0),
        ([("clock", "{}")], 1.0),
        ([("clock", '{"anything": 1}')], 1.0),
        ([("shell", "ls -l")], 1.0),
        ([("weather", "{}")], 0.0),
        ([("weather", '{"city": 5}')], 0.0),
        ([("weather", '{"city": "Col')], 0.0),
        ([("weather", '["Cologne"]')], 0.0),
        ([("whether", '{"city": "Cologne"}')], 0.0),
        ([CALL, ("weather", "{}")], 0.0),
        ([], None),
    ],
)
def test_tool_call(calls: list[tuple[str, str]], score: float | None) -> None:
    request = asking(tools=[WEATHER, CLOCK, SHELL])
    assert verifier("tool_call").check(request, saying("", *calls)) == score


@pytest.mark.parametrize(
    ("choice", "calls", "score"),
    [
        ("required", [], 0.0),
        ("required", [CALL], 1.0),
        ("auto", [], None),
        ({"type": "function", "function": {"name": "weather"}}, [CALL], 1.0),
        ({"type": "function", "function": {"name": "weather"}}, [("clock", "{}")], 0.0),
        ({"type": "function", "function": {"name": "weather"}}, [], 0.0),
    ],
)
def test_a_call_that_is_demanded(choice: Any, calls: list[tuple[str, str]], score: float | None) -> None:
    request = asking(tools=[WEATHER, CLOCK], tool_choice=choice)
    assert verifier("tool_call").check(request, saying("", *calls)) == score


def test_what_a_request_to_responses_asks_for() -> None:
    """Its tools and its form are said in other words."""
    tool = {"type": "function", **WEATHER["function"]}
    text = {"format": {"type": "json_schema", "name": "person", "schema": PERSON}}
    body = {"model": "auto", "input": "Hi", "tools": [tool], "text": text, "metadata": {"expected": "42"}}
    request = parse(Endpoint.RESPONSES, "r", json.dumps(body).encode(), [])
    for one in (request, msgspec.structs.replace(request, chat=None)):
        assert verifier("tool_call").check(one, saying("", CALL)) == 1.0
        assert verifier("tool_call").check(one, saying("", ("weather", "{}"))) == 0.0
        assert verifier("exact").check(one, saying("42")) == 1.0
    assert verifier("json_schema").check(request, saying('{"age": 1}')) == 0.0


def test_a_call_where_there_are_no_tools_is_wrong() -> None:
    assert verifier("tool_call").check(PLAIN, saying("", CALL)) == 0.0


def test_functions_as_they_were_once_declared() -> None:
    request = asking(functions=[WEATHER["function"]])
    assert verifier("tool_call").check(request, saying("", CALL)) == 1.0


@pytest.mark.parametrize(
    ("fields", "text", "score"),
    [
        ({"must": r"\b42\b"}, "It is 42.", 1.0),
        ({"must": r"\b42\b"}, "It is 421.", 0.0),
        ({"must": r"(?i)yes"}, "YES", 1.0),
        ({"must_not": r"TODO"}, "done", 1.0),
        ({"must_not": r"TODO"}, "TODO: it", 0.0),
        ({"must": "a", "must_not": "b"}, "ab", 0.0),
        ({"must": "(a+)+$"}, "a" * 50_000 + "!", 0.0),
    ],
)
def test_regex(fields: dict[str, str], text: str, score: float) -> None:
    assert verifier("regex", **fields).check(PLAIN, saying(text)) == score


@pytest.mark.parametrize("fields", [{}, {"must": "("}, {"must": "(?=a)a"}, {"must": ""}])
def test_expressions_that_are_none_are_told(fields: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        verifier("regex", **fields)


@pytest.mark.parametrize(
    ("right", "text", "score"),
    [
        (72, "So 70 + 2 = 72.", 1.0),
        ("72", "#### 72\n\nI checked it 3 times", 1.0),
        ("72", r"\boxed{72} after 3 steps", 1.0),
        ("0.5", r"It is \boxed{\frac{1}{2}}.", 1.0),
        ("1/3", "0.3333333", 1.0),
        (1234567, "1,234,567", 1.0),
        (1234567, "1.234.567", 1.0),
        (1234.5, "1.234,5", 1.0),
        (1234.5, "1,234.5", 1.0),
        (3.5, "3,5", 1.0),
        (-4, "\N{MINUS SIGN}4", 1.0),
        (42, "٤٢", 1.0),
        (1e6, "1e6", 1.0),
        ("$1,000", "1000 dollars", 1.0),
        (1234, "1.234", 1.0),
        (1.234, "1234", 0.0),
        (72, "27", 0.0),
        (72, "It can't be known.", 0.0),
        (72, "", 0.0),
        ([72, 73], "73", 1.0),
        ("seventy", "70", None),
        (None, "72", None),
        (True, "1", None),
        ("1/0", "1", None),
        ("NaN", "NaN", None),
    ],
)
def test_number(right: Any, text: str, score: float | None) -> None:
    assert verifier("number").check(expecting(right), saying(text)) == score


def test_a_number_may_be_off_by_what_the_policy_allows() -> None:
    request = expecting(100)
    assert [verifier("number", tolerance=0.5).check(request, saying(text)) for text in ("100.4", "100.6")] == [1.0, 0.0]
    assert [verifier("number", relative=0.01).check(request, saying(text)) for text in ("101", "101.5")] == [1.0, 0.0]
    assert verifier("number").check(asking(), saying("1")) is None
    assert verifier("number").check(request, saying("", CALL)) is None


@given(st.text(max_size=200))
def test_any_text_has_numbers_or_none(text: str) -> None:
    assert all(value.is_finite() for value in (*last(text), *readings(text)))


@given(st.integers(-(10**9), 10**9))
def test_a_whole_number_is_found_however_it_is_grouped(value: int) -> None:
    right = expecting(value)
    for text in (str(value), f"{value:,}", f"{value:,}".replace(",", "."), f"so it is {value}."):
        assert verifier("number").check(right, saying(text)) == 1.0


@pytest.mark.parametrize(
    ("right", "text", "score"),
    [
        ("Paris", "paris.", 1.0),
        ("B", "(B)", 1.0),
        ("B", "B) Because of it", 0.0),
        ("New York", "**new  york**", 1.0),
        ("x+1", r"Therefore $\boxed{x+1}$", 1.0),
        (["UK", "United Kingdom"], "united kingdom", 1.0),
        ("Straße", "STRASSE", 1.0),
        ("Paris", "London", 0.0),
        ("Paris", "", 0.0),
        (5, "5", 1.0),
        (None, "Paris", None),
        ({"a": 1}, "Paris", None),
    ],
)
def test_exact(right: Any, text: str, score: float | None) -> None:
    assert verifier("exact").check(expecting(right), saying(text)) == score


REFUSALS = (
    "I'm sorry, but I can't help with that.",
    "I\N{RIGHT SINGLE QUOTATION MARK}m sorry, but I can\N{RIGHT SINGLE QUOTATION MARK}t assist with that request.",
    "I cannot provide instructions for that.",
    "As an AI language model, I don't have personal opinions.",
    "Es tut mir leid, aber dabei kann ich nicht helfen.",
    "Je suis désolé, mais je ne peux pas répondre à cette demande.",
    "Lo siento, pero no puedo ayudarte con eso.",
    "Mi dispiace, ma non posso aiutarti.",
    "Desculpe, mas não posso ajudar com isso.",
    "Het spijt me, maar ik kan je daar niet mee helpen.",
    "Przykro mi, ale nie mogę pomóc.",
    "Извините, но я не могу помочь с этим.",
    "抱歉，我无法协助您完成这个请求。",
    "申し訳ありませんが、お手伝いできません。",
    "죄송하지만 도와드릴 수 없습니다.",
    "عذرا، لا أستطيع المساعدة في ذلك.",
    "क्षमा करें, मैं इसमें मदद नहीं कर सकता।",
    "Üzgünüm, bu konuda yardımcı olamam.",
    "Maaf, saya tidak bisa membantu.",
)
ANSWERS = (
    "Paris is the capital of France.",
    "Sorry for the delay. Here is the function that you asked for: def f(): pass",
    "He said: 'I won.' Then he left.",
    "Das kann ich gern erklären: zuerst …",
    "不能と可能の違いは次のとおりです。",
    "The knight moves in an L. " * 40 + "I can't help with that.",
    "",
)


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        *((saying(text), 0.0) for text in REFUSALS),
        *((saying(text), 1.0) for text in ANSWERS),
        (saying("", refusal="No."), 0.0),
        (saying("Well", finish_reason="content_filter"), 0.0),
        (saying("", CALL), None),
    ],
)
def test_refusal(answer: Answer, score: float | None) -> None:
    assert verifier("refusal").check(PLAIN, answer) == score


@pytest.mark.parametrize(
    ("answer", "empty", "truncated"),
    [
        (saying("Hi"), 1.0, 1.0),
        (saying("Hi", finish_reason="length"), 1.0, 0.0),
        (saying("", finish_reason="length"), 0.0, 0.0),
        (saying(" \n\t"), 0.0, 0.0),
        (saying(""), 0.0, 0.0),
        (saying("", CALL), 1.0, 1.0),
        (saying("", refusal="No."), 1.0, 1.0),
    ],
)
def test_empty_and_truncated(answer: Answer, empty: float, truncated: float) -> None:
    assert verifier("empty").check(PLAIN, answer) == empty
    assert verifier("truncated").check(PLAIN, answer) == truncated


def test_whose_yes_settles_it() -> None:
    """What only says that the form is right, or that nothing is wrong, does not say that the answer is right."""
    formal = ("json_schema", "tool_call", "refusal", "empty", "truncated")
    assert [verifier(kind).decides for kind in formal] == [False] * 5
    assert [verifier(kind).decides for kind in ("number", "exact")] == [True] * 2
    assert verifier("json_schema", decides=True).decides


JUNK = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=8)


@given(JUNK, st.text())
def test_nothing_that_a_request_holds_breaks_a_verifier(junk: Any, text: str) -> None:
    names = ("response_format", "tools", "tool_choice", "functions", "metadata")
    for name in names:
        request = msgspec.structs.replace(asking(), body={name: msgspec.Raw(json.dumps(junk).encode())})
        for kind in ("tool_call", "number", "exact", "refusal", "empty", "truncated"):
            verifier(kind).check(request, saying(text, ("f", text)))
            verifier(kind).check(request, saying(text))
