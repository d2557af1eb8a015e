"""A request that may not leave as it is leaves with placeholders, and its answer comes back with values."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from tests.gateway.echo import PLACEHOLDER, REPEATS, Echo, echoing
from tests.gateway.running import Gateway, ordered, serving, target

MAIL, IBAN = "jane.roe@mail.example", "DE89 3704 0044 0532 0130 00"
TEXT = f"Write to {MAIL}, account {IBAN}."
SAID = f"To {MAIL} and {IBAN}, greetings."
TINY_USD = 0.2


def policy(url: str) -> dict[str, Any]:
    priced = {"price": {"input": 1, "output": 100}, "region": "us", "flavour": "echo"}
    targets = {
        "text": target(url, "text", **priced),
        "call": target(url, "call", **priced),
        "cut": target(url, "cut", **priced),
        "long": target(url, "long", max_output=4_000, **priced),
        "claude": target(url, "text", provider="anthropic", **priced),
        "at-home": target(url, "text", provider="vllm", flavour="home"),
    }
    targets["claude"]["base_url"] = f"{url}/claude"
    # Without a Responses endpoint of its own: it is asked by chat.
    targets["translated"] = target(url, "text", provider="groq", **priced)
    people = {"regions": ["eu"], "redact": "needed"}
    return {
        "version": 1,
        "targets": targets,
        "routes": {"home": ordered("at-home")},
        "sensitivity": {
            "default": "internal",
            "classes": {"internal": {}, "people": people},
            "detectors": [{"kind": "identifiers", "class": "people"}],
        },
        "budgets": [{"id": "tiny", "limit_usd": TINY_USD, "scope": "session", "tags": ["tiny"]}],
    }


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, Echo]]:
    with echoing() as echo, serving(tmp_path_factory.mktemp("redaction"), policy(echo.url)) as gateway:
        yield gateway, echo


@pytest.fixture
def client(running: tuple[Gateway, Echo]) -> Iterator[openai.OpenAI]:
    """Afterwards: the upstream saw placeholders only, and neither log nor ledger has a value."""
    gateway, echo = running
    echo.bodies.clear()
    with gateway.client() as client:
        yield client
    for body in echo.bodies:
        assert len(set(PLACEHOLDER.findall(body))) == 2
        assert MAIL not in body
        assert "0532" not in body
    assert MAIL not in gateway.log.read_text()
    assert MAIL.encode() not in gateway.ledger.read_bytes()
    gateway.check_books()


def chat(client: openai.OpenAI, model: str, **fields: Any) -> Any:
    return client.chat.completions.create(model=model, messages=[{"role": "user", "content": TEXT}], **fields)


def streamed(chunks: Any) -> dict[str, str]:
    """Every text of a stream, put together as a client does."""
    whole = {"content": "", "reasoning_content": "", "arguments": ""}
    for chunk in chunks:
        for choice in chunk.choices:
            delta = choice.delta.model_dump()
            for name in ("content", "reasoning_content"):
                whole[name] += delta.get(name) or ""
            for call in delta.get("tool_calls") or ():
                whole["arguments"] += call["function"]["arguments"] or ""
    return whole


@pytest.mark.parametrize("model", ["text", "claude", "translated"])
def test_a_whole_answer(client: openai.OpenAI, model: str) -> None:
    answer = chat(client, model)
    assert answer.choices[0].message.content == SAID
    assert answer.usage.completion_tokens == 10


@pytest.mark.parametrize("model", ["text", "claude"])
def test_a_placeholder_over_as_many_chunks_as_it_has_letters(client: openai.OpenAI, model: str) -> None:
    chunks = list(chat(client, model, stream=True, stream_options={"include_usage": True}))
    found = streamed(chunks)
    assert found["content"] == SAID
    assert found["reasoning_content"] in ("", f"Hm, {SAID}")
    assert chunks[-1].usage.completion_tokens == 10


@pytest.mark.parametrize("stream", [False, True])
def test_the_arguments_of_a_tool_call(client: openai.OpenAI, stream: bool) -> None:
    answer = chat(client, "call", stream=stream)
    whole = None if stream else answer.choices[0].message.tool_calls[0].function.arguments
    arguments = whole or streamed(answer)["arguments"]
    assert json.loads(arguments) == {"to": SAID}


@pytest.mark.parametrize("model", ["text", "translated"])
@pytest.mark.parametrize("stream", [False, True])
def test_responses(client: openai.OpenAI, model: str, stream: bool) -> None:
    """Asked for as such, and as chat. What the provider repeats of the request is restored as well."""
    if not stream:
        answer = client.responses.create(model=model, input="Hello.", instructions=TEXT)
        assert (answer.output_text, answer.instructions) == (SAID, TEXT)
        return
    events = list(client.responses.create(model=model, input="Hello.", instructions=TEXT, stream=True))
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
    with pytest.raises(openai.APIError):
        chunks.extend(kept(chunks, chat(client, "cut", stream=True)))
    text, whole = streamed(chunks)["reasoning_content"], f"Hm, {SAID}"
    assert text.startswith(f"Hm, To {MAIL}")
    assert whole.startswith(text.rpartition("<")[0] or text)


def kept(chunks: list[Any], stream: Any) -> Iterator[Any]:
    """What came before it broke is in `chunks`."""
    for chunk in stream:
        chunks.append(chunk)
        yield from ()


@pytest.mark.parametrize("stream", [False, True])
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


def test_what_may_be_seen_is_sent_as_it_is(running: tuple[Gateway, Echo]) -> None:
    gateway, echo = running
    echo.bodies.clear()
    reply = gateway.chat("home", TEXT)
    assert reply.status == 200
    assert MAIL in echo.bodies[-1]
    (attempt,) = gateway.settled(reply.headers["x-lowpass-decision"])["attempts"]
    assert (attempt["redacted"], attempt["classes"]) == (0, "internal,people")


def test_the_row_says_what_was_sent(running: tuple[Gateway, Echo]) -> None:
    gateway, _ = running
    reply = gateway.chat("text", TEXT)
    (attempt,) = gateway.settled(reply.headers["x-lowpass-decision"])["attempts"]
    assert (attempt["redacted"], attempt["classes"], attempt["region"]) == (1, "internal", "us")
