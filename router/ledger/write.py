"""Rows of a request: born `held` before a byte leaves, settled once, with its attempts and its decision."""

from collections.abc import Sequence

from msgspec import Struct

from router.ledger.attempt_row import INSERT, attempt_row, joined
from router.types.account import Amount
from router.types.attempt import Attempt
from router.types.journal import Journal
from router.types.lease import LEASE_MS
from router.types.plan import Decision
from router.types.request import Caller, Request
from router.types.usage import Usage

_BIRTH = (
    "INSERT INTO live_requests (id, started_ms, state, held, held_thinking, lease_until_ms, owner, endpoint, requested,"
    " route, stream, key_id, session, tags, data_class, classes, policy, task, difficulty, app, template)"
    " VALUES (?, ?, 'held', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_REROUTE = "UPDATE live_requests SET route = ?, held = ?, held_thinking = ? WHERE id = ?"
_SETTLE = (
    "UPDATE live_requests SET state = ?, target = ?, model = ?, status = ?, error = ?, cost = ?, thinking = ?,"
    " overrun = ?, lowered = ?, input_tokens = ?, output_tokens = ?, reasoning_tokens = ?, total_ms = ?, first_ms = ?,"
    " overhead_us = ?"
    " WHERE id = ? AND state IN ('held', 'recovered')"
)
_RENEW = "UPDATE live_requests SET lease_until_ms = ? WHERE state = 'held' AND owner = ?"
_RECOVER = (
    "UPDATE live_requests SET state = 'recovered', cost = held, thinking = held_thinking, error = 'crashed'"
    " WHERE state = 'held' AND lease_until_ms < ?"
)
_LOSE = (
    "UPDATE live_requests SET state = 'recovered', cost = held, thinking = held_thinking, error = 'crashed'"
    " WHERE id = ? AND state = 'held'"
)
_DECISION = "INSERT INTO live_decisions (id, decided_ms, policy, document) VALUES (?, ?, ?, ?)"


class Outcome(Struct, frozen=True, kw_only=True):
    """How a request ended. `status` is what the client got; `error` a code, never a message; `cost` in nano-USD."""

    status: int
    error: str | None = None
    attempts: Sequence[Attempt] = ()
    cost: int = 0
    thinking: int = 0
    """Thinking tokens charged."""
    overrun: bool = False
    """More was charged than was held."""
    lowered: Sequence[str] = ()
    """What was changed so that it fitted its budgets."""
    total_ms: int = 0
    first_ms: int | None = None
    overhead_us: int | None = None
    """Microseconds of `total_ms` in which no target was waited for: from when the request was read and its key known
    until it is settled, less all time between a first byte that was sent to a target and the last that came from it.
    What several targets were asked for at once counts once. So it has what we compute, and what else the client waits
    for because of us: room in a budget, a pause before a retry, a verifier. It has not the write of this row."""

    @property
    def served(self) -> Attempt | None:
        """The attempt whose answer the client got."""
        last = self.attempts[-1] if self.attempts else None
        return last if last is not None and last.outcome == "ok" and not last.passed_over else None


def birth(journal: Journal, request: Request, caller: Caller, decision: Decision, held: Amount, now_ms: int) -> None:
    """`held`: what the request asks its budgets to keep."""
    limits, seen = request.limits, decision.classification
    tags = ",".join((*caller.tags, *limits.tags))
    journal.add(
        _BIRTH,
        (
            request.id,
            now_ms,
            held.usd,
            held.thinking,
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
            joined(seen.classes),
            decision.policy,
            seen.task.value,
            seen.difficulty,
            seen.app,
            seen.template,
        ),
    )


def reroute(journal: Journal, request_id: str, decision: Decision, held: Amount) -> None:
    """A request that was born is sent to another route."""
    journal.change(_REROUTE, (decision.plan.route, held.usd, held.thinking, request_id))


def renew(journal: Journal, now_ms: int) -> None:
    """Keeps the leases of this process; call it several times within `LEASE_MS`."""
    journal.change(_RENEW, (now_ms + LEASE_MS, journal.owner))


def recover(journal: Journal, now_ms: int) -> None:
    """Charges requests whose process died at their hold. Where budgets share the ledger's file, they do it instead."""
    journal.change(_RECOVER, (now_ms,))


def lose(journal: Journal, request_id: str) -> None:
    """Charges a request at its hold that ended without a settlement."""
    journal.change(_LOSE, (request_id,))


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
            outcome.thinking,
            int(outcome.overrun),
            ", ".join(outcome.lowered),
            sum(usage.input_total for usage in usages),
            sum(usage.output_total for usage in usages),
            _reasoning(usages),
            outcome.total_ms,
            outcome.first_ms,
            outcome.overhead_us,
            request_id,
        ),
    )
    for number, attempt in enumerate(attempts, 1):
        journal.add(INSERT, attempt_row(request_id, number, attempt))


def record(journal: Journal, decision_id: str, now_ms: int, policy: str, document: bytes) -> None:
    journal.add(_DECISION, (decision_id, now_ms, policy, document.decode()))


def _reasoning(usages: Sequence[Usage]) -> int | None:
    known = [usage.output_reasoning for usage in usages if usage.output_reasoning is not None]
    return sum(known) if known else None
