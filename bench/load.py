"""A load generator that believes nothing: every answer is checked, and one wrong answer fails the run.

`python -m bench.load` reads one `Job` a line, as JSON, from standard input and writes one `Outcome` a line.
"""

import asyncio
import re
import sys
from time import perf_counter
from typing import cast

import httptools
import msgspec
import uvloop

from bench.upstream import ANSWER, PIECES, USAGE

PATH = "/v1/chat/completions"
_ANSWER = ANSWER.encode()
_USAGE = re.compile(rb'"total_tokens": ?%d\b' % USAGE["total_tokens"])
_PIECE = re.compile(rb'" piece-(\d\d)"')
_NUMBERS = [b"%02d" % number for number in range(len(PIECES))]
_DONE = b"data: [DONE]\n\n"

_SYSTEM = (
    "You are the assistant of a hardware laboratory. Answer briefly, name your assumptions, and show units. "
    "When two proposals are close, say so, and name the single measurement that would decide between them."
)
_SENTENCES = (
    "The board samples eight thermocouples at two kilohertz and averages them over a window that the operator chooses.",
    "Last winter the readings drifted by almost half a degree whenever the compressor in the next room was running.",
    "We moved the analogue ground, replaced the cable, and added ferrite beads, which removed roughly a third of it.",
    "What remains looks like a slow beat between the mains frequency and the sampling clock, about once every minute.",
    "A colleague suggests a second-order filter in hardware; another would filter in firmware and keep the board.",
    "Please compare both proposals by cost, added delay, phase error at ten hertz, and the work to validate them.",
)
_PARAGRAPHS = 5
"""Five times the six sentences make the body about 3.9 kB, a mid-sized chat turn."""


class Job(msgspec.Struct, frozen=True):
    """A closed loop: `connections` clients, each sending its next request when the last is answered."""

    port: int
    connections: int
    requests: int
    stream: bool = False
    model: str = "bench-model"
    key: str | None = None
    limit_s: float = 60.0


class Quantiles(msgspec.Struct, frozen=True):
    """Nearest-rank quantiles, in milliseconds."""

    p50: float
    p95: float
    p99: float


class Result(msgspec.Struct, frozen=True):
    requests: int
    seconds: float
    body_bytes: int
    latency_ms: Quantiles
    first_byte_ms: Quantiles
    """Until the first byte of the body: for a stream, of its first event."""


class Outcome(msgspec.Struct, frozen=True):
    """Exactly one of the two is set."""

    result: Result | None = None
    error: str | None = None


class LoadError(Exception):
    """An answer was wrong, or did not come."""


def quantiles(seconds: list[float]) -> Quantiles:
    ordered = sorted(seconds)
    return Quantiles(*(round(ordered[int(share * (len(ordered) - 1))] * 1e3, 3) for share in (0.5, 0.95, 0.99)))


def chat_body(job: Job) -> tuple[bytes, bytes]:
    """The request's JSON in two halves: a number between them makes every prompt different, as real ones are."""
    text = "\n\n".join([" ".join(_SENTENCES)] * _PARAGRAPHS)
    messages = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": f"Ticket NUMBER.\n\n{text}"}]
    body: dict[str, object] = {"model": job.model, "messages": messages, "temperature": 0.2, "max_tokens": 256}
    if job.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    before, after = msgspec.json.encode(body).split(b"NUMBER")
    return before, after


def wrong_with(status: int, body: bytes, stream: bool) -> str | None:
    """What is wrong with an answer, or None."""
    if status != 200:
        return f"status {status}: {body[:300].decode(errors='replace')}"
    if not _USAGE.search(body):
        return f"no usage in {len(body)} bytes"
    if not stream:
        return None if _ANSWER in body else f"another answer: {body[:300].decode(errors='replace')}"
    if _PIECE.findall(body) != _NUMBERS:
        return f"not the {len(PIECES)} pieces in order, in {len(body)} bytes"
    return None if body.endswith(_DONE) else "no [DONE] at the end of the stream"


class Run:
    """The shared state of one job: what is left to send, what was measured, and how it ended."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.left = job.requests
        self.body_bytes = 0
        self.latencies: list[float] = []
        self.first_bytes: list[float] = []
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        key = f"authorization: Bearer {job.key}\r\n" if job.key else ""
        head = f"POST {PATH} HTTP/1.1\r\nhost: 127.0.0.1:{job.port}\r\ncontent-type: application/json\r\n{key}"
        before, self.after = chat_body(job)
        length = len(before) + 8 + len(self.after)
        self.before = f"{head}content-length: {length}\r\n\r\n".encode() + before

    def next_request(self) -> bytes | None:
        """The bytes of the next request, or None when all are sent."""
        if not self.left:
            return None
        self.left -= 1
        return b"%b%08d%b" % (self.before, self.left, self.after)

    def answered(self, latency: float, first_byte: float, size: int) -> None:
        self.latencies.append(latency)
        self.first_bytes.append(first_byte)
        self.body_bytes += size
        if len(self.latencies) == self.job.requests and not self.ended.done():
            self.ended.set_result(None)

    def failed(self, problem: str) -> None:
        if not self.ended.done():
            self.ended.set_exception(LoadError(f"after {len(self.latencies)} right answers: {problem}"))


class Client(asyncio.Protocol):
    """One keep-alive connection of a run."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.waiting = False
        self.parser = httptools.HttpResponseParser(self)
        self.body: list[bytes] = []
        self.sent = self.first = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.run.failed(f"not HTTP: {error}: {data[:200]!r}")

    def connection_lost(self, exc: Exception | None) -> None:
        if self.waiting:
            self.run.failed(f"connection lost with {sum(map(len, self.body))} bytes of an answer received ({exc})")

    def on_body(self, data: bytes) -> None:
        if not self.body:
            self.first = perf_counter()
        self.body.append(data)

    def on_message_complete(self) -> None:
        now = perf_counter()
        body = b"".join(self.body)
        problem = wrong_with(self.parser.get_status_code(), body, self.run.job.stream)
        self.waiting = False
        if problem:
            self.run.failed(problem)
            return
        self.run.answered(now - self.sent, self.first - self.sent, len(body))
        self._send()

    def _send(self) -> None:
        request = self.run.next_request()
        if request is None:
            return
        if self.transport.is_closing():
            self.run.failed("connection closed between two requests")
            return
        self.waiting, self.body = True, []
        self.sent = perf_counter()
        self.transport.write(request)


async def load(job: Job) -> Result:
    """Run a job to its end. Raises LoadError at the first wrong or missing answer."""
    run, loop, transports = Run(job), asyncio.get_running_loop(), []
    start = perf_counter()
    try:
        async with asyncio.timeout(job.limit_s):
            for _ in range(job.connections):
                transport, _client = await loop.create_connection(lambda: Client(run), "127.0.0.1", job.port)
                transports.append(transport)
            await run.ended
    except TimeoutError as error:
        raise LoadError(f"{len(run.latencies)} of {job.requests} answers within {job.limit_s:g} s") from error
    except OSError as error:
        raise LoadError(f"cannot connect to 127.0.0.1:{job.port}: {error}") from error
    finally:
        for transport in transports:
            transport.abort()
    seconds = perf_counter() - start
    return Result(job.requests, seconds, run.body_bytes, quantiles(run.latencies), quantiles(run.first_bytes))


def answer(line: bytes) -> bytes:
    """One job in, one outcome out, each a line of JSON."""
    try:
        outcome = Outcome(result=uvloop.run(load(msgspec.json.decode(line, type=Job))))
    except (LoadError, msgspec.DecodeError) as error:
        outcome = Outcome(error=str(error))
    return msgspec.json.encode(outcome) + b"\n"


if __name__ == "__main__":
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(answer(line))
        sys.stdout.buffer.flush()
