"""Answers that no API promises, over HTTP that is barely any: a request with a word of its own, an answer with that
word, and one thing wrong with the answer. Every case is its number.

`Strange` answers at `/odd/…` the case that the prompt names, wrongly; at `/sound/…` well; at `/open/…` without an end;
at `/large/…` with an event that does not end; at `/swollen/…` with `SWOLLEN` bytes somewhere in it.
`STALE` stands in what belongs to no request.
"""

import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from router.testing import CHAT, Reply
from router.testing.upstream.server import HttpConnection, Recorded, Upstream

RESPONSES, COMPLETIONS, EMBEDDINGS = "/v1/responses", "/v1/completions", "/v1/embeddings"
WIRES = {
    "openai": (CHAT, CHAT, CHAT, COMPLETIONS, EMBEDDINGS),
    "vllm": (CHAT, CHAT, RESPONSES, COMPLETIONS, EMBEDDINGS),
    "anthropic": (CHAT, RESPONSES),
    "gemini": (CHAT, RESPONSES),
    "responses": (RESPONSES,),
}
"""The paths that clients ask, as often as they stand there. `responses` is OpenAI's own, which passes through; on the
other wires that path is translated."""
ODD_TARGETS = 64
"""For each wire, in the same place: a target that fails half of its requests must not rest, or it is not asked."""
TIMEOUTS = {"first_ms": 400, "between_ms": 400, "total_ms": 1_500}
PLACES = ("sound", "open", "large", "swollen")
CLIENTS_FAULT = (400, 413, 422)
"""What any target would refuse."""
STALE = "stale-word"
SWOLLEN = 400_000
WORD = re.compile(rb"word-(\d+);")
Json: TypeAlias = dict[str, Any]
Wrong = Callable[[random.Random, bytes, bytes], tuple[list[bytes], bool]]
"""From status line with headers, and body: what is written, piece by piece, and whether the connection closes then."""


class Case(Struct, frozen=True):
    number: int
    wire: str
    path: str
    stream: bool
    route: str

    @property
    def body(self) -> Json:
        text = f"word-{self.number};"
        field = {CHAT: "messages", COMPLETIONS: "prompt"}.get(self.path, "input")
        prompt = [{"role": "user", "content": text}] if self.path == CHAT else text
        stream = {} if self.path == EMBEDDINGS else {"stream": self.stream}
        return {"model": self.route, field: prompt, **stream}

    def complaint(self, reply: Reply) -> str:
        """What is wrong with its answer; empty: nothing."""
        words = {int(number) for number in WORD.findall(reply.body)}
        if STALE.encode() in reply.body or words - {self.number}:
            return "another request's answer"
        if reply.status == 500:
            return "500"
        if reply.status != 200:
            return "" if reply.status in CLIENTS_FAULT else "the sound target was not asked"
        try:
            reply.body.decode()
            if not self.stream:
                json.loads(reply.body)
        except ValueError:
            return "no JSON"
        return ""


def case(number: int, wires: Sequence[str] = tuple(WIRES), odd_targets: int = ODD_TARGETS) -> Case:
    draw = random.Random(-number)  # noqa: S311 - a case
    path = draw.choice(WIRES[wire := draw.choice(wires)])
    return Case(number, wire, path, path != EMBEDDINGS and draw.random() < 0.5, f"{wire}-{number % odd_targets}")


def policy(url: str, wires: Sequence[str] = tuple(WIRES), odd_targets: int = ODD_TARGETS) -> Json:
    """Routes `WIRE-NUMBER` ask an odd target, then the sound one; `open-WIRE` and the like are targets."""

    def row(place: str, wire: str) -> Json:
        size = {"context": 100_000, "max_output": 1_000, "price": {"input": 1, "output": 2}}
        provider = "openai" if wire == "responses" else wire
        model = {"name": "m", "provider": provider, "capabilities": ["chat", "completions", "embeddings"], **size}
        # The others answer at once, but on a busy machine.
        timeouts = TIMEOUTS if place == "odd" else {}
        base_url = f"{url}/{place}/{wire}{'' if wire in ('anthropic', 'gemini') else '/v1'}"
        return {"model": model, "base_url": base_url, "api_key": "sk-upstream", "retries": 0, "timeouts": timeouts}

    odd = {f"odd-{wire}-{number}": (wire, number) for wire in wires for number in range(odd_targets)}
    targets = {name: row("odd", wire) for name, (wire, _) in odd.items()}
    targets |= {f"{place}-{wire}": row(place, wire) for place in PLACES for wire in wires}
    routes = {
        f"{wire}-{number}": {"strategy": {"kind": "ordered", "targets": [name, f"sound-{wire}"]}}
        for name, (wire, number) in odd.items()
    }
    return {"version": 1, "targets": targets, "routes": routes, "budgets": [{"id": "b", "limit_usd": 100}]}


class Strange(Upstream):
    async def handle(self, connection: HttpConnection, request: Recorded) -> None:
        number = WORD.search(request.body)
        assert number is not None, request.body
        place, wire = re.findall(r"^/(\w+)/(\w+)/", request.path)[0]
        stream = b'"stream":true' in request.body or "streamGenerate" in request.path
        objects = answer(wire if wire in ("anthropic", "gemini") else request.path, stream, number.group().decode())
        draw = random.Random(int(number.group(1)))  # noqa: S311 - a case
        intact = place != "odd" or draw.random() < 0.5
        if not intact:
            at = draw.randrange(len(objects))
            objects[at] = mutated(draw, objects[at])
        if place == "swollen":
            at = draw.randrange(len(objects))
            objects[at] = swollen(draw, objects[at])
        start = head(body := encoded(objects, stream), stream)
        if place in ("sound", "swollen") or not intact:
            await connection.write(start + body)
            return
        if place == "large":
            await connection.write(start.replace(b"content-length", b"x") + b"data: " + b"x" * 2_000_000)
            return
        if place == "open":
            start = start.replace(b"content-length: %d" % len(body), b"transfer-encoding: chunked")
            await connection.write(start + b"%x\r\n%b\r\n" % (len(body), body))
            return
        pieces, closes = draw.choice(HTTP)(draw, start, body)
        await connection.write(*pieces)
        if closes:
            connection.close()


def answer(kind: str, stream: bool, word: str) -> list[Json]:
    """An answer as its only object, or as the events of a stream. `kind` is a wire, or a path of OpenAI's wire."""
    if kind == "anthropic":
        return _anthropic(stream, word)
    if kind == "gemini":
        usage = {"promptTokenCount": 5, "candidatesTokenCount": 3, "totalTokenCount": 8}
        content = {"role": "model", "parts": [{"text": word}]}
        return [{"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": usage}]
    if kind.endswith("/responses"):
        return _responses(stream, word)
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    if kind.endswith("/embeddings"):
        vector = {"object": "embedding", "index": 0, "embedding": [0.5, -0.5], "of": word}
        return [{"object": "list", "data": [vector], "model": "m", "usage": usage}]
    if kind.endswith("/chat/completions"):
        return _chat(stream, word, usage)
    base = {"id": "c", "object": "text_completion", "created": 1, "model": "m"}
    choice = {"index": 0, "text": word, "logprobs": None, "finish_reason": "stop"}
    if not stream:
        return [{**base, "choices": [choice], "usage": usage}]
    return [{**base, "choices": [choice]}, {**base, "choices": [], "usage": usage}]


def _anthropic(stream: bool, word: str) -> list[Json]:
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


def _responses(stream: bool, word: str) -> list[Json]:
    usage = {"input_tokens": 5, "output_tokens": 3, "total_tokens": 8}
    base = {"id": "r", "object": "response", "created_at": 1, "model": "m", "tools": []}
    content = {"type": "output_text", "text": word, "annotations": []}
    item = {"id": "i", "type": "message", "role": "assistant", "status": "completed", "content": [content]}
    whole = {**base, "status": "completed", "output": [item], "usage": usage}
    if not stream:
        return [whole]
    events: list[Json] = [
        {"type": "response.created", "response": {**base, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.output_text.delta", "output_index": 0, "item_id": "i", "content_index": 0, "delta": word},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ]
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _chat(stream: bool, word: str, usage: Json) -> list[Json]:
    tool = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": word, "refusal": None, "reasoning_content": "so", "tool_calls": [tool]}
    base = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    if not stream:
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        return [{**base, "choices": [choice], "usage": usage}]
    first = {"index": 0, "delta": {**message, "tool_calls": [{"index": 0, **tool}]}, "finish_reason": None}
    last = {"index": 0, "delta": {}, "finish_reason": "stop"}
    chunks: list[Json] = [{"choices": [first]}, {"choices": [last]}, {"choices": [], "usage": usage}]
    return [{**base, "object": "chat.completion.chunk", **chunk} for chunk in chunks]


def encoded(objects: list[Json], stream: bool) -> bytes:
    if not stream:
        return json.dumps(objects[0]).encode()
    named = [f"event: {kind}\n" if (kind := event.get("type")) else "" for event in objects]
    events = "".join(f"{name}data: {json.dumps(event)}\n\n" for name, event in zip(named, objects, strict=True))
    return (events + ("data: [DONE]\n\n" if any("choices" in event for event in objects) else "")).encode()


def head(body: bytes, stream: bool, status: str = "200 OK", *more: str) -> bytes:
    kind = "text/event-stream" if stream else "application/json"
    lines = (f"HTTP/1.1 {status}", f"content-type: {kind}", f"content-length: {len(body)}", *more)
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


ODD: tuple[Any, ...] = (None, [], {}, "", "odd", 0, -1, 1.5, True, [None], {"odd": None}, [[]], 10**30)


def mutated(draw: random.Random, value: Any) -> Any:
    """One place of it holds something else, or is gone."""
    value = json.loads(json.dumps(value))
    node, key = draw.choice(places(value))
    if draw.random() < 0.2:
        del node[key]
    else:
        node[key] = draw.choice(ODD)
    return value


def swollen(draw: random.Random, value: Any) -> Any:
    """One text of it is long, or a member that no API has."""
    value = json.loads(json.dumps(value))
    node, key = draw.choice([(node, key) for node, key in places(value) if isinstance(node, dict)])
    if isinstance(node[key], str):
        node[key] += "x" * SWOLLEN
    else:
        node["odd"] = "x" * SWOLLEN
    return value


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (object or list, key) in it."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in ((value, key), *places(value[key]))]


def surplus(draw: random.Random, start: bytes, body: bytes) -> tuple[list[bytes], bool]:
    """Bytes behind a whole answer: another answer, half of one, or anything."""
    other = WORD.sub(STALE.encode(), body)
    stale = start.replace(b"content-length: %d" % len(body), b"content-length: %d" % len(other)) + other
    half = stale[: draw.randrange(1, len(stale))]
    return [start + body + draw.choice([stale, half, b"odd", b"\r\n", b"\0" * 9])], False


def shortened(draw: random.Random, start: bytes, body: bytes) -> tuple[list[bytes], bool]:
    whole = start + body
    return [whole[: draw.randrange(len(whole))]], draw.random() < 0.5


def apart(draw: random.Random, start: bytes, body: bytes) -> tuple[list[bytes], bool]:
    """Nothing is wrong but where segments end."""
    return cut(draw, start + body, 3), False


def cut(draw: random.Random, whole: bytes, times: int) -> list[bytes]:
    places = sorted(draw.sample(range(1, len(whole)), times))
    return [whole[a:b] for a, b in zip([0, *places], [*places, len(whole)], strict=True)]


REFUSALS = (
    *(204, 301, 302, 307, 308, 400, 401, 403, 404, 405, 408),
    *(410, 413, 421, 425, 429, 431, 451, 500, 503, 504, 599),
)


def refused(draw: random.Random, start: bytes, body: bytes) -> tuple[list[bytes], bool]:
    odd = draw.choice([b"", b"{}", b"[]", b"null", b"<html>", b'{"error": 7}', b'{"error": {"message": []}}', b"\xff"])
    later = draw.choice(["x: y", "retry-after: 999999999", "retry-after: soon", "location: http://127.0.0.1:1/"])
    return [head(odd, False, f"{draw.choice(REFUSALS)} Odd", later) + odd], False


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
    """Another byte in the body: not JSON, not UTF-8, not an event."""
    at = draw.randrange(len(body))
    return [start + body[:at] + bytes([draw.choice([0xFF, 0x00, 0x0A, 0x7B])]) + body[at + 1 :]], False


HTTP: tuple[Wrong, ...] = (surplus, shortened, apart, refused, interim, framing, garbled)
