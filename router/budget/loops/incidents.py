"""A trip of the breaker: how long it lasts, and the row that shows it."""

from router.budget.loops.loops import Kind, Scope, Tripped
from router.budget.loops.streak import ChainRow, SubjectRow
from router.types.ids import new_id
from router.types.journal import Journal

LONGEST_MS = 86_400_000
_INCIDENT = "INSERT INTO incidents (id, at_ms, kind, scope, subject, reason, until_ms) VALUES (?, ?, ?, ?, ?, ?, ?)"


class Incidents:
    def __init__(self, journal: Journal) -> None:
        self.counts: dict[str, int] = dict.fromkeys(Kind, 0)
        """By kind, since the start."""
        self._journal = journal

    def trip(
        self,
        row: ChainRow | SubjectRow,
        kind: Kind,
        scope: Scope,
        subject: str,
        reason: str,
        *,
        seen: int,
        limit: int,
        at_ms: int,
        cool_down_ms: int,
    ) -> Tripped:
        """Each further trip of the same row rests twice as long."""
        rest = min(cool_down_ms << min(row.trips, 32), max(LONGEST_MS, cool_down_ms))
        row.trips += 1
        tripped = Tripped(kind, scope, subject, reason, seen, limit, at_ms, at_ms + rest)
        self.tell(tripped)
        return tripped

    def tell(self, tripped: Tripped) -> None:
        self.counts[tripped.kind] += 1
        row = (tripped.at_ms, tripped.kind, tripped.scope, tripped.subject, tripped.reason, tripped.until_ms)
        self._journal.add(_INCIDENT, (new_id(), *row))


def resting(row: ChainRow | SubjectRow, now_ms: int) -> Tripped | None:
    """What still holds. When it is over, half of the streak is forgiven: a loop that goes on trips again soon."""
    tripped = row.tripped
    if tripped is not None and not holds(tripped, now_ms):
        row.tripped, row.stale = None, row.stale // 2
        return None
    return tripped


def stop_as(row: ChainRow | SubjectRow, other: ChainRow | SubjectRow, now_ms: int) -> None:
    """What another process has stopped is stopped here too."""
    mine, theirs = row.tripped, other.tripped
    if theirs is not None and holds(theirs, now_ms) and (mine is None or theirs.at_ms > mine.at_ms):
        row.tripped, row.trips = theirs, max(row.trips, other.trips)


def holds(tripped: Tripped | None, now_ms: int) -> bool:
    return tripped is not None and (tripped.until_ms is None or now_ms < tripped.until_ms)
