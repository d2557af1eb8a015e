"""Whatever a client sends: OpenAI's envelope with the field at fault, never a 500, never silence."""

import gzip
import json
import re
import zlib
from contextlib import suppress
from typing import Any

from router.testing.upstream import Upstream
from tests.gateway.running import CHAT, MESSAGES, Gateway, local, ordered, user
from tests.tables import data, each_row

HI = json.dumps(MESSAGES)
DEEP = 100_000


def policy(url: str) -> dict[str, Any]:
    return {"version": 1, "targets": {"plain": local(url, "normal")}, "routes": {"auto": ordered("plain")}}


def chat(**fields: str) -> bytes:
    """A chat request with these fields in JSON; the others are right."""
    rows = {"model": '"auto"', "messages": HI} | fields
    return ("{" + ", ".join(f'"{name}": {value}' for name, value in rows.items()) + "}").encode()


def message(fields: str) -> bytes:
    return chat(messages=f"[{{{fields}}}]")


# Of these bodies no field in particular is at fault.
UNREADABLE = [
    *(b"", b"  \n ", b"model=auto", b'{"model": "auto"', b'{"model": "auto"} {}', b'{"model": "auto",}'),
    *(b"[]", b'"auto"', b"null", b"1", b'{"model": "\xff\xfe", "messages": []}'),
    message('"role": "user", "content": "').replace(b'"}]', b'\xc3\x28"}]'),
    b'{"model": "a\x01b", "messages": []}',
    '{"model": "auto"}'.encode("utf-16"),
    *(chat(temperature=number) for number in ("NaN", "Infinity", "-Infinity")),
    *(chat(messages="[" * DEEP + "]" * DEEP), chat(x='{"a":' * DEEP + "1" + "}" * DEEP), b"[" * DEEP),
]


WRONG = data(__file__, "bad_input.yaml")
FIELD = re.compile(r"\w+")
BODIES: list[tuple[bytes, str | None]] = [
    *((body, None) for body in UNREADABLE),
    *(
        (chat(**{FIELD.findall(place)[0]: value}), place)
        for place, values in WRONG["fields"].items()
        for value in values
    ),
    *((f'{{"messages": {HI}}}'.encode(), "model"), (b'{"model": "auto"}', "messages")),
]
ODD_BUT_FINE = {
    "the last of two keys counts": chat(n='3, "n": 1'),
    "nulls": chat(**dict.fromkeys(("n", "stream", "tools", "max_tokens", "metadata", "user"), "null")),
    "unknown fields": chat(frobnicate='{"a": [true, null, 1e3]}', seed=f"{10**40}"),
    "null content": message('"role": "assistant", "content": null'),
    "an unknown role": message('"role": "oracle", "content": "hi"'),
    "emoji and zero bytes": message('"role": "user", "content": "\\u0000 👋"'),
}


@each_row("body, param", BODIES)
def test_a_bad_body_is_refused_with_its_place(
    gateway: Gateway, upstream: Upstream, body: bytes, param: str | None
) -> None:
    reply = gateway.post(CHAT, body)
    assert reply.status == 400, reply.body
    assert (reply.error["type"], reply.error["code"]) == ("invalid_request_error", "invalid_request_error")
    assert (reply.error["param"], bool(reply.error["message"]), bool(reply.id)) == (param, True, True)
    assert upstream.requests == []


@each_row("name", ODD_BUT_FINE)
def test_an_odd_body_is_served(gateway: Gateway, name: str) -> None:
    assert gateway.post(CHAT, ODD_BUT_FINE[name]).status == 200


@each_row("header, value", [(header, value) for header, values in WRONG["headers"].items() for value in values])
def test_a_bad_header_is_refused_by_name(gateway: Gateway, upstream: Upstream, header: str, value: str) -> None:
    reply = gateway.chat("auto", headers={header: value.encode("latin-1")})  # type: ignore[dict-item]
    assert reply.status == 400, reply.body
    assert (reply.error["param"], reply.error["type"]) == (header, "invalid_request_error")
    assert upstream.requests == []


@each_row("name", ["x-lowpass-data-class", "X-Lowpass-Session", "x-lowpass-tags"])
def test_a_header_that_is_sent_twice_is_refused(gateway: Gateway, upstream: Upstream, name: str) -> None:
    """Neither may be lost: the first may be a proxy's."""
    body, lines = chat(), (f"{name}: internal", f"{name.lower()}: internal")
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


@each_row(
    "endpoint, body, param",
    [
        *(("completions", body, "prompt") for body in ({"prompt": ""}, {"prompt": {"a": 1}})),
        ("embeddings", {"input": []}, "input"),
        ("embeddings", {"input": 5}, "input"),
        *(("responses", body, "input") for body in ({}, {"input": 5})),
        ("completions", {"prompt": "a", "n": 129}, "n"),
        ("embeddings", {"input": "a", "stream": True}, "stream"),
    ],
)
def test_the_fields_of_the_other_endpoints(gateway: Gateway, endpoint: str, body: dict[str, Any], param: str) -> None:
    reply = gateway.post(f"/v1/{endpoint}", {"model": "auto", **body})
    assert (reply.status, reply.error["param"]) == (400, param)


VERBS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS")
METHODS = {CHAT: "POST", "/v1/embeddings": "POST", "/v1/route": "POST", "/health/ready": "GET"}
METHODS |= {"/v1/budgets/day": "GET DELETE PATCH", "/v1/budgets": "GET"}
"""What a path is called with; everything else is refused."""
OTHERS = [(m, path, 405) for path, own in METHODS.items() for m in VERBS if m not in own.split()]
PATHS = ("/", "/v1", "/v1/chat", "/v1//chat/completions", "/v2/chat/completions", "/v2/x", "/%00")


@each_row("method, path, status", [*OTHERS, *(("POST", path, 404) for path in PATHS)])
def test_a_wrong_method_and_an_unknown_path_are_refused(gateway: Gateway, method: str, path: str, status: int) -> None:
    reply = gateway.request(method, path, b"{}" if method == "POST" else None)
    assert (reply.status, method == "HEAD" or bool(reply.error["message"])) == (status, True)


TYPED = ("/chat/completions", "//v1/chat/completions", "/v1/chat/completions/", "/api/v1/chat/completions")
AZURE = "/openai/deployments/auto/chat/completions?api-version=2024-10-21"


@each_row("path", [*TYPED, "/openai/v1/chat/completions", AZURE])
def test_paths_as_base_urls_make_them_are_served(gateway: Gateway, path: str) -> None:
    """At Azure the model is in the path, and what the body says counts more."""
    for body in ({"model": "auto"}, {}) if path == AZURE else ({"model": "auto"},):
        row = gateway.settled(gateway.post(path, {"messages": MESSAGES, **body}).id)
        assert (row["status"], row["requested"]) == (200, "auto")
    assert gateway.get(path.replace("chat/completions", "models")).status == 200


PACKED = gzip.compress(chat())


@each_row(
    "coding, body, status",
    [
        *(("gzip", PACKED, 200), (" GZIP", PACKED, 200), ("deflate", zlib.compress(chat()), 200)),
        *(("identity", chat(), 200), ("gzip", PACKED[:-9], 400), ("gzip", PACKED + b"x", 400), ("gzip", chat(), 400)),
        *(("gzip", gzip.compress(b" " * (33 << 20)), 413), ("br", chat(), 415), ("gzip, gzip", PACKED, 415)),
    ],
)
def test_packed_bodies(gateway: Gateway, coding: str, body: bytes, status: int) -> None:
    reply = gateway.request("POST", CHAT, body, {"content-encoding": coding})
    assert reply.status == status
    assert status in (200, 413) or reply.error["param"] == "content-encoding"


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
    return "\r\n".join((f"POST {CHAT} HTTP/1.1", "host: localhost", *lines, "\r\n")).encode()


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
    reply = gateway.post("/v1/route", {"model": "auto", "messages": user(parts)})
    assert reply.status == 200
    assert [dropped["reason"] for dropped in reply.json["dropped"]] == ["capability"]
