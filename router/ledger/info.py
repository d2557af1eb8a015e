"""How large the ledger is, and from when on it has rows."""

from msgspec import Struct

from router.ledger.connection import Connection
from router.ledger.ledger import Ledger
from router.ledger.migrate import current
from router.ledger.schema import tables

_SEGMENTS = "SELECT COUNT(*), COALESCE(SUM(requests), 0) FROM segments WHERE expired_ms IS NULL"
_PACKED = "SELECT COUNT(*), COALESCE(SUM(requests), 0) FROM segments"
_FRESH = "SELECT COUNT(*) FROM requests WHERE id > (SELECT COALESCE(MAX(last_id), '') FROM segments)"
_EXPIRED = "SELECT MAX(last_ms) FROM segments WHERE expired_ms IS NOT NULL"
_OLDEST = """
    SELECT MIN(at_ms) FROM (
        SELECT MIN(first_ms) AS at_ms FROM segments WHERE expired_ms IS NULL
        UNION ALL SELECT MIN(started_ms) FROM (
            SELECT started_ms FROM requests WHERE id > (SELECT COALESCE(MAX(last_id), '') FROM segments)
            ORDER BY id LIMIT 1
        ) AS first_row
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
    packed: int
    """Of these, whose rows are in segments."""
    expired: int
    """Of these, whose rows are gone."""
    segments: int
    bytes: int
    oldest_ms: int | None
    """When the first request began whose rows are there."""
    expired_until_ms: int | None
    """When the last request began whose rows are gone."""

    @property
    def bytes_per_request(self) -> float | None:
        return self.bytes / self.requests if self.requests else None


def info(ledger: Ledger) -> Info:
    """Raises `LedgerUnavailable`."""
    with ledger.reading() as connection:
        connection.execute("BEGIN")
        version = current(connection, ledger.dialect)
        segments, with_rows = connection.execute(_SEGMENTS).fetchone()
        _, ever = connection.execute(_PACKED).fetchone()
        return Info(
            ledger=ledger.name,
            version=version,
            rows={table.name: table.count(connection) for table in tables(version)},
            requests=ever + _one(connection, _FRESH),
            packed=with_rows,
            expired=ever - with_rows,
            segments=segments,
            bytes=ledger.size(connection),
            oldest_ms=connection.execute(_OLDEST).fetchone()[0],
            expired_until_ms=connection.execute(_EXPIRED).fetchone()[0],
        )


def _one(connection: Connection, query: str) -> int:
    return int(connection.execute(query).fetchone()[0])
