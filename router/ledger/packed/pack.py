"""Moves old rows into segments. Killed at any moment, the next one goes on where it ended; nothing counts twice."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

from msgspec import Struct

from router.ledger.connection import Connection
from router.ledger.kept import Kept
from router.ledger.ledger import Ledger
from router.ledger.packed import stored
from router.ledger.packed.clear import clear, transaction
from router.ledger.packed.facts import KEYS
from router.ledger.packed.repeated import drop_repeated
from router.ledger.packed.segment import REQUESTS, Segment, packed
from router.ledger.tables import read

AFTER_MS = 600_000
"""How old a request must be: by then it is settled, and whoever asks what just happened has asked."""
CAME_BACK_MS = 900_000
"""How long after its lease a process that was cut off may still come back with the true charge of a request that was
recovered meanwhile: longer than any answer takes. All rows that follow wait for it, at full size."""
LONGEST_MS = 86_400_000
"""A segment need not be full where its first request has waited so long."""
ABANDONED_MS = 3_600_000
"""Nobody writes parts for so long: who has not finished by then does not."""
_TOGETHER = 256 * 1024
"""Bytes in a transaction: no other process can commit for a ms, in SQLite."""
_READ = 1_000
_WAITING = "SELECT id, started_ms, state, lease_until_ms FROM requests WHERE id {} ? ORDER BY id LIMIT ?"
_LAST_OF_FULL = "SELECT started_ms FROM requests WHERE id > ? ORDER BY id LIMIT 1 OFFSET ?"
_NEWEST = "SELECT COALESCE(MAX(number), 0) FROM segments"
_PART = "INSERT INTO segment_parts VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_SEGMENT = (
    "INSERT INTO segments (number, previous, first_id, last_id, first_ms, last_ms, requests, cleared)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, 0) ON CONFLICT DO NOTHING"
)
_PARTLESS = "DELETE FROM segment_parts WHERE segment = ?"
_ABANDONED = (
    "SELECT DISTINCT segment FROM segment_parts WHERE segment < ? AND segment NOT IN (SELECT number FROM segments)"
)


class _Waiting(Struct, frozen=True):
    """A request in the tables."""

    id: str
    started_ms: int
    state: str
    lease_until_ms: int

    def done(self, now_ms: int) -> bool:
        """Nobody will change it any more."""
        if self.state == "held" or self.started_ms > now_ms - AFTER_MS:
            return False
        return self.state != "recovered" or self.lease_until_ms <= now_ms - CAME_BACK_MS

    def overdue(self, now_ms: int) -> bool:
        return self.started_ms <= now_ms - LONGEST_MS


def pack(ledger: Ledger, now_ms: int) -> int:
    """Packs one segment; returns of how many requests. 0: there is nothing to pack, or somebody else just did.

    Raises `LedgerUnavailable`; everything counts as before then, or as after.
    """
    finish(ledger)
    drop_repeated(ledger)
    with ledger.reading() as connection:
        connection.execute("BEGIN")
        due = [] if stored.uncleared(connection) else _due(connection, now_ms)
        if not due:
            return 0
        segment = packed(_rows(connection, due), connection.execute(KEYS).fetchall())
        newest = int(connection.execute(_NEWEST).fetchone()[0])
    number = max(now_ms, newest + 1)
    if not _written(ledger, segment, number, newest, now_ms):
        return 0
    clear(ledger, number)
    return segment.requests


def needed(connection: Connection, now_ms: int) -> bool:
    """There is something to pack, or to take away; perhaps not at once."""
    boundary = stored.boundary(connection)
    oldest = next(_waiting(connection, ">", boundary, 1), None)
    last = connection.execute(_LAST_OF_FULL, (boundary, REQUESTS - 1)).fetchone()
    return (
        bool(stored.uncleared(connection))
        or any(one.done(now_ms) for one in _waiting(connection, "<=", boundary))
        or (oldest is not None and oldest.done(now_ms) and oldest.overdue(now_ms))
        or (last is not None and last[0] <= now_ms - AFTER_MS)
    )


def finish(ledger: Ledger) -> None:
    """Takes away what somebody has packed, and left."""
    with ledger.reading() as connection:
        left = stored.uncleared(connection)
    for segment in left:
        clear(ledger, segment.number)


def _due(connection: Connection, now_ms: int) -> list[str]:
    """What came late, if anything did; else the oldest, as far as nobody will change them any more."""
    boundary = stored.boundary(connection)
    late = [one.id for one in _waiting(connection, "<=", boundary) if one.done(now_ms)]
    if late:
        return late
    found = list(takewhile(lambda one: one.done(now_ms), _waiting(connection, ">", boundary)))
    enough = len(found) == REQUESTS or (found and found[0].overdue(now_ms))
    return [one.id for one in found] if enough else []


def _waiting(connection: Connection, side: str, boundary: str, most: int = REQUESTS) -> Iterator[_Waiting]:
    for row in connection.execute(_WAITING.format(side), (boundary, most)):
        yield _Waiting(*row)


def _rows(connection: Connection, ids: Sequence[str]) -> Iterator[Kept]:
    wanted = set(ids)
    for at in range(0, len(ids), _READ):
        some = ids[at : at + _READ]
        found = read(connection, "id BETWEEN ? AND ?", (some[0], some[-1]))
        yield from (kept for kept in found if kept.id in wanted)


def _written(ledger: Ledger, segment: Segment, number: int, previous: int, now_ms: int) -> bool:
    """Its parts first, which nobody reads yet; then, at once, all of it counts. False: somebody else was quicker."""
    about = (segment.first_id, segment.last_id, segment.first_ms, segment.last_ms, segment.requests)
    with ledger.writing() as connection:
        _forget_abandoned(connection, now_ms)
        for some in _portions(segment.parts):
            with transaction(connection):
                added = [connection.execute(_PART, (number, name, data)).rowcount for name, data in some]
            if not all(added):
                # The same number: whoever wrote the first parts of it goes on.
                return False
        written = connection.execute(_SEGMENT, (number, previous, *about)).rowcount == 1
        if not written:
            connection.execute(_PARTLESS, (number,))
        return written


def _portions(parts: Mapping[str, bytes]) -> Iterator[list[tuple[str, bytes]]]:
    some: list[tuple[str, bytes]] = []
    for name, data in parts.items():
        some.append((name, data))
        if sum(len(one) for _, one in some) >= _TOGETHER:
            yield some
            some = []
    yield some


def _forget_abandoned(connection: Connection, now_ms: int) -> None:
    for (number,) in connection.execute(_ABANDONED, (now_ms - ABANDONED_MS,)).fetchall():
        connection.execute(_PARTLESS, (number,))
