"""`lowpass report savings`: what routing saved compared with one target for all requests, and its effect on quality."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import NamedTuple

import numpy as np
from msgspec import Struct, structs

from router.ledger.facts import ATTEMPTS, HOUR_MS, JUDGE, OFFERS, Label, LabelFilter
from router.report.cost_of_pass import JudgedSums, Labels, cells, pooled
from router.report.query import LedgerView, grouped, summed, summed_by
from router.report.report import Kind, Mark, Report, Row, Shape, columns, day, declared, made, plots
from router.report.statistics import Interval, bounds, drawn, weighted

# Cost and pass rate of the same requests at one target: as expected by the decisions, and corrected by the ratio of
# actual to expected cost of that target.

ENOUGH = 30
"""Minimum number of requests that a target served as the first choice for its expected costs to be corrected."""
_NO_JUDGES = LabelFilter("route", frozenset({JUDGE}), inverted=True)
_SEVERAL = frozenset({"cascade", "self_consistency", "plan"})
"""Strategies under which a request may pay for more than its first choice."""
_WHOM = ("chosen", "candidate", "strategy")
_MEASURES = ("answered", "answered_expected", "answered_rated", "answered_pass_e4", "answered_actual")


class Offer(NamedTuple):
    """Expectations for one candidate, summed over answered requests of the same group, choice and strategy, and the
    actual cost; in nano-USD."""

    group: Labels
    chosen: Label
    candidate: Label
    strategy: Label
    answered: int = 0
    expected: int = 0
    rated: int = 0
    pass_e4: int = 0
    actual: int = 0

    @property
    def first(self) -> bool:
        return self.chosen == self.candidate

    @property
    def alone(self) -> bool:
        """Whether the actual cost is only that of the candidate, as far as it answered."""
        return self.first and self.strategy not in _SEVERAL


class CostRatio(NamedTuple):
    """Ratio of actual to expected cost over `served` requests; in nano-USD."""

    actual: int = 1
    expected: int = 1
    served: int = 0

    def of(self, expected: int) -> int:
        """Returns the corrected amount, rounded half up."""
        return (2 * expected * self.actual + self.expected) // (2 * self.expected)

    @property
    def factor(self) -> float:
        return self.actual / self.expected


class Baseline(NamedTuple):
    """A target to compare with; `name` says why."""

    name: str
    target: str
    correction: CostRatio


class Alternative(NamedTuple):
    """Requests that a target could have served, with their actual cost and the cost expected of the target. The rates
    are the expected pass rates of the choices made and of the target."""

    requests: int
    actual: int
    expected: int
    chosen_rate: float | None
    rate: float | None


def offered(
    source: LedgerView, by: Sequence[str], read: Callable[[Labels], Labels], *where: LabelFilter
) -> list[Offer]:
    """Returns the offers in the window; `read` maps labels of the dimensions `by` to a group."""
    by_labels = source.sums(OFFERS, (*by, *_WHOM), _MEASURES, _NO_JUDGES, *where).items()
    return together(
        Offer(read(tuple(rest)), chosen, candidate, strategy, *amounts)
        for (*rest, chosen, candidate, strategy), amounts in by_labels
    )


def together(every: Iterable[Offer]) -> list[Offer]:
    """Merges the offers of each group, choice, candidate and strategy."""
    parts = grouped((offer[:4], offer[4:]) for offer in every)
    return [Offer(*about, *map(sum, zip(*amounts, strict=True))) for about, amounts in parts.items()]


def _total(every: Iterable[Offer]) -> Offer:
    return summed(partial(Offer, (), None, None, None), (offer[4:] for offer in every))


def correction(every: Iterable[Offer], target: Label) -> CostRatio:
    total = _total(offer for offer in every if offer.candidate == target and offer.alone)
    enough = total.answered >= ENOUGH and total.expected > 0
    return CostRatio(total.actual, total.expected, total.answered) if enough else CostRatio(served=total.answered)


def alternative(every: Sequence[Offer], target: Label) -> Alternative:
    chosen = {(offer.group, offer.chosen, offer.strategy): offer for offer in every if offer.first}
    mine, right = [offer for offer in every if offer.candidate == target], 0.0
    for offer in mine:
        of_chosen = chosen.get((offer.group, offer.chosen, offer.strategy))
        # Not all of these decisions had this candidate: it gets its share of the pass rate expected of the choice.
        right += of_chosen.pass_e4 * offer.rated / of_chosen.rated if of_chosen and of_chosen.rated else 0.0
    total = _total(mine)
    rates = (right / total.rated / 1e4, total.pass_e4 / total.rated / 1e4) if total.rated else (None, None)
    return Alternative(total.answered, total.actual, total.expected, *rates)


def spread(mine: Iterable[Offer], everything: Sequence[Offer], known: Baseline) -> tuple[float, float] | None:
    """Returns bounds of the baseline's cost minus the actual cost, in nano-USD; None for too few hours. A group's last
    label is the hour. `everything`: offers of all groups, from which the correction is resampled."""
    if not everything:
        return None
    hours = [int(offer.group[-1] or 0) for offer in everything]
    first = min(hours)
    table = np.zeros((max(hours) - first + 1, 4))
    for offer in mine:
        if offer.candidate == known.target:
            table[int(offer.group[-1] or 0) - first, :2] += offer.expected, offer.actual
    for hour, offer in zip(hours, everything, strict=True):
        if offer.candidate == known.target and offer.alone:
            table[hour - first, 2:] += offer.expected, offer.actual
    draws = drawn(table)
    if draws is None:
        return None
    expected, paid, foreseen, came = draws.T
    ratio = known.correction
    again = (ratio.served >= ENOUGH) & (foreseen > 0)
    return bounds(expected * np.where(again, came / np.where(again, foreseen, 1), ratio.factor) - paid)


# The cost of answers, and of routing itself: answers that were passed over, judges, exploration.

_OUTLAY_MEASURES = ("cost", "recovered", "requests", "passed_over", "passed_over_cost")


class OverheadCost(NamedTuple):
    """Cost of clients' requests, including `passed_over` answers, and of judges' requests; in nano-USD."""

    cost: int = 0
    requests: int = 0
    passed_over: int = 0
    passed_over_cost: int = 0
    judges: int = 0
    judgements: int = 0

    @property
    def all(self) -> int:
        return self.cost + self.judges


def overhead_costs(
    source: LedgerView, dimensions: Sequence[str], read: Callable[[Labels], Labels]
) -> dict[Labels, OverheadCost]:
    """Returns costs by group; `read` maps labels of the dimensions to a group."""
    # Routes tell judges from clients as well; sums of expired rows have either the route or the flag.
    routed = "route" in dimensions or any(condition.dimension == "route" for condition in source.request.where)
    flag, judge = ("route", JUDGE) if routed else ("judging", 1)
    by = tuple(dict.fromkeys((*dimensions, flag)))
    parts = []
    for names, (cost, recovered, requests, *rest) in source.sums(ATTEMPTS, by, _OUTLAY_MEASURES).items():
        outlay = OverheadCost(cost + recovered, requests, *rest)
        if names[by.index(flag)] == judge:
            outlay = OverheadCost(judges=outlay.cost, judgements=requests)
        parts.append((read(names[: len(dimensions)]), outlay))
    return summed_by(OverheadCost, parts)


def lines(source: LedgerView, spent: OverheadCost) -> Report:
    """Returns a table of what was spent on what."""
    by_labels = source.sums(OFFERS, ("explored", "chosen", "candidate"), ("requests", "actual"))
    some = [sums for (explored, chosen, candidate), sums in by_labels.items() if explored and chosen == candidate]
    parts = (
        ("answers given", spent.requests, spent.cost - spent.passed_over_cost),
        ("answers passed over", spent.passed_over, spent.passed_over_cost),
        ("judges", spent.judgements, spent.judges),
        ("explored requests, part of the above", sum(n for n, _ in some), sum(actual for _, actual in some)),
    )
    return made(
        "outlay",
        ((label, number, nano, nano / spent.all if spent.all else None) for label, number, nano in parts),
        totals=("all but the last line", None, spent.all, 1.0 if spent.all else None),
    )


# Actual pass rate of answers, compared with that of one target on the same kinds of work.


def quality(source: LedgerView, known: Sequence[Baseline]) -> tuple[Report, ...]:
    """Returns the quality table; nothing under a filter by route, because judgements don't have a route."""
    if any(condition.dimension == "route" for condition in source.request.where):
        return ()
    by_cell: defaultdict[Labels, dict[Label, JudgedSums]] = defaultdict(dict)
    for (target, *about), facts in cells(source, expected=False).items():
        by_cell[tuple(about)][target] = facts
    return (made("quality", (_quality(baseline, by_cell.values()) for baseline in known)),)


def _quality(baseline: Baseline, cells: Iterable[Mapping[Label, JudgedSums]]) -> Row:
    """Returns a baseline's row; cells are weighted by their number of answers."""
    rates: list[list[tuple[float, Interval]]] = [[], []]
    for cell in cells:
        judged = {name: facts for name, facts in cell.items() if facts.basis == "judged" and facts.answers}
        chosen, other = pooled(list(judged.values())).passes, judged.get(baseline.target, JudgedSums()).passes
        if chosen is not None and other is not None:
            answers = sum(facts.answers for facts in cell.values())
            rates[0].append((answers, chosen))
            rates[1].append((answers, other))
    wanted = round(sum(answers for answers, _ in rates[0]))
    bounds = [bound for parts in rates for bound in (weighted(parts) if parts else (None, None, None))]
    return baseline.name, baseline.target, wanted, *bounds


# Savings compared with single targets, net of the cost of routing itself, and the change in correctness.

_USUAL = ("route",)
_MOST = 0.5
"""Minimum share of the answered requests that a target could have served, to be the best or the cheapest."""


class Saving(Struct, frozen=True):
    """A baseline compared with one group. `answered`: number of requests; `bounds`: of the savings, in nano-USD."""

    group: Labels
    baseline: Baseline
    outlay: OverheadCost
    answered: int
    other: Alternative
    bounds: tuple[float, float] | None = None

    @property
    def nano(self) -> int:
        """Cost at the baseline, in nano-USD."""
        return self.outlay.cost - self.other.actual + self.baseline.correction.of(self.other.expected)

    @property
    def saved(self) -> int:
        return self.nano - self.outlay.all

    @property
    def per_pass(self) -> float | None:
        """nano-USD per additional right answer, or saved per right answer lost; None if there is no trade-off."""
        chosen, other = self.other.chosen_rate, self.other.rate
        if chosen is None or other is None or self.saved * (other - chosen) <= 0:
            return None
        return self.saved / ((other - chosen) * self.other.requests)

    @property
    def warning(self) -> str:
        """Warning if routing is cheaper but expected to be right less often than the baseline."""
        chosen, other = self.other.chosen_rate, self.other.rate
        if self.saved <= 0 or chosen is None or other is None or chosen >= other:
            return ""
        less = f"expected to be right less often: {100 * chosen:.1f} %, not {100 * other:.1f} %."
        return f"Cheaper than always {self.baseline.target}, and {less}"


def savings(source: LedgerView) -> Report:
    by = source.request.by or _USUAL
    dimensions = tuple("hour" if name == "day" else name for name in by)

    def read(names: Labels) -> Labels:
        """Returns a group, with each hour replaced by the day in which it begins."""
        return tuple(
            day(int(label or 0) * HOUR_MS, source.request.zone) if name == "day" else label
            for name, label in zip(by, names, strict=True)
        )

    every, spent = offered(source, dimensions, read), overhead_costs(source, dimensions, read)
    everything, whole = together(offer._replace(group=()) for offer in every), summed(OverheadCost, spent.values())
    known = _baselines(source, everything)
    total = _bounded(source, (), _compared(everything, {(): whole}, known))
    groups = _compared(every, spent, known, in_order="day" in by)
    main = total
    if source.request.by:
        main = groups if "day" in by else _bounded(source, dimensions, groups)
    below = [*quality(source, known), lines(source, whole)]
    if not source.request.by:
        names = [*_USUAL, *(column.name for column in columns("savings"))]
        by_route = (dict(zip(names, _savings_row(row), strict=True)) for row in groups)
        wanted = [column.name for column in columns("savings-by-route")]
        below.insert(0, made("savings-by-route", ([row[name] for name in wanted] for row in by_route)))
    marks = [Mark(label="spent", value=row.outlay.all) for row in total[:1]]
    for row in total:
        low, high = (None, None) if row.bounds is None else (bound + row.outlay.all for bound in row.bounds)
        marks.append(Mark(label=f"{row.baseline.name}: {row.baseline.target}", value=row.nano, low=low, high=high))
    return made(
        "savings",
        map(_savings_row, main),
        source.request.by,
        title="Savings" + (f" by {' and '.join(by)}" if source.request.by else ""),
        note=" ".join(filter(None, (*(row.warning for row in total), declared()["savings"].note))),
        below=tuple(below),
        plots=plots("What was spent, and what it would have been", Shape.BARS, Kind.USD, marks),
    )


def _baselines(source: LedgerView, every: Sequence[Offer]) -> list[Baseline]:
    """Returns the baselines: of the targets that could have served most requests the one most likely to be right and
    the cheapest (corrected), and the requested one."""
    others = {target: alternative(every, target) for target in sorted({str(offer.candidate) for offer in every})}
    enough = _MOST * sum(offer.answered for offer in every if offer.first)
    usual = {target: other for target, other in others.items() if other.requests and other.requests >= enough}
    rated = {target: other.rate for target, other in usual.items() if other.rate is not None}
    # nano-USD per request.
    prices = {
        name: Fraction(correction(every, name).of(other.expected), other.requests) for name, other in usual.items()
    }
    picked = {
        "always best": max(rated, key=lambda target: rated[target], default=""),
        "always cheapest": min(prices, key=lambda target: prices[target], default=""),
        "as asked": source.request.baseline,
    }
    return [Baseline(name, target, correction(every, target)) for name, target in picked.items() if target]


def _compared(
    every: Iterable[Offer], spent: Mapping[Labels, OverheadCost], known: Sequence[Baseline], *, in_order: bool = False
) -> list[Saving]:
    """Returns the savings by group, the most expensive groups first, or `in_order` of their labels."""
    groups, compared = grouped((offer.group, offer) for offer in every), []
    for group in sorted(spent, key=lambda group: (0 if in_order else -spent[group].all, tuple(map(str, group)))):
        some = groups.get(group, [])
        answered = sum(offer.answered for offer in some if offer.first)
        others = ((baseline, alternative(some, baseline.target)) for baseline in known)
        compared += [Saving(group, baseline, spent[group], answered, other) for baseline, other in others]
    return compared


def _bounded(source: LedgerView, dimensions: Sequence[str], rows: Sequence[Saving]) -> list[Saving]:
    """Returns the savings with bounds, for groups that extend over the whole window."""
    targets = LabelFilter("candidate", frozenset(row.baseline.target for row in rows))
    hours = offered(source, (*dimensions, "hour"), tuple, targets)
    groups, compared = grouped((offer.group[:-1], offer) for offer in hours), []
    for row in rows:
        between = spread(groups.get(row.group, ()), hours, row.baseline)
        # A baseline's cost is at least zero.
        low, high = (max(bound - row.outlay.judges, -row.outlay.all) for bound in between or (0, 0))
        compared.append(structs.replace(row, bounds=(low, high) if between else None))
    return compared


def _savings_row(row: Saving) -> Row:
    low, high = row.bounds or (None, None)
    return (
        *(*row.group, row.baseline.name, row.baseline.target, row.other.requests),
        row.other.requests / row.answered if row.answered else None,
        *(row.outlay.all, row.nano, row.saved, low, high),
        row.saved / dearer if (dearer := max(row.nano, row.outlay.all)) else None,
        *(row.other.chosen_rate, row.other.rate, row.per_pass, row.baseline.correction.factor),
    )
