"""Rows of a request: born `held` before a byte leaves, settled once, with its attempts and its decision."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from router.types.attempt import Attempt
from router.types.journal import Journal
from router.types.plan import Decision
from router.types.request import Caller, Request
from router.types.usage import Usage

LEASE_MS = 30_000
"""A held row whose lease was not renewed for so long belongs to a process that died."""

_BIRTH = (
    "INSERT INTO requests (id, started_ms, state, held, lease_until_ms, owner, endpoint, requested, route, stream,"
    " key_id, session, tags, data_class, task, difficulty) VALUES (?, ?, 'held', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_SETTLE = (
    "UPDATE requests SET state = ?, target = ?, model = ?, status = ?, error = ?, cost = ?, input_tokens = ?,"
    " output_tokens = ?, reasoning_tokens = ?, total_ms = ?, first_ms = ? WHERE id = ? AND state = 'held'"
)
_ATTEMPT = f"INSERT INTO attempts VALUES ({', '.join('?' * 28)})"  # noqa: S608 - nothing but question marks
_RENEW = "UPDATE requests SET lease_until_ms = ? WHERE state = 'held' AND owner = ?"
_DECISION = "INSERT INTO decisions VALUES (?, ?, ?, ?)"


class Outcome(Struct, frozen=True):
    """How a request ended. `status` is what the client got; `error` a code, never a message; `cost` in nano-USD."""

    status: int
    error: str | None
    attempts: Sequence[Attempt]
    cost: int
    total_ms: int
    first_ms: int | None

    @property
    def served(self) -> Attempt | None:
        """The attempt whose answer the client got."""
        last = self.attempts[-1] if self.attempts else None
        return last if last is not None and last.outcome == "ok" else None


def birth(journal: Journal, request: Request, caller: Caller, decision: Decision, held: int, now_ms: int) -> None:
    limits, seen = request.limits, decision.classification
    tags = ",".join((*caller.tags, *limits.tags))
    journal.add(
        _BIRTH,
        (
            request.id,
            now_ms,
            held,
            now_ms + LEASE_MS,
            journal.owner,
            request.endpoint.value,
            request.model,
            decision.plan.route,
            int(request.stream),
            caller.id,
            limits.session,
            tags,
            seen.data_class,
            seen.task.value,
            seen.difficulty,
        ),
    )


def renew(journal: Journal, now_ms: int) -> None:
    """Keeps the leases of this process; call it several times within `LEASE_MS`."""
    journal.change(_RENEW, (now_ms + LEASE_MS, journal.owner))


def settle(journal: Journal, request_id: str, outcome: Outcome) -> None:
    served, attempts = outcome.served, outcome.attempts
    usages = [attempt.usage for attempt in attempts if attempt.usage is not None]
    journal.change(
        _SETTLE,
        (
            "settled" if attempts else "released",
            served.target.id if served else None,
            served.target.model.id if served else None,
            outcome.status,
            outcome.error,
            outcome.cost,
            sum(usage.input_total for usage in usages),
            sum(usage.output_total for usage in usages),
            _reasoning(usages),
            outcome.total_ms,
            outcome.first_ms,
            request_id,
        ),
    )
    for number, attempt in enumerate(attempts, 1):
        journal.add(_ATTEMPT, _attempt_row(request_id, number, attempt))


def record(journal: Journal, decision_id: str, now_ms: int, policy: str, document: bytes) -> None:
    journal.add(_DECISION, (decision_id, now_ms, policy, document.decode()))


def _reasoning(usages: Sequence[Usage]) -> int | None:
    known = [usage.output_reasoning for usage in usages if usage.output_reasoning is not None]
    return sum(known) if known else None


def _attempt_row(request_id: str, number: int, attempt: Attempt) -> tuple[str | int | None, ...]:
    usage = attempt.usage
    return (
        request_id,
        number,
        attempt.target.id,
        attempt.target.model.id,
        attempt.target.provider.id,
        attempt.model_served,
        str(attempt.outcome),
        attempt.status,
        attempt.finish_reason,
        int(attempt.answered),
        attempt.thinking,
        attempt.started_ms,
        attempt.total_ms,
        attempt.first_ms,
        *(_NO_USAGE if usage is None else _usage_columns(usage)),
        attempt.cost.nano,
        attempt.cost.source.value,
        attempt.cost.price_version,
    )


_NO_USAGE: tuple[str | None, ...] = (*(None,) * 8, None, None, "")


def _usage_columns(usage: Usage) -> tuple[str | int | None, ...]:
    return (
        usage.input_uncached,
        usage.cache_read,
        usage.cache_write,
        usage.cache_write_1h,
        usage.input_audio,
        usage.output_visible,
        usage.output_reasoning,
        usage.output_audio,
        usage.source.value,
        usage.reasoning_source.value,
        msgspec.json.encode(usage.violations).decode() if usage.violations else "",
    )
