"""What was spent on answers, and what routing itself costs: answers that were passed over, judges, exploration."""

from collections.abc import Callable, Sequence
from operator import add
from typing import NamedTuple

from router.ledger.facts import attempts, offers
from router.ledger.facts.attempts import JUDGE
from router.report.judged import Labels
from router.report.report import Column, Kind, Report, Row
from router.report.source import Source
from router.types.money import usd_from_nano

_MEASURES = ("cost", "recovered", "requests", "passed_over", "passed_over_cost")
_COLUMNS = (Column("what"), Column("number", Kind.COUNT), Column("spent_usd", Kind.USD), Column("share", Kind.SHARE))
_NOTE = (
    "Passed over: answers of cascades, votes and hedges that nobody was given. Explored requests were sent where chance"
    " said, to keep the estimates honest; they were answered all the same."
)


class Outlay(NamedTuple):
    """nano-USD of clients' requests, of which some for `passed_over` answers, and of judges'."""

    cost: int = 0
    requests: int = 0
    passed_over: int = 0
    passed_over_cost: int = 0
    judges: int = 0
    judgements: int = 0

    @property
    def all(self) -> int:
        return self.cost + self.judges

    def plus(self, other: "Outlay") -> "Outlay":
        return Outlay(*map(add, self, other))


def outlays(source: Source, dimensions: Sequence[str], read: Callable[[Labels], Labels]) -> dict[Labels, Outlay]:
    """By group; `read`: labels of these dimensions → the group that they belong to."""
    # A route tells judges from clients as well; what is kept when rows expire has one or the other.
    routed = "route" in dimensions or any(one.dimension == "route" for one in source.asked.where)
    flag, judge = ("route", JUDGE) if routed else ("judging", 1)
    by = tuple(dict.fromkeys((*dimensions, flag)))
    found: dict[Labels, Outlay] = {}
    for labels, (cost, recovered, requests, *rest) in source.sums(attempts.TABLE, by, _MEASURES).items():
        judging = labels[by.index(flag)] == judge
        one = Outlay(cost + recovered, requests, *rest)
        group = read(labels[: len(dimensions)])
        before = found.get(group, Outlay())
        found[group] = before.plus(Outlay(judges=one.cost, judgements=one.requests) if judging else one)
    return found


def lines(source: Source, spent: Outlay) -> Report:
    """What all of it was spent on."""
    explored, paid = _explored(source)
    answers = spent.cost - spent.passed_over_cost
    rows = (
        _line("answers given", spent.requests, answers, spent.all),
        _line("answers passed over", spent.passed_over, spent.passed_over_cost, spent.all),
        _line("judges", spent.judgements, spent.judges, spent.all),
        _line("explored requests, part of the above", explored, paid, spent.all),
    )
    return Report(
        name="outlay",
        title="What it was spent on",
        columns=_COLUMNS,
        rows=rows,
        totals=("all but the last line", None, usd_from_nano(spent.all), 1.0 if spent.all else None),
        note=_NOTE,
    )


def _explored(source: Source) -> tuple[int, int]:
    found = source.sums(offers.TABLE, ("explored", "chosen", "candidate"), ("requests", "actual"))
    some = [sums for (explored, chosen, candidate), sums in found.items() if explored and chosen == candidate]
    return sum(requests for requests, _ in some), sum(actual for _, actual in some)


def _line(what: str, number: int, nano: int, whole: int) -> Row:
    return what, number, usd_from_nano(nano), nano / whole if whole else None
