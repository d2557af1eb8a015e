"""How large the ledger is, and from when on it has rows."""

from msgspec import Struct

from router.ledger.ledger import Ledger
from router.ledger.migrate import current, newest
from router.ledger.past import EXPIRED, progress
from router.ledger.rollups import expired
from router.ledger.schema import tables

_COUNT = "SELECT COUNT(*) FROM {}_requests"
_OLDEST = """
    SELECT MIN(at_ms) FROM (
        SELECT MIN(started_ms) AS at_ms FROM past_requests UNION ALL SELECT MIN(started_ms) FROM live_requests
    ) AS firsts
"""


class Info(Struct, frozen=True, kw_only=True):
    """Times are Unix ms; None: there is none."""

    ledger: str
    version: int
    rows: dict[str, int]
    """By table."""
    requests: int
    """All that it has sums of; those whose rows expired are among them."""
    past: int
    """Of these, whose rows are narrow."""
    expired: int
    """Of these, whose rows are gone."""
    bytes: int
    oldest_ms: int | None
    """When the first request began whose rows are there."""
    expired_until_ms: int | None
    """Requests that began later have their rows; of those before some may have."""

    @property
    def bytes_per_request(self) -> float | None:
        return self.bytes / self.requests if self.requests else None


def info(ledger: Ledger) -> Info:
    """Raises `LedgerUnavailable`."""
    with ledger.reading() as connection:
        connection.execute("BEGIN")
        version = current(connection, ledger.dialect)
        past, live = (int(connection.execute(_COUNT.format(name)).fetchone()[0]) for name in ("past", "live"))
        gone = expired(connection)
        return Info(
            ledger=ledger.name,
            version=version,
            rows={table.name: table.count(connection) for table in tables(min(version, newest(ledger.dialect)))},
            requests=past + live + gone,
            past=past,
            expired=gone,
            bytes=ledger.size(connection),
            oldest_ms=connection.execute(_OLDEST).fetchone()[0],
            expired_until_ms=progress(connection, EXPIRED) or None,
        )
