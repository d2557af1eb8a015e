"""`lowpass report incidents` and `lowpass report audit`: the newest thousand lines of each."""

from router.report.query import Source
from router.report.report import Report, made

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
    return made("incidents", map(tuple, source.connection.execute(_INCIDENTS, source.asked.bounds).fetchall()))


def audit(source: Source) -> Report:
    """Who changed what: keys, and limits that stand in place of the policy's."""
    return made("audit", map(tuple, source.connection.execute(_AUDIT, source.asked.bounds).fetchall()))
