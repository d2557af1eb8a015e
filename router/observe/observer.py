"""One request as logs and traces see it."""

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

# One client's request as whoever watches sees it, noted on the way and looked at when it is over.

PARENT = frozenset({b"traceparent", b"tracestate"})
"""Headers that name the client's own trace; no other is kept."""


class ObservedRequest:
    """Times in ns since 1970. It holds decision and attempts, which have no text, and nothing of the request."""

    __slots__ = (
        *("attempts", "began_ns", "cost", "decision", "endpoint", "ended_ns", "error", "id", "parent", "status"),
        *("steps", "stream"),
    )

    def __init__(self, identifier: str, endpoint: Endpoint, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.id, self.endpoint = identifier, endpoint
        self.parent = {name: value for name, value in headers if name in PARENT}
        self.began_ns = self.ended_ns = time.time_ns()
        self.steps: list[tuple[str, int]] = [("parse", self.began_ns)]
        """Each until the next begins."""
        self.decision: Decision | None = None
        self.attempts: Sequence[Attempt] = ()
        self.status, self.cost, self.stream = 0, 0, False
        self.error: str | None = None

    def step(self, name: str) -> None:
        self.steps.append((name, time.time_ns()))

    def settled(self, status: int, error: str | None, attempts: Sequence[Attempt], cost: int) -> None:
        """`cost` in nano-USD."""
        self.status, self.error, self.attempts, self.cost = status, error, attempts, cost

    def refused(self, status: int, error: str) -> None:
        """What was settled stays as it is."""
        if not self.status:
            self.status, self.error = status, error

    @property
    def decided(self) -> dict[str, str]:
        """Why it went where it went; empty: nothing was decided."""
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
        """The attempt whose answer the client got; else the last one."""
        given = (attempt for attempt in reversed(self.attempts) if attempt.outcome == "ok" and not attempt.passed_over)
        return next(given, self.attempts[-1] if self.attempts else None)


# One line of JSON a request, and everything else that is logged in the same form.

ATOMIC_BYTES = 4096
"""What several processes write to one pipe at once stays whole up to this (PIPE_BUF on Linux)."""
_NS_PER_MS = 1_000_000


def line(observed: ObservedRequest) -> bytes:
    """Names of the policy, closed sets and numbers, and nothing else. Tokens and cost are of all attempts."""
    served, usages = observed.served, [attempt.usage for attempt in observed.attempts if attempt.usage is not None]
    answer: dict[str, object] | None = None
    if served is not None:  # by whom; of an attempt that gave no answer, how it ended
        answer = {"target": served.target.id, "model": served.target.model.id, "outcome": str(served.outcome)}
        answer |= {"finish": plain(served.finish_reason), "effort": served.thinking, "first_ms": served.first_ms}
    tokens: dict[str, int | None] | None = None
    if usages:  # thinking is part of the output; null: not told apart
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
    """In pieces that stay whole beside what other processes write. Raises OSError where nobody reads any more."""
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
    """Everything else that a process logs, one line each. Its format string says who the process is."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {"time": _iso(record.created), "event": "log", "level": record.levelname.lower()}
        record.message = record.getMessage()
        fields |= {"name": self.formatMessage(record), "message": record.message}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(fields).decode()


def _iso(seconds: float) -> str:
    """UTC, to the ms."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# Who is told of requests that are over: in batches, by a thread of its own, so that no request waits for it.

EVERY_S = 0.1
"""How often those that are over are told of: what waits is kept alive, and the collector of garbage looks at it."""
MOST_WAITING = 10_000
"""Requests that wait to be told of; what comes beyond is counted and dropped."""
CLOSING_S = 3.0
"""How long the end of the process waits for collectors."""
_log = logging.getLogger("lowpass")


class Sink(Protocol):
    """`tell` runs in the observer's thread and may block."""

    def tell(self, batch: Sequence[ObservedRequest]) -> None: ...
    def close(self) -> None: ...


class Lines:
    """To standard error."""

    def tell(self, batch: Sequence[ObservedRequest]) -> None:
        written(map(line, batch), sys.stderr.fileno())

    def close(self) -> None:
        """Nothing is kept back."""


class Observer:
    """One for a process. `end` is called by the event loop, everything else happens in the thread."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = sinks
        self._over: deque[ObservedRequest] = deque()
        self._closing = threading.Event()
        self._dropped, self._broken = 0, set[int]()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)
        self._thread.start()

    def end(self, observed: ObservedRequest) -> None:
        observed.ended_ns = time.time_ns()
        if len(self._over) < MOST_WAITING:
            self._over.append(observed)
        else:
            self._dropped += 1

    def close(self) -> None:
        """Blocks until all is told, or as long as that may take."""
        self._closing.set()
        self._thread.join(CLOSING_S)

    def _run(self) -> None:
        while not self._closing.wait(EVERY_S):
            self._tell()
        self._tell()
        for sink in self._sinks:
            sink.close()

    def _tell(self) -> None:
        batch = [self._over.popleft() for _ in range(len(self._over))]
        for number, sink in enumerate(self._sinks if batch else ()):
            try:
                sink.tell(batch)
            except Exception as error:
                # Once for each; without the message, which may quote what it could not tell.
                if number not in self._broken:
                    self._broken.add(number)
                    _log.error("%s can't be told of requests: %s", type(sink).__name__, type(error).__name__)
        if dropped := self._dropped:
            self._dropped -= dropped
            _log.warning("%d requests were not told of: logs or spans are not taken fast enough", dropped)


def observer(lines: bool, environ: Mapping[str, str]) -> Observer | None:
    """None where nobody watches. `environ` may have OpenTelemetry's standard variables."""
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
