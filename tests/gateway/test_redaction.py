"""A request that may not leave as it is leaves with placeholders, and its answer comes back with values."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.gateway.echo import PLACEHOLDER, REPEATS, Echo
from tests.gateway.running import Gateway, ordered, serving, target
from tests.tables import each_row

server = Echo
MAIL, IBAN = "jane.roe@mail.example", "DE89 3704 0044 0532 0130 00"
TEXT = f"Write to {MAIL}, account {IBAN}."
SAID = f"To {MAIL} and {IBAN}, greetings."
MESSAGES: list[Any] = [{"role": "user", "content": TEXT}]


def policy(url: str) -> dict[str, Any]:
    priced = {"price": {"input": 1, "output": 100}, "region": "us", "flavour": "xai"}
    targets = {name: target(url, name, **priced) for name in ("text", "call", "cut")}
    targets["long"] = target(url, "long", max_output=4_000, **priced)
    targets["claude"] = {**target(url, "text", provider="anthropic", **priced), "base_url": url}
    targets["at-home"] = target(url, "text", provider="vllm", flavour="vllm")
    # Without a Responses endpoint of its own: it is asked by chat.
    targets["translated"] = target(url, "text", provider="groq", **priced)
    return {
        "version": 1,
        "targets": targets,
        "routes": {"home": ordered("at-home")},
        "sensitivity": {
            "default": "internal",
            "classes": {"internal": {}, "people": {"regions": ["eu"], "redact": "needed"}},
            "detectors": [{"kind": "identifiers", "class": "people"}],
        },
        "budgets": [{"id": "tiny", "limit_usd": 0.2, "scope": "session", "tags": ["tiny"]}],
    }


@pytest.fixture
def client(gateway: Gateway, upstream: Echo) -> Iterator[openai.OpenAI]:
    """Afterwards: the upstream saw placeholders only, and neither log nor ledger has a value."""
    with gateway.client() as client:
        yield client
    for body in upstream.bodies:
        assert len(set(PLACEHOLDER.findall(body))) == 2
        assert MAIL not in body
        assert "0532" not in body
    assert MAIL not in gateway.log.read_text()
    assert MAIL.encode() not in gateway.stored()


def chat(client: openai.OpenAI, model: str, **fields: Any) -> Any:
    return client.chat.completions.create(model=model, messages=MESSAGES, **fields)


def streamed(chunks: Any) -> dict[str, str]:
    """Every text of a stream, put together as a client does."""
    whole = {"content": "", "reasoning_content": "", "arguments": ""}
    for delta in (choice.delta.model_dump() for chunk in chunks for choice in chunk.choices):
        for name in ("content", "reasoning_content"):
            whole[name] += delta.get(name) or ""
        for call in delta.get("tool_calls") or ():
            whole["arguments"] += call["function"]["arguments"] or ""
    return whole


@each_row("model", ["text", "claude", "translated"])
def test_a_whole_answer(client: openai.OpenAI, model: str) -> None:
    answer = chat(client, model)
    assert (answer.choices[0].message.content, answer.usage.completion_tokens) == (SAID, 10)


@each_row("model", ["text", "claude"])
def test_a_placeholder_over_as_many_chunks_as_it_has_letters(client: openai.OpenAI, model: str) -> None:
    chunks = list(chat(client, model, stream=True, stream_options={"include_usage": True}))
    whole = streamed(chunks)
    assert whole["content"] == SAID
    assert whole["reasoning_content"] in ("", f"Hm, {SAID}")
    assert chunks[-1].usage.completion_tokens == 10


@each_row("stream", [False, True])
def test_the_arguments_of_a_tool_call(client: openai.OpenAI, stream: bool) -> None:
    answer = chat(client, "call", stream=stream)
    whole = None if stream else answer.choices[0].message.tool_calls[0].function.arguments
    assert json.loads(whole or streamed(answer)["arguments"]) == {"to": SAID}


@each_row("model", ["text", "translated"])
def test_responses(client: openai.OpenAI, model: str) -> None:
    """Asked for as such, and as chat. What the provider repeats of the request is restored as well."""
    fields: Any = {"model": model, "input": "Hello.", "instructions": TEXT}
    answer = client.responses.create(**fields)
    assert (answer.output_text, answer.instructions) == (SAID, TEXT)
    events = list(client.responses.create(**fields, stream=True))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == SAID
    assert [event.text for event in events if event.type == "response.output_text.done"] == [SAID]
    last: Any = events[-1]
    assert (last.type, last.response.output_text, last.response.instructions) == ("response.completed", SAID, TEXT)
    assert not any(PLACEHOLDER.search(event.model_dump_json()) for event in events)
    numbers = [event.sequence_number for event in events]
    assert numbers == sorted(set(numbers))


def test_an_answer_that_breaks_off_in_the_middle_of_a_placeholder(client: openai.OpenAI) -> None:
    """It ends with an error, and with every letter that had come."""
    chunks: list[Any] = []

    def collect() -> None:
        for chunk in chat(client, "cut", stream=True):
            chunks.append(chunk)  # noqa: PERF402

    with pytest.raises(openai.APIError):
        collect()
    text, whole = streamed(chunks)["reasoning_content"], f"Hm, {SAID}"
    assert text.startswith(f"Hm, To {MAIL}")
    assert whole.startswith(text.rpartition("<")[0] or text)


@each_row("stream", [False, True])
def test_answers_that_their_budget_cuts_off(client: openai.OpenAI, stream: bool) -> None:
    """Two share what does not pay for both: they are metered, folded, and closed by us, or else given a cap."""
    headers = {"x-lowpass-tags": "tiny", "x-lowpass-session": f"s-{stream}"}

    def ask(_: int) -> str:
        answer = chat(client, "long", stream=stream, extra_headers=headers)
        whole = None if stream else answer.choices[0].message.content
        return whole or streamed(answer)["content"]

    with ThreadPoolExecutor() as pool:
        texts = list(pool.map(ask, range(2)))
    assert min(map(len, texts)) < len(SAID * REPEATS)
    for text in texts:
        assert MAIL in text
        assert (SAID * REPEATS).startswith(text.rpartition("<")[0] or text)


@each_row("model, expected", [("home", (0, "internal,people", None)), ("text", (1, "internal", "us"))])
def test_the_row_says_what_was_sent(
    gateway: Gateway, upstream: Echo, model: str, expected: tuple[int, str, str | None]
) -> None:
    """What may be seen is sent as it is."""
    reply = gateway.chat(model, TEXT)
    assert (reply.status, MAIL in upstream.bodies[-1]) == (200, model == "home")
    (attempt,) = gateway.settled(reply.id)["attempts"]
    assert (attempt["redacted"], attempt["classes"]) == expected[:2]
    assert expected[2] in (None, attempt["region"])


def placeholders(gateway: Gateway, upstream: Echo, text: str, session: str = "") -> list[str]:
    """Those that the provider got."""
    headers = {"x-lowpass-session": session} if session else {}
    assert gateway.chat("text", text, headers).status == 200
    body = upstream.bodies[-1]
    assert MAIL not in body
    assert IBAN not in body
    return PLACEHOLDER.findall(body)


def test_a_value_has_one_placeholder_in_every_turn_of_a_session(gateway: Gateway, upstream: Echo) -> None:
    first = placeholders(gateway, upstream, f"Mail {MAIL}.", "turns")
    second = placeholders(gateway, upstream, f"Pay {IBAN}, and mail {MAIL} again.", "turns")
    assert (len(first), second[1:]) == (1, first)


@each_row("session", ["other", ""])
def test_another_session_has_others(gateway: Gateway, upstream: Echo, session: str) -> None:
    """Without a session every request is one of its own."""
    first = placeholders(gateway, upstream, f"Mail {MAIL}.", "one" if session else "")
    second = placeholders(gateway, upstream, f"Mail {MAIL}.", session)
    assert len(first) == len(second) == 1
    assert first != second


def test_a_session_goes_on_after_a_restart_and_another_gateway_has_other_placeholders(
    tmp_path: Path, upstream: Echo
) -> None:
    """They hang on a secret of the gateway, not on what it remembers."""
    sent = []
    for home in ("one", "two", "one"):
        with serving(tmp_path / home, policy(upstream.url)) as gateway:
            sent.append(placeholders(gateway, upstream, f"Mail {MAIL}.", "s"))
    assert sent[0] == sent[2] != sent[1]
