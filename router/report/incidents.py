"""What was stopped: by the loop breaker, or because an answer came from another region than its target states."""

from router.ledger.connection import Connection
from router.ledger.rows import EVER_MS
from router.report.report import Column, Kind, Report
from router.report.source import Definition, Source

_LATEST = """
    SELECT at_ms, kind, scope, subject, reason, until_ms FROM incidents
    WHERE at_ms >= ? AND at_ms < ? ORDER BY at_ms DESC, id DESC LIMIT 1000
"""
_COLUMNS = (
    Column("time", Kind.TIME),
    Column("kind"),
    Column("scope"),
    Column("subject"),
    Column("reason"),
    Column("until", Kind.TIME),
)
_NOTE = "The newest 1,000. The subject was refused until the time stated; without one, for good."


def incidents(connection: Connection, since_ms: int | None, until_ms: int | None) -> Report:
    """The newest first."""
    bounds = (since_ms or 0, EVER_MS if until_ms is None else until_ms)
    rows = tuple(tuple(row) for row in connection.execute(_LATEST, bounds).fetchall())
    return Report(
        name="incidents",
        title="Incidents",
        columns=_COLUMNS,
        rows=rows,
        note=_NOTE,
        since_ms=since_ms,
        until_ms=until_ms,
    )


def _made(source: Source) -> Report:
    return incidents(source.connection, source.asked.since_ms, source.asked.until_ms)


REPORT = Definition(name="incidents", summary="What the loop breaker and the region check stopped.", make=_made)
