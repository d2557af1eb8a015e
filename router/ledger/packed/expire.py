"""Rows that are old enough go; sums by hour stay. Killed at any moment, the next one goes on where it ended."""

from collections.abc import Iterator

from router.ledger.connection import Connection
from router.ledger.facts import attempts
from router.ledger.ledger import Ledger
from router.ledger.packed import cube, stored
from router.ledger.packed.cube import FACTS, STARTED, Facts
from router.ledger.packed.segment import INDEX, ROWS
from router.ledger.packed.stored import Stored
from router.ledger.query import LONGEST_WINDOW_MS

_DUE = "cleared = 1 AND expired_ms IS NULL AND last_ms < ?"
_EMPTY = "UPDATE segments SET expired_ms = ? WHERE number = ?"
_LEFT = (
    "SELECT segment FROM segment_parts WHERE part = ? AND segment IN (SELECT number FROM segments WHERE expired_ms > 0)"
)
_NAMES = "SELECT part FROM segment_parts WHERE segment = ?"
_DELETE = "DELETE FROM segment_parts WHERE segment = ? AND part = ?"
_SUMS = "INSERT INTO segment_parts VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_OUTCOMES = (
    # Whoever reads the log of outcomes knows how far: the newest stays, so that no later one gets its place.
    "DELETE FROM outcomes WHERE position IN (SELECT position FROM outcomes WHERE given_ms < :before"
    " AND position < (SELECT MAX(position) FROM outcomes) ORDER BY position LIMIT 500)"
)
_INCIDENTS = "DELETE FROM incidents WHERE at_ms < :before AND until_ms < :before"
_WINDOWS = (
    "DELETE FROM bookings WHERE request_id LIKE 'packed-%' AND window_start_ms > 0 AND window_start_ms < :before",
    "DELETE FROM budget_windows WHERE spent = 0 AND held = 0 AND window_start_ms > 0 AND window_start_ms < :before",
)


def expire(ledger: Ledger, now_ms: int, keep_ms: int) -> int:
    """Rows of segments that ended more than `keep_ms` ago, and what is of no use without them. Returns how many did.

    Raises `LedgerUnavailable`; what is left is done next time.
    """
    before = now_ms - keep_ms
    with ledger.writing() as connection:
        due = stored.which(connection, _DUE, (before,))
        for segment in due:
            for name, data in _unsummed(connection, segment):
                connection.execute(_SUMS, (segment.number, name, data))
            connection.execute(_EMPTY, (now_ms, segment.number))
        for (number,) in connection.execute(_LEFT, (INDEX,)).fetchall():
            _empty(connection, number)
        while connection.execute(_OUTCOMES, {"before": before}).rowcount:
            pass
        connection.execute(_INCIDENTS, {"before": before})
        for statement in _WINDOWS:
            connection.execute(statement, {"before": min(before, now_ms - LONGEST_WINDOW_MS)})
    return len(due)


def needed(connection: Connection, before_ms: int) -> bool:
    return bool(stored.which(connection, _DUE, (before_ms,)) or connection.execute(_LEFT, (INDEX,)).fetchone())


def _unsummed(connection: Connection, segment: Stored) -> Iterator[tuple[str, bytes]]:
    """Sums that were not kept beside the facts, being nearly as many."""
    there = {name for (name,) in connection.execute(_NAMES, (segment.number,))}
    wanted = {cube.part(attempts.TABLE, grouping): grouping for grouping in attempts.GROUPINGS}
    missing = {name: grouping for name, grouping in wanted.items() if name not in there}
    if missing:
        facts = _facts(connection, segment.number)
        yield from ((name, cube.summed(facts, grouping)[1]) for name, grouping in missing.items())


def _facts(connection: Connection, segment: int) -> Facts:
    names = [FACTS + name for name in (STARTED, *attempts.DIMENSIONS, *attempts.MEASURES)]
    found = {name.removeprefix(FACTS): data for _, name, data in stored.parts(connection, [segment], names)}
    return cube.facts(found, attempts.DIMENSIONS, attempts.MEASURES)


def _empty(connection: Connection, segment: int) -> None:
    """A part at a time, since others can't commit meanwhile; the one by which it is found to be left goes last."""
    names = [name for (name,) in connection.execute(_NAMES, (segment,)) if name.startswith((ROWS, FACTS))]
    for name in sorted(names, key=lambda name: name == INDEX):
        connection.execute(_DELETE, (segment, name))
