"""All reports by their names. A new one is one file and one line here: the rest (table, files, pages) is generic."""

from collections.abc import Mapping

from router.report import (
    audit,
    budgets,
    cost_of_pass,
    egress,
    engines,
    incidents,
    local_vs_api,
    price_reversal,
    reliability,
    request,
    savings,
    session,
    spend,
    thinking,
    vendors,
)
from router.report.source import Definition

REPORTS: Mapping[str, Definition] = {
    one.name: one
    for one in (
        spend.REPORT,
        cost_of_pass.REPORT,
        savings.REPORT,
        price_reversal.REPORT,
        thinking.REPORT,
        budgets.REPORT,
        egress.REPORT,
        reliability.REPORT,
        vendors.REPORT,
        local_vs_api.REPORT,
        engines.REPORT,
        request.REPORT,
        session.REPORT,
        incidents.REPORT,
        audit.REPORT,
    )
}
