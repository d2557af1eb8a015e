"""The list of all reports, itself a report."""

from router.report.catalog import REPORTS
from router.report.report import Column, Report
from router.report.source import Definition

NAME = "list"
_COLUMNS = (Column("name"), Column("summary"), Column("by"), Column("where"), Column("takes", rare=True))
_NOTE = "Every report takes since, until and zone as well."


def contents() -> Report:
    rows = tuple((one.name, one.summary, _all(one.by), _all(one.where), _takes(one)) for one in REPORTS.values())
    return Report(name=NAME, title="Reports", columns=_COLUMNS, rows=rows, note=_NOTE)


def _all(names: tuple[str, ...]) -> str | None:
    return ", ".join(names) or None


def _takes(definition: Definition) -> str | None:
    """What only some reports take."""
    subject = ("subject",) if definition.needs_subject else ()
    return _all((*subject, *(("baseline",) if definition.takes_baseline else ())))
