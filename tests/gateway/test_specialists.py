"""The shipped example, for real: two engines on the CPU, one that chats and one that only completes texts.

What small models say is nobody's to promise: who was asked, how, and what became of it is.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateway.running import ROOT, Gateway, until

EXAMPLE = ROOT / "policies" / "examples" / "specialists.yaml"
HELLO = "Good morning, my friend."
FRENCH = f"Translate to French: {HELLO}"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    home = tmp_path_factory.mktemp("specialists")
    started = Gateway(home, EXAMPLE.read_text("utf-8"))
    try:
        started.start(within_s=50)
        until(lambda: started.get("/health/ready").status == 200, 50)
        yield started
        started.check_books()
    finally:
        started.stop()


def ask(gateway: Gateway, model: str, text: str, **fields: Any) -> tuple[str, dict[str, str], dict[str, Any]]:
    """The answer, its headers, and its row in the ledger."""
    answer = gateway.client(timeout=50).chat.completions.with_raw_response.create(
        model=model, messages=[{"role": "user", "content": text}], max_tokens=24, **fields
    )
    said = answer.parse()
    assert (said.object, said.model, said.choices[0].message.role) == ("chat.completion", model, "assistant")
    return said.choices[0].message.content or "", dict(answer.headers), gateway.settled(answer.headers["x-request-id"])


def dropped(gateway: Gateway, headers: dict[str, str]) -> dict[str, str]:
    """Who could not be asked, and why: as the decision has it."""
    decision = gateway.get(f"/v1/decisions/{headers['x-lowpass-decision']}").json
    assert {one["reason"] for one in decision["dropped"]} <= {"specialist"}
    return {one["target"]: one["detail"] for one in decision["dropped"]}


@pytest.mark.timeout(180)
def test_a_translation_goes_to_the_specialist_and_comes_back_as_a_chat(gateway: Gateway) -> None:
    said, headers, row = ask(gateway, "auto", FRENCH)
    assert headers["x-lowpass-model"] == "translator"
    assert said == said.lstrip() != ""
    assert not any(word in said for word in ("English:", "French:", "Translation", "{{", "\n"))
    assert (row["task"], row["status"], row["state"]) == ("translation", 200, "settled")
    (attempt,) = row["attempts"]
    assert (attempt["target"], attempt["outcome"]) == ("translator", "ok")
    assert attempt["input_uncached"] + attempt["cache_read"] > 100  # its examples
    assert row["cost"] > 0
    assert set(dropped(gateway, headers)) == {"finder"}


@pytest.mark.timeout(180)
def test_whatever_else_is_asked_goes_to_the_model_that_chats(gateway: Gateway) -> None:
    said, headers, row = ask(gateway, "auto", "What is the capital of France?")
    assert headers["x-lowpass-model"] == "chat"
    assert said
    assert row["attempts"][0]["target"] == "chat"
    assert dropped(gateway, headers) == {
        "translator": "is for translation, and this looks like factual",
        "finder": "is for extraction, and this looks like factual",
    }


@pytest.mark.timeout(180)
def test_a_route_of_one_s_own_says_what_is_wanted(gateway: Gateway) -> None:
    said, headers, _ = ask(gateway, "translate", HELLO)
    assert headers["x-lowpass-model"] == "translator"
    assert said
    assert dropped(gateway, headers) == {}


@pytest.mark.timeout(180)
def test_the_caller_may_say_what_is_wanted(gateway: Gateway) -> None:
    _, headers, row = ask(gateway, "auto", HELLO, extra_headers={"x-lowpass-task": "translation"})
    assert (headers["x-lowpass-model"], row["task"]) == ("translator", "translation")
    _, headers, row = ask(gateway, "auto", FRENCH, metadata={"lowpass_task": "chat"})
    assert (headers["x-lowpass-model"], row["task"]) == ("chat", "chat")
    refused = gateway.chat("translate", FRENCH, {"x-lowpass-task": "summary"})
    assert (refused.status, refused.error["code"]) == (403, "no_eligible_target")
    assert "is for translation, and this is summary" in refused.body.decode()
    refused = gateway.chat("auto", FRENCH, {"x-lowpass-task": "translating"})
    assert (refused.status, refused.error["param"]) == (400, "x-lowpass-task")
    assert "translation" in refused.error["message"]


@pytest.mark.timeout(180)
def test_a_stream_is_a_chat_s_and_its_usage_is_counted(gateway: Gateway) -> None:
    chunks = list(
        gateway.client(timeout=50).chat.completions.create(
            model="translate",
            messages=[{"role": "user", "content": FRENCH}],
            max_tokens=24,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    *said, last = chunks
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert said[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in said)
    assert text == text.lstrip() != ""
    assert said[-1].choices[0].finish_reason in ("stop", "length")
    assert last.usage is not None
    assert last.usage.prompt_tokens > 100


@pytest.mark.timeout(180)
def test_the_responses_endpoint_works_as_chat_does(gateway: Gateway) -> None:
    answer = gateway.client(timeout=50).responses.create(model="extract", input="Anna Meyer wrote on 3 March.")
    assert answer.output_text
    assert answer.output_text == answer.output_text.lstrip()


@pytest.mark.timeout(180)
def test_what_only_chats_can_do_is_not_asked_of_a_template(gateway: Gateway) -> None:
    for fields in ({"n": 2}, {"logprobs": True}, {"response_format": {"type": "json_object"}}):
        refused = gateway.chat("translate", FRENCH, **fields)
        assert (refused.status, refused.error["targets"][0]["reason"]) == (403, "capability")


@pytest.mark.timeout(180)
def test_explain_tells_why_and_models_lists_them(gateway: Gateway) -> None:
    names = {model["id"] for model in gateway.get("/v1/models").json["data"]}
    assert {"chat", "translator", "finder", "auto", "translate", "extract"} <= names
    request = gateway.home / "request.json"
    request.write_text(json.dumps({"model": "auto", "messages": [{"role": "user", "content": "Tell me a joke."}]}))
    status, told = gateway.lowpass("explain", str(request), "--policy", str(gateway.policy))
    assert status == 0
    assert "specialist" in told
    assert "is for translation, and this looks like" in told
