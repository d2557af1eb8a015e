"""`lowpass report incidents` and `lowpass report audit`: the newest thousand lines of each."""

from router.report.query import Source
from router.report.report import Report, Row, columns

_INCIDENTS = """
    SELECT at_ms, kind, scope, subject, reason, until_ms FROM incidents
    WHERE at_ms >= ? AND at_ms < ? ORDER BY at_ms DESC, id DESC LIMIT 1000
"""
_AUDIT = """
    SELECT at_ms, actor, action, subject, document FROM audit
    WHERE at_ms >= ? AND at_ms < ? ORDER BY at_ms DESC, id DESC LIMIT 1000
"""


def incidents(source: Source) -> Report:
    """What was stopped: by the loop breaker, or because an answer came from another region than its target states."""
    return Report(
        name="incidents",
        title="Incidents",
        columns=columns("time:time kind scope subject reason until:time"),
        rows=_latest(source, _INCIDENTS),
        note="The newest 1,000. The subject was refused until the time stated; without one, for good.",
    )


def audit(source: Source) -> Report:
    """Who changed what: keys, and limits that stand in place of the policy's."""
    return Report(
        name="audit",
        title="Audit",
        columns=columns("time:time actor action subject changes"),
        rows=_latest(source, _AUDIT),
        note=(
            "The newest 1,000. The actor is the name of a key, or the command line of the gateway's machine. The policy"
            " file is the base: what is changed here stands in its place until it is taken back."
        ),
    )


def _latest(source: Source, statement: str) -> tuple[Row, ...]:
    return tuple(map(tuple, source.connection.execute(statement, source.asked.bounds).fetchall()))
