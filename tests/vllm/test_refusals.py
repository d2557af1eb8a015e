"""What the engine refuses: the client's mistakes are said to be so, the operator's are somebody else's to answer."""

from typing import Any

import openai
import pytest

from tests.conformance.client import told
from tests.vllm.running import House
from tests.vllm.test_answers import asked

PICTURE = "data:image/png;base64,iVBORw0KGgo="


def outcomes(house: House, requested: str) -> list[tuple[str, str, int]]:
    return [(one["target"], one["outcome"], one["upstream_status"]) for one in house.last(requested)["attempts"]]


def test_a_picture_for_a_model_that_reads(house: House, client: openai.OpenAI) -> None:
    content: list[Any] = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": PICTURE}},
    ]
    with pytest.raises(openai.BadRequestError, match="not a multimodal model"):
        told(client, asked("sighted", True, messages=[{"role": "user", "content": content}]))
    assert outcomes(house, "sighted") == [("sighted", "bad_request", 400)]


def test_a_prompt_that_is_too_long_goes_to_who_can_read_it(house: House, client: openai.OpenAI) -> None:
    long: list[Any] = [{"role": "user", "content": "word " * 2_500}]
    seen = told(client, asked("spill", True, messages=long, max_tokens=2))
    assert seen.headers["x-lowpass-model"] == "plain"
    assert outcomes(house, "spill") == [("boastful", "context_length", 400), ("plain", "ok", 200)]
    with pytest.raises(openai.BadRequestError, match="maximum context length") as failed:
        told(client, asked("boastful", False, messages=long))
    assert failed.value.code == "context_length_exceeded"


def test_an_answer_that_would_be_too_long_goes_to_who_can_write_it(house: House, client: openai.OpenAI) -> None:
    seen = told(client, asked("spill", False, max_tokens=3_000))
    assert seen.headers["x-lowpass-model"] == "plain"
    assert outcomes(house, "spill") == [("boastful", "context_length", 400), ("plain", "ok", 200)]


def test_a_schema_that_no_grammar_can_say(house: House, client: openai.OpenAI) -> None:
    bad = {"type": "object", "properties": {"a": {"type": "strin"}}}
    form = {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": bad}}
    with pytest.raises(openai.BadRequestError):
        told(client, asked("thinker", False, response_format=form))
    assert outcomes(house, "thinker")[0][1] == "bad_request"
