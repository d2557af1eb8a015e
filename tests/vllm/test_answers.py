"""What every target must do, whole and streamed: the answer, its usage, its row; adapters; and what is refused."""

import json
import operator
from typing import Any

import openai
import pytest

from tests.conformance.client import Seen, told
from tests.gateway.running import until
from tests.tables import each_row
from tests.vllm.running import CAPITAL, RATES, House, ask

OFF = {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}
STREAM = {"stream": True, "stream_options": {"include_usage": True}}


def asked(model: str, streamed: bool, **body: Any) -> dict[str, Any]:
    stream = STREAM if streamed else {}
    return {"model": model, "messages": CAPITAL, "max_tokens": 24, "temperature": 0, **OFF, **stream, **body}


def check_row(house: House, seen: Seen, target: str) -> dict[str, Any]:
    """The ledger has what the client was told, and what that costs; returns the row."""
    (usage,) = seen.usages
    row = house.gateway.settled(seen.request_id)
    (attempt,) = row["attempts"]
    reasoning = usage["completion_tokens_details"]["reasoning_tokens"]
    assert (row["target"], row["status"], attempt["outcome"]) == (target, 200, "ok")
    assert (row["input_tokens"], row["output_tokens"]) == (usage["prompt_tokens"], usage["completion_tokens"])
    assert (attempt["output_visible"] + reasoning, attempt["output_reasoning"]) == (row["output_tokens"], reasoning)
    prompt, visible = row["input_tokens"] * RATES["input"], attempt["output_visible"] * RATES["output"]
    assert row["cost"] == 1_000 * (prompt + visible + reasoning * RATES["reasoning"])
    assert attempt["usage_source"] == "reported"
    return row


@each_row("streamed", [False, True])
@each_row("target", ["thinker", "plain", "tuned"])
def test_an_answer_and_its_row(house: House, client: openai.OpenAI, target: str, streamed: bool) -> None:
    seen = told(client, asked(target, streamed))
    (said,) = seen.choices
    assert (seen.models, len(seen.ids), len(seen.created)) == ({target}, 1, 1)
    assert said.text.strip()
    assert (said.reasoning, said.calls) == ("", ())
    row = check_row(house, seen, target)
    assert said.finish == ("length" if row["output_tokens"] == 24 else "stop")
    (attempt,) = row["attempts"]
    assert attempt["output_reasoning"] == 0
    assert attempt["reasoning_source"] == ("reported" if target == "thinker" else "estimated")
    assert attempt["model_served"] == {"thinker": "moe", "plain": "smollm2", "tuned": "tuned"}[target]


def test_the_packaged_weights_survived_their_translation(house: House, client: openai.OpenAI) -> None:
    """A wrong permutation of a tensor leaves fluent nonsense."""
    seen = told(client, asked("plain", False))
    assert seen.choices[0].text == "The capital of France is Paris."
    assert seen.usages[0]["prompt_tokens"] == 37
    status, body = ask(f"{house.url('plain')}/tokenize", {"model": "smollm2", "prompt": "hello world"})
    assert (status, b"[28120,905]" in body.replace(b" ", b"")) == (200, True)


@each_row("streamed", [False, True])
def test_several_choices_are_all_counted(house: House, client: openai.OpenAI, streamed: bool) -> None:
    seen = told(client, asked("plain", streamed, n=3, temperature=1, max_tokens=6, extra_body={"ignore_eos": True}))
    assert [choice.finish for choice in seen.choices] == ["length"] * 3
    assert seen.usages[0]["completion_tokens"] == 18
    check_row(house, seen, "plain")


def test_a_stop_word_ends_the_answer(client: openai.OpenAI) -> None:
    (said,) = told(client, asked("plain", True, stop=[" France"])).choices
    assert (said.text, said.finish) == ("The capital of", "stop")


@pytest.mark.timeout(120)
def test_probabilities_come_with_every_token(house: House, client: openai.OpenAI) -> None:
    """The engine compiles what they need at the first such request."""
    seen = told(client, asked("plain", True, logprobs=True, top_logprobs=2))
    assert len(seen.choices[0].tokens) == seen.usages[0]["completion_tokens"]


@each_row("streamed", [False, True])
def test_a_text_is_completed(house: House, client: openai.OpenAI, streamed: bool) -> None:
    text: dict[str, Any] = {"model": "plain", "prompt": "The capital of France is", "max_tokens": 3, "temperature": 0}
    if streamed:
        with client.completions.create(**text, stream=True, stream_options={"include_usage": True}) as stream:
            chunks = list(stream)
        said, usage = "".join(chunk.choices[0].text for chunk in chunks if chunk.choices), chunks[-1].usage
    else:
        whole = client.completions.create(**text)
        said, usage = whole.choices[0].text, whole.usage
    assert said.startswith(" Paris")
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (5, 3)


def test_responses_are_answered_by_an_engine_of_chats(house: House, client: openai.OpenAI) -> None:
    answer = client.responses.create(model="plain", input="What is the capital of France?", temperature=0)
    assert answer.output_text == "The capital of France is Paris."
    assert answer.usage is not None
    assert answer.usage.output_tokens_details.reasoning_tokens == 0


def test_texts_become_vectors(house: House, client: openai.OpenAI) -> None:
    answer = client.embeddings.create(model="embedder", input=["a cat", "a kitten", "tax law"])
    cat, kitten, tax = (item.embedding for item in answer.data)
    assert {len(cat), len(kitten), len(tax)} == {576}
    assert sum(map(operator.mul, cat, kitten)) > sum(map(operator.mul, cat, tax))
    row = house.last("embedder")
    assert (row["status"], row["input_tokens"], row["output_tokens"]) == (200, answer.usage.prompt_tokens, 0)
    assert row["cost"] == answer.usage.prompt_tokens * RATES["input"] * 1_000


def test_each_adapter_is_listed_beside_its_parent(house: House) -> None:
    status, body = ask(f"{house.url('plain')}/v1/models")
    parents = {model["id"]: model["parent"] for model in json.loads(body)["data"]}
    assert (status, parents) == (200, {"smollm2": None, "tuned": "smollm2", "other": "smollm2"})


def test_an_adapter_that_is_unloaded_is_stood_in_for_until_it_is_back(house: House, client: openai.OpenAI) -> None:
    def serves() -> str:
        return told(client, asked("lora", False, max_tokens=2)).headers["x-lowpass-model"]

    assert serves() == "tuned"
    spec = json.loads((house.gateway.home / "plain.yaml").read_text())
    path = next(one["path"] for one in spec["adapters"] if one["name"] == "tuned")
    try:
        assert ask(f"{house.url('plain')}/v1/unload_lora_adapter", {"lora_name": "tuned"})[0] == 200
        assert serves() == "other"
        failed = house.last("lora")["attempts"][0]
        assert (failed["target"], failed["outcome"], failed["upstream_status"]) == ("tuned", "model_missing", 404)
    finally:
        adapter = {"lora_name": "tuned", "lora_path": path}
        assert ask(f"{house.url('plain')}/v1/load_lora_adapter", adapter)[0] == 200
    until(lambda: serves() == "tuned", 60)


def outcomes(house: House, requested: str) -> list[tuple[str, str, int]]:
    return [(row["target"], row["outcome"], row["upstream_status"]) for row in house.last(requested)["attempts"]]


def test_a_picture_for_a_model_that_reads(house: House, client: openai.OpenAI) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    content: list[Any] = [{"type": "text", "text": "What is this?"}, picture]
    with pytest.raises(openai.BadRequestError, match="not a multimodal model"):
        told(client, asked("sighted", True, messages=[{"role": "user", "content": content}]))
    assert outcomes(house, "sighted") == [("sighted", "bad_request", 400)]


def test_what_is_too_long_goes_to_a_model_with_room_for_it(house: House, client: openai.OpenAI) -> None:
    long: list[Any] = [{"role": "user", "content": "word " * 2_500}]
    seen = told(client, asked("spill", True, messages=long, max_tokens=2))
    assert seen.headers["x-lowpass-model"] == "plain"
    assert outcomes(house, "spill") == [("boastful", "context_length", 400), ("plain", "ok", 200)]
    seen = told(client, asked("spill", False, max_tokens=3_000))
    assert seen.headers["x-lowpass-model"] == "plain"
    assert outcomes(house, "spill") == [("boastful", "context_length", 400), ("plain", "ok", 200)]
    with pytest.raises(openai.BadRequestError, match="maximum context length") as failed:
        told(client, asked("boastful", False, messages=long))
    assert failed.value.code == "context_length_exceeded"


def test_a_schema_that_no_grammar_can_say(house: House, client: openai.OpenAI) -> None:
    bad = {"type": "object", "properties": {"a": {"type": "strin"}}}
    form = {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": bad}}
    with pytest.raises(openai.BadRequestError):
        told(client, asked("thinker", False, response_format=form))
    assert outcomes(house, "thinker")[0][1] == "bad_request"
