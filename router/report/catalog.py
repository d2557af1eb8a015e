"""All reports by their names. A new one is one file and one line here: the rest (table, files, pages) is generic."""

from collections.abc import Mapping

from router.report import cost_of_pass, incidents, spend
from router.report.egress import egress
from router.report.report import Report
from router.report.source import Definition, Source


def _egress(source: Source) -> Report:
    return egress(source.connection, source.asked.since_ms, source.asked.until_ms)


def _budgets(source: Source) -> Report:
    assert source.pots is not None  # noqa: S101
    return source.pots


REPORTS: Mapping[str, Definition] = {
    one.name: one
    for one in (
        spend.REPORT,
        cost_of_pass.REPORT,
        Definition(name="budgets", summary="Every pot: limit, spent, held, left.", make=_budgets, needs_pots=True),
        Definition(name="egress", summary="Where each class went, and whether the policy allowed it.", make=_egress),
        incidents.REPORT,
    )
}
