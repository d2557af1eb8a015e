"""A chat with a model that only completes texts: what is sent, and what comes back, whole and streamed."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from router.errors import UpstreamFailure
from router.types.attempt import Call, ErrorKind, Usage
from router.types.request import Endpoint, Languages
from router.types.target import PROMPT_VARIABLES, Prompt, Quirks
from tests.adapters.calls import ADAPTER, USAGE, call, events, fails, fed, message, sse
from tests.tables import each_row

TEMPLATE = "Into {{ target or 'French' }}.\n{{ source }}: {{ text }}\n{{ target }}:\n"
KNOWN = Languages("en", "fr", "English", "French", "Good morning.")
TURNS = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Into French: Good morning."}]


def chat(template: str = TEMPLATE, *, stop: tuple[str, ...] = (), **fields: Any) -> Call:
    languages = fields.pop("languages", KNOWN)
    asked = call({"messages": TURNS, **fields.pop("body", {})}, **fields)
    target = structs.replace(asked.target, prompt=Prompt(template=template, stop=stop))
    return structs.replace(asked, target=target, languages=languages)


def sent(asked: Call) -> dict[str, Any]:
    request = ADAPTER.encode(asked)
    assert request.path == "/completions"
    return msgspec.json.decode(request.body, type=dict[str, Any])


def whole(text: str, finish: str = "stop") -> bytes:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
    return msgspec.json.encode({"id": "cmpl-1", "object": "text_completion", "choices": [choice], "usage": USAGE})


def piece(text: str, finish: str | None = None) -> dict[str, Any]:
    head = {"id": "cmpl-1", "object": "text_completion", "created": 7, "model": "served-1"}
    return {**head, "choices": [{"index": 0, "text": text, "finish_reason": finish}]}


def test_the_template_is_sent_with_what_it_asks_for_and_nothing_of_the_chat() -> None:
    given = {"temperature": 0.5, "max_completion_tokens": 7, "n": 1, "echo": True, "tools": []}
    body = sent(chat(body=given, private=True, quirks=Quirks(private={"retain": False})))
    prompt = "Into French.\nEnglish: Good morning.\nFrench:"
    assert body == {"model": "served-1", "prompt": prompt, "temperature": 0.5, "max_tokens": 7, "retain": False}


PARTS = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
NOTHING: dict[str, Any] = {"languages": Languages(), "body": {"messages": [{"role": "assistant", "content": None}]}}
EVERY = "".join(f"{{{{ {name} }}}}" for name in PROMPT_VARIABLES)


@each_row(
    "template, fields, prompt",
    [
        ("{{ input }}", {}, "Into French: Good morning."),
        ("{{ input }}", {"body": {"messages": [{"role": "user", "content": PARTS}]}}, "one\ntwo"),
        (EVERY, NOTHING, "[{'role': 'assistant', 'content': ''}]"),
        ("{{ system }}|{{ source_code }}|{{ target_code }}", {}, "Be kind.|en|fr"),
        ("{% for m in messages %}\n{{ m.role }}: {{ m.content[:4] }}\n{% endfor %}", {}, "system: Be k\nuser: Into\n"),
        ("{% if target %}\n  {{ target }}\n{% endif %}end\n", {}, "  French\nend"),
        ("<b>{{ '&' }}</b>", {}, "<b>&</b>"),
    ],
)
def test_what_templates_hold(template: str, fields: dict[str, Any], prompt: str) -> None:
    """Every variable, even where nothing is known."""
    assert sent(chat(template, **fields))["prompt"] == prompt


@each_row(
    "asked, own, stop",
    [(None, (), None), ("END", (), ["END"]), (["A", "\n"], ("\n", "B"), ["A", "\n", "B"]), (None, ("\n",), ["\n"])],
)
def test_the_client_and_the_template_both_say_where_it_ends(asked: object, own: tuple[str, ...], stop: object) -> None:
    assert sent(chat(stop=own, body={} if asked is None else {"stop": asked})).get("stop") == stop


@each_row(
    "body, bound, cap",
    [({}, None, 8_000), ({}, 5, 5), ({"max_tokens": 9}, None, 9), ({"max_completion_tokens": None}, None, 8_000)],
)
def test_an_engine_is_always_told_how_much_it_may_write(body: dict[str, Any], bound: int | None, cap: int) -> None:
    assert sent(chat(body=body, max_output=bound))["max_tokens"] == cap


@each_row("template", ["{{ messages[7].content }}", "{{ 1 // 0 }}", "{{ unknown }}", "{{ input.__class__.mro() }}"])
def test_a_template_that_fails_is_no_fault_of_the_client_and_quotes_nothing(template: str) -> None:
    with pytest.raises(UpstreamFailure) as caught:
        ADAPTER.encode(chat(template))
    failure = caught.value.failure
    assert (failure.kind, "morning" in failure.message) == (ErrorKind.BAD_RESPONSE, False)


def test_other_endpoints_are_asked_as_ever() -> None:
    asked = chat(endpoint=Endpoint.COMPLETIONS, body={"prompt": "Once"})
    assert sent(asked)["prompt"] == "Once"
    assert msgspec.json.decode(ADAPTER.decode(asked, whole(" upon")).body["choices"])[0]["text"] == " upon"


def test_a_whole_answer_is_a_chat_s() -> None:
    reply = ADAPTER.decode(chat(), whole("\n Bonjour. ", "length"))
    body = {name: msgspec.json.decode(raw) for name, raw in reply.body.items()}
    assert (body["object"], body["model"], "usage" in body) == ("chat.completion", "auto", False)
    assert body["choices"][0]["message"] == {"role": "assistant", "content": "Bonjour. ", "refusal": None}
    assert (reply.finish_reason, body["choices"][0]["finish_reason"]) == ("length", "length")
    assert reply.usage == Usage(input_uncached=10, output_visible=4)
    assert reply.has_answer
    assert not ADAPTER.decode(chat(), whole(" \n")).has_answer, "blanks alone are no answer"


@given(
    pieces=st.lists(st.sampled_from([" ", "\n", "Bon", "jour", '"', "é👋", ""]), max_size=6),
    cuts=st.lists(st.integers(0, 2_000), max_size=5),
    wanted=st.booleans(),
)
def test_a_stream_is_a_chat_s_however_it_is_cut(pieces: list[str], cuts: list[int], wanted: bool) -> None:
    data = sse(*map(piece, pieces), piece("", "stop"), {**piece(""), "choices": [], "usage": USAGE}, "[DONE]")
    decoder = ADAPTER.stream(chat(stream=True, stream_usage=wanted))
    chunks = fed(decoder, data, cuts)
    *ends, done = events(decoder.final(b'{"total_tokens":14}'))
    chunks += ends
    assert done == "[DONE]"
    text = "".join(pieces).lstrip()
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert {chunk["model"] for chunk in chunks} == {"auto"}
    assert message(chunks) == {"role": "assistant", "content": text}
    assert (decoder.finished, decoder.finish_reason, decoder.has_answer) == (True, "stop", bool(text))
    assert decoder.usage == Usage(input_uncached=10, output_visible=4)
    assert decoder.output_chars == len("".join(pieces).encode())
    assert [chunk["usage"] for chunk in chunks if chunk.get("usage")] == [{"total_tokens": 14}] * wanted


def test_an_error_in_a_stream_is_one() -> None:
    decoder = ADAPTER.stream(chat(stream=True))
    with fails(ErrorKind.SERVER_ERROR):
        decoder.feed(sse(piece("Bon"), {"error": {"message": "out of memory", "code": 500}}))
    assert not decoder.finished
