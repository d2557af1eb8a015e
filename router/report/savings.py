"""`lowpass report savings`: what routing saved against one target for everything, and what it did to quality."""

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

# What the same requests would have cost, and how often they would have been right, at one target: as the decisions
# expected it, corrected by what was expected of that target and came out.

ENOUGH = 30
"""Requests that a target has to have served as the first choice, for its forecasts to be corrected by them."""
_NO_JUDGES = LabelFilter("route", frozenset({JUDGE}), inverted=True)
_SEVERAL = frozenset({"cascade", "self_consistency", "plan"})
"""Strategies under which a request may pay for more than its first choice."""
_WHOM = ("chosen", "candidate", "strategy")
_MEASURES = ("answered", "answered_expected", "answered_rated", "answered_pass_e4", "answered_actual")


class Offer(NamedTuple):
    """Of requests that were answered, alike in group, choice and strategy: what was expected of one candidate, and what
    was paid in fact; nano-USD."""

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
        """Only the candidate was paid, as far as it answered."""
        return self.first and self.strategy not in _SEVERAL


class CostRatio(NamedTuple):
    """What came out ÷ what was expected, over so many requests; nano-USD."""

    actual: int = 1
    expected: int = 1
    served: int = 0

    def of(self, expected: int) -> int:
        """Half up."""
        return (2 * expected * self.actual + self.expected) // (2 * self.expected)

    @property
    def factor(self) -> float:
        return self.actual / self.expected


class Baseline(NamedTuple):
    """`name`: why it is compared with."""

    name: str
    target: str
    correction: CostRatio


class Alternative(NamedTuple):
    """Of the requests that a target could have served: what they cost, and what it was expected to. The rates are of
    right answers that were expected, of what was chosen and of this target."""

    requests: int
    actual: int
    expected: int
    chosen_rate: float | None
    rate: float | None


def offered(
    source: LedgerView, by: Sequence[str], read: Callable[[Labels], Labels], *where: LabelFilter
) -> list[Offer]:
    """`read`: labels of these dimensions → the group that they belong to."""
    by_labels = source.sums(OFFERS, (*by, *_WHOM), _MEASURES, _NO_JUDGES, *where).items()
    return together(
        Offer(read(tuple(rest)), chosen, candidate, strategy, *amounts)
        for (*rest, chosen, candidate, strategy), amounts in by_labels
    )


def together(every: Iterable[Offer]) -> list[Offer]:
    """One for each group, choice, candidate and strategy."""
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
        # Alike decisions need not all have had this candidate: it gets its part of what was expected of the chosen.
        right += of_chosen.pass_e4 * offer.rated / of_chosen.rated if of_chosen and of_chosen.rated else 0.0
    total = _total(mine)
    rates = (right / total.rated / 1e4, total.pass_e4 / total.rated / 1e4) if total.rated else (None, None)
    return Alternative(total.answered, total.actual, total.expected, *rates)


def spread(mine: Iterable[Offer], everything: Sequence[Offer], known: Baseline) -> tuple[float, float] | None:
    """Bounds of what the baseline would have cost more than what was paid, in nano-USD; groups end with the hour.
    `everything`: of all groups, which its correction is drawn from anew each time. None: of too few hours."""
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


# What was spent on answers, and what routing itself costs: answers that were passed over, judges, exploration.

_OUTLAY_MEASURES = ("cost", "recovered", "requests", "passed_over", "passed_over_cost")


class OverheadCost(NamedTuple):
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


def overhead_costs(
    source: LedgerView, dimensions: Sequence[str], read: Callable[[Labels], Labels]
) -> dict[Labels, OverheadCost]:
    """By group; `read`: labels of these dimensions → the group that they belong to."""
    # A route tells judges from clients as well; what is kept when rows expire has one or the other.
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
    """What all of it was spent on."""
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


# How often answers were right in fact, beside how often one target's are, on work of the same kinds.


def quality(source: LedgerView, known: Sequence[Baseline]) -> tuple[Report, ...]:
    """Nothing under a filter by route: judgements know the task and the target of an answer, and not its route."""
    if any(condition.dimension == "route" for condition in source.request.where):
        return ()
    by_cell: defaultdict[Labels, dict[Label, JudgedSums]] = defaultdict(dict)
    for (target, *about), facts in cells(source, expected=False).items():
        by_cell[tuple(about)][target] = facts
    return (made("quality", (_quality(baseline, by_cell.values()) for baseline in known)),)


def _quality(baseline: Baseline, cells: Iterable[Mapping[Label, JudgedSums]]) -> Row:
    """Each cell weighs by the answers that were wanted there."""
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


# What routing saved against single targets, net of what it costs itself, and what became of correctness.

_USUAL = ("route",)
_MOST = 0.5
"""Share of the answered requests that a target could have served, to be the best or the cheapest of all."""


class Saving(Struct, frozen=True):
    """One baseline in one group. `answered`: requests; `bounds`: of what was saved, in nano-USD."""

    group: Labels
    baseline: Baseline
    outlay: OverheadCost
    answered: int
    other: Alternative
    bounds: tuple[float, float] | None = None

    @property
    def nano(self) -> int:
        """At the baseline."""
        return self.outlay.cost - self.other.actual + self.baseline.correction.of(self.other.expected)

    @property
    def saved(self) -> int:
        return self.nano - self.outlay.all

    @property
    def per_pass(self) -> float | None:
        """nano-USD that each right answer more cost, or each one fewer saved. None: it is no trade."""
        chosen, other = self.other.chosen_rate, self.other.rate
        if chosen is None or other is None or self.saved * (other - chosen) <= 0:
            return None
        return self.saved / ((other - chosen) * self.other.requests)

    @property
    def warning(self) -> str:
        """Where it is cheaper, and expected to be right less often."""
        chosen, other = self.other.chosen_rate, self.other.rate
        if self.saved <= 0 or chosen is None or other is None or chosen >= other:
            return ""
        less = f"expected to be right less often: {100 * chosen:.1f} %, not {100 * other:.1f} %."
        return f"Cheaper than always {self.baseline.target}, and {less}"


def savings(source: LedgerView) -> Report:
    by = source.request.by or _USUAL
    dimensions = tuple("hour" if name == "day" else name for name in by)

    def read(names: Labels) -> Labels:
        """An hour counts in the day in which it begins."""
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
    """Of the targets that could have served most requests: the likeliest to be right, and the cheapest as corrected;
    and the one that was asked for."""
    others = {target: alternative(every, target) for target in sorted({str(offer.candidate) for offer in every})}
    enough = _MOST * sum(offer.answered for offer in every if offer.first)
    usual = {target: other for target, other in others.items() if other.requests and other.requests >= enough}
    rated = {target: other.rate for target, other in usual.items() if other.rate is not None}
    # nano-USD for a request.
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
    """The groups of which most was spent first, or `in_order` of their labels."""
    groups, compared = grouped((offer.group, offer) for offer in every), []
    for group in sorted(spent, key=lambda group: (0 if in_order else -spent[group].all, tuple(map(str, group)))):
        some = groups.get(group, [])
        answered = sum(offer.answered for offer in some if offer.first)
        others = ((baseline, alternative(some, baseline.target)) for baseline in known)
        compared += [Saving(group, baseline, spent[group], answered, other) for baseline, other in others]
    return compared


def _bounded(source: LedgerView, dimensions: Sequence[str], rows: Sequence[Saving]) -> list[Saving]:
    """With bounds, of groups that go on all the time."""
    targets = LabelFilter("candidate", frozenset(row.baseline.target for row in rows))
    hours = offered(source, (*dimensions, "hour"), tuple, targets)
    groups, compared = grouped((offer.group[:-1], offer) for offer in hours), []
    for row in rows:
        between = spread(groups.get(row.group, ()), hours, row.baseline)
        # No baseline costs less than nothing.
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
