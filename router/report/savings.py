"""What routing saved against single targets, net of what it costs itself, and what became of correctness."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import reduce

from msgspec import Struct, structs

from router.ledger.facts import offers
from router.ledger.facts.attempts import HOUR_MS
from router.report.asked import named, wrong
from router.report.counterfactual import (
    ENOUGH,
    Alternative,
    Baseline,
    Hour,
    Offer,
    alternative,
    correction,
    hourly,
    merged,
    offered,
    spread,
)
from router.report.days import day
from router.report.judged import Labels
from router.report.outlay import Outlay, lines, outlays
from router.report.quality import quality
from router.report.report import Column, Kind, Mark, Plot, Report, Row, Shape
from router.report.source import Definition, Source
from router.types.money import usd_from_nano

BY = ("route", "task", "day")
_USUAL = ("route",)
_MOST = 0.5
"""Share of the answered requests that a target could have served, to be the best or the cheapest of all."""
_COLUMNS = (
    Column("against"),
    Column("target", Kind.LABEL),
    Column("requests", Kind.COUNT),
    Column("could_serve", Kind.SHARE),
    Column("spent_usd", Kind.USD),
    Column("baseline_usd", Kind.USD),
    Column("saved_usd", Kind.USD),
    Column("saved_low_usd", Kind.USD),
    Column("saved_high_usd", Kind.USD),
    Column("saved_share", Kind.SHARE),
    Column("pass_rate", Kind.RATE),
    Column("baseline_pass_rate", Kind.RATE),
    Column("per_pass_usd", Kind.USD),
    Column("correction", Kind.FACTOR),
)
_BOUNDS = ("saved_low_usd", "saved_high_usd")
_NOTE = (
    "Baseline: what the answered requests that this one target could have served were expected to cost there, and what"
    " all others did cost. Saved is net: answers that were passed over, judges and exploration are in what was spent."
    " Pass rates are expected, of what was chosen and of the baseline on the same requests; per pass: what each right"
    " answer more cost, or each one fewer saved, to be held against what a wrong one costs you."
    f" Correction: what came out ÷ what was expected of the target, by at least {ENOUGH} requests; else 1."
    " Intervals hold 95 % of draws of hours."
)


class Compared(Struct, frozen=True):
    """One baseline in one group. `answered`: requests; `bounds`: of what was saved, judges apart, in nano-USD."""

    group: Labels
    baseline: Baseline
    outlay: Outlay
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
        if self.group or self.saved <= 0 or chosen is None or other is None or chosen >= other:
            return ""
        less = f"expected to be right less often: {100 * chosen:.1f} %, not {100 * other:.1f} %."
        return f"Cheaper than always {self.baseline.target}, and {less}"


def savings(source: Source) -> Report:
    by = source.asked.by or _USUAL
    dimensions, read = _dimensions(by), _reader(source, by)
    found, spent = offered(source, dimensions, read), outlays(source, dimensions, read)
    everything, whole = merged(found), reduce(Outlay.plus, spent.values(), Outlay())
    known = _baselines(source, everything)
    total = _bounded(source, (), _compared(everything, {(): whole}, known))
    groups = _compared(found, spent, known, in_order="day" in by)
    main = total
    if source.asked.by:
        main = groups if "day" in by else _bounded(source, dimensions, groups)
    return Report(
        name="savings",
        title="Savings" + (f" by {' and '.join(by)}" if source.asked.by else ""),
        columns=(*(Column(name, Kind.LABEL) for name in source.asked.by), *_COLUMNS),
        rows=tuple(map(_row, main)),
        note=" ".join(filter(None, (*(one.warning for one in total), _NOTE))),
        since_ms=source.asked.since_ms,
        until_ms=source.asked.until_ms,
        below=(*_parts(source, groups), *quality(source, known), lines(source, whole)),
        plots=_plots(total),
    )


def _parts(source: Source, groups: Sequence[Compared]) -> tuple[Report, ...]:
    if source.asked.by:
        return ()
    columns = (*(Column(name, Kind.LABEL) for name in _USUAL), *_COLUMNS)
    whole = Report(name="savings-by-route", title="Savings by route", columns=columns, rows=tuple(map(_row, groups)))
    return (whole.narrowed(*(column.name for column in columns if column.name not in _BOUNDS)),)


def _dimensions(by: Sequence[str]) -> tuple[str, ...]:
    return tuple("hour" if name == "day" else name for name in by)


def _reader(source: Source, by: Sequence[str]) -> Callable[[Labels], Labels]:
    """An hour counts in the day in which it begins."""

    def read(labels: Labels) -> Labels:
        return tuple(
            day(int(label or 0) * HOUR_MS, source.asked.zone) if name == "day" else label
            for name, label in zip(by, labels, strict=True)
        )

    return read


def _baselines(source: Source, found: Sequence[Offer]) -> list[Baseline]:
    """Of the targets that could have served most requests: the likeliest to be right, and the cheapest as corrected.
    Raises a 400 `ClientError` for a named one that nobody knows."""
    others = {target: alternative(found, target) for target in sorted({str(one.candidate) for one in found})}
    enough = _MOST * sum(one.sum.answered for one in found if one.first)
    usual = {target: one for target, one in others.items() if one.requests and one.requests >= enough}
    rated = {target: one.rate for target, one in usual.items() if one.rate is not None}
    prices = {target: _price(found, target, one) for target, one in usual.items()}
    picked = {
        "always best": max(rated, key=lambda target: rated[target], default=""),
        "always cheapest": min(prices, key=lambda target: prices[target], default=""),
        "as asked": _asked(source, others),
    }
    return [Baseline(name, target, correction(found, target)) for name, target in picked.items() if target]


def _asked(source: Source, offered: Collection[str]) -> str:
    asked = source.asked.baseline
    if not asked or asked in offered or asked in source.targets:
        return asked
    ever = {str(name) for (name,) in source.always().sums(offers.TABLE, ("candidate",), ("requests",))}
    if asked not in ever:
        targets = named(sorted(ever | {*source.targets}))
        raise wrong("baseline", f"baseline: there is no target '{asked[:40]}'. {targets}")
    return asked


def _price(found: Sequence[Offer], target: str, other: Alternative) -> Fraction:
    """nano-USD for a request."""
    return Fraction(correction(found, target).of(other.expected), other.requests)


def _compared(
    found: Iterable[Offer], spent: Mapping[Labels, Outlay], known: Sequence[Baseline], *, in_order: bool = False
) -> list[Compared]:
    """The groups of which most was spent first, or `in_order` of their labels."""
    groups: defaultdict[Labels, list[Offer]] = defaultdict(list)
    for one in found:
        groups[one.group].append(one)
    order = sorted(spent, key=lambda group: (0 if in_order else -spent[group].all, tuple(map(str, group))))
    return [
        Compared(
            group,
            baseline,
            spent[group],
            sum(one.sum.answered for one in groups[group] if one.first),
            alternative(groups[group], baseline.target),
        )
        for group in order
        for baseline in known
    ]


def _bounded(source: Source, dimensions: Sequence[str], compared: Sequence[Compared]) -> list[Compared]:
    """With bounds, of groups that go on all the time."""
    hours = hourly(source, dimensions, {one.baseline.target for one in compared})
    groups: defaultdict[Labels, list[Hour]] = defaultdict(list)
    for one in hours:
        groups[one.group].append(one)
    return [structs.replace(one, bounds=spread(groups[one.group], hours, one.baseline)) for one in compared]


def _row(one: Compared) -> Row:
    low, high = (None, None) if one.bounds is None else (bound - one.outlay.judges for bound in one.bounds)
    return (
        *one.group,
        one.baseline.name,
        one.baseline.target,
        one.other.requests,
        one.other.requests / one.answered if one.answered else None,
        usd_from_nano(one.outlay.all),
        usd_from_nano(one.nano),
        usd_from_nano(one.saved),
        _usd(low),
        _usd(high),
        one.saved / one.nano if one.nano else None,
        one.other.chosen_rate,
        one.other.rate,
        _usd(one.per_pass),
        one.baseline.correction.factor,
    )


def _usd(mean: float | None) -> Decimal | None:
    return None if mean is None else usd_from_nano(round(mean))


def _plots(compared: Sequence[Compared]) -> tuple[Plot, ...]:
    if not compared:
        return ()
    spent = Mark(label="spent", value=compared[0].outlay.all)
    marks = (spent, *map(_mark, compared))
    title = "What was spent, and what it would have been"
    return (Plot(title=title, shape=Shape.BARS, unit=Kind.USD, marks=marks),)


def _mark(one: Compared) -> Mark:
    low, high = (None, None) if one.bounds is None else (bound + one.outlay.cost for bound in one.bounds)
    return Mark(label=f"{one.baseline.name}: {one.baseline.target}", value=one.nano, low=low, high=high)


REPORT = Definition(
    name="savings",
    summary="What routing saved against the best, the cheapest or any other single target, and what became of quality.",
    make=savings,
    by=BY,
    where=("route", "task"),
    takes_baseline=True,
)
