"""A request that may not leave as it is leaves with placeholders, and its answer comes back with values."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest

from router.testing.upstream import Answer, Ask, Behaviour, Break, Tokens, Upstream
from router.testing.upstream.behaviours import ScriptedCall
from tests.gateway.running import Gateway, ordered, serving, target, user
from tests.tables import each_row

PLACEHOLDER = re.compile(r"[<][A-Z_0-9]+_[A-Z2-7]{8,}[>]")
REPEATS = 100
"""How often a "long" answer says the same."""
MAIL, IBAN = "jane.roe@mail.example", "DE89 3704 0044 0532 0130 00"
TEXT = f"Write to {MAIL}, account {IBAN}."
SAID = f"To {MAIL} and {IBAN}, greetings."
MESSAGES = user(TEXT)


class Echo(Upstream):
    """Repeats the placeholders that it was sent: in text, in arguments, in thoughts; letter by letter.

    The model's name says how: "text", "call", "cut" (breaks off midway), "long" (slow, heeds its cap).
    """

    @property
    def bodies(self) -> list[str]:
        return [request.body.decode() for request in self.requests]

    def behaviour(self, ask: Ask) -> Behaviour:
        model = ask.behaviour
        text = f"To {' and '.join(PLACEHOLDER.findall(json.dumps(ask.body)))}, greetings."
        answer, tokens = Answer(text=tuple(text), reasoning=tuple(f"Hm, {text}")), Tokens(uncached=20, visible=10)
        if model == "long":
            text *= REPEATS
            most, body = len(text) // 3, ask.body
            count = min(most, body.get("max_completion_tokens") or body.get("max_tokens") or most)
            pieces = tuple(text[start : start + 3] for start in range(0, count * 3, 3))
            answer = Answer(text=pieces, finish="length" if count < most else "stop")
            tokens = Tokens(uncached=20, visible=count)
        if model == "call":
            answer = Answer(calls=(ScriptedCall("c1", "send", json.dumps({"to": text}), 1),), finish="tool_calls")
        breaks, pause_s = Break.CUT if model == "cut" else None, 0.0005 if model == "long" else 0
        return Behaviour(answer=lambda *_: answer, tokens=tokens, breaks=breaks, pause_s=pause_s)


server = Echo


def policy(url: str) -> dict[str, Any]:
    priced = {"price": {"input": 1, "output": 100}, "region": "us", "flavour": "xai"}
    targets = {name: target(url, name, **priced) for name in ("text", "call", "cut")}
    targets["long"] = target(url, "long", max_output=4_000, abandoned="cancel", **priced)
    targets["claude"] = {**target(url, "text", provider="anthropic", **priced), "base_url": url}
    targets["at-home"] = target(url, "text", provider="vllm", flavour="vllm")
    # Without a Responses endpoint of its own: it is asked by chat.
    targets["translated"] = target(url, "text", provider="groq", **priced)
    classes = {"internal": {}, "people": {"regions": ["eu"], "redact": "needed"}}
    sensitivity = {"classes": classes, "detectors": [{"kind": "identifiers", "class": "people"}]}
    budgets = [{"id": "tiny", "limit_usd": 0.2, "scope": "session", "tags": ["tiny"]}]
    routes = {"home": ordered("at-home")}
    return {"version": 1, "targets": targets, "routes": routes, "sensitivity": sensitivity, "budgets": budgets}


@pytest.fixture
def client(gateway: Gateway, upstream: Echo) -> Iterator[openai.OpenAI]:
    """Afterwards: the upstream saw placeholders only, and neither log nor ledger has a value."""
    with gateway.client() as client:
        yield client
    for body in upstream.bodies:
        assert len(set(PLACEHOLDER.findall(body))) == 2
        assert (MAIL in body, "0532" in body) == (False, False)
    assert (MAIL in gateway.log.read_text(), MAIL.encode() in gateway.stored()) == (False, False)


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
def test_a_whole_answer_and_one_of_as_many_chunks_as_it_has_letters(client: openai.OpenAI, model: str) -> None:
    answer = chat(client, model)
    assert (answer.choices[0].message.content, answer.usage.completion_tokens) == (SAID, 10)
    chunks = list(chat(client, model, stream=True, stream_options={"include_usage": True}))
    whole = streamed(chunks)
    assert (whole["content"], chunks[-1].usage.completion_tokens) == (SAID, 10)
    assert whole["reasoning_content"] in ("", f"Hm, {SAID}")


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
    with pytest.raises(openai.APIError):
        chunks.extend(chat(client, "cut", stream=True))
    text, whole = streamed(chunks)["reasoning_content"], f"Hm, {SAID}"
    assert text.startswith(f"Hm, To {MAIL}")
    assert whole.startswith(text.rpartition("<")[0] or text)


@each_row("stream", [False, True])
def test_answers_that_their_budget_cuts_off(client: openai.OpenAI, stream: bool) -> None:
    """Two share what does not pay for both: they are metered, folded, and closed by us, or else given a cap."""
    chat(client, "long", max_completion_tokens=20)  # its target is seen to keep caps
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


@each_row("model, redacted, classes", [("home", 0, "internal,people"), ("text", 1, "internal")])
def test_the_row_says_what_was_sent(gateway: Gateway, upstream: Echo, model: str, redacted: int, classes: str) -> None:
    """What may be seen is sent as it is."""
    reply = gateway.chat(model, TEXT)
    assert (reply.status, MAIL in upstream.bodies[-1]) == (200, not redacted)
    (attempt,) = gateway.settled(reply.id)["attempts"]
    assert (attempt["redacted"], attempt["classes"]) == (redacted, classes)
    assert not redacted or attempt["region"] == "us"


def placeholders(gateway: Gateway, upstream: Echo, text: str, session: str = "") -> list[str]:
    headers = {"x-lowpass-session": session} if session else {}
    assert gateway.chat("text", text, headers).status == 200
    body = upstream.bodies[-1]
    assert (MAIL in body, IBAN in body) == (False, False)
    return PLACEHOLDER.findall(body)


def test_a_value_has_one_placeholder_in_every_turn_of_a_session_and_others_elsewhere(
    gateway: Gateway, upstream: Echo
) -> None:
    """Without a session every request is one of its own."""
    first = placeholders(gateway, upstream, f"Mail {MAIL}.", "turns")
    second = placeholders(gateway, upstream, f"Pay {IBAN}, and mail {MAIL} again.", "turns")
    others = [placeholders(gateway, upstream, f"Mail {MAIL}.", session) for session in ("other", "", "")]
    assert second[1:] == first
    assert [len(sent) for sent in (first, *others)] == [1] * 4
    assert len({*first, *(sent[0] for sent in others)}) == 4


def test_a_session_goes_on_after_a_restart_and_another_gateway_has_other_placeholders(
    tmp_path: Path, upstream: Echo
) -> None:
    """They hang on a secret of the gateway, not on what it remembers."""
    sent = []
    for home in ("one", "two", "one"):
        with serving(tmp_path / home, policy(upstream.url)) as gateway:
            sent.append(placeholders(gateway, upstream, f"Mail {MAIL}.", "s"))
    assert sent[0] == sent[2] != sent[1]
