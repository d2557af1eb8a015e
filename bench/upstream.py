"""A scripted upstream that costs next to nothing: one fixed answer, or forty chunks two milliseconds apart.

`python -m bench.upstream` prints its port on loopback and serves until its standard input closes.
"""

import msgspec
import uvloop

from bench.requests import Requests, serve

CHUNKS = 40
GAP_S = 0.002
"""Pause before every event but the first. Event loops count whole milliseconds: less would measure rounding."""

ANSWER = (
    "A low-pass filter keeps the slow part of a signal and drops the fast part. The simplest one is a resistor and a "
    "capacitor: above the cut-off frequency, one over two pi R C, the output falls by twenty decibels a decade. In "
    "software the same filter is one line: y += a * (x - y), where a is set by the sampling interval. Choose the cut "
    "well above what you want to keep, and well below what you want to lose."
)
PIECES = tuple(f" piece-{number:02d}" for number in range(CHUNKS))
USAGE = {"prompt_tokens": 842, "completion_tokens": 71, "total_tokens": 913}


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool = False


class Ask(msgspec.Struct, frozen=True):
    """The two fields of a chat request that change the script."""

    stream: bool = False
    stream_options: StreamOptions | None = None


def completion() -> bytes:
    """The answer to a request that is not streamed, as a whole HTTP response."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": ANSWER},
        "logprobs": None,
        "finish_reason": "stop",
    }
    head = {"id": "chatcmpl-bench", "object": "chat.completion", "created": 1760000000, "model": "bench-model"}
    body = msgspec.json.encode(head | {"choices": [choice], "usage": USAGE})
    return _head(b"200 OK", b"application/json", b"content-length: %d\r\n" % len(body)) + body


def events(include_usage: bool) -> tuple[bytes, ...]:
    """A streamed answer, one HTTP chunk an event: role, pieces, finish, usage if asked for, the end."""
    deltas = [_choice({"role": "assistant", "content": ""}), *(_choice({"content": piece}) for piece in PIECES)]
    usage: list[dict[str, object]] = [{"choices": [], "usage": USAGE}] if include_usage else []
    payloads = [_chunk(part) for part in [*deltas, _choice({}, "stop"), *usage]] + [b"[DONE]"]
    return tuple(_framed(b"data: %b\n\n" % payload) for payload in payloads)


def _choice(delta: dict[str, str], finish_reason: str | None = None) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}]}


def _chunk(part: dict[str, object]) -> bytes:
    head = {"id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 1760000000, "model": "bench-model"}
    return msgspec.json.encode(head | part)


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _head(status: bytes, content_type: bytes, length: bytes) -> bytes:
    return b"HTTP/1.1 %b\r\ncontent-type: %b\r\n%b\r\n" % (status, content_type, length)


_COMPLETION = completion()
_NOT_FOUND = _head(b"404 Not Found", b"text/plain", b"content-length: 0\r\n")
_STREAM_HEAD = _head(b"200 OK", b"text/event-stream", b"transfer-encoding: chunked\r\n")
_EVENTS = {include_usage: events(include_usage) for include_usage in (True, False)}
_LAST_CHUNK = b"0\r\n\r\n"
_ask = msgspec.json.Decoder(Ask).decode


class Upstream(Requests):
    """One keep-alive connection. Requests are answered in turn; a client does not pipeline."""

    left: list[bytes]

    def on_message_complete(self) -> None:
        if self.url != b"/v1/chat/completions":
            self.transport.write(_NOT_FOUND)
            return
        ask = _ask(b"".join(self.body))
        if ask.stream:
            self._start(ask.stream_options is not None and ask.stream_options.include_usage)
        else:
            self.transport.write(_COMPLETION)

    def _start(self, include_usage: bool) -> None:
        first, *rest = _EVENTS[include_usage]
        self.left = rest[::-1]
        self.transport.write(_STREAM_HEAD + first)
        self.timer = self.loop.call_later(GAP_S, self._next)

    def _next(self) -> None:
        event = self.left.pop()
        if self.left:
            self.transport.write(event)
            self.timer = self.loop.call_later(GAP_S, self._next)
        else:
            self.transport.write(event + _LAST_CHUNK)


if __name__ == "__main__":
    uvloop.run(serve(Upstream))
