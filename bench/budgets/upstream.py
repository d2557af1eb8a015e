"""A scripted upstream whose answers are as unlike each other as real ones are.

`python -m bench.budgets.upstream` prints its port on loopback and serves until its standard input closes. How long an
answer is, and how many bytes its tokens have, is drawn from the ticket number in the prompt: the same prompt gets the
same answer. The model `flaky` fails the first time that it sees some of the tickets. A model named `cell-…` behaves as
the rest of its name says (`Manner`). `GET /truth` tells what each model has produced: what a provider would bill.
"""

import random
import re
from collections.abc import Callable
from math import ceil

import msgspec
import uvloop
from msgspec import Struct

from bench.requests import Requests, serve

MEDIAN, SIGMA = 200, 0.6
"""Tokens of an answer: log-normal, so that one in a hundred is four times the median."""
MEAN_TOKENS = 240
SHORTEST, LONGEST, LONGEST_THOUGHT = 16, 2_000, 4_000
BYTES_PER_TOKEN, SPREAD = 4.2, 0.5
"""As in `bench.holds`."""
PROMPT_BYTES_PER_TOKEN = 4
GAP_S = 0.008
TOKENS_PER_EVENT = 4
"""Of a model that is no cell. At this gap 500 tokens a second: a fast provider."""

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
    n: int = 1
    max_tokens: int | None = None
    max_completion_tokens: int | None = None

    @property
    def cap(self) -> int:
        caps = [cap for cap in (self.max_tokens, self.max_completion_tokens) if cap is not None]
        return min(caps, default=LONGEST_THOUGHT + LONGEST)


class Manner(Struct, frozen=True):
    """How a model answers: the words of its name, such as `cell-1000-hidden`."""

    pace: float = TOKENS_PER_EVENT / GAP_S
    """Tokens a second: a number in the name."""
    per_event: int = TOKENS_PER_EVENT
    """100 with `chunks`."""
    hidden: bool = False
    """It thinks, up to three times what it says, and shows nothing of that."""
    buffered: bool = False
    """A stream comes at its end, in one piece."""
    silent: bool = False
    """It states no usage."""
    deaf: bool = False
    """It ignores caps."""

    @classmethod
    def of(cls, model: str) -> "Manner":
        words = model.split("-")
        if words[0] != "cell":
            return cls()
        pace = next((float(word) for word in words if word.isdigit()), cls.pace)
        # An event every ten milliseconds: the bench's own machine is not to be the limit.
        per_event = 100 if "chunks" in words else max(TOKENS_PER_EVENT, int(pace / 100))
        return cls(pace, per_event, *(name in words for name in ("hidden", "buffered", "silent", "deaf")))


class Reply(Struct, frozen=True):
    """What is said to one request: tokens of a text, each so many bytes, after so many of thought; `n` times."""

    tokens: int
    thoughts: int
    density: float
    finish: str
    prompt_tokens: int
    n: int

    def text(self, start: int, end: int) -> str:
        """The tokens from `start` to `end`."""
        size = int(end * self.density) - int(start * self.density)
        return ("lorem ipsum dolor sit amet " * (size // 27 + 1))[:size]

    @property
    def usage(self) -> dict[str, object]:
        output = (self.thoughts + self.tokens) * self.n
        details = {"reasoning_tokens": self.thoughts * self.n}
        counts = {"prompt_tokens": self.prompt_tokens, "completion_tokens": output}
        return {**counts, "total_tokens": self.prompt_tokens + output, "completion_tokens_details": details}


def reply(ask: Ask, ticket: int, manner: Manner) -> Reply:
    draw = random.Random(ticket)  # noqa: S311 - the same answer each time
    wanted = min(LONGEST, max(SHORTEST, int(MEDIAN * draw.lognormvariate(0, SIGMA))))
    density = max(2.5, draw.gauss(BYTES_PER_TOKEN, SPREAD))
    cap = LONGEST_THOUGHT + LONGEST if manner.deaf else ask.cap
    thoughts = min(cap, LONGEST_THOUGHT, int(wanted * draw.uniform(0, 3))) if manner.hidden else 0
    said = min(wanted, cap - thoughts)
    prompt = sum(len(message.content) for message in ask.messages) // PROMPT_BYTES_PER_TOKEN
    return Reply(said, thoughts, density, "stop" if said == wanted else "length", prompt, ask.n)


def whole(answer: Reply, manner: Manner) -> bytes:
    """As one HTTP response."""
    message = {"role": "assistant", "content": answer.text(0, answer.tokens)}
    choices = [{"index": index, "message": message, "finish_reason": answer.finish} for index in range(answer.n)]
    head = {"id": "chatcmpl-bench", "object": "chat.completion", "created": 1760000000, "model": "bench"}
    body = msgspec.json.encode(head | {"choices": choices} | ({} if manner.silent else {"usage": answer.usage}))
    return _HEAD % (b"200 OK", b"application/json", b"content-length: %d\r\n" % len(body)) + body


def events(answer: Reply, manner: Manner) -> list[tuple[int, bytes]]:
    """As HTTP chunks, one event each, and how many tokens of a choice were produced by then."""
    parts = [(0, _choices(answer, {"role": "assistant", "content": ""}))]
    for start in range(0, answer.tokens, manner.per_event):
        end = min(start + manner.per_event, answer.tokens)
        parts.append((answer.thoughts + end, _choices(answer, {"content": answer.text(start, end)})))
    last = answer.thoughts + answer.tokens
    parts.append((last, _choices(answer, {}, answer.finish)))
    if not manner.silent:
        parts.append((last, {"choices": [], "usage": answer.usage}))
    framed = [(tokens, _framed(_chunk(part))) for tokens, part in parts]
    framed.append((last, _framed(b"[DONE]") + b"0\r\n\r\n"))
    return [(last, b"".join(data for _, data in framed))] if manner.buffered else framed


def _choices(answer: Reply, delta: dict[str, str], finish: str | None = None) -> dict[str, object]:
    choices = [{"index": index, "delta": delta, "finish_reason": finish} for index in range(answer.n)]
    return {"choices": choices}


def _chunk(part: dict[str, object]) -> bytes:
    head = {"id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 1760000000, "model": "bench"}
    return msgspec.json.encode(head | part)


def _framed(data: bytes) -> bytes:
    event = b"data: %b\n\n" % data
    return b"%x\r\n%b\r\n" % (len(event), event)


_ask = msgspec.json.Decoder(Ask).decode


class Truth(Struct):
    """What a model has produced. Amounts over all of its requests."""

    requests: int = 0
    input: int = 0
    visible: int = 0
    thoughts: int = 0


class Upstream(Requests):
    """One keep-alive connection."""

    met: set[int] = set()  # noqa: RUF012 - tickets that failed once, on whichever connection
    truth: dict[str, Truth] = {}  # noqa: RUF012 - of all connections
    answering: tuple[str, Reply, Manner, float] | None = None
    """Model, answer, and when it was begun."""

    def on_message_complete(self) -> None:
        if self.url == b"/truth":
            body = msgspec.json.encode(self.truth)
            head = _HEAD % (b"200 OK", b"application/json", b"content-length: %d\r\n" % len(body))
            self.transport.write(head + body)
            return
        if self.url != b"/v1/chat/completions":
            self.transport.write(_NOT_FOUND)
            return
        body = b"".join(self.body)
        found = _TICKET.search(body)
        ticket, ask = int(found[1]) if found else 0, _ask(body)
        fault = self._fault(ticket) if ask.model == "flaky" else None
        if fault == "status":
            self.transport.write(_FAILED)
            return
        manner = Manner.of(ask.model)
        self._answer(ask, reply(ask, ticket, manner), manner, fault == "cut")

    def _answer(self, ask: Ask, answer: Reply, manner: Manner, cut: bool) -> None:
        self.answering = ask.model, answer, manner, self.loop.time()
        if ask.stream:
            parts = events(answer, manner)
            self.transport.write(_STREAM)
            self._next(parts[: len(parts) // 2] if cut else parts, 0, cut)
        else:
            self._later(answer.thoughts + answer.tokens, self._end, whole(answer, manner))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._bill()

    def _fault(self, ticket: int) -> str | None:
        if ticket in self.met:
            return None
        self.met.add(ticket)
        return _FAULTS.get(ticket % 4)

    def _later(self, tokens: int, then: Callable[..., None], *values: object) -> None:
        """Once so many tokens of each choice are produced."""
        assert self.answering is not None
        _, _, manner, began = self.answering
        self.timer = self.loop.call_at(began + tokens / manner.pace, then, *values)

    def _end(self, data: bytes) -> None:
        self._bill()
        self.transport.write(data)

    def _next(self, parts: list[tuple[int, bytes]], at: int, cut: bool) -> None:
        if at + 1 == len(parts):
            self._later(parts[at][0], self._cut if cut else self._end, parts[at][1])
        else:
            self._later(parts[at][0], self._say, parts, at, cut)

    def _say(self, parts: list[tuple[int, bytes]], at: int, cut: bool) -> None:
        self.transport.write(parts[at][1])
        self._next(parts, at + 1, cut)

    def _cut(self, data: bytes) -> None:
        self._end(data)
        self.transport.close()

    def _bill(self) -> None:
        """What was produced until now of the answer in progress."""
        if self.answering is None:
            return
        model, answer, manner, began = self.answering
        self.answering = None
        produced = min(answer.thoughts + answer.tokens, ceil((self.loop.time() - began) * manner.pace))
        thoughts = min(produced, answer.thoughts)
        truth = self.truth.setdefault(model, Truth())
        truth.requests += 1
        truth.input += answer.prompt_tokens
        truth.thoughts += thoughts * answer.n
        truth.visible += (produced - thoughts) * answer.n


if __name__ == "__main__":
    uvloop.run(serve(Upstream))
