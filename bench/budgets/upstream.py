"""A scripted upstream whose answers are as unlike each other as real ones are.

`python -m bench.budgets.upstream` prints its port on loopback and serves until its standard input closes. How long an
answer is, and how many bytes its tokens have, is drawn from the ticket number in the prompt: the same prompt gets the
same answer. The model `flaky` fails the first time that it sees some of the tickets. Caps are heard.
"""

import random
import re

import msgspec
import uvloop
from msgspec import Struct

from bench.requests import Requests, serve

MEDIAN, SIGMA = 200, 0.6
"""Tokens of an answer: log-normal, so that one in a hundred is four times the median."""
MEAN_TOKENS = 240
SHORTEST, LONGEST = 16, 2_000
BYTES_PER_TOKEN, SPREAD = 4.2, 0.5
"""As in `bench.holds`."""
PROMPT_BYTES_PER_TOKEN = 4
GAP_S = 0.008
TOKENS_PER_EVENT = 4
"""At this gap 500 tokens a second: a fast provider."""

_TICKET = re.compile(rb"Ticket (\d+)")
_FAULTS = {1: "status", 2: "cut"}
"""What becomes of the first try of a ticket, by its number modulo four."""
_HEAD = b"HTTP/1.1 %b\r\ncontent-type: %b\r\n%b\r\n"
_FAILED = _HEAD % (b"500 Internal Server Error", b"application/json", b"content-length: 2\r\n") + b"{}"
_NOT_FOUND = _HEAD % (b"404 Not Found", b"text/plain", b"content-length: 0\r\n")
_STREAM = _HEAD % (b"200 OK", b"text/event-stream", b"transfer-encoding: chunked\r\n")


class Message(Struct, frozen=True):
    content: str


class Ask(Struct, frozen=True):
    """The fields of a chat request that change the answer."""

    model: str
    messages: list[Message]
    stream: bool = False
    max_tokens: int | None = None
    max_completion_tokens: int | None = None

    @property
    def cap(self) -> int:
        caps = [cap for cap in (self.max_tokens, self.max_completion_tokens) if cap is not None]
        return min(caps, default=LONGEST)


class Reply(Struct, frozen=True):
    """What is said to one request: tokens of a text, each so many bytes."""

    tokens: int
    density: float
    finish: str
    prompt_tokens: int

    def text(self, start: int, end: int) -> str:
        """The tokens from `start` to `end`."""
        size = int(end * self.density) - int(start * self.density)
        return ("lorem ipsum dolor sit amet " * (size // 27 + 1))[:size]

    @property
    def usage(self) -> dict[str, int]:
        total = self.prompt_tokens + self.tokens
        return {"prompt_tokens": self.prompt_tokens, "completion_tokens": self.tokens, "total_tokens": total}


def reply(ask: Ask, ticket: int) -> Reply:
    draw = random.Random(ticket)  # noqa: S311 - the same answer each time
    wanted = min(LONGEST, max(SHORTEST, int(MEDIAN * draw.lognormvariate(0, SIGMA))))
    said, density = min(wanted, ask.cap), max(2.5, draw.gauss(BYTES_PER_TOKEN, SPREAD))
    prompt = sum(len(message.content) for message in ask.messages) // PROMPT_BYTES_PER_TOKEN
    return Reply(said, density, "stop" if said == wanted else "length", prompt)


def whole(answer: Reply) -> bytes:
    """As one HTTP response."""
    message = {"role": "assistant", "content": answer.text(0, answer.tokens)}
    choice = {"index": 0, "message": message, "finish_reason": answer.finish}
    head = {"id": "chatcmpl-bench", "object": "chat.completion", "created": 1760000000, "model": "bench"}
    body = msgspec.json.encode(head | {"choices": [choice], "usage": answer.usage})
    return _HEAD % (b"200 OK", b"application/json", b"content-length: %d\r\n" % len(body)) + body


def events(answer: Reply) -> list[bytes]:
    """As HTTP chunks, one event each."""
    starts = range(0, answer.tokens, TOKENS_PER_EVENT)
    texts = [answer.text(at, min(at + TOKENS_PER_EVENT, answer.tokens)) for at in starts]
    parts = [_choice({"role": "assistant", "content": ""}), *(_choice({"content": text}) for text in texts)]
    parts += [_choice({}, answer.finish), {"choices": [], "usage": answer.usage}]
    return [_framed(_chunk(part)) for part in parts] + [_framed(b"[DONE]") + b"0\r\n\r\n"]


def _choice(delta: dict[str, str], finish: str | None = None) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _chunk(part: dict[str, object]) -> bytes:
    head = {"id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 1760000000, "model": "bench"}
    return msgspec.json.encode(head | part)


def _framed(data: bytes) -> bytes:
    event = b"data: %b\n\n" % data
    return b"%x\r\n%b\r\n" % (len(event), event)


_ask = msgspec.json.Decoder(Ask).decode


class Upstream(Requests):
    """One keep-alive connection."""

    met: set[int] = set()  # noqa: RUF012 - tickets that failed once, on whichever connection

    def on_message_complete(self) -> None:
        if self.url != b"/v1/chat/completions":
            self.transport.write(_NOT_FOUND)
            return
        body = b"".join(self.body)
        found = _TICKET.search(body)
        ticket, ask = int(found[1]) if found else 0, _ask(body)
        fault = self._fault(ticket) if ask.model == "flaky" else None
        if fault == "status":
            self.transport.write(_FAILED)
        else:
            self._say(ask, reply(ask, ticket), cut=fault == "cut")

    def _fault(self, ticket: int) -> str | None:
        if ticket in self.met:
            return None
        self.met.add(ticket)
        return _FAULTS.get(ticket % 4)

    def _say(self, ask: Ask, answer: Reply, cut: bool) -> None:
        if not ask.stream:
            wait = GAP_S * answer.tokens / TOKENS_PER_EVENT
            self.timer = self.loop.call_later(wait, self.transport.write, whole(answer))
            return
        parts = events(answer)
        self.transport.write(_STREAM)
        self._next(parts[: len(parts) // 2] if cut else parts, 0, cut)

    def _next(self, parts: list[bytes], at: int, cut: bool) -> None:
        self.transport.write(parts[at])
        if at + 1 < len(parts):
            self.timer = self.loop.call_later(GAP_S, self._next, parts, at + 1, cut)
        elif cut:
            self.transport.close()


if __name__ == "__main__":
    uvloop.run(serve(Upstream))
