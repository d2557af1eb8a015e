"""Whatever part of a request a value stands in, it is found, with its place; what cannot be read is reported."""

import base64
import contextlib
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from router.errors import ClientError
from router.types.request import Endpoint, Modality, Request
from tests.classify.looking import CLASSIFIER, KEY, MAIL, VALUES, chat, classes, classified, findings, sent, texts
from tests.tables import data, each_row

CHAT, RESPONSES, _, COMPLETIONS, EMBEDDINGS = Endpoint
HERE = "it-stands-here"
PLAIN: list[dict[str, Any]] = [{"role": "user", "content": "hello"}]


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


PICTURE = _base64(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8)


def _inline(text: str, kind: str = "text/plain") -> str:
    return f"data:{kind};base64,{_base64(text.encode())}"


def _message(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "hello"} | fields]}


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"default": 4111111111111111}}}
every_place = each_row("row", data(__file__, "passages.yaml"), ids=lambda row: row["name"])


def _with(value: Any, body: Any) -> Any:
    """The same body with the value in its place."""
    return json.loads(json.dumps(body).replace(json.dumps(HERE)[1:-1], json.dumps(value)[1:-1]))


def _request(row: dict[str, Any], value: str) -> Request:
    return sent(Endpoint(row.get("endpoint", "chat")), _with(value, row["body"]))


@every_place
@each_row("data_class", VALUES)
def test_a_value_is_seen_wherever_it_stands(row: dict[str, Any], data_class: str) -> None:
    value = VALUES[data_class]
    request = _request(row, value)
    (finding,) = [finding for finding in findings(request) if finding.data_class == data_class]
    assert finding.path == tuple(value if step == HERE else step for step in row["path"])
    if row["path"]:
        assert finding.exact
        assert texts(request)[finding.path][finding.start : finding.end] == value


@every_place
def test_the_very_bytes_show_it_too_and_nothing_is_seen_without_it(row: dict[str, Any]) -> None:
    for value, data_class in ((KEY, "secret"), (f"{MAIL} ", "pii")):
        assert data_class in CLASSIFIER.scan(json.dumps(_with(value, row["body"])).encode())
    assert not classes(_request(row, "nothing"))


@each_row("text", ["hi", "Привет, как дела?", "今天天气怎么样"])
def test_blanks_and_escapes_in_the_json_of_a_body_change_nothing_of_its_prompt(text: str) -> None:
    body = {"model": "auto", "messages": [{"role": "user", "content": text}], "tools": [TOOL]}
    styles: list[dict[str, Any]] = [{"separators": (",", ":")}, {}, {"indent": 2}, {"ensure_ascii": False}]
    read = [sent(CHAT, json.dumps(body, **style).encode()) for style in styles]
    assert len({(request.prompt_bytes, request.dense_bytes) for request in read}) == 1


@each_row("body", data(__file__, "passed_over.yaml"))
def test_what_the_parser_passes_over_is_seen(body: str) -> None:
    """A key that stands twice, escaped or not."""
    data = body.replace("HERE", KEY).replace("ERE", KEY[1:]).encode()
    (finding,) = findings(sent(CHAT, data))
    assert (finding.data_class, finding.path, finding.exact) == ("secret", (), False)
    assert "secret" in CLASSIFIER.scan(data)


@each_row("body", [{"messages": PLAIN, "tools": [TOOL]}, {"messages": PLAIN, "metadata": {"card": 4111111111111111}}])
def test_numbers_are_seen(body: dict[str, Any]) -> None:
    assert "identifiers.card" in {finding.detector for finding in findings(sent(CHAT, body))}
    assert "pii" in CLASSIFIER.scan(json.dumps(body).encode())


DOCUMENT = f"name,key\nada,{KEY}\n" * 3
SVG = _inline(f"<svg>{DOCUMENT}</svg>", "image/svg+xml")


def _part(**part: Any) -> dict[str, Any]:
    return _message(content=[{"type": "text", "text": "look"}, part])


def _input(**part: Any) -> dict[str, Any]:
    return {"input": [*PLAIN, {"role": "user", "content": [part]}]}


def _file(data: str) -> dict[str, Any]:
    return _part(type="file", file={"file_data": data})


@each_row(
    "endpoint, body",
    [
        (CHAT, _file(_inline(DOCUMENT, "text/csv"))),
        (CHAT, _file(_base64(DOCUMENT.encode()))),
        (CHAT, _file("data:;base64," + _base64(DOCUMENT.encode("utf-16")))),
        (CHAT, _part(type="image_url", image_url={"url": SVG})),
        (CHAT, _part(type="document", source={"type": "base64", "data": _base64(DOCUMENT.encode())})),
        (RESPONSES, _input(type="input_file", filename="a", file_data=_inline(DOCUMENT))),
        (RESPONSES, _input(type="input_file", file_data=_inline(DOCUMENT)) | {"tools": [{"type": "web_search"}]}),
    ],
)
def test_documents_that_are_text_are_read(endpoint: Endpoint, body: dict[str, Any]) -> None:
    request = sent(endpoint, body)
    (finding,) = [finding for finding in findings(request) if finding.data_class == "secret"]
    assert not finding.exact
    assert finding.path[-1] in ("file_data", "url", "data")
    assert not request.unscannable
    assert "secret" in CLASSIFIER.scan(json.dumps(body).encode())


IMAGE, AUDIO, FILE, TOKENS = Modality
PNG, PDF = f"data:image/png;base64,{PICTURE}", f"data:application/pdf;base64,{PICTURE}"
DATA = {"PNG": PNG, "PDF": PDF, "LONG": _inline("x" * 400_000), "PICTURE": PICTURE, "SIGNED": PICTURE[:200]}
DATA |= {"LINK": f"https://x.io/a?signature={PICTURE}"}


@each_row("endpoint, body, expected", data(__file__, "modalities.yaml"))
def test_what_cannot_be_read_is_said(endpoint: str, body: dict[str, Any], expected: list[str]) -> None:
    text = json.dumps(body)
    for name, content in DATA.items():
        text = text.replace(name, content)
    request = sent(Endpoint(endpoint), json.loads(text))
    assert request.unscannable == set(map(Modality, expected))
    assert not classes(request)
    assert {passage.text for passage in request.passages}.isdisjoint(("role", "user", "cache_control", "ephemeral"))
    assert all(len(passage.text) <= 1_000 or "://" in passage.text for passage in request.passages)


def test_a_large_picture_takes_no_room_from_a_document() -> None:
    picture = "data:image/png;base64," + _base64(b"\x89PNG" + bytes(range(256)) * 2_000)
    file = {"type": "file", "file": {"file_data": _inline(DOCUMENT)}}
    request = chat({"role": "user", "content": [{"type": "image_url", "image_url": {"url": picture}}, file]})
    assert request.unscannable == {IMAGE}
    assert classes(request) == {"secret"}


def test_text_in_base64_is_text_however_long_it_is() -> None:
    long = _base64(("words and more words " * 30_000 + KEY).encode())
    for content in (long, [{"type": "text", "text": long}]):
        assert "secret" in classes(chat({"role": "user", "content": content}))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KEYS = st.sampled_from(["type", "text", "url", "image_url", "source", "data", "file", "file_id", "content", "role"])
ODD = st.dictionaries(KEYS | st.text(max_size=4), JSON | st.sampled_from([PNG, PDF, "text", "image"]), max_size=5)


@given(ODD, ODD, ODD)
def test_odd_bodies_are_read_or_refused(message: dict[str, Any], part: dict[str, Any], field: dict[str, Any]) -> None:
    """And nothing breaks on the way, which would be every class."""
    odd = {"type": "odd"} | part
    chats = [
        _message(**message),
        _message(content=[{"type": "text", "text": "hi"}, odd]),
        {"messages": PLAIN, "x": field},
    ]
    responses = {"input": [odd], **field, "model": "auto"}
    for endpoint, body in (*((CHAT, body) for body in chats), (RESPONSES, responses)):
        with contextlib.suppress(ClientError):
            assert classified(sent(endpoint, body)).classes != {"internal", "pii", "secret"}
