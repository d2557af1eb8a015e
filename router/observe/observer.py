"""One request as logs and traces show it."""

import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Protocol

import msgspec
from msgspec import Raw

from router.ledger.write import plain
from router.types.attempt import Attempt
from router.types.decision import Decision
from router.types.price import usd_json
from router.types.request import Endpoint

# A client's request as observers see it: recorded while it runs, and reported when it is over.

PARENT = frozenset({b"traceparent", b"tracestate"})
"""Headers that identify the client's own trace. No other header is kept."""


class ObservedRequest:
    """Record of a request, without its text. Decision and attempts contain none either. Times in Unix ns."""

    __slots__ = (
        *("attempts", "began_ns", "cost", "decision", "endpoint", "ended_ns", "error", "id", "parent", "status"),
        *("steps", "stream"),
    )

    def __init__(self, identifier: str, endpoint: Endpoint, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.id, self.endpoint = identifier, endpoint
        self.parent = {name: value for name, value in headers if name in PARENT}
        self.began_ns = self.ended_ns = time.time_ns()
        self.steps: list[tuple[str, int]] = [("parse", self.began_ns)]
        """Steps with their starting times. Each step lasts until the next begins."""
        self.decision: Decision | None = None
        self.attempts: Sequence[Attempt] = ()
        self.status, self.cost, self.stream = 0, 0, False
        self.error: str | None = None

    def step(self, name: str) -> None:
        self.steps.append((name, time.time_ns()))

    def settled(self, status: int, error: str | None, attempts: Sequence[Attempt], cost: int) -> None:
        """Records the settlement. `cost` is in nano-USD."""
        self.status, self.error, self.attempts, self.cost = status, error, attempts, cost

    def refused(self, status: int, error: str) -> None:
        """Records a refusal, unless the request was settled."""
        if not self.status:
            self.status, self.error = status, error

    @property
    def decided(self) -> dict[str, str]:
        """The decision's main facts; empty if nothing was decided."""
        if (decision := self.decision) is None:
            return {}
        plan, known = decision.plan, decision.classification
        return {
            **{"route": plan.route, "strategy": plan.strategy, "explored": plan.explored},
            **{"class": known.data_class, "task": "unread" if known.unread else known.task.value},
            "policy": decision.policy,
        }

    @property
    def served(self) -> Attempt | None:
        """The attempt whose answer the client got, else the last attempt; None if there was none."""
        given = (attempt for attempt in reversed(self.attempts) if attempt.outcome == "ok" and not attempt.passed_over)
        return next(given, self.attempts[-1] if self.attempts else None)


# One line of JSON per request, and all other log messages in the same form.

ATOMIC_BYTES = 4096
"""Maximum bytes that stay in one piece if several processes write to a pipe at once (PIPE_BUF on Linux)."""
_NS_PER_MS = 1_000_000


def line(observed: ObservedRequest) -> bytes:
    """Returns the log line: names of the policy, closed sets and numbers only. Tokens and cost are of all attempts."""
    served, usages = observed.served, [attempt.usage for attempt in observed.attempts if attempt.usage is not None]
    answer: dict[str, object] | None = None
    if served is not None:  # the answer's target; for an attempt without an answer, how it ended
        answer = {"target": served.target.id, "model": served.target.model.id, "outcome": str(served.outcome)}
        answer |= {"finish": plain(served.finish_reason), "effort": served.thinking, "first_ms": served.first_ms}
    tokens: dict[str, int | None] | None = None
    if usages:  # thinking is part of the output; null if not reported separately
        thoughts = [usage.output_reasoning for usage in usages if usage.output_reasoning is not None]
        tokens = {"input": sum(u.totals.input for u in usages), "output": sum(u.totals.output for u in usages)}
        tokens["thinking"] = sum(thoughts) if thoughts else None
    fields: dict[str, object] = {
        "time": _iso(observed.began_ns / 1e9),
        "event": "request",
        "id": observed.id,
        "endpoint": observed.endpoint.value,
        "status": observed.status,
        "error": observed.error,
        "ms": (observed.ended_ns - observed.began_ns) // _NS_PER_MS,
        "decision": observed.decided or None,
        "answer": answer,
        "attempts": len(observed.attempts),
        "tokens": tokens,
        "cost_usd": Raw(usd_json(observed.cost)),
    }
    return msgspec.json.encode({name: value for name, value in fields.items() if value is not None})


def written(lines: Iterable[bytes], descriptor: int) -> None:
    """Writes lines in pieces that other processes' writes can't split. Raises OSError if the reader is gone."""
    for piece in _pieces(lines):
        while piece:
            piece = piece[os.write(descriptor, piece) :]


def _pieces(lines: Iterable[bytes]) -> Iterator[bytes]:
    piece = b""
    for line_bytes in lines:
        if piece and len(piece) + len(line_bytes) >= ATOMIC_BYTES:
            yield piece
            piece = b""
        piece += line_bytes + b"\n"
    yield piece


class JsonFormatter(logging.Formatter):
    """Formats all other log messages, one line each. Its format string names the process."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {"time": _iso(record.created), "event": "log", "level": record.levelname.lower()}
        record.message = record.getMessage()
        fields |= {"name": self.formatMessage(record), "message": record.message}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(fields).decode()


def _iso(seconds: float) -> str:
    """Formats Unix time in seconds as UTC, to the ms."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# Reports finished requests in batches from a separate thread, so that no request waits for it.

EVERY_S = 0.1
"""Seconds between two reports. Waiting requests stay in memory, where the garbage collector inspects them."""
MAX_WAITING = 10_000
"""Maximum number of requests that wait to be reported. Further ones are dropped and counted."""
CLOSING_S = 3.0
"""Seconds that a shutdown waits for collectors."""
_log = logging.getLogger("lowpass")


class Sink(Protocol):
    """Receives finished requests. `tell` runs in the observer's thread and may block."""

    def tell(self, batch: Sequence[ObservedRequest]) -> None: ...
    def close(self) -> None: ...


class Lines:
    """Writes lines to standard error."""

    def tell(self, batch: Sequence[ObservedRequest]) -> None:
        written(map(line, batch), sys.stderr.fileno())

    def close(self) -> None:
        """Does nothing, as no lines are buffered."""


class Observer:
    """Reports finished requests; one per process. The event loop calls `end`; the rest runs in the thread."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = sinks
        self._finished: deque[ObservedRequest] = deque()
        self._closing = threading.Event()
        self._dropped, self._failed_sinks = 0, set[int]()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)
        self._thread.start()

    def end(self, observed: ObservedRequest) -> None:
        observed.ended_ns = time.time_ns()
        if len(self._finished) < MAX_WAITING:
            self._finished.append(observed)
        else:
            self._dropped += 1

    def close(self) -> None:
        """Blocks until everything is reported, for at most `CLOSING_S`."""
        self._closing.set()
        self._thread.join(CLOSING_S)

    def _run(self) -> None:
        while not self._closing.wait(EVERY_S):
            self._report()
        self._report()
        for sink in self._sinks:
            sink.close()

    def _report(self) -> None:
        batch = [self._finished.popleft() for _ in range(len(self._finished))]
        for number, sink in enumerate(self._sinks if batch else ()):
            try:
                sink.tell(batch)
            except Exception as error:
                # Logged once per sink, and without the message, which may quote what it could not report.
                if number not in self._failed_sinks:
                    self._failed_sinks.add(number)
                    _log.error("%s can't be told of requests: %s", type(sink).__name__, type(error).__name__)
        if dropped := self._dropped:
            self._dropped -= dropped
            _log.warning("%d requests were not told of: logs or spans are not taken fast enough", dropped)


def observer(lines: bool, environ: Mapping[str, str]) -> Observer | None:
    """Returns the observer, or None if nothing is observed. `environ` may have OpenTelemetry's standard variables."""
    sinks: list[Sink] = [Lines()] if lines else []
    named = any(environ.get(f"OTEL_EXPORTER_OTLP_{part}ENDPOINT") for part in ("", "TRACES_", "METRICS_"))
    if named and environ.get("OTEL_SDK_DISABLED", "").strip().lower() != "true":
        try:
            from router.observe.otlp import Otlp
        except ImportError:
            _log.warning("OTEL_EXPORTER_OTLP_ENDPOINT is set and does nothing: pip install 'lowpass-gateway[otel]'")
        else:
            sinks.append(Otlp(environ))
    return Observer(sinks) if sinks else None
