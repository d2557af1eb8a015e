"""Rows of incidents that no breaker saw: an answer from the wrong region, a target that is not what it was."""

from collections.abc import Iterable

from router.types.attempt import Attempt
from router.types.ids import new_id
from router.types.journal import Journal

REGION_MISMATCH = "region_mismatch"
DRIFT = "drift"
_INCIDENT = (
    "INSERT INTO incidents (id, at_ms, kind, scope, subject, reason, until_ms) VALUES (?, ?, ?, 'target', ?, ?, ?)"
)
_DRIFT = f"{_INCIDENT} ON CONFLICT DO NOTHING"


def misplaced(attempt: Attempt) -> bool:
    """The provider itself says that it was served elsewhere."""
    return attempt.region_verified and attempt.region != attempt.target.region


def region_mismatches(journal: Journal, attempts: Iterable[Attempt], now_ms: int, rest_s: float) -> None:
    """One row for each answer from the wrong region; `rest_s`: how long its target is not asked from then on."""
    for attempt in filter(misplaced, attempts):
        target, until_ms = attempt.target, now_ms + int(rest_s * 1000)
        reason = f"asked for {target.region}, served in {attempt.region}"
        journal.add(_INCIDENT, (new_id(), now_ms, REGION_MISMATCH, target.id, reason, until_ms))


def drifted(journal: Journal, place: str, target: str, reason: str, now_ms: int) -> None:
    """`target` is not what it was; it is asked as before. `place`: the same for all gateways that found the same."""
    journal.add(_DRIFT, (f"{DRIFT}-{target}-{place}", now_ms, DRIFT, target, reason, now_ms))
