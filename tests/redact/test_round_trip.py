"""A model that repeats what it was sent: the client gets its own words back, which left in no form."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from router.redact.restore import Restorer
from router.types.request import Endpoint, Request
from tests.redact.asking import asked, calling, chat, sent, user, without
from tests.redact.streams import calls, chunk, cut, datas, texts

CHARACTERS = st.characters(exclude_categories=["Cs"])
VALUE = st.text(st.one_of(CHARACTERS, st.sampled_from('"\\\n\t/<>&%{}_é👋')), max_size=12).map("Vq7-{}-zX9".format)
VALUES = st.lists(VALUE, min_size=1, max_size=4, unique=True)
PROSE = st.characters(exclude_categories=["Cs"], exclude_characters="{[")
"""A text that begins as JSON does is taken for JSON."""
WORDS = st.text(st.one_of(PROSE, st.sampled_from('<>&\\_\n"ab ')), max_size=10)
KINDS = st.sampled_from(["identifiers.email", "secrets.key", "names.person", "identifiers.de_tax_id"])
CUTS = st.lists(st.integers(0, 10_000), max_size=30)


def spelt(value: str) -> list[str]:
    """As it stands in texts, in JSON, and in JSON of ASCII only."""
    return [value, json.dumps(value, ensure_ascii=False)[1:-1], json.dumps(value)[1:-1]]


def mixed(data: st.DataObject, values: list[str]) -> str:
    return "".join(data.draw(st.lists(st.one_of(WORDS, st.sampled_from(values)), max_size=6)))


def dumped(data: st.DataObject, value: object) -> str:
    return json.dumps(value, ensure_ascii=data.draw(st.booleans()))


def conversation(data: st.DataObject, values: list[str]) -> Request:
    return chat(
        {"role": "system", "content": [{"type": "text", "text": mixed(data, values)}]},
        user(mixed(data, values)),
        calling(dumped(data, {"a": mixed(data, values), "b": [1, mixed(data, values)]})),
        {"role": "tool", "tool_call_id": "c", "content": dumped(data, [{"r": mixed(data, values)}])},
        metadata={"k": mixed(data, values)},
    )


def hidden(data: st.DataObject, request: Request, values: list[str]) -> tuple[Request, Any]:
    """The request without the values, of which nothing is left in any form."""
    forms = [form for value in values for form in spelt(value)]
    redacted, known = without(request, {form: data.draw(KINDS) for form in forms})
    assert not [form for form in forms if form.encode() in sent(redacted)]
    return redacted, known


@settings(deadline=None)
@given(st.data(), VALUES)
def test_no_value_is_left_in_what_is_sent_and_every_one_comes_back(data: st.DataObject, values: list[str]) -> None:
    request = conversation(data, values)
    redacted, known = hidden(data, request, values)
    back = Restorer(known).body({field: redacted.body[field] for field in ("messages", "metadata")})
    for field in back:
        assert _plain(json.loads(bytes(back[field]))) == _plain(json.loads(bytes(request.body[field])))


@settings(deadline=None)
@given(st.data(), VALUES)
def test_a_stream_that_repeats_the_request_brings_it_back(data: st.DataObject, values: list[str]) -> None:
    request = conversation(data, values)
    redacted, known = hidden(data, request, values)
    message, call = _spoken(redacted)
    events = [chunk(content=piece) for piece in cut(message, data.draw(CUTS))]
    events += [calls(0, 0, piece) for piece in cut(call, data.draw(CUTS))]
    restorer = Restorer(known)
    out = b"".join(map(restorer.feed, [*events, chunk(finish="tool_calls")]))
    deltas = [event["choices"][0]["delta"] for event in datas(out)]
    arguments = "".join(one["function"]["arguments"] for delta in deltas for one in delta.get("tool_calls", ()))
    content, called = _spoken(request)
    assert _plain("".join(texts(out, "content"))) == _plain(content)
    assert json.loads(arguments) == json.loads(called)


@settings(deadline=None)
@given(st.data(), VALUES)
def test_what_is_asked_as_a_response_is_redacted_in_both_of_its_forms(data: st.DataObject, values: list[str]) -> None:
    arguments = dumped(data, {"a": mixed(data, values)})
    items = [
        user(mixed(data, values) or "x"),
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments},
        {"type": "function_call_output", "call_id": "c", "output": json.dumps({"r": mixed(data, values)})},
    ]
    request = asked(Endpoint.RESPONSES, input=items, instructions=mixed(data, values) or "x")
    assert request.chat is not None
    redacted, known = hidden(data, request, values)
    back = Restorer(known).body({"input": redacted.body["input"]})
    assert _plain(json.loads(bytes(back["input"]))) == _plain(items)


def _spoken(request: Request) -> tuple[str, str]:
    messages = json.loads(bytes(request.body["messages"]))
    return messages[1]["content"], messages[2]["tool_calls"][0]["function"]["arguments"]


def _plain(value: Any) -> Any:
    """JSON inside of strings may come back in other escapes: what it says is the same."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    try:
        return json.loads(value) if isinstance(value, str) and value.startswith(("{", "[")) else value
    except json.JSONDecodeError:
        return value
