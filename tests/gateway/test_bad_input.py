"""Whatever a client sends: OpenAI's envelope with the field at fault, never a 500, never silence."""

import json
import socket
from contextlib import suppress
from typing import Any

from router.testing.upstream import Upstream
from tests.gateway.running import CHAT, MESSAGES, Gateway, local, ordered
from tests.tables import each_row

HI = json.dumps(MESSAGES)
DEEP = 100_000


def policy(url: str) -> dict[str, Any]:
    return {"version": 1, "targets": {"plain": local(url, "normal")}, "routes": {"auto": ordered("plain")}}


def chat(fields: str) -> bytes:
    """A chat request whose other fields are right."""
    return f'{{"model": "auto", "messages": {HI}, {fields}}}'.encode()


def message(fields: str) -> bytes:
    return f'{{"model": "auto", "messages": [{{{fields}}}]}}'.encode()


# Body → the param that the answer must name; None where the whole body is at fault.
BODIES: dict[str, tuple[bytes, str | None]] = {
    "empty": (b"", None),
    "blank": (b"  \n ", None),
    "not JSON": (b"model=auto", None),
    "half an object": (b'{"model": "auto"', None),
    "two objects": (b'{"model": "auto"} {}', None),
    "trailing comma": (b'{"model": "auto",}', None),
    "a list": (b"[]", None),
    "a string": (b'"auto"', None),
    "null": (b"null", None),
    "a number": (b"1", None),
    "no UTF-8": (b'{"model": "\xff\xfe", "messages": []}', None),
    "no UTF-8 inside": (message('"role": "user", "content": "').replace(b'"}]', b'\xc3\x28"}]'), None),
    "half a surrogate": (b'{"model": "\\ud800", "messages": []}', None),
    "a control character": (b'{"model": "a\x01b", "messages": []}', None),
    "UTF-16": ('{"model": "auto"}'.encode("utf-16"), None),
    "NaN": (chat('"temperature": NaN'), None),
    "Infinity": (chat('"temperature": Infinity'), None),
    "minus Infinity": (chat('"temperature": -Infinity'), None),
    "deep list": (b'{"model": "auto", "messages": ' + b"[" * DEEP + b"]" * DEEP + b"}", None),
    "deep object": (chat('"x": ' + '{"a":' * DEEP + "1" + "}" * DEEP), None),
    "deep unclosed": (b"[" * DEEP, None),
    "no model": (f'{{"messages": {HI}}}'.encode(), "model"),
    "null model": (f'{{"model": null, "messages": {HI}}}'.encode(), "model"),
    "empty model": (f'{{"model": "", "messages": {HI}}}'.encode(), "model"),
    "number as model": (f'{{"model": 4, "messages": {HI}}}'.encode(), "model"),
    "list as model": (f'{{"model": ["auto"], "messages": {HI}}}'.encode(), "model"),
    "no messages": (b'{"model": "auto"}', "messages"),
    "null messages": (b'{"model": "auto", "messages": null}', "messages"),
    "empty messages": (b'{"model": "auto", "messages": []}', "messages"),
    "empty messages, spaced": (b'{"model": "auto", "messages": [ ]}', "messages"),
    "text as messages": (b'{"model": "auto", "messages": "hi"}', "messages"),
    "numbers as messages": (b'{"model": "auto", "messages": [1]}', "messages[0]"),
    "no role": (message('"content": "hi"'), "messages[0].role"),
    "null role": (message('"role": null, "content": "hi"'), "messages[0].role"),
    "number as content": (message('"role": "user", "content": 7'), "messages[0].content"),
    "object as content": (message('"role": "user", "content": {}'), "messages[0].content"),
    "text as stream": (chat('"stream": "yes"'), "stream"),
    "number as stream": (chat('"stream": 1'), "stream"),
    "text as stream options": (chat('"stream_options": "usage"'), "stream_options"),
    "text as n": (chat('"n": "2"'), "n"),
    "no choice": (chat('"n": 0'), "n"),
    "negative n": (chat('"n": -1'), "n"),
    "fraction as n": (chat('"n": 1.5'), "n"),
    "absurd n": (chat('"n": 1000000'), "n"),
    "n beyond 64 bits": (chat(f'"n": {10**30}'), "n"),
    "no tokens": (chat('"max_completion_tokens": 0'), "max_completion_tokens"),
    "negative tokens": (chat('"max_completion_tokens": -5'), "max_completion_tokens"),
    "absurd tokens": (chat('"max_completion_tokens": 999999999999'), "max_completion_tokens"),
    "infinite tokens": (chat('"max_completion_tokens": 1e999'), "max_completion_tokens"),
    "text as tokens": (chat('"max_tokens": "many"'), "max_tokens"),
    "object as tools": (chat('"tools": {"type": "function"}'), "tools"),
    "text as tools": (chat('"tools": "all"'), "tools"),
    "text as format": (chat('"response_format": "json"'), "response_format"),
    "number as format": (chat('"response_format": {"type": 1}'), "response_format.type"),
    "number as effort": (chat('"reasoning_effort": 3'), "reasoning_effort"),
    "number as user": (chat('"user": 5'), "user"),
    "text as metadata": (chat('"metadata": "x"'), "metadata"),
    "number as session": (chat('"metadata": {"session_id": 5}'), "metadata.session_id"),
    "text as logprobs": (chat('"logprobs": "all"'), "logprobs"),
}
ODD_BUT_FINE: dict[str, bytes] = {
    "the last of two keys counts": chat('"model": "auto", "n": 3, "n": 1'),
    "nulls": chat('"n": null, "stream": null, "tools": null, "max_tokens": null, "metadata": null, "user": null'),
    "unknown fields": chat('"frobnicate": {"a": [true, null, 1e3]}'),
    "a byte order mark's absence": chat('"seed": 1'),
    "null content": message('"role": "assistant", "content": null'),
    "an unknown role": message('"role": "oracle", "content": "hi"'),
    "emoji and zero bytes": message('"role": "user", "content": "\\u0000 👋"'),
    "a huge number in an unknown field": chat(f'"seed": {10**40}'),
}
HEADERS: dict[str, tuple[str, str]] = {
    "unknown": ("x-lowpass-frobnicate", "1"),
    "unknown class": ("x-lowpass-data-class", "cosmic"),
    "empty class": ("x-lowpass-data-class", ""),
    "no amount": ("x-lowpass-budget-usd", "much"),
    "negative amount": ("x-lowpass-budget-usd", "-1"),
    "no money": ("x-lowpass-budget-usd", "0"),
    "not a number": ("x-lowpass-budget-usd", "NaN"),
    "infinite": ("x-lowpass-budget-usd", "1e999"),
    "absurd amount": ("x-lowpass-budget-usd", "1e9"),
    "fraction of tokens": ("x-lowpass-thinking-budget", "1.5"),
    "negative tokens": ("x-lowpass-thinking-budget", "-1"),
    "absurd tokens": ("x-lowpass-thinking-budget", "9" * 30),
    "digits of elsewhere": ("x-lowpass-thinking-budget", "²"),
    "no deadline": ("x-lowpass-deadline-ms", "0"),
    "soon": ("x-lowpass-deadline-ms", "soon"),
    "unknown budget": ("x-lowpass-budget", "nobody"),
    "maybe": ("x-lowpass-explain", "maybe"),
    "long session": ("x-lowpass-session", "x" * 257),
    "tab in session": ("x-lowpass-session", "a\tb"),
    "empty tags": ("x-lowpass-tags", "a,,b"),
}


@each_row("name", BODIES)
def test_a_bad_body_is_refused_with_its_place(gateway: Gateway, upstream: Upstream, name: str) -> None:
    body, param = BODIES[name]
    reply = gateway.post(CHAT, body)
    assert reply.status == 400, reply.body
    assert (reply.error["type"], reply.error["code"]) == ("invalid_request_error", "invalid_request_error")
    assert reply.error["param"] == param
    assert reply.error["message"]
    assert reply.headers["x-request-id"]
    assert upstream.requests == []


@each_row("name", ODD_BUT_FINE)
def test_an_odd_body_is_served(gateway: Gateway, name: str) -> None:
    assert gateway.post(CHAT, ODD_BUT_FINE[name]).status == 200


@each_row("name", HEADERS)
def test_a_bad_header_is_refused_by_name(gateway: Gateway, upstream: Upstream, name: str) -> None:
    header, value = HEADERS[name]
    reply = gateway.chat("auto", headers={header: value.encode("latin-1")})  # type: ignore[dict-item]
    assert reply.status == 400, reply.body
    assert (reply.error["param"], reply.error["type"]) == (header, "invalid_request_error")
    assert upstream.requests == []


@each_row("name", ["x-lowpass-data-class", "X-Lowpass-Session", "x-lowpass-tags"])
def test_a_header_that_is_sent_twice_is_refused(gateway: Gateway, upstream: Upstream, name: str) -> None:
    """Neither may be lost: the first may be a proxy's."""
    body = json.dumps({"model": "auto", "messages": MESSAGES}).encode()
    lines = (f"{name}: internal", f"{name.lower()}: internal")
    reply = exchange(gateway, head("connection: close", *lines, f"content-length: {len(body)}"), body)
    assert reply.startswith(b"HTTP/1.1 400 ")
    assert f"{name.lower()}: send it once.".encode() in reply
    assert upstream.requests == []


@each_row("path", ["/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/route", "/v1/feedback"])
@each_row("body", [b"", b"{", b"[]", b"null", b'{"model": 3}', b"\xff", b"[" * DEEP, b'{"model": "auto"}'])
def test_every_endpoint_refuses_alike(gateway: Gateway, path: str, body: bytes) -> None:
    reply = gateway.post(path, body)
    assert reply.status == 400, reply.body
    assert reply.error["type"] == "invalid_request_error"


FIELDS: list[tuple[str, dict[str, Any], str]] = [
    ("completions", {"prompt": ""}, "prompt"),
    ("completions", {"prompt": {"a": 1}}, "prompt"),
    ("completions", {"prompt": "a", "n": 129}, "n"),
    ("embeddings", {"input": []}, "input"),
    ("embeddings", {"input": 5}, "input"),
    ("embeddings", {"input": "a", "stream": True}, "stream"),
    ("responses", {}, "input"),
    ("responses", {"input": 5}, "input"),
]


@each_row("endpoint, body, param", FIELDS)
def test_the_fields_of_the_other_endpoints(gateway: Gateway, endpoint: str, body: dict[str, Any], param: str) -> None:
    reply = gateway.post(f"/v1/{endpoint}", {"model": "auto", **body})
    assert (reply.status, reply.error["param"]) == (400, param)


@each_row("method", ["GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"])
@each_row("path", [CHAT, "/v1/embeddings", "/v1/route"])
def test_a_wrong_method_is_refused(gateway: Gateway, method: str, path: str) -> None:
    reply = gateway.request(method, path)
    assert (reply.status, method == "HEAD" or bool(reply.error["message"])) == (405, True)


@each_row("path", ["/", "/v1", "/v1/chat", "/v1/chat/completions/", "/v1//chat/completions", "/v2/x", "/%00"])
def test_an_unknown_path_is_a_404(gateway: Gateway, path: str) -> None:
    reply = gateway.post(path, {})
    assert (reply.status, bool(reply.error["message"])) == (404, True)


def exchange(gateway: Gateway, *pieces: bytes) -> bytes:
    """The error that comes back; sending stops when the gateway does not listen any more."""
    answer = b""
    with gateway.raw() as connection:
        with suppress(ConnectionResetError, BrokenPipeError):
            for piece in pieces:
                connection.sendall(piece)
        while not answer.endswith(b"}}") and (piece := connection.recv(65_536)):
            answer += piece
    return answer


def head(*lines: str) -> bytes:
    return "\r\n".join((f"POST {CHAT} HTTP/1.1", "host: x", *lines, "\r\n")).encode()


PIECE = b"%x\r\n%s\r\n" % (1 << 20, b" " * (1 << 20))


@each_row("pieces", [[head(f"content-length: {50 << 20}")], [head("transfer-encoding: chunked"), *[PIECE] * 50]])
def test_a_body_that_is_too_large_is_refused_unread(gateway: Gateway, pieces: list[bytes]) -> None:
    """Without a length: once it is too large."""
    answer = exchange(gateway, *pieces)
    assert (answer.startswith(b"HTTP/1.1 413"), b"request_too_large" in answer) == (True, True)
    assert gateway.chat("auto").status == 200


def test_a_large_body_below_the_limit_is_served(gateway: Gateway) -> None:
    """As large as a few photographs: most of it is nobody's business but the upstream's."""
    picture = "data:image/png;base64," + "A" * (8 << 20)
    parts = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": picture}}]
    reply = gateway.post("/v1/route", {"model": "auto", "messages": [{"role": "user", "content": parts}]})
    assert reply.status == 200
    assert [dropped["reason"] for dropped in reply.json["dropped"]] == ["capability"]


NO_HTTP = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GARBAGE\r\n\r\n",
    b"POST " + b"x" * 200_000,
    head("content-length: nine"),
    head("content-length: -1"),
    head("transfer-encoding: chunked") + b"zz\r\n",
    head(*["a: b"] * 100_000),
]


@each_row("sent", NO_HTTP)
def test_what_is_no_http_gets_a_400_or_is_hung_up_on(gateway: Gateway, sent: bytes) -> None:
    answer = b""
    with gateway.raw() as connection, suppress(ConnectionResetError, BrokenPipeError):
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(65_536)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
    assert gateway.chat("auto").status == 200
