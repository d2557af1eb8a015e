"""Upstreams that answer what no API promises, over HTTP that is barely any: who asked gets its own answer, or an error.

Every case is a seed: a request with a word of its own, an answer with that word, and one thing wrong with the answer.
A second target answers well. `STALE` stands in what belongs to no request.
"""

import json
import random
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from router.testing.upstream import Recorded, Upstream
from router.testing.upstream.server import Connection
from tests.gateway.running import Gateway, Reply, serving, target
from tests.tables import each_row

WIRES = ("openai", "vllm", "anthropic", "gemini")
TIMEOUTS = {"first_ms": 400, "between_ms": 400, "total_ms": 1_500}
STALE = "stale-word"
CLIENTS_FAULT = (400, 413, 422)
"""What any target would refuse."""
Wrong = Callable[[random.Random, bytes, bytes], tuple[list[bytes], bool]]
"""From status line with headers, and body: what is written, piece by piece, and whether the connection closes then."""


def head(body: bytes, stream: bool, status: str = "200 OK", *more: str) -> bytes:
    kind = "text/event-stream" if stream else "application/json"
    lines = (f"HTTP/1.1 {status}", f"content-type: {kind}", f"content-length: {len(body)}", *more)
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def answer(wire: str, stream: bool, word: str) -> list[Any]:
    """Objects of an answer: one, or the events of a stream."""
    if wire == "anthropic":
        usage = {"input_tokens": 5, "output_tokens": 3}
        message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "usage": usage}
        text = {"type": "text", "text": word}
        if not stream:
            return [{**message, "content": [text], "stop_reason": "end_turn"}]
        return [
            {"type": "message_start", "message": {**message, "content": []}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
            {"type": "message_stop"},
        ]
    if wire == "gemini":
        usage = {"promptTokenCount": 5, "candidatesTokenCount": 3, "totalTokenCount": 8}
        content = {"role": "model", "parts": [{"text": word}]}
        return [{"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": usage}]
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    tool = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    said = {"role": "assistant", "content": word, "refusal": None, "reasoning_content": "so", "tool_calls": [tool]}
    base = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    if not stream:
        choice = {"index": 0, "message": said, "logprobs": None, "finish_reason": "stop"}
        return [{**base, "choices": [choice], "usage": usage}]
    first = {"index": 0, "delta": {**said, "tool_calls": [{"index": 0, **tool}]}, "finish_reason": None}
    last = {"index": 0, "delta": {}, "finish_reason": "stop"}
    chunks: list[dict[str, Any]] = [{"choices": [first]}, {"choices": [last]}, {"choices": [], "usage": usage}]
    return [{**base, "object": "chat.completion.chunk", **chunk} for chunk in chunks]


def encoded(wire: str, stream: bool, objects: list[Any]) -> bytes:
    if not stream:
        return json.dumps(objects[0]).encode()
    names = [f"event: {event.get('type')}\n" if wire == "anthropic" else "" for event in objects]
    events = "".join(f"{name}data: {json.dumps(event)}\n\n" for name, event in zip(names, objects, strict=True))
    return (events + ("data: [DONE]\n\n" if wire in ("openai", "vllm") else "")).encode()


ODD: tuple[Any, ...] = (None, [], {}, "", "odd", 0, -1, 1.5, True, [None], {"odd": None}, [[]], 10**30)


def mutated(draw: random.Random, value: Any) -> Any:
    """One place of it holds something else, or is gone."""
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key in node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
            places.append((node, key))
            walk(node[key])

    value = json.loads(json.dumps(value))
    walk(value)
    node, key = draw.choice(places)
    if draw.random() < 0.2:
        del node[key]
    else:
        node[key] = draw.choice(ODD)
    return value


def surplus(draw: random.Random, start: bytes, body: bytes) -> tuple[list[bytes], bool]:
    """What nobody asked for, behind a whole answer: an answer, half of one, or anything."""
    other = json.dumps(answer("openai", False, STALE)[0]).encode()
    stale = head(other, stream=False) + other
    return [
        start + body + draw.choice([stale, stale[: draw.randrange(1, len(stale))], b"odd", b"\r\n", b"\0" * 9])
    ], False


def shortened(draw: random.Random, start: bytes, body: bytes) -> tuple[list[bytes], bool]:
    whole = start + body
    return [whole[: draw.randrange(len(whole))]], draw.random() < 0.5


def apart(draw: random.Random, start: bytes, body: bytes) -> tuple[list[bytes], bool]:
    """Nothing is wrong but where segments end."""
    whole = start + body
    cut = sorted(draw.sample(range(1, len(whole)), 3))
    return [whole[a:b] for a, b in zip([0, *cut], [*cut, len(whole)], strict=True)], False


def refused(draw: random.Random, start: bytes, body: bytes) -> tuple[list[bytes], bool]:
    statuses = (
        204,
        301,
        302,
        307,
        308,
        400,
        401,
        403,
        404,
        405,
        408,
        410,
        413,
        421,
        425,
        429,
        431,
        451,
        500,
        503,
        504,
        599,
    )
    odd = draw.choice([b"", b"{}", b"[]", b"null", b"<html>", b'{"error": 7}', b'{"error": {"message": []}}', b"\xff"])
    later = draw.choice(["x: y", "retry-after: 999999999", "retry-after: soon", "location: http://127.0.0.1:1/"])
    return [head(odd, False, f"{draw.choice(statuses)} Odd", later) + odd], False


def interim(draw: random.Random, start: bytes, body: bytes) -> tuple[list[bytes], bool]:
    """Responses before the response; one too many of them, or one that ends HTTP."""
    hint = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
    many = draw.choice([1, 3, 5_000])
    upgrade = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: odd\r\nconnection: upgrade\r\n\r\n"
    return [draw.choice([hint * many, upgrade, b"HTTP/1.1 100 Continue\r\n\r\n"]) + start + body], False


def framing(draw: random.Random, start: bytes, body: bytes) -> tuple[list[bytes], bool]:
    stated = b"content-length: %d" % len(body)
    lines = [
        b"content-length: %d" % (len(body) - 5),
        b"content-length: %d" % (len(body) + 5),
        b"content-length: -1",
        b"content-length: %d, 3" % len(body),
        b"transfer-encoding: chunked",
        stated + b"\r\ntransfer-encoding: chunked",
        stated + b"\r\nx: " + b"y" * draw.choice([1_000, 200_000]),
        b"connection: close",
        b"content-encoding: gzip\r\n" + stated,
    ]
    chunked = b"%x%b\r\n%b\r\n0\r\n\r\n" % (len(body), draw.choice([b"", b";" + b"e" * 100_000]), body)
    framed = chunked if draw.random() < 0.3 else body
    return [start.replace(stated, draw.choice(lines)) + framed], draw.random() < 0.5


def garbled(draw: random.Random, start: bytes, body: bytes) -> tuple[list[bytes], bool]:
    """One byte of the body is another: not JSON, not UTF-8, not an event."""
    at = draw.randrange(len(body))
    return [start + body[:at] + bytes([draw.choice([0xFF, 0x00, 0x0A, 0x7B])]) + body[at + 1 :]], False


HTTP: tuple[Wrong, ...] = (surplus, shortened, apart, refused, interim, framing, garbled)


class Strange(Upstream):
    """`/odd/…` answers the case that its prompt names, wrongly; `/sound/…` well, `/open/…` without an end, `/large/…`
    with one event that does not end."""

    async def handle(self, connection: Connection, request: Recorded) -> None:
        word = re.search(rb"word-(\d+)", request.body)
        assert word is not None, request.body
        place, wire = re.findall(r"^/(\w+)/(\w+)/", request.path)[0]
        stream = b'"stream":true' in request.body or "streamGenerate" in request.path
        objects = answer(wire, stream, word.group().decode())
        draw = random.Random(int(word.group(1)))  # noqa: S311 - a case
        if place == "odd" and draw.random() < 0.5:
            at = draw.randrange(len(objects))
            objects[at] = mutated(draw, objects[at])
            body = encoded(wire, stream, objects)
            await connection.write(head(body, stream) + body)
            return
        body = encoded(wire, stream, objects)
        if place == "open":
            start = head(body, stream).replace(b"content-length: %d" % len(body), b"transfer-encoding: chunked")
            await connection.write(start + b"%x\r\n%b\r\n" % (len(body), body))
            return
        if place == "large":
            await connection.write(
                head(b"", stream).replace(b"content-length: 0", b"x: y") + b"data: " + b"x" * 2_000_000
            )
            return
        if place == "sound":
            await connection.write(head(body, stream) + body)
            return
        pieces, closes = draw.choice(HTTP)(draw, head(body, stream), body)
        await connection.write(*pieces)
        if closes:
            connection.close()


def policy(url: str) -> dict[str, Any]:
    def seat(place: str, wire: str) -> dict[str, Any]:
        # The others answer at once, but on a busy machine.
        timeouts = TIMEOUTS if place == "odd" else {}
        row = target(url, f"{place}-{wire}", flavour=wire, provider=wire, timeouts=timeouts)
        suffix = "" if wire in ("anthropic", "gemini") else "/v1"
        return {**row, "base_url": f"{url}/{place}/{wire}{suffix}"}

    targets = {f"{place}-{wire}": seat(place, wire) for place in ("odd", "sound", "open", "large") for wire in WIRES}
    routes = {wire: {"strategy": {"kind": "ordered", "targets": [f"odd-{wire}", f"sound-{wire}"]}} for wire in WIRES}
    return {"version": 1, "targets": targets, "routes": routes, "budgets": [{"id": "b", "limit_usd": 100}]}


@pytest.fixture
def strange(tmp_path: Path) -> Iterator[Gateway]:
    with Strange() as upstream, serving(tmp_path, policy(upstream.url)) as gateway:
        yield gateway
        assert upstream.errors == []


@each_row("wire", ["openai", "vllm", "anthropic"])
def test_a_stream_ends_where_its_protocol_says_so(strange: Gateway, wire: str) -> None:
    """The connection stays open, and the body never ends; a second request has a connection of its own."""
    for number in (1, 2):
        messages = [{"role": "user", "content": f"word-{number}."}]
        reply = strange.post("/v1/chat/completions", {"model": f"open-{wire}", "stream": True, "messages": messages})
        assert (reply.body.count(b"[DONE]"), b'"error"' in reply.body) == (1, False)
        assert f"word-{number}".encode() in reply.body
        row = strange.settled(reply.id)
        assert (row["status"], row["error"], row["attempts"][0]["outcome"]) == (200, None, "ok")


@each_row("wire", WIRES)
def test_an_event_without_an_end_is_not_kept(strange: Gateway, wire: str) -> None:
    messages = [{"role": "user", "content": "word-1."}]
    reply = strange.post("/v1/chat/completions", {"model": f"large-{wire}", "stream": True, "messages": messages})
    row = strange.settled(reply.id)
    assert (reply.status, row["error"], row["attempts"][0]["outcome"]) == (502, "bad_response", "bad_response")


def wrong_with(gateway: Gateway, number: int) -> str:
    """Asks the case; says what its client would have to complain about."""
    draw = random.Random(-number)  # noqa: S311
    wire, stream, word = draw.choice(WIRES), draw.random() < 0.5, f"word-{number}."
    translated = wire != "openai" and draw.random() < 0.5
    path = "/v1/responses" if translated else "/v1/chat/completions"
    asked = {"messages": [{"role": "user", "content": word}]} if "chat" in path else {"input": word}
    reply = gateway.post(path, {"model": wire, "stream": stream, **asked})
    row = gateway.settled(reply.id)
    case = f"case {number}: {wire} {path} stream={stream}: {reply.status} {reply.body[-300:]!r}"
    if row["state"] != "settled":
        return f"{case}: the row is {row['state']}"
    return f"{case}: {complaint}" if (complaint := _complaint(reply, stream, word[:-1])) else ""


def _complaint(reply: Reply, stream: bool, word: str) -> str:
    if STALE.encode() in reply.body or any(
        seen != word.encode() for seen in re.findall(rb"word-\d+", reply.body) if seen in reply.body
    ):
        return "another request's answer"
    if reply.status == 500:
        return "500"
    if reply.status != 200:
        return "" if reply.status in CLIENTS_FAULT else "the sound target was not asked"
    try:
        reply.body.decode()
        if not stream:
            reply.json  # noqa: B018 - it is JSON
    except ValueError:
        return "no JSON"
    return ""


@pytest.mark.parametrize("cases", [500, pytest.param(10_000, marks=[pytest.mark.nightly, pytest.mark.timeout(1_800)])])
def test_everybody_gets_the_own_answer_or_an_error(strange: Gateway, cases: int) -> None:
    with ThreadPoolExecutor(16) as pool:
        complaints = [
            text for text in pool.map(lambda number: wrong_with(strange, number), range(1, cases + 1)) if text
        ]
    assert not complaints, "\n".join([f"{len(complaints)} of {cases}", *complaints[:20]])
    assert strange.rows("SELECT count(*) AS held FROM requests WHERE state = 'held'") == [{"held": 0}]
    assert "Traceback" not in strange.log.read_text()
    strange.check_books()
