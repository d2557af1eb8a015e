"""What each verifier makes of answers: right, wrong, or nothing to do with it."""

import json
import re
from typing import Any, get_args

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from router.api.parse import parse
from router.api.rest import FEEDBACK, Feedback
from router.outcomes.checks import HttpVerifier, PythonVerifier, Verifier, VerifierTerms, mistakes
from router.outcomes.judge import Judge
from router.outcomes.verifiers import last_numbers, number_values
from router.types.attempt import AnswerChoice
from router.types.request import Endpoint, Request
from tests.docs import blocks, page, rows
from tests.outcomes.values import asking, expecting, saying, verifier
from tests.tables import data, each_row

FIELDS = {"name": {"type": "string"}, "age": {"type": "integer"}}
PERSON = {"type": "object", "properties": FIELDS, "required": ["name"], "additionalProperties": False}
FORM = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER: dict[str, Any] = {"type": "function", "function": {"name": "weather", "parameters": CITY}}
CLOCK = {"type": "function", "function": {"name": "clock"}}
SHELL = {"type": "custom", "custom": {"name": "shell"}}
PLAIN = asking()
CALL, NO_CITY = ("weather", '{"city": "Cologne"}'), ("weather", "{}")
TEXTS, TABLES = data(__file__, "refusals.yaml"), data(__file__, "verifiers.yaml")


def check(own: Any, request: Request, *answers: str | AnswerChoice) -> list[float | None]:
    return [own.check(request, saying(answer) if isinstance(answer, str) else answer) for answer in answers]


def test_json_schema() -> None:
    """Of the request, or else of the policy."""
    right = ['{"name": "Ada", "age": 36}', '{"name": "Ada"}']
    wrong = ['{"age": 36}', '{"name": "Ada", "age": 36.5}', '{"name": "Ada", "more": 1}', "Ada, 36", ""]
    wrong += ['```json\n{"name": "Ada"}\n```']
    own, policys = verifier("json_schema"), verifier("json_schema", schema=PERSON)
    for each, request in ((own, asking(response_format=FORM)), (policys, PLAIN)):
        assert check(each, request, *right, *wrong) == [1.0] * len(right) + [0.0] * len(wrong)
    assert check(own, PLAIN, "Ada") == check(own, asking(response_format={"type": "text"}), "Ada") == [None]
    assert check(own, asking(response_format=FORM), saying("", CALL)) == [None]
    assert check(own, asking(response_format={"type": "json_object"}), "{}", "[]", "Ada") == [1.0, 0.0, 0.0]


def test_schemas_and_expressions_of_the_policy_that_are_none_are_told() -> None:
    for schema, place in (({"type": "nonsense"}, "type"), ({"$ref": "http://127.0.0.1:9/x"}, "its top")):
        with pytest.raises(ValidationError, match=f"a JSON Schema: correct it at {place}"):
            verifier("json_schema", schema=schema)
    for fields in ({}, {"must": "("}, {"must": "(?=a)a"}, {"must": ""}):
        with pytest.raises(ValidationError):
            verifier("regex", **fields)


@each_row("choice, score, calls", TABLES["tool_call"])
def test_tool_call(choice: Any, score: float | None, calls: list[tuple[str, str]]) -> None:
    demanded = {"tool_choice": choice} if choice else {}
    request = asking(tools=[WEATHER, CLOCK, SHELL], **demanded)
    assert check(verifier("tool_call"), request, saying("", *calls)) == [score]


def test_what_a_request_to_responses_asks_for() -> None:
    """Its tools and its form are said in other words, as in a chat of once; a call without tools is wrong."""
    once = asking(functions=[WEATHER["function"]])
    assert [check(verifier("tool_call"), asked, saying("", CALL)) for asked in (PLAIN, once)] == [[0.0], [1.0]]
    tool = {"type": "function", **WEATHER["function"]}
    text = {"format": {"type": "json_schema", "name": "person", "schema": PERSON}}
    body = {"model": "auto", "input": "Hi", "tools": [tool], "text": text, "metadata": {"expected": "42"}}
    request = parse(Endpoint.RESPONSES, "r", json.dumps(body).encode(), [])
    for each in (request, msgspec.structs.replace(request, chat=None)):
        assert check(verifier("tool_call"), each, saying("", CALL), saying("", NO_CITY)) == [1.0, 0.0]
        assert check(verifier("exact"), each, "42") == [1.0]
    assert check(verifier("json_schema"), request, '{"age": 1}') == [0.0]


def test_regex() -> None:
    rows: list[tuple[dict[str, str], list[str], list[str]]] = [
        ({"must": r"\b42\b"}, ["It is 42."], ["It is 421."]),
        ({"must": r"(?i)yes"}, ["YES"], []),
        ({"must_not": r"TODO"}, ["done"], ["TODO: it"]),
        ({"must": "a", "must_not": "b"}, [], ["ab"]),
        ({"must": "(a+)+$"}, [], ["a" * 50_000 + "!"]),
    ]
    for fields, right, wrong in rows:
        scores = check(verifier("regex", **fields), PLAIN, *right, *wrong)
        assert scores == [1.0] * len(right) + [0.0] * len(wrong), fields


@each_row("expected, score, texts", TABLES["number"])
def test_number(expected: Any, score: float | None, texts: list[str]) -> None:
    assert check(verifier("number"), expecting(expected), *texts) == [score] * len(texts)


def test_a_number_may_be_off_by_what_the_policy_allows() -> None:
    request = expecting(100)
    assert check(verifier("number", tolerance=0.5), request, "100.4", "100.6") == [1.0, 0.0]
    assert check(verifier("number", relative=0.01), request, "101", "101.5") == [1.0, 0.0]
    assert check(verifier("number"), PLAIN, "1") == check(verifier("number"), request, saying("", CALL)) == [None]


@given(st.text(max_size=200))
def test_any_text_has_numbers_or_none(text: str) -> None:
    assert all(value.is_finite() for value in (*last_numbers(text), *number_values(text)))


@given(st.integers(-(10**9), 10**9))
def test_a_whole_number_is_found_however_it_is_grouped(value: int) -> None:
    texts = (str(value), f"{value:,}", f"{value:,}".replace(",", "."), f"so it is {value}.")
    assert check(verifier("number"), expecting(value), *texts) == [1.0] * 4


@each_row("expected, score, texts", TABLES["exact"])
def test_exact(expected: Any, score: float | None, texts: list[str]) -> None:
    assert check(verifier("exact"), expecting(expected), *texts) == [score] * len(texts)


def test_refusal() -> None:
    own = verifier("refusal")
    answers = [*TEXTS["answers"], "", "A knight moves in an L. " * 40 + "I can't help with that."]
    assert [text for text in TEXTS["refusals"] if check(own, PLAIN, text) != [0.0]] == []
    assert [text for text in answers if check(own, PLAIN, text) != [1.0]] == []
    said = saying("", refusal="No."), saying("Well", finish_reason="content_filter"), saying("", CALL)
    assert check(own, PLAIN, *said) == [0.0, 0.0, None]


def test_empty_and_truncated() -> None:
    whole = saying("Hi"), saying("", CALL), saying("", refusal="No.")
    nothing = saying("", finish_reason="length"), saying(" \n\t"), saying("")
    answers = (*whole, saying("Hi", finish_reason="length"), *nothing)
    assert check(verifier("empty"), PLAIN, *answers) == [1.0] * 4 + [0.0] * 3
    assert check(verifier("truncated"), PLAIN, *answers) == [1.0] * 3 + [0.0] * 4


JUNK = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=8)


@given(JUNK, st.text())
def test_nothing_that_a_request_holds_breaks_a_verifier(junk: Any, text: str) -> None:
    for name in ("response_format", "tools", "tool_choice", "functions", "metadata"):
        request = msgspec.structs.replace(PLAIN, body={name: msgspec.Raw(json.dumps(junk).encode())})
        for kind in ("tool_call", "number", "exact", "refusal", "empty", "truncated"):
            check(verifier(kind), request, saying(text, ("f", text)), text)


# What a route says of verifiers and judge: mistakes are told, and docs/outcomes.md has every key and default.


TEXT = page("docs/outcomes.md")
KINDS: dict[str, type[BaseModel]] = {
    get_args(each.model_fields["kind"].annotation)[0]: each for each in get_args(get_args(Verifier)[0])
}
COMMON = {"kind", "label", "decides"}
LISTED = {row["kind"]: row for row in rows(TEXT, "kind", "says no where")}


def test_mistakes_of_a_route() -> None:
    judge, plain = Judge(target="judge"), verifier("regex", must="a")
    other = verifier("regex", must="b", label="other")
    assert list(mistakes([verifier("empty"), plain, other], judge, ["plain"])) == list(mistakes([], None, [])) == []
    (twice,) = mistakes([plain, verifier("empty"), plain], None, ["plain"])
    assert (twice.path, twice.remedy) == (("verifiers", 2), "give one of them a label")
    (alone,) = mistakes([], judge, ["judge"])
    assert alone.path == ("judge", "target")
    for more in ({}, {"target": ""}, {"share": 0}, {"share": 1.1}, {"timeout_ms": 0}):
        with pytest.raises(ValueError, match="Judge"):
            Judge.model_validate({"target": "j"} | more if more else {})


def test_every_verifier_is_in_the_document() -> None:
    """With its keys and defaults: a number in brackets is a default."""
    decides = {kind: str(model.model_fields["decides"].default).lower() for kind, model in KINDS.items()}
    assert {kind: row["decides"] for kind, row in LISTED.items()} == decides
    for kind in sorted(set(KINDS) - {"http", "python"}):
        fields = {field.alias or name: field.default for name, field in KINDS[kind].model_fields.items()}
        listed = dict(re.findall(r"(\w+)(?: \(([\d.]+)\))?", LISTED[kind]["keys"]))
        assert listed.keys() == fields.keys() - COMMON, kind
        assert all(float(fields[name]) == float(default) for name, default in listed.items() if default), kind


@each_row("heading, model", [("### http", HttpVerifier), ("### python", PythonVerifier), ("## Judge", Judge)])
def test_tables_of_keys(heading: str, model: type[BaseModel]) -> None:
    section = re.split(r"\n##+ ", TEXT.partition(f"\n{heading}\n")[2])[0]
    table = {name: row for row in rows(section, "key", "meaning") for name in row["key"].split(", ")}
    assert table.keys() == model.model_fields.keys() - COMMON
    for name, row in table.items():
        field = model.model_fields[name]
        assert (row["default"] == "required") == field.is_required()
        if isinstance(field.default, int | float) and not isinstance(field.default, bool):
            assert float(row["default"].replace(",", "")) == field.default


def test_terms_feedback_and_examples_of_the_document() -> None:
    (terms,) = [row for row in rows(TEXT, "key", "meaning") if row["key"] == "terms"]
    assert all(name in terms["meaning"] for name in VerifierTerms.model_fields)
    listed = {name for row in rows(TEXT, "field") for name in row["field"].split(" or ")}
    assert listed == set(Feedback.__struct_fields__)
    assert f"--scope {FEEDBACK}" in TEXT
    examples: dict[str, Any] = {}
    for block in blocks(TEXT, "yaml"):
        examples |= yaml.safe_load(block)
    assert len([verifier(**each) for each in examples["verifiers"]]) == 4
    assert Judge.model_validate(examples["judge"]).target == "big"
