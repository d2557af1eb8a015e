"""The overview page of the dashboard."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import NamedTuple

from router.ledger.facts import ATTEMPTS, HOUR_MS, Label, Sums
from router.ledger.rows import Connection
from router.report.budgets import BudgetStanding
from router.report.cost_of_pass import cells, pooled, together
from router.report.query import LedgerView, ReportRequest, listed, summed
from router.report.report import NO_LABEL, Kind, Plot, Shape, bars, day
from router.report.savings import savings
from router.report.spend import Group, stacked
from router.types.request import DAY_MS
from router.types.target import Target

# The figures of the first page, from one read of the ledger's hourly sums and of the budgets.

WEEK, MONTH = 7, 30
"""Numbers of days, including today, which begin at midnight UTC."""
MAX_TARGETS = 6
"""Maximum number of target bars; the spend report has all targets."""


class Period(NamedTuple):
    """Sums of the ledger under the ledger's names; money in nano-USD. `split_output` is the output of attempts whose
    provider reports reasoning separately."""

    requests: int = 0
    errors: int = 0
    cost: int = 0
    recovered: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    output_reasoning: int = 0
    split_output: int = 0

    @property
    def charged(self) -> int:
        """Cost, including charges for requests that were lost."""
        return self.cost + self.recovered

    @property
    def thinking(self) -> float | None:
        """Share of reasoning in the output; None if no provider reports it."""
        return self.output_reasoning / self.split_output if self.split_output else None


def overview(
    connection: Connection, targets: Mapping[str, Target], standings: Sequence[BudgetStanding] | None, now_ms: int
) -> Mapping[str, object]:
    """Returns the variables of the page's template. `connection` is inside a read transaction; `standings` is None if
    the budget store does not answer. `saved` is the first row of the savings report for the week, if any: the
    comparison with the target that is right most often."""
    midnight = now_ms - now_ms % DAY_MS
    month, week = (midnight - (days - 1) * DAY_MS for days in (MONTH, WEEK))
    requests = (ReportRequest(since_ms=since, zone=UTC, now_ms=now_ms) for since in (month, week))
    long, short = (LedgerView(connection=connection, request=request, targets=targets) for request in requests)
    saved = savings(short)
    by_hour = long.sums(ATTEMPTS, ("hour", "target"), Period._fields)
    # Days without requests are included.
    days: list[tuple[Group, int]] = [((day(month + n * DAY_MS, UTC), None), 0) for n in range(MONTH)]
    of_week: Counter[str] = Counter()
    for (hour, target), sums in by_hour.items():
        charged, name = Period(*sums).charged, str(target or NO_LABEL)
        days.append(((day(_at(hour), UTC), name), charged))
        if _at(hour) >= week:
            of_week[name] += charged
    dearest = sorted(of_week.items(), key=lambda item: (-item[1], item[0]))
    by_day, by_target = tuple(stacked(0, days)), tuple(bars(dearest, MAX_TARGETS))
    return {
        "today": _since(by_hour, midnight),
        "week": _since(by_hour, week),
        "month": _since(by_hour, month),
        "by_day": Plot(title="Spend by day and target", shape=Shape.DAYS, unit=Kind.USD, marks=by_day),
        "by_target": Plot(title="Spend by target", shape=Shape.BARS, unit=Kind.USD, marks=by_target),
        # The accounts with the largest used share come first.
        "standings": None if standings is None else sorted(standings, key=lambda each: each.used, reverse=True),
        "answers": together(cells(short), lambda labels: ()).get((), pooled(())),
        "saved": dict(zip((column.name for column in saved.columns), saved.rows[0], strict=True))
        if saved.rows
        else None,
        "incidents": listed("incidents", short),
    }


def _at(hour: Label) -> int:
    return int(hour or 0) * HOUR_MS


def _since(by_hour: Sums, since_ms: int) -> Period:
    return summed(Period, (sums for (hour, _), sums in by_hour.items() if _at(hour) >= since_ms))
