"""Rows of incidents that no breaker saw: an answer from the wrong region, a target that is not what it was, usage that
can't be true, a budget that refused."""

from collections.abc import Iterable

from router.ledger.facts.attempts import HOUR_MS
from router.types.account import Journal, Refused, Unit
from router.types.attempt import Attempt
from router.types.clock import new_id
from router.types.price import SERVED, usd_text

REGION_MISMATCH = "region_mismatch"
DRIFT = "drift"
EXHAUSTED = "budget_exceeded"
IMPOSSIBLE_USAGE = "impossible_usage"
OTHER_MODEL = "other_model"
_INCIDENT = (
    "INSERT INTO incidents (id, at_ms, kind, scope, subject, reason, until_ms) VALUES (?, ?, ?, 'target', ?, ?, ?)"
)
_ONCE = f"{_INCIDENT} ON CONFLICT DO NOTHING"
_EXHAUSTED = _ONCE.replace("'target'", "'budget'")
_LOST = _ONCE.replace("'target'", "'request'")


def drifted(journal: Journal, place: str, target: str, reason: str, now_ms: int) -> None:
    """`target` is not what it was; it is asked as before. `place`: the same for all gateways that found the same."""
    journal.add(_ONCE, (f"{DRIFT}-{target}-{place}", now_ms, DRIFT, target, reason, now_ms))


def odd_answers(journal: Journal, attempts: Iterable[Attempt], now_ms: int, rest_s: float) -> None:
    """One row for each answer from the wrong region; `rest_s`: how long its target is not asked from then on.

    The provider reported usage that can't be true, or served a model of another price: one row of each kind an hour
    for each target, with its first reason.
    """
    for attempt in attempts:
        target, reasons = attempt.target, {}
        if attempt.region_verified and attempt.region != target.region:
            reason = f"asked for {target.region}, served in {attempt.region}"
            until_ms = now_ms + int(rest_s * 1000)
            journal.add(_INCIDENT, (new_id(), now_ms, REGION_MISMATCH, target.id, reason, until_ms))
        if attempt.usage is not None and attempt.usage.violations:
            reasons[IMPOSSIBLE_USAGE] = attempt.usage.violations[0]
        model, served, version = target.model, attempt.model_served or "", attempt.cost.price_version
        price = target.price(served) if version.startswith(SERVED) else None
        if not target.knows(served):
            priced = version.partition(",")[0].removeprefix(SERVED) if price is not None else model.name
            reasons[OTHER_MODEL] = f"asked for {model.name}, served by {served}, of unknown price: charged as {priced}"
        elif price is not None and not price.equals(model.price):
            reasons[OTHER_MODEL] = f"asked for {model.name}, served by {served} and charged at its price"
        for kind, reason in reasons.items():
            identifier = f"{kind}-{target.id}-{now_ms // HOUR_MS}"
            journal.add(_ONCE, (identifier, now_ms, kind, target.id, reason, now_ms))


def exhausted(journal: Journal, refused: Refused, now_ms: int) -> None:
    """A request did not fit an account: one row for the first in each of its windows, by whichever gateway.

    A rolling window that moved on by its own length is another one.
    """
    account = refused.account
    start, ends = account.window_start_ms, account.resets_at_ms
    window = start if ends is None or account.since_ms == start else start // max(1, ends - start)
    unit = "USD" if account.unit is Unit.USD else "thinking tokens"
    needed, left = (usd_text(n) if unit == "USD" else n for n in (refused.needed, refused.left))
    reason = f"{needed} {unit} needed, {left} {unit} left"
    row = (f"{EXHAUSTED}-{account.id}-{window}", now_ms, EXHAUSTED, account.id, reason, ends)
    journal.add(_EXHAUSTED, row)


def lost_booking(journal: Journal, request_id: str, reason: str, now_ms: int) -> None:
    """The ledger and the store of the budgets had different ends of a request: one row, whoever finds it first."""
    journal.add(_LOST, (f"lost_booking-{request_id}", now_ms, "lost_booking", request_id, reason, now_ms))
