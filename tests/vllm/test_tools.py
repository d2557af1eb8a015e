"""Calls and JSON that fit their schemas, from a model that would not write them by itself."""

import json
from typing import Any

import jsonschema_rs
import openai
import pytest

from tests.conformance.client import told
from tests.tables import each_row
from tests.vllm.running import House
from tests.vllm.test_answers import asked, check_row

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "days": {"type": "integer", "minimum": 1, "maximum": 5},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "Of a city", "parameters": SCHEMA}}
TIME = {"type": "function", "function": {"name": "time", "parameters": {"type": "object", "properties": {}}}}
NAMED = {"type": "function", "function": {"name": "weather"}}
QUESTION: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]


def fits(text: str) -> bool:
    return jsonschema_rs.is_valid(SCHEMA, json.loads(text))


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("choice", "finish"), [("required", "tool_calls"), (NAMED, "stop")])
def test_a_forced_call_fits_its_schema(
    house: House, client: openai.OpenAI, choice: object, finish: str, streamed: bool
) -> None:
    body = {"messages": QUESTION, "tools": [WEATHER], "tool_choice": choice, "max_tokens": 80}
    seen = told(client, asked("thinker", streamed, **body))
    ((identifier, name, arguments),) = seen.choices[0].calls
    assert (name, bool(identifier), seen.choices[0].finish) == ("weather", True, finish)
    assert fits(arguments), arguments
    check_row(house, seen, "thinker")


def test_a_call_after_a_thought(house: House, client: openai.OpenAI) -> None:
    body = {"messages": QUESTION, "tools": [WEATHER], "tool_choice": "required", "max_tokens": 80, "extra_body": {}}
    seen = told(client, asked("thinker", True, **body, extra_headers={"x-lowpass-thinking-budget": "6"}))
    ((_, _, arguments),) = seen.choices[0].calls
    assert fits(arguments), arguments
    assert check_row(house, seen, "thinker")["attempts"][0]["output_reasoning"] == 6


def test_a_call_that_is_not_forced_is_the_models_choice(client: openai.OpenAI) -> None:
    body = {"messages": QUESTION, "tools": [WEATHER, TIME], "max_tokens": 16}
    (said,) = told(client, asked("thinker", True, **body)).choices
    assert said.text.strip() or said.calls


def test_results_of_calls_are_read(client: openai.OpenAI) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Paris","days":1}'}}
    turns = [
        *QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "Sunny, 21 degrees."},
    ]
    seen = told(client, asked("thinker", False, messages=turns, tools=[WEATHER]))
    alone = told(client, asked("thinker", False, messages=QUESTION, tools=[WEATHER]))
    assert seen.usages[0]["prompt_tokens"] > alone.usages[0]["prompt_tokens"] + 20


@each_row("streamed", [False, True])
def test_an_answer_fits_its_schema(house: House, client: openai.OpenAI, streamed: bool) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "weather", "strict": True, "schema": SCHEMA}}
    seen = told(client, asked("thinker", streamed, messages=QUESTION, response_format=form, max_tokens=80))
    assert fits(seen.choices[0].text), seen.choices[0].text
    check_row(house, seen, "thinker")


def test_an_answer_is_json(client: openai.OpenAI) -> None:
    form = {"type": "json_object"}
    seen = told(client, asked("thinker", False, messages=QUESTION, response_format=form, max_tokens=80))
    assert isinstance(json.loads(seen.choices[0].text), dict)
