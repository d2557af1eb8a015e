"""Whatever part of a request a value stands in, it is seen, and said where; what nobody can read is said to be so."""

import base64
import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.errors import ClientError
from router.types.request import Endpoint, Modality, Path
from tests.classify.looking import CLASSIFIER, KEY, MAIL, VALUES, chat, classes, classified, findings, sent, texts

CHAT, RESPONSES, COMPLETIONS, EMBEDDINGS = Endpoint
HERE = "it-stands-here"
"""Stands for the value in a body."""
PLAIN: list[dict[str, Any]] = [{"role": "user", "content": "hello"}]
PICTURE = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8).decode()


def _inline(text: str, kind: str = "text/plain") -> str:
    return f"data:{kind};base64," + base64.b64encode(text.encode()).decode()


def _message(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "hello"} | fields]}


def _tool(**fields: Any) -> dict[str, Any]:
    return {"messages": PLAIN, "tools": [{"type": "function", "function": {"name": "f"} | fields}]}


def _call(**fields: Any) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"} | fields}
    answer = {"role": "assistant", "content": None, "tool_calls": [call]}
    return {"messages": [*PLAIN, answer, {"role": "tool", "tool_call_id": "c", "content": "done"}]}


def _items(*items: dict[str, Any]) -> dict[str, Any]:
    return {"input": [*PLAIN, *items]}


# endpoint, body, path; HERE is where the value stands.
PLACES: dict[str, tuple[Endpoint, dict[str, Any], Path]] = {
    "system": (CHAT, {"messages": [{"role": "system", "content": HERE}, *PLAIN]}, ("messages", 0, "content")),
    "message": (CHAT, _message(content=HERE), ("messages", 0, "content")),
    "part": (CHAT, _message(content=[{"type": "text", "text": HERE}]), ("messages", 0, "content", 0, "text")),
    "refusal": (CHAT, _message(refusal=HERE), ("messages", 0, "refusal")),
    "name": (CHAT, _message(name=HERE), ("messages", 0, "name")),
    "unknown field of a message": (CHAT, _message(thoughts={"a": [HERE]}), ("messages", 0, "thoughts", "a", 0)),
    "unknown key of a message": (CHAT, _message(**{HERE: 1}), ("messages", 0, HERE)),
    "role": (CHAT, _message(role=HERE), ()),
    "name of a file": (
        CHAT,
        _message(content=[{"type": "file", "file": {"file_data": "data:a/b;base64," + PICTURE, "filename": HERE}}]),
        ("messages", 0, "content", 0, "file", "filename"),
    ),
    "link": (
        CHAT,
        _message(content=[{"type": "image_url", "image_url": {"url": f"https://x.io/?q={HERE}"}}]),
        ("messages", 0, "content", 0, "image_url", "url"),
    ),
    "tool call": (
        CHAT,
        _call(arguments=json.dumps({"a": HERE})),
        ("messages", 1, "tool_calls", 0, "function", "arguments"),
    ),
    "name of a tool call": (CHAT, _call(name=HERE), ("messages", 1, "tool_calls", 0, "function", "name")),
    "tool result": (
        CHAT,
        {"messages": [*PLAIN, {"role": "tool", "tool_call_id": "c", "content": json.dumps({"a": {"b": HERE}})}]},
        ("messages", 1, "content"),
    ),
    "description of a tool": (CHAT, _tool(description=HERE), ("tools", 0, "function", "description")),
    "default of a parameter": (
        CHAT,
        _tool(parameters={"properties": {"a": {"default": HERE}}}),
        ("tools", 0, "function", "parameters", "properties", "a", "default"),
    ),
    "schema": (
        CHAT,
        {"messages": PLAIN, "response_format": {"type": "json_schema", "json_schema": {"name": HERE}}},
        ("response_format", "json_schema", "name"),
    ),
    "metadata": (CHAT, {"messages": PLAIN, "metadata": {"ticket": HERE}}, ("metadata", "ticket")),
    "user": (CHAT, {"messages": PLAIN, "user": HERE}, ("user",)),
    "stop": (CHAT, {"messages": PLAIN, "stop": [HERE]}, ("stop", 0)),
    "unknown field": (CHAT, {"messages": PLAIN, "extra": {"deep": [[HERE]]}}, ("extra", "deep", 0, 0)),
    "prediction": (
        CHAT,
        {"messages": PLAIN, "prediction": {"type": "content", "content": HERE}},
        ("prediction", "content"),
    ),
    "input": (RESPONSES, {"input": HERE}, ("messages", 0, "content")),
    "instructions": (RESPONSES, {"input": "hello", "instructions": HERE}, ("messages", 0, "content")),
    "input part": (
        RESPONSES,
        _items({"role": "user", "content": [{"type": "input_text", "text": HERE}]}),
        ("messages", 1, "content"),
    ),
    "call in an input": (
        RESPONSES,
        _items({"type": "function_call", "call_id": "c", "name": "f", "arguments": json.dumps({"a": HERE})}),
        ("input", 1, "arguments"),
    ),
    "item that only OpenAI knows": (
        RESPONSES,
        _items({"type": "web_search_call", "id": "w", "action": {"query": HERE}}),
        ("input", 1, "action", "query"),
    ),
    "instructions beside a stored prompt": (
        RESPONSES,
        {"input": "hello", "instructions": HERE, "prompt": {"id": "p"}},
        ("instructions",),
    ),
    "variable of a stored prompt": (
        RESPONSES,
        {"input": "hello", "prompt": {"id": "p", "variables": {"a": HERE}}},
        ("prompt", "variables", "a"),
    ),
    "prompt": (COMPLETIONS, {"prompt": HERE}, ("prompt",)),
    "one of several prompts": (COMPLETIONS, {"prompt": ["a", HERE]}, ("prompt", 1)),
    "suffix": (COMPLETIONS, {"prompt": "a", "suffix": HERE}, ("suffix",)),
    "text for an embedding": (EMBEDDINGS, {"input": HERE}, ("input",)),
    "one of several texts": (EMBEDDINGS, {"input": ["a", HERE]}, ("input", 1)),
}


def _with(value: Any, body: Any) -> Any:
    """The same body with the value in its place."""
    return json.loads(json.dumps(body).replace(json.dumps(HERE)[1:-1], json.dumps(value)[1:-1]))


def _at(path: Path, value: str) -> Path:
    return tuple(value if step == HERE else step for step in path)


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("data_class", VALUES)
def test_a_value_is_seen_wherever_it_stands(name: str, data_class: str) -> None:
    endpoint, body, path = PLACES[name]
    value = VALUES[data_class]
    request = sent(endpoint, _with(value, body))
    (finding,) = [finding for finding in findings(request) if finding.data_class == data_class]
    assert finding.path == _at(path, value)
    if path:
        assert finding.exact
        assert texts(request)[finding.path][finding.start : finding.end] == value


@pytest.mark.parametrize("name", PLACES)
def test_the_very_bytes_show_it_too(name: str) -> None:
    _, body, _ = PLACES[name]
    for value, data_class in ((KEY, "secret"), (f"{MAIL} ", "pii")):
        assert data_class in CLASSIFIER.scan(json.dumps(_with(value, body)).encode())


def test_nothing_is_seen_in_the_same_bodies_without_it() -> None:
    for endpoint, body, _ in PLACES.values():
        assert not classes(sent(endpoint, _with("nothing", body)))


RAW = {
    "a key that stands twice": '{"model": "auto", "messages": [{"role": "a", "content": "HERE", "content": "hello"}]}',
    "messages twice": (
        '{"model": "auto", "messages": [{"role": "user", "content": "HERE"}], '
        '"messages": [{"role": "user", "content": "hello"}]}'
    ),
    "escaped, twice": '{"model": "auto", "messages": [{"role": "a", "content": "\\n\\u0041HERE", "content": "hi"}]}',
    "an unknown field that stands twice": (
        '{"model": "auto", "x": {"y": "HERE"}, "x": 1, "messages": [{"role": "user", "content": "hello"}]}'
    ),
}


@pytest.mark.parametrize("name", RAW)
def test_what_the_parser_passes_over_is_seen(name: str) -> None:
    value = KEY[1:] if "u0041" in RAW[name] else KEY
    body = RAW[name].replace("HERE", value).encode()
    (finding,) = findings(sent(CHAT, body))
    assert (finding.data_class, finding.path, finding.exact) == ("secret", (), False)
    assert "secret" in CLASSIFIER.scan(body)


@pytest.mark.parametrize(
    "body",
    [_tool(parameters={"default": 4111111111111111}), {"messages": PLAIN, "metadata": {"card": 4111111111111111}}],
)
def test_numbers_are_seen(body: dict[str, Any]) -> None:
    assert "identifiers.card" in {finding.detector for finding in findings(sent(CHAT, body))}
    assert "pii" in CLASSIFIER.scan(json.dumps(body).encode())


DOCUMENT = f"name,key\nada,{KEY}\n" * 3
DOCUMENTS: dict[str, tuple[Endpoint, dict[str, Any]]] = {
    "file": (CHAT, _message(content=[{"type": "file", "file": {"file_data": _inline(DOCUMENT, "text/csv")}}])),
    "file without a type": (
        CHAT,
        _message(content=[{"type": "file", "file": {"file_data": base64.b64encode(DOCUMENT.encode()).decode()}}]),
    ),
    "drawing": (
        CHAT,
        _message(
            content=[{"type": "image_url", "image_url": {"url": _inline(f"<svg>{DOCUMENT}</svg>", "image/svg+xml")}}]
        ),
    ),
    "UTF-16": (
        CHAT,
        _message(
            content=[
                {
                    "type": "file",
                    "file": {"file_data": "data:;base64," + base64.b64encode(DOCUMENT.encode("utf-16")).decode()},
                }
            ]
        ),
    ),
    "document of another API": (
        CHAT,
        _message(content=[{"type": "document", "source": {"type": "base64", "data": _inline(DOCUMENT)[23:]}}]),
    ),
    "input file": (
        RESPONSES,
        _items({"role": "user", "content": [{"type": "input_file", "filename": "a", "file_data": _inline(DOCUMENT)}]}),
    ),
    "input file beside a stored prompt": (
        RESPONSES,
        _items({"role": "user", "content": [{"type": "input_file", "file_data": _inline(DOCUMENT)}]})
        | {"tools": [{"type": "web_search"}]},
    ),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_that_are_text_are_read(name: str) -> None:
    endpoint, body = DOCUMENTS[name]
    request = sent(endpoint, body)
    (finding,) = [finding for finding in findings(request) if finding.data_class == "secret"]
    assert not finding.exact
    assert finding.path[-1] in ("file_data", "url", "data")
    assert not request.unscannable
    assert "secret" in CLASSIFIER.scan(json.dumps(body).encode())


def _part(**part: Any) -> dict[str, Any]:
    return _message(content=[{"type": "text", "text": "look"}, part])


def _input(**part: Any) -> dict[str, Any]:
    return _items({"role": "user", "content": [part]})


IMAGE, AUDIO, FILE, TOKENS = Modality
PNG, PDF = f"data:image/png;base64,{PICTURE}", f"data:application/pdf;base64,{PICTURE}"
UNREADABLE: list[tuple[Endpoint, dict[str, Any], set[Modality]]] = [
    (CHAT, _part(type="image_url", image_url={"url": PNG}), {IMAGE}),
    (CHAT, _part(type="image_url", image_url={"url": "https://x.io/a.png"}), {IMAGE}),
    (CHAT, _part(type="image_url", image_url="https://x.io/a.png"), {IMAGE}),
    (CHAT, _part(type="image_url", image_url={"url": PNG}, cache_control={"type": "ephemeral"}), {IMAGE}),
    (CHAT, _part(type="image", source={"type": "base64", "media_type": "image/png", "data": PICTURE}), {IMAGE, FILE}),
    (CHAT, _part(type="input_audio", input_audio={"data": PICTURE, "format": "wav"}), {AUDIO}),
    (CHAT, _message(audio={"id": "audio_1"}), {AUDIO}),
    (CHAT, _part(type="file", file={"file_data": PDF, "filename": "a.pdf"}), {FILE}),
    (CHAT, _part(type="file", file={"file_id": "file-1"}), {FILE}),
    (CHAT, _part(type="file", file={"file_data": _inline("x" * 400_000)}), {FILE}),
    (CHAT, _part(type="video_url", video_url={"url": "https://x.io/a.mp4"}), {FILE}),
    (CHAT, _part(type="document", source={"type": "url", "url": "https://x.io/a"}), {FILE}),
    (CHAT, _part(type="hologram", hologram={"cube": "x"}), {FILE}),
    (CHAT, {"messages": PLAIN, "attachment": PDF}, {FILE}),
    (CHAT, {"messages": PLAIN, "previous_response_id": "resp_1"}, {FILE}),
    (RESPONSES, _input(type="input_image", image_url=PNG), {IMAGE}),
    (RESPONSES, _input(type="input_image", file_id="file-1"), {IMAGE, FILE}),
    (RESPONSES, _input(type="input_file", file_data=PDF, filename="a"), {FILE}),
    (RESPONSES, _input(type="input_file", file_url="https://x.io/a.pdf"), {FILE}),
    (RESPONSES, {"input": "hi", "previous_response_id": "resp_1"}, {FILE}),
    (RESPONSES, {"input": "hi", "conversation": {"id": "conv_1"}}, {FILE}),
    (RESPONSES, {"input": "hi", "prompt": {"id": "p"}}, {FILE}),
    (RESPONSES, _items({"type": "item_reference", "id": "msg_1"}), {FILE}),
    (
        RESPONSES,
        _items(
            {
                "type": "computer_call_output",
                "call_id": "c",
                "output": {"type": "computer_screenshot", "image_url": PNG},
            }
        ),
        {IMAGE},
    ),
    (COMPLETIONS, {"prompt": [1, 2, 3]}, {TOKENS}),
    (COMPLETIONS, {"prompt": [[1, 2], [3]]}, {TOKENS}),
    (COMPLETIONS, {"prompt": "hi", "prompt_embeds": PICTURE}, {FILE}),
    (EMBEDDINGS, {"input": [1, 2, 3]}, {TOKENS}),
    (EMBEDDINGS, {"input": [[1, 2], [3]]}, {TOKENS}),
]


@pytest.mark.parametrize(("endpoint", "body", "expected"), UNREADABLE)
def test_what_nobody_can_read_is_said(endpoint: Endpoint, body: dict[str, Any], expected: set[Modality]) -> None:
    request = sent(endpoint, body)
    assert request.unscannable == expected
    assert not classes(request)
    assert not any(len(passage.text) > 1_000 for passage in request.passages)


READABLE: list[tuple[Endpoint, dict[str, Any]]] = [
    (CHAT, {"messages": PLAIN}),
    (CHAT, _part(type="thinking", thinking="hm", signature=PICTURE[:200])),
    (CHAT, _part(type="text", text="b", cache_control={"type": "ephemeral"})),
    (CHAT, _part(type="novelty", text="only text")),
    (CHAT, _tool(parameters={"properties": {"file_id": {"type": "string"}, "image_url": {"type": "string"}}})),
    (CHAT, _message(content="data: what is that? data:image/png;base64,")),
    (CHAT, {"messages": PLAIN, "previous_response_id": None}),
    (RESPONSES, {"input": "hi", "previous_response_id": None}),
    (RESPONSES, _items({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"})),
    (COMPLETIONS, {"prompt": "hi"}),
    (EMBEDDINGS, {"input": ["a", "b"]}),
]


@pytest.mark.parametrize(("endpoint", "body"), READABLE)
def test_all_of_it_is_text(endpoint: Endpoint, body: dict[str, Any]) -> None:
    assert not sent(endpoint, body).unscannable


def test_a_large_picture_takes_no_room_from_a_document() -> None:
    picture = "data:image/png;base64," + base64.b64encode(b"\x89PNG" + bytes(range(256)) * 2_000).decode()
    request = chat(
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": picture}},
                {"type": "file", "file": {"file_data": _inline(DOCUMENT)}},
            ],
        }
    )
    assert request.unscannable == {IMAGE}
    assert classes(request) == {"secret"}


def test_text_in_base64_is_text_however_long_it_is() -> None:
    long = base64.b64encode(("words and more words " * 30_000 + KEY).encode()).decode()
    for content in (long, [{"type": "text", "text": long}]):
        assert "secret" in classes(chat({"role": "user", "content": content}))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KEYS = st.sampled_from(["type", "text", "url", "image_url", "source", "data", "file", "file_id", "content", "role"])
ODD = st.dictionaries(KEYS | st.text(max_size=4), JSON | st.sampled_from([PNG, PDF, "text", "image"]), max_size=5)


def _read(endpoint: Endpoint, body: dict[str, Any]) -> None:
    with contextlib.suppress(ClientError):
        assert classified(sent(endpoint, body)).classes != {"internal", "pii", "secret"}


@settings(deadline=None, max_examples=200)
@given(ODD, ODD, ODD)
def test_odd_bodies_are_read_or_refused(message: dict[str, Any], part: dict[str, Any], field: dict[str, Any]) -> None:
    """And nothing breaks on the way, which would be every class."""
    _read(CHAT, _message(**message))
    _read(CHAT, _message(content=[{"type": "text", "text": "hi"}, {"type": "odd"} | part]))
    _read(CHAT, {"messages": PLAIN, "x": field})
    _read(RESPONSES, {"input": [{"type": "odd"} | part], **field, "model": "auto"})
