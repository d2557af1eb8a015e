"""What every target must do, whole and streamed; adapters; thinking and tools; load, and processes that are killed."""

import json
import operator
import os
import signal
import threading
from typing import Any

import jsonschema_rs
import openai
import pytest

from tests.conformance.client import Seen, told
from tests.gateway.running import until
from tests.tables import each_row
from tests.vllm.running import CAPITAL, QUEUE, RATES, House, ask

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
    path = next(adapter["path"] for adapter in spec["adapters"] if adapter["name"] == "tuned")
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
    for request in (asked("spill", True, messages=long, max_tokens=2), asked("spill", False, max_tokens=3_000)):
        assert told(client, request).headers["x-lowpass-model"] == "plain"
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


# Budgets that an engine keeps to the token, switches, and what is reported where none counts them


BUDGET = "x-lowpass-thinking-budget"
UNSAID: dict[str, object] = {"extra_body": {}}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("budget", "control", "thought"),
    [(0, "off", 0), (8, "budget=8", 8), (12, "budget=12", 12), (20, "budget=20", None)],
)
def test_a_budget_is_kept_to_the_token(
    house: House, client: openai.OpenAI, budget: int, control: str, thought: int | None, streamed: bool
) -> None:
    """`thought` is None where the model is done by itself before."""
    seen = told(client, asked("thinker", streamed, **UNSAID, max_tokens=60, extra_headers={BUDGET: str(budget)}))
    recorded = check_row(house, seen, "thinker")["attempts"][0]["output_reasoning"]
    assert seen.headers["x-lowpass-thinking"] == control
    assert 0 < recorded <= budget if thought is None else recorded == thought
    assert bool(seen.choices[0].reasoning) == (recorded > 0)
    assert seen.choices[0].text.strip() or thought is None


def test_effort_none_is_no_thought(house: House, client: openai.OpenAI) -> None:
    seen = told(client, asked("thinker", True, **UNSAID, reasoning_effort="none"))
    assert (seen.headers["x-lowpass-thinking"], seen.choices[0].reasoning) == ("off", "")
    assert seen.usages[0]["completion_tokens_details"]["reasoning_tokens"] == 0


@each_row("effort", ["minimal", "low", "medium", "high", "xhigh", "max"])
def test_every_word_is_understood(client: openai.OpenAI, effort: str) -> None:
    seen = told(client, asked("thinker", False, **UNSAID, reasoning_effort=effort, max_tokens=4))
    assert seen.headers["x-lowpass-thinking"].startswith("budget=")
    assert seen.usages[0]["completion_tokens_details"]["reasoning_tokens"] > 0


@each_row("streamed", [False, True])
def test_a_thought_without_an_answer_is_an_empty_answer(house: House, client: openai.OpenAI, streamed: bool) -> None:
    """Nobody said anything of thinking, so it thinks, ends after it, and its content is null."""
    seen = told(client, asked("thinker", streamed, **UNSAID))
    (said,) = seen.choices
    assert said.text == ""
    assert said.reasoning.strip()
    (attempt,) = check_row(house, seen, "thinker")["attempts"]
    assert (attempt["outcome"], attempt["answered"], attempt["thinking"]) == ("ok", 0, "none")


@each_row("asks", [{BUDGET: "300"}, {BUDGET: "100"}, {BUDGET: "0"}, {}])
def test_an_engine_without_a_parser_is_never_given_a_budget(
    house: House, client: openai.OpenAI, asks: dict[str, str]
) -> None:
    """It would refuse the request, the client's own field as well."""
    own = {"extra_body": {"thinking_token_budget": 5}}
    seen = told(client, asked("plain", False, **own, extra_headers=asks))
    assert seen.headers["x-lowpass-thinking"] == {"300": "on", "": "none"}.get(asks.get(BUDGET, ""), "off")
    assert check_row(house, seen, "plain")["attempts"][0]["reasoning_source"] == "estimated"


# Calls and JSON that fit their schemas, from a model that would not write them by itself


DAYS = {"type": "integer", "minimum": 1, "maximum": 5}
SCHEMA: dict[str, Any] = {"type": "object", "required": ["city", "days"], "additionalProperties": False}
SCHEMA["properties"] = {"city": {"type": "string", "maxLength": 12}, "days": DAYS}
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
    result = {"role": "tool", "tool_call_id": "c1", "content": "Sunny, 21 degrees."}
    turns = [*QUESTION, {"role": "assistant", "content": None, "tool_calls": [call]}, result]
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


# Clients that leave, more requests than fit, processes that are killed


LONG = {"max_tokens": 400, "temperature": 1, "extra_body": {"ignore_eos": True}}


def test_a_client_that_leaves_takes_its_work_along(house: House, client: openai.OpenAI) -> None:
    with client.chat.completions.create(**asked("plain", True, **LONG)) as stream:
        for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                break
        assert house.gauge("plain", "num_requests_running") == 1
    house.idle("plain")
    row = house.last("plain")
    assert row["attempts"][0]["outcome"] == "client_gone"
    assert 0 < row["output_tokens"] < 400


def test_the_gateway_tells_how_busy_its_engines_are(house: House, client: openai.OpenAI) -> None:
    with client.chat.completions.create(**asked("plain", True, **LONG)) as stream:
        next(iter(stream))
        until(lambda: _told(house, "lowpass_engine_running") == 1, 60)
    until(lambda: _told(house, "lowpass_engine_running") == 0, 60)
    assert _told(house, "lowpass_engine_ready") == 1


def test_the_engine_counts_what_the_ledger_has(house: House, client: openai.OpenAI) -> None:
    house.idle("plain")
    gauges = ("prompt_tokens_total", "generation_tokens_total")
    before = [house.gauge("plain", name) for name in gauges]
    usage = told(client, asked("plain", True)).usages[0]
    grown = [house.gauge("plain", name) - count for name, count in zip(gauges, before, strict=True)]
    assert grown == [usage["prompt_tokens"], usage["completion_tokens"]]


def test_a_prompt_seen_before_is_told_to_be_cached(house: House, client: openai.OpenAI) -> None:
    long = [{"role": "user", "content": "Sum this up: " + "the cat sat on the mat, " * 40}]
    first, again = (told(client, asked("plain", True, messages=long, max_tokens=2)) for _ in range(2))
    assert first.usages[0]["prompt_tokens"] == again.usages[0]["prompt_tokens"]
    cached = again.usages[0]["prompt_tokens_details"]["cached_tokens"]
    assert cached >= 128
    assert house.gateway.settled(again.request_id)["attempts"][0]["cache_read"] == cached


def test_more_than_fit_are_served_elsewhere_or_told_to_wait(house: House, client: openai.OpenAI) -> None:
    """They fill the engine past the gateway, so that it can't know before."""
    body = {"model": "moe", "prompt": "Once upon a time", "max_tokens": 200, "ignore_eos": True}
    url = f"{house.url('thinker')}/v1/completions"
    crowd = [threading.Thread(target=ask, args=(url, body)) for _ in range(QUEUE)]
    for thread in crowd:
        thread.start()
    until(lambda: ask(f"{house.url('thinker')}/load")[1] == b'{"server_load":%d}' % QUEUE, 60)
    seen = told(client, asked("auto", False))
    with pytest.raises(openai.InternalServerError) as failed:
        told(client, asked("thinker", True))
    for thread in crowd:
        thread.join()
    assert seen.headers["x-lowpass-model"] == "plain"
    assert (failed.value.status_code, failed.value.code) == (503, "saturated")
    assert house.last("thinker")["attempts"][0]["upstream_status"] == 503
    assert told(client, asked("thinker", False)).choices[0].text


@pytest.mark.timeout(600)
@each_row("title", ["VLLM::Worker", "vllm.entrypoints"])
def test_a_process_that_is_killed_is_told_and_replaced(house: House, client: openai.OpenAI, title: str) -> None:
    (victim,) = house.children("plain", title)
    with pytest.raises(openai.APIError):
        _read(client, victim)
    assert house.last("plain")["attempts"][0]["outcome"] in ("server_error", "cut")
    assert told(client, asked("auto", False)).choices[0].text
    house.ready("plain")
    until(lambda: _answers(client), 60)
    assert house.engine("plain")["states"][0]["restarts"] > 0


def _told(house: House, metric: str) -> float:
    """Of the engine "plain", on the gateway's page."""
    lines = house.gateway.get("/metrics").body.decode().splitlines()
    found = [line for line in lines if line.startswith(metric) and 'engine="plain"' in line]
    return sum(float(line.rsplit(" ", 1)[1]) for line in found)


def _read(client: openai.OpenAI, victim: int) -> None:
    """A long answer, and kills the process in the middle of it."""
    with client.chat.completions.create(**asked("plain", True, **LONG)) as stream:
        texts = (chunk for chunk in stream if chunk.choices and chunk.choices[0].delta.content)
        next(texts)
        os.kill(victim, signal.SIGKILL)
        for _ in texts:
            pass


def _answers(client: openai.OpenAI) -> bool:
    """Its circuit may be open for a while yet."""
    try:
        return bool(told(client, asked("plain", False)).choices[0].text)
    except openai.InternalServerError:
        return False
