"""What comes back has values where placeholders were, wherever the chunks are cut; what left had them in no form."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from router.redact.restore import Restorer
from router.types.request import Endpoint, Request
from tests.redact.wire import (
    asked,
    calling,
    calls,
    chat,
    chunk,
    contents,
    cut,
    datas,
    deltas,
    folded,
    frame,
    responses,
    sent,
    user,
    without,
)
from tests.tables import each_row

MAIL, SECRET, NAME = "<EMAIL_K4Q7ZB2M>", "<SECRET_ABCDEFGH>", "<DE_TAX_ID_ZYXWVUTS>"
VALUES = {MAIL: "jane@example.org", SECRET: 'q"u\\o\nt€ 👋', NAME: "12 345 678 901"}


def body(**message: Any) -> dict[str, Raw]:
    choices = [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}]
    return {"id": Raw(b'"x"'), "choices": Raw(msgspec.json.encode(choices))}


def streamed(text: str) -> str:
    """What a client reads where each letter comes in a chunk of its own."""
    events = b"".join(chunk(content=letter) for letter in text) + chunk(finish="stop")
    return "".join(contents(Restorer(VALUES).feed(events)))


def restored(**message: Any) -> dict[str, Any]:
    return dict(json.loads(bytes(Restorer(VALUES).body(body(**message))["choices"]))[0]["message"])


SPELT = {
    **{"as it is": MAIL, "small letters": MAIL.lower(), "without its marks": MAIL[1:-1]},
    **{"HTML": "&lt;EMAIL_K4Q7ZB2M&gt;", "HTML in numbers": "&#60;EMAIL_K4Q7ZB2M&#62;"},
    "Markdown": r"\<EMAIL\_K4Q7ZB2M\>",
    "Markdown without marks": r"EMAIL\_K4Q7ZB2M",
    "JSON's escapes": r"\u003cEMAIL_K4Q7ZB2M\u003e",
    "JSON in JSON": r"\\u003CEMAIL_K4Q7ZB2M\\u003E",
    "a link": "%3CEMAIL_K4Q7ZB2M%3e",
}


@each_row("spelt", SPELT.values(), ids=[*SPELT])
@each_row("around", ["{}", "To {}.", "a={}&b", "my_{}s", "邮箱{}是", "`{}`", "<p>{}</p>", "{}{}", "x > {}"])
def test_placeholders_are_known_however_models_write_them(spelt: str, around: str) -> None:
    text, wanted = around.replace("{}", spelt), around.replace("{}", VALUES[MAIL])
    assert restored(content=text)["content"] == streamed(text) == wanted


UNKNOWN = ["<EMAIL>", "<EMAIL_K4Q7ZB2>", "<EMAIL_K4Q7ZB2N>", "<PHONE_K4Q7ZB2M>", "XEMAIL_K4Q7ZB2M", "K4Q7ZB2M"]


@each_row("text", [*UNKNOWN, "a < b && c > d; 100% \\<br> e", "EMAIL _K4Q7ZB2M"])
def test_nothing_is_put_where_no_placeholder_is(text: str) -> None:
    assert restored(content=text)["content"] == streamed(text) == text


def test_every_string_of_a_whole_answer_is_restored() -> None:
    function = {"name": f"to_{MAIL[1:-1]}", "arguments": f'{{"a": "{SECRET}"}}'}
    call = {"id": "c", "type": "function", "function": function}
    message = restored(content=MAIL, refusal=f"not {NAME}", reasoning_content=f"{MAIL}?", tool_calls=[call])
    function = message.pop("tool_calls")[0]["function"]
    expected = {"content": VALUES[MAIL], "refusal": f"not {VALUES[NAME]}", "reasoning_content": f"{VALUES[MAIL]}?"}
    assert message == {"role": "assistant"} | expected
    assert json.loads(function["arguments"]) == {"a": VALUES[SECRET]}
    assert function["name"] == f"to_{VALUES[MAIL]}"


@each_row("text", ['{"a": "%s"}', ' [{"a": "%s"}]', '\n["%s", 1]', '[["%s"]]'])
def test_an_answer_that_is_json_stays_json(text: str) -> None:
    """Nothing but its beginning says so."""
    whole = restored(content=text % SECRET)["content"]
    assert json.loads(whole) == json.loads(text % json.dumps(VALUES[SECRET])[1:-1])
    assert streamed(text % SECRET) == whole


def test_log_probabilities_stay_those_of_the_model_s_tokens() -> None:
    logprobs = {"content": [{"token": MAIL, "logprob": -1}]}
    choices = [{"index": 0, "message": {"content": MAIL}, "logprobs": logprobs}]
    whole = Restorer(VALUES).body({"choices": Raw(msgspec.json.encode(choices))})
    assert json.loads(bytes(whole["choices"]))[0]["logprobs"] == logprobs


def test_what_holds_no_placeholder_passes_as_it_is() -> None:
    restorer, whole = Restorer(VALUES), body(content="Hello.")
    assert restorer.body(whole) is whole
    for event in (
        b'data: {"id": "x",  "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}\n\n',
        chunk(content="Hello, ") + chunk(content="2 > 1 and so on. "),
        calls(0, 0, '{"city": "Rome"}'),
        frame({"choices": [], "usage": {"total_tokens": 3}}) + b"data: [DONE]\n\n",
        b": a comment\n\n",
        chunk(content="Hello.") + chunk(content="?").replace(b"?", b"half a character: \xf0\x9f"),
        chunk(content="?", refusal="").replace(b"?", b"\xf0\x9f"),
        b"",
    ):
        assert restorer.feed(event) == event
    assert restorer.end() == b""
    nothing, whole = Restorer({}), body(content=f"{MAIL} a_b")
    assert nothing.body(whole) == whole
    assert nothing.feed(chunk(content="a_b < c")) + nothing.end() == chunk(content="a_b < c")


def test_only_what_may_be_a_placeholder_waits_and_is_sent_before_the_choice_ends() -> None:
    restorer = Restorer(VALUES)
    pieces = ("Dear <EM", "AIL_K4Q7", "ZB2M>, a <", "b")
    sent = [contents(restorer.feed(chunk(content=piece))) for piece in pieces]
    assert sent == [["Dear "], [""], [f"{VALUES[MAIL]}, a "], ["<b"]]
    restorer = Restorer(VALUES)
    events = restorer.feed(chunk(content="a <EM") + chunk(finish="stop"))
    assert [event["choices"][0]["finish_reason"] for event in datas(events)] == [None, None, "stop"]
    assert contents(events) == ["a ", "<EM"]
    assert {event["id"] for event in datas(events)} == {"chatcmpl-1"}
    assert restorer.end() == b""


def test_what_waits_is_sent_where_no_event_says_that_it_is_over() -> None:
    restorer = Restorer(VALUES)
    restorer.feed(chunk(0, content="<EM") + calls(1, 2, '{"a": "<'))
    choices = folded(restorer.end())["choices"]
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"arguments": "<"}}]}
    assert [choice["index"] for choice in choices] == [0, 1]
    assert [choice["message"] for choice in choices] == [{"role": "assistant", "content": "<EM"}, call]
    assert {choice["finish_reason"] for choice in choices} == {None}
    assert restorer.end() == b""
    ended = Restorer(VALUES)
    assert ended.feed(chunk(content="<")).count(b"data:") == 1
    assert datas(ended.feed(b"data: [DONE]\n\n"))[0]["choices"][0]["delta"] == {"content": "<"}


def test_a_thought_is_over_when_speech_begins() -> None:
    """What waits of the one comes before the other, as the model wrote it."""
    events = Restorer(VALUES).feed(
        chunk(reasoning_content="so e") + chunk(content="Yes, <") + calls(0, 0, "{}") + chunk(finish="stop")
    )
    kinds = ["reasoning_content", "reasoning_content", "content", "content", "tool_calls"]
    assert [next(iter(delta)) for delta in deltas(events) if delta] == kinds


ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ODD = [*VALUES, *SPELT.values(), "<", "&l", "\\", "EMAIL_", "e"]
PIECES = st.lists(ANY | st.sampled_from(ODD), max_size=8)
CUTS = st.lists(st.integers(0, 10_000), max_size=40)


@settings(deadline=None)
@given(PIECES, CUTS, st.booleans())
def test_a_stream_is_restored_as_the_whole_is(pieces: list[str], cuts: list[int], letters: bool) -> None:
    text = "".join(pieces)
    parts, spoken, completed = list(text) if letters else cut(text, cuts), Restorer(VALUES), Restorer(VALUES)
    chat = [*(chunk(content=part) for part in parts), chunk(finish="stop")]
    whole = restored(content=text)["content"]
    assert "".join(contents(b"".join(map(spoken.feed, chat)))) == whole
    completion = [*(chunk(text=part) for part in parts), chunk(text="", finish="stop")]
    answer = folded(b"".join(map(completed.feed, completion)), Endpoint.COMPLETIONS)
    assert answer["choices"][0]["text"] == whole
    body = Restorer(VALUES).body({"choices": Raw(msgspec.json.encode([{"text": text}]))})
    assert json.loads(bytes(body["choices"])) == [{"text": whole}]


@settings(deadline=None)
@given(st.data())
def test_choices_and_calls_that_interleave_are_restored_each_for_itself(data: st.DataObject) -> None:
    threads: dict[tuple[Any, ...], str] = {}
    for index in range(2):
        threads[index, "content"] = "".join(data.draw(PIECES))
        for number in range(2):
            inside = "".join(data.draw(st.lists(ANY | st.sampled_from([*VALUES]), max_size=4)))
            threads[index, "arguments", number] = json.dumps({"a": inside}, ensure_ascii=data.draw(st.booleans()))
    events = []
    for kind in ("content", "arguments"):
        left = {place: cut(text, data.draw(CUTS)) for place, text in threads.items() if place[1] == kind}
        while left := {place: parts for place, parts in left.items() if parts}:
            place = data.draw(st.sampled_from(sorted(left)))
            part = left[place].pop(0)
            events.append(chunk(place[0], content=part) if kind == "content" else calls(place[0], place[2], part))
    events += [chunk(index, finish="tool_calls") for index in range(2)]
    restorer = Restorer(VALUES)
    grown: dict[tuple[Any, ...], str] = {}
    for event in datas(b"".join(map(restorer.feed, events)) + restorer.end()):
        index, delta = event["choices"][0]["index"], event["choices"][0]["delta"]
        parts: dict[tuple[Any, ...], str] = {(index, "content"): delta.get("content", "")}
        parts |= {(index, "arguments", c["index"]): c["function"]["arguments"] for c in delta.get("tool_calls", ())}
        for place, text in parts.items():
            grown[place] = grown.get(place, "") + text
    for place, text in threads.items():
        if place[1] == "content":
            assert grown.get(place, "") == restored(content=text)["content"]
        else:
            assert json.loads(grown[place]) == _known(json.loads(text))


def _known(value: dict[str, str]) -> dict[str, str]:
    """What a program that knows placeholders only as they are would make of it."""
    text = value["a"]
    for placeholder, known in VALUES.items():
        text = text.replace(placeholder, known)
    return {"a": text}


@each_row("kind", ["output_text", "function_call_arguments", "custom_tool_call_input", "reasoning_text"])
@settings(deadline=None)
@given(pieces=st.lists(ANY | st.sampled_from([*VALUES, "<", "e"]), max_size=6), cuts=CUTS)
def test_native_responses_are_restored_wherever_they_repeat(kind: str, pieces: list[str], cuts: list[int]) -> None:
    text = "".join(pieces)
    text = json.dumps({"a": text}) if kind == "function_call_arguments" else text
    restorer = Restorer(VALUES)
    out = restorer.feed(responses(kind, cut(text, cuts))) + restorer.end()
    events = datas(out)
    done, completed = events[-2], events[-1]
    (whole,) = {value for name, value in done.items() if name in ("text", "arguments", "input")}
    assert "".join(event["delta"] for event in events[:-2]) == whole
    assert whole in completed["response"]["output"][0].values()
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    if kind == "function_call_arguments":
        assert json.loads(whole) == _known(json.loads(text))


CHARACTERS = st.characters(exclude_categories=["Cs"])
VALUE = st.text(st.one_of(CHARACTERS, st.sampled_from('"\\\n\t/<>&%{}_é👋')), max_size=12).map("Vq7-{}-zX9".format)
DRAWN = st.lists(VALUE, min_size=1, max_size=4, unique=True)
PROSE = st.characters(exclude_categories=["Cs"], exclude_characters="{[")
"""A text that begins as JSON does is taken for JSON."""
WORDS = st.text(st.one_of(PROSE, st.sampled_from('<>&\\_\n"ab ')), max_size=10)
KINDS = st.sampled_from(["identifiers.email", "secrets.key", "names.person", "identifiers.de_tax_id"])


def written(value: str) -> list[str]:
    """As it stands in texts, in JSON, and in JSON of ASCII only."""
    return [value, json.dumps(value, ensure_ascii=False)[1:-1], json.dumps(value)[1:-1]]


def mixed(data: st.DataObject, values: list[str]) -> str:
    return "".join(data.draw(st.lists(st.one_of(WORDS, st.sampled_from(values)), max_size=6)))


def dumped(data: st.DataObject, value: object) -> str:
    return json.dumps(value, ensure_ascii=data.draw(st.booleans()))


def requests(data: st.DataObject, values: list[str]) -> Iterator[Request]:
    """A chat and a response that have the values in every kind of place."""
    called = dumped(data, {"a": mixed(data, values), "b": [1, mixed(data, values)]})
    result = dumped(data, [{"r": mixed(data, values)}])
    yield chat(
        {"role": "system", "content": [{"type": "text", "text": mixed(data, values)}]},
        *(user(mixed(data, values)), calling(called), {"role": "tool", "tool_call_id": "c", "content": result}),
        metadata={"k": mixed(data, values)},
    )
    items = [
        user(mixed(data, values) or "x"),
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": called},
        {"type": "function_call_output", "call_id": "c", "output": result},
    ]
    yield asked(Endpoint.RESPONSES, input=items, instructions=mixed(data, values) or "x")


@settings(deadline=None)
@given(st.data(), DRAWN)
def test_no_value_is_left_in_what_is_sent_and_every_one_comes_back(data: st.DataObject, values: list[str]) -> None:
    forms = [form for value in values for form in written(value)]
    for request in requests(data, values):
        redacted, known = without(request, {form: data.draw(KINDS) for form in forms})
        assert not [form for form in forms if form.encode() in sent(redacted)]
        fields = redacted.body.keys() & {"messages", "metadata", "input"}
        back = Restorer(known).body({field: redacted.body[field] for field in fields})
        for field in fields:
            assert _plain(json.loads(bytes(back[field]))) == _plain(json.loads(bytes(request.body[field])))


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
