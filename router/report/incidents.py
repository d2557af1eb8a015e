"""`lowpass report incidents` and `lowpass report audit`."""

from router.ledger.rows import EVER_MS, Connection
from router.report.query import Definition, Source
from router.report.report import Column, Kind, Report

# What was stopped: by the loop breaker, or because an answer came from another region than its target states.

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


# Who changed what: keys, and limits that stand in place of the policy's.

_AUDIT_LATEST = """
    SELECT at_ms, actor, action, subject, document FROM audit
    WHERE at_ms >= ? AND at_ms < ? ORDER BY at_ms DESC, id DESC LIMIT 1000
"""
_AUDIT_COLUMNS = (Column("time", Kind.TIME), Column("actor"), Column("action"), Column("subject"), Column("changes"))
_AUDIT_NOTE = (
    "The newest 1,000. The actor is the name of a key, or the command line of the gateway's machine. The policy file is"
    " the base: what is changed here stands in its place until it is taken back."
)


def _audit_made(source: Source) -> Report:
    return Report(
        name="audit",
        title="Audit",
        columns=_AUDIT_COLUMNS,
        rows=tuple(tuple(row) for row in source.connection.execute(_AUDIT_LATEST, source.asked.bounds).fetchall()),
        note=_AUDIT_NOTE,
        since_ms=source.asked.since_ms,
        until_ms=source.asked.until_ms,
    )


AUDIT_REPORT = Definition(name="audit", summary="Who changed keys, limits and charges, and when.", make=_audit_made)
