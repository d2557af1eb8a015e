"""One line of JSON a request, and everything else that is logged in the same form."""

import logging
import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import msgspec
from msgspec import Raw, Struct

from router.observe.observed import Observed, plain
from router.types.attempt import Attempt
from router.types.money import usd_json
from router.types.plan import Decision

ATOMIC_BYTES = 4096
"""What several processes write to one pipe at once stays whole up to this (PIPE_BUF on Linux)."""
_NS_PER_MS = 1_000_000


class Decided(Struct, frozen=True):
    """Why it went where it went."""

    route: str
    strategy: str
    explored: str
    data_class: str = msgspec.field(name="class")
    task: str
    policy: str


class Answered(Struct, frozen=True):
    """By whom; of an attempt that gave no answer, how it ended."""

    target: str
    model: str
    outcome: str
    finish: str
    effort: str
    first_ms: int | None


class Tokens(Struct, frozen=True):
    input: int
    output: int
    thinking: int | None
    """Part of `output`; null: not told apart."""


class Line(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Names of the policy, closed sets and numbers, and nothing else. `tokens` and `cost_usd` are of all attempts."""

    time: str
    event: str
    id: str
    endpoint: str
    status: int
    error: str | None = None
    ms: int
    decision: Decided | None = None
    answer: Answered | None = None
    attempts: int
    tokens: Tokens | None = None
    cost_usd: Raw


def line(observed: Observed) -> bytes:
    decision, served = observed.decision, observed.served
    return msgspec.json.encode(
        Line(
            time=_iso(observed.began_ns / 1e9),
            event="request",
            id=observed.id,
            endpoint=observed.endpoint.value,
            status=observed.status,
            error=observed.error,
            ms=(observed.ended_ns - observed.began_ns) // _NS_PER_MS,
            decision=None if decision is None else _decided(decision),
            answer=None if served is None else _answered(served),
            attempts=len(observed.attempts),
            tokens=_tokens(observed.attempts),
            cost_usd=Raw(usd_json(observed.cost)),
        )
    )


def _decided(decision: Decision) -> Decided:
    plan, seen = decision.plan, decision.classification
    return Decided(plan.route, plan.strategy, plan.explored, seen.data_class, seen.task.value, decision.policy)


def _answered(one: Attempt) -> Answered:
    target, finish = one.target, plain(one.finish_reason)
    return Answered(target.id, target.model.id, str(one.outcome), finish, one.thinking, one.first_ms)


def _tokens(attempts: Iterable[Attempt]) -> Tokens | None:
    known = [one.usage for one in attempts if one.usage is not None]
    if not known:
        return None
    thoughts = [usage.output_reasoning for usage in known if usage.output_reasoning is not None]
    return Tokens(
        sum(usage.input_total for usage in known),
        sum(usage.output_total for usage in known),
        sum(thoughts) if thoughts else None,
    )


def written(lines: Iterable[bytes], descriptor: int) -> None:
    """In pieces that stay whole beside what other processes write. Raises OSError where nobody reads any more."""
    for piece in _pieces(lines):
        while piece:
            piece = piece[os.write(descriptor, piece) :]


def _pieces(lines: Iterable[bytes]) -> Iterator[bytes]:
    piece = b""
    for one in lines:
        if piece and len(piece) + len(one) >= ATOMIC_BYTES:
            yield piece
            piece = b""
        piece += one + b"\n"
    yield piece


class JsonFormatter(logging.Formatter):
    """Everything else that a process logs, one line each. `name` says who it is, as a format string of `logging`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)

    def format(self, record: logging.LogRecord) -> str:
        said = {"time": _iso(record.created), "event": "log", "level": record.levelname.lower()}
        record.message = record.getMessage()
        said |= {"name": self.formatMessage(record), "message": record.message}
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(said).decode()


def _iso(seconds: float) -> str:
    """UTC, to the ms."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
