"""Who changed what: keys, and limits that stand in place of the policy's."""

from router.report.report import Column, Kind, Report
from router.report.source import Definition, Source

_LATEST = """
    SELECT at_ms, actor, action, subject, document FROM audit
    WHERE at_ms >= ? AND at_ms < ? ORDER BY at_ms DESC, id DESC LIMIT 1000
"""
_COLUMNS = (Column("time", Kind.TIME), Column("actor"), Column("action"), Column("subject"), Column("changes"))
_NOTE = (
    "The newest 1,000. The actor is the name of a key, or the command line of the gateway's machine. The policy file is"
    " the base: what is changed here stands in its place until it is taken back."
)


def _made(source: Source) -> Report:
    return Report(
        name="audit",
        title="Audit",
        columns=_COLUMNS,
        rows=tuple(tuple(row) for row in source.connection.execute(_LATEST, source.asked.bounds).fetchall()),
        note=_NOTE,
        since_ms=source.asked.since_ms,
        until_ms=source.asked.until_ms,
    )


REPORT = Definition(name="audit", summary="Who changed keys, limits and charges, and when.", make=_made)
