"""`lowpass report spend` and `thinking`: cost and tokens by any dimension, with a chart."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import cache
from heapq import nlargest
from itertools import product

from router.ledger.facts import ATTEMPTS, Label, Sums, add
from router.report.charts import OTHERS
from router.report.query import LedgerView, ReportRequest, grouped
from router.report.render import UNKNOWN
from router.report.report import NO_LABEL, TIMES, Kind, Mark, Plot, Report, Shape, bars, measures, plots, step, tallied
from router.types.target import Contract, Target

Group = tuple[str | None, ...]
Sizes = tuple[int, ...]

# The chart of spend: the most expensive groups, or spend by day.

MOST_BARS = 12
MOST_SERIES = 6
"""Maximum number of series; more colours can't be distinguished."""
_MOST_DAYS = 400
"""Maximum number of days for which days without spend are shown."""

Costs = Sequence[tuple[Group, int]]
"""Labels and nano-USD, in the report's order."""


def drawn(by: Sequence[str], costs: Costs) -> tuple[Plot, ...]:
    """Returns the chart; none if it would mislead, because costs of tags overlap or rows have no time."""
    times = [place for place, name in enumerate(by) if name in TIMES]
    timeless = any(names[place] is None for place in times for names, _ in costs)
    if len(times) > 1 or timeless or (times and "tag" in by):
        return ()
    if not times:
        return plots("Spend", Shape.BARS, Kind.USD, bars([(_name(names), cost) for names, cost in costs], MOST_BARS))
    marks = stacked(times[0], costs)
    if marks and by[times[0]] == "day":
        known = grouped((mark.label, mark) for mark in marks)
        first, last = date.fromisoformat(min(known)), date.fromisoformat(max(known))
        days = [str(first + timedelta(number)) for number in range((last - first).days + 1)]
        # Days without requests are included.
        if len(days) <= _MOST_DAYS:
            marks = [mark for day in days for mark in known.get(day, [Mark(label=day, value=0)])]
    return plots("Spend", Shape.DAYS, Kind.USD, marks)


def stacked(time: int, costs: Costs) -> list[Mark]:
    """Returns marks by the label at index `time`; all but the largest series are merged."""
    rest = [(names[time] or "", names[:time] + names[time + 1 :], cost) for names, cost in costs]
    sizes, stacks = Counter[Group](), Counter[tuple[str, str]]()
    for _, series, cost in rest:
        sizes[series] += cost
    largest = {series for series, _ in sizes.most_common(MOST_SERIES)}
    for label, series, cost in rest:
        stacks[label, _name(series) if series in largest else OTHERS] += cost
    order = sorted(stacks.items(), key=lambda item: (datetime.fromisoformat(item[0][0]), item[0][1]))
    return [Mark(label=label, series=name, value=cost) for (label, name), cost in order]


def _name(names: Group, no_label: str = NO_LABEL) -> str:
    return " · ".join(label or no_label for label in names)


# Spend by group: each nano-USD of the ledger is in exactly one row, unless rows are tags.

MOST_ROWS = 10_000
"""Maximum number of rows; the smallest groups beyond it are merged into one, as there may be millions of sessions."""
_OF_ATTEMPTS = {"model", "target", "provider", "region", "effort"}
_SUMS = measures("spend")
_AT = {name: place for place, name in enumerate(_SUMS)}
_Read = Callable[[Label], Sequence[str | None]]
"""Returns the report's labels under which a dimension's label counts."""

_AT_TARGETS = (
    "Costs and tokens stand where they arose, attempt by attempt; a request counts once, at its last attempt, and is an"
    " error if it failed there."
)
_PER_REQUEST = "A request with several attempts counts once, with all that they cost."
_PER_TAG = "A request with several tags counts in each of their rows, and once in the total."


def spend(source: LedgerView) -> Report:
    """Returns the sums of requests that began in the window, by group.

    A row with a label of None has the requests without one: no tag, no key, or no target asked (yet).
    """
    by = source.request.by or ("target",)
    names = [_spend_name(name, source.request) for name in by]
    by_labels = source.sums(ATTEMPTS, tuple(dict.fromkeys(dimension for dimension, _ in names)), _SUMS)
    # With very many groups, hourly sums give the total faster.
    whole = by_labels if len(by_labels) <= MOST_ROWS else source.sums(ATTEMPTS, (), _SUMS)
    total = _total(whole.values(), _SUMS)
    groups = _rows(by, _grouped(by_labels, names), total)
    named = {*by, *(condition.dimension for condition in source.request.where)}
    notes = [_AT_TARGETS if _OF_ATTEMPTS & named else _PER_REQUEST]
    notes += [_PER_TAG] if "tag" in by else []
    notes += [f"Days begin at midnight, {source.request.zone}."] if "day" in by else []
    chart = drawn(by, [(labels, _charged(sums)) for labels, sums in groups])
    title = f"Spend by {' and '.join(by)}"
    return tallied("spend", by, groups, total, title=title, note=" ".join(notes), plots=chart)


def _spend_name(name: str, request: ReportRequest) -> tuple[str, _Read]:
    """Returns the ledger's dimension for a label of the report, and the function that converts its labels."""
    if name in TIMES:
        dimension, step_ms = step(request.zone, request.since_ms, request.until_ms, request.now_ms)
        return dimension, cache(lambda label: (TIMES[name](int(label or 0) * step_ms, request.zone),))
    if name == "tag":
        return "tags", cache(lambda label: sorted(set(str(label).split(","))) if label else (None,))
    return name, _as_it_is


def _as_it_is(label: Label) -> Sequence[str | None]:
    return (None if label is None else str(label),)


def _grouped(by_labels: Sums, names: Sequence[tuple[str, _Read]]) -> dict[Group, Sizes]:
    dimensions = list(dict.fromkeys(dimension for dimension, _ in names))
    parts = [(read, dimensions.index(dimension)) for dimension, read in names]
    if all(read is _as_it_is for read, _ in parts):
        return {tuple(None if each is None else str(each) for each in group): sums for group, sums in by_labels.items()}
    groups: dict[Group, Sizes] = {}
    for known, sums in by_labels.items():
        for group in product(*(read(known[place]) for read, place in parts)):
            add(groups, group, sums)
    return groups


def _rows(by: Sequence[str], groups: dict[Group, Sizes], total: Sizes) -> list[tuple[Group, Sizes]]:
    """Returns the rows in order; if there are too many, the largest, and one for all others. Only tags overlap."""
    named = next((at for at, name in enumerate(by) if name not in TIMES), None)
    if len(groups) <= MOST_ROWS or named is None:
        return _ordered(by, groups)

    def size(group: Group) -> tuple[int, int, list[str]]:
        return _charged(groups[group]), groups[group][_AT["requests"]], [label or "" for label in group]

    least = nlargest(MOST_ROWS, map(_charged, groups.values()))[-1]
    large = [group for group, sums in groups.items() if _charged(sums) >= least]
    dearest = {group: groups.pop(group) for group in nlargest(MOST_ROWS, large, key=size)}
    rest = tuple(f"({len(groups):,} others)" if at == named else None for at in range(len(by)))
    of_dearest = _total(dearest.values(), _SUMS)
    left = _total(groups.values(), _SUMS) if "tag" in by else tuple(map(int.__sub__, total, of_dearest))
    return [*_ordered(by, dearest), (rest, left)]


def _total(sums: Collection[Sizes], measures: Sequence[str]) -> Sizes:
    return tuple(map(sum, zip(*sums, strict=True))) or (0,) * len(measures)


def _ordered(by: Sequence[str], groups: Mapping[Group, Sizes]) -> list[tuple[Group, Sizes]]:
    """Sorts rows by time if there is a time dimension, else by cost, descending. Rows without labels are last."""
    timed = any(name in TIMES for name in by)

    def place(item: tuple[Group, Sizes]) -> tuple[object, ...]:
        group, sums = item
        # The hour that a clock repeats is distinguished by its offset.
        order = tuple(
            (label is None, datetime.fromisoformat(label) if name == "hour" and label else label or "")
            for name, label in zip(by, group, strict=True)
        )
        return order if timed else (not any(group), -_charged(sums), order)

    return sorted(groups.items(), key=place)


def _charged(sums: Sizes) -> int:
    """Returns the charges in nano-USD, including those for requests that were lost."""
    return sums[_AT["cost"]] + sums[_AT["recovered"]]


# Tokens and cost of thinking, its control, and thinking without an answer.

_THOUGHT = measures("thinking")


def silent(target: Target | None) -> bool:
    """Whether the target's model never thinks, so that missing thinking counts are zero."""
    return target is not None and target.model.thinking.contract is Contract.NONE


def thinking(source: LedgerView) -> Report:
    """Returns groups by cost of thinking, descending; groups without attempts are included only if they have costs."""
    by = source.request.by or ("target", "effort")
    dimensions = tuple(dict.fromkeys((*by, "target")))
    at, groups = dimensions.index("target"), dict[Group, Sizes]()
    for labels, amounts in source.sums(ATTEMPTS, dimensions, _THOUGHT).items():
        sums = dict(zip(_THOUGHT, amounts, strict=True))
        if silent(source.targets.get(str(labels[at]))) and not sums["output_reasoning"]:
            sums |= {"split": sums["counted"], "unsplit": 0, "split_output": sums["output_tokens"]}
            sums |= {"thinking_known": sums["attempts"], "thinking_of": sums["cost"]}
        if sums["attempts"] or sums["cost"]:
            add(groups, tuple(None if label is None else str(label) for label in labels[: len(by)]), (*sums.values(),))
    spent, thought = _THOUGHT.index("cost"), _THOUGHT.index("thinking_cost")
    ranked = sorted(groups.items(), key=lambda item: (-item[1][thought], -item[1][spent], _name(item[0])))
    costs = [(_name(names, UNKNOWN), sums[thought]) for names, sums in ranked if sums[thought]]
    chart = plots("What thinking cost", Shape.BARS, Kind.USD, bars(costs, MOST_BARS))
    total = _total(groups.values(), _THOUGHT)
    return tallied("thinking", by, ranked, total, title=f"Thinking by {' and '.join(by)}", plots=chart)
