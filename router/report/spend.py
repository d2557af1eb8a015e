"""`lowpass report spend`: cost and tokens by any dimension, with a chart."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, tzinfo
from functools import cache
from heapq import nlargest
from itertools import product
from typing import NamedTuple

from router.ledger.facts import attempts
from router.ledger.facts.query import Label, Sums, add
from router.ledger.write import BUCKETS
from router.report.query import Asked, Definition, Source
from router.report.render import NO_LABEL
from router.report.report import STEPS_MS, Column, Kind, Mark, Plot, Report, Shape, Value, day, hour, next_day, step
from router.types.price import usd_from_nano

# What the chart of spend shows: the dearest groups, or each day's.

MOST_BARS = 12
MOST_SERIES = 6
"""More colours can't be told apart."""
_MOST_DAYS = 400
"""Days without spend are shown as such, unless there would be too many."""
_TITLE = "Spend"

Costs = Sequence[tuple[tuple[str | None, ...], int]]
"""Labels → nano-USD, in the report's order."""


def plots(by: Sequence[str], costs: Costs) -> tuple[Plot, ...]:
    """None where a chart would mislead: tags of one request can't stand on each other, and what has no time nowhere."""
    times = [place for place, name in enumerate(by) if name in ("day", "hour")]
    timeless = any(labels[place] is None for place in times for labels, _ in costs)
    if not costs or len(times) > 1 or timeless or (times and "tag" in by):
        return ()
    marks = _stacked(times[0], costs) if times else _bars(costs)
    if times and by[times[0]] == "day":
        marks = _filled(marks)
    shape = Shape.DAYS if times else Shape.BARS
    return (Plot(title=_TITLE, shape=shape, unit=Kind.USD, marks=tuple(marks)),)


def _bars(costs: Costs) -> list[Mark]:
    """What is left out is one bar of its own, so that the bars add up."""
    shown = [Mark(label=_name(labels), value=cost) for labels, cost in costs[:MOST_BARS]]
    rest = costs[MOST_BARS:]
    return [*shown, Mark(label=f"{len(rest)} others", value=sum(cost for _, cost in rest))] if rest else shown


def _stacked(time: int, costs: Costs) -> list[Mark]:
    rest = [(labels[time] or "", labels[:time] + labels[time + 1 :], cost) for labels, cost in costs]
    sizes: dict[tuple[str | None, ...], int] = {}
    for _, series, cost in rest:
        sizes[series] = sizes.get(series, 0) + cost
    largest = set(sorted(sizes, key=lambda series: -sizes[series])[:MOST_SERIES])
    found: dict[tuple[str, str], int] = {}
    for label, series, cost in rest:
        name = (_name(series) if series else "") if series in largest else "others"
        found[label, name] = found.get((label, name), 0) + cost
    order = sorted(found.items(), key=lambda one: (datetime.fromisoformat(one[0][0]), one[0][1]))
    return [Mark(label=label, series=name, value=cost) for (label, name), cost in order]


def _filled(marks: Iterable[Mark]) -> list[Mark]:
    """With a mark for each day on which nothing happened."""
    known: dict[str, list[Mark]] = {}
    for mark in marks:
        known.setdefault(mark.label, []).append(mark)
    day, last = min(known), max(known)
    found: list[Mark] = []
    while day <= last and len(found) < _MOST_DAYS:
        found += known.get(day, [Mark(label=day, value=0)])
        day = next_day(day)
    return found if day > last else [mark for some in known.values() for mark in some]


def _name(labels: tuple[str | None, ...]) -> str:
    return " · ".join(label or NO_LABEL for label in labels)


# What was spent, on what: every nano-USD of the ledger in exactly one row, except where a row is a tag.

TIMES: Mapping[str, Callable[[int, tzinfo], str]] = {"day": day, "hour": hour}
"""Of a moment in Unix ms."""
_NAMES = (
    *("organisation", "team", "key", "tag", "route", "model", "target", "provider", "region", "effort"),
    *("class", "task", "session", "app", "template"),
)
BY = (*_NAMES, *TIMES)
"""What spend can be grouped by."""
_USUAL = ("target",)
MOST_ROWS = 10_000
"""Beyond them the least are one row, so that nothing is lost: of sessions there may be millions."""
_OF_ATTEMPTS = {"model", "target", "provider", "region", "effort"}

Group = tuple[str | None, ...]
"""One label for each name that the report is by."""
Sizes = tuple[int, ...]
"""One sum for each measure."""


class _Name(NamedTuple):
    """One of the names that the report is by: its dimension of the cube, and under what a label of that counts."""

    dimension: str
    read: Callable[[Label], Sequence[str | None]]


class _Sum(NamedTuple):
    """A column and the measure in it. It means nothing where the measure `known` is 0, and is its share of `whole`."""

    column: Column
    measure: str
    known: str = ""
    whole: str = ""


def _bucket(name: str) -> _Sum:
    if name == "output_reasoning":
        return _Sum(Column("reasoning_tokens", Kind.COUNT), name, "split")
    usual = name in ("input_uncached", "output_visible")
    return _Sum(Column(name, Kind.COUNT, rare=not usual), name, "counted")


_SUMS = (
    _Sum(Column("requests", Kind.COUNT), "requests"),
    _Sum(Column("cost_usd", Kind.USD), "cost"),
    _Sum(Column("cache_saved_usd", Kind.USD, rare=True), "cache_saved"),
    _Sum(Column("recovered_usd", Kind.USD, rare=True), "recovered"),
    _Sum(Column("held_usd", Kind.USD, rare=True), "held"),
    _Sum(Column("attempts", Kind.COUNT), "attempts"),
    _Sum(Column("errors", Kind.COUNT), "errors"),
    _Sum(Column("failed_attempts", Kind.COUNT, rare=True), "failed_attempts"),
    _Sum(Column("input_tokens", Kind.COUNT), "input_tokens", "counted"),
    *(_bucket(name) for name in BUCKETS if not name.startswith("output")),
    _Sum(Column("output_tokens", Kind.COUNT), "output_tokens", "counted"),
    *(_bucket(name) for name in BUCKETS if name.startswith("output")),
    _Sum(Column("thinking_share", Kind.SHARE), "output_reasoning", "split", whole="split_output"),
    _Sum(Column("reasoning_unknown", Kind.COUNT, rare=True), "unsplit"),
    _Sum(Column("unpriced", Kind.COUNT, rare=True), "unpriced"),
)
COLUMNS = tuple(one.column for one in _SUMS)
"""Beside the labels."""
_MEASURES = tuple(dict.fromkeys(name for one in _SUMS for name in (one.measure, one.known, one.whole) if name))
_AT = {name: place for place, name in enumerate(_MEASURES)}

_AT_TARGETS = (
    "Costs and tokens stand where they arose, attempt by attempt; a request counts once, at its last attempt, and is an"
    " error if it failed there."
)
_PER_REQUEST = "A request with several attempts counts once, with all that they cost."
_PER_TAG = "A request with several tags counts in each of their rows, and once in the total."
_LEGEND = {
    "failed_attempts": "Failed attempts may have been made good by a later one.",
    "reasoning_unknown": "Reasoning unknown: attempts whose provider does not tell reasoning from other output.",
    "unpriced": "Unpriced: attempts at a target without a price, charged at the policy's worst case.",
    "cache_saved_usd": "Cache saved: what cached input would have cost more without its cache.",
    "recovered_usd": "Recovered: charged at the hold because the gateway died meanwhile.",
    "held_usd": "Held: kept back, not spent yet.",
}
"""What a rare column means; said when there is something in it."""


def spend(source: Source) -> Report:
    """Requests that began in the window, in groups.

    A row whose label is None holds the requests that have none: no tag, no key, or no target asked (yet).
    """
    asked = source.asked
    by = asked.by or _USUAL
    names = [_spend_name(name, asked) for name in by]
    found = source.sums(attempts.TABLE, tuple(dict.fromkeys(name.dimension for name in names)), _MEASURES)
    # Of very many groups the sums by hour know the total sooner.
    whole = found if len(found) <= MOST_ROWS else source.sums(attempts.TABLE, (), _MEASURES)
    total = _total(whole.values())
    groups = _rows(by, _grouped(found, names), total)
    return Report(
        name="spend",
        title=f"Spend by {' and '.join(by)}",
        columns=(*(Column(name, Kind.LABEL) for name in by), *COLUMNS),
        rows=tuple((*labels, *_cells(sums)) for labels, sums in groups),
        totals=("total", *(None for _ in by[1:]), *_cells(total)),
        note=" ".join(_notes(by, asked, total)),
        since_ms=asked.since_ms,
        until_ms=asked.until_ms,
        plots=plots(by, [(labels, _charged(sums)) for labels, sums in groups]),
    )


def _spend_name(name: str, asked: Asked) -> _Name:
    if name in TIMES:
        dimension = step(asked.zone, asked.since_ms, asked.until_ms, asked.now_ms)
        return _Name(dimension, _times(TIMES[name], STEPS_MS[dimension], asked.zone))
    return _Name("tags", cache(_tags)) if name == "tag" else _Name(name, _as_it_is)


def _times(
    written: Callable[[int, tzinfo], str], step_ms: int, zone: tzinfo
) -> Callable[[Label], Sequence[str | None]]:
    @cache
    def read(label: Label) -> Sequence[str | None]:
        return (written(int(label or 0) * step_ms, zone),)

    return read


def _tags(label: Label) -> Sequence[str | None]:
    return sorted(set(str(label).split(","))) if label else (None,)


def _as_it_is(label: Label) -> Sequence[str | None]:
    return (None if label is None else str(label),)


def _grouped(found: Sums, names: Sequence[_Name]) -> dict[Group, Sizes]:
    places = {dimension: at for at, dimension in enumerate(dict.fromkeys(name.dimension for name in names))}
    parts = [(name.read, places[name.dimension]) for name in names]
    if all(name.read is _as_it_is for name in names):
        return {
            tuple(None if label is None else str(label) for label in labels): sums for labels, sums in found.items()
        }
    groups: dict[Group, Sizes] = {}
    for labels, sums in found.items():
        for group in product(*(read(labels[place]) for read, place in parts)):
            add(groups, group, sums)
    return groups


def _rows(by: Sequence[str], groups: dict[Group, Sizes], total: Sizes) -> list[tuple[Group, Sizes]]:
    """In order; of too many, the largest, and one for all others. Tags overlap; all else adds up to the total."""
    named = next((at for at, name in enumerate(by) if name not in TIMES), None)
    if len(groups) <= MOST_ROWS or named is None:
        return _ordered(by, groups)

    def size(group: Group) -> tuple[int, int, list[str]]:
        return _charged(groups[group]), groups[group][_AT["requests"]], [label or "" for label in group]

    least = nlargest(MOST_ROWS, map(_charged, groups.values()))[-1]
    large = [group for group, sums in groups.items() if _charged(sums) >= least]
    kept = {group: groups.pop(group) for group in nlargest(MOST_ROWS, large, key=size)}
    rest = tuple(f"({len(groups):,} others)" if at == named else None for at in range(len(by)))
    left = _total(groups.values()) if "tag" in by else tuple(map(int.__sub__, total, _total(kept.values())))
    return [*_ordered(by, kept), (rest, left)]


def _total(sums: Collection[Sizes]) -> Sizes:
    return tuple(map(sum, zip(*sums, strict=True))) if sums else (0,) * len(_MEASURES)


def _ordered(by: Sequence[str], groups: Mapping[Group, Sizes]) -> list[tuple[Group, Sizes]]:
    """By time, where a name is one; else the dearest first. What has no label comes last."""
    timed = any(name in TIMES for name in by)

    def place(one: tuple[Group, Sizes]) -> tuple[object, ...]:
        labels, sums = one
        order = tuple((label is None, _moment(name, label)) for name, label in zip(by, labels, strict=True))
        return order if timed else (not any(labels), -_charged(sums), order)

    return sorted(groups.items(), key=place)


def _moment(name: str, label: str | None) -> object:
    """An hour is told from its double by its offset."""
    return datetime.fromisoformat(label) if name == "hour" and label else label or ""


def _charged(sums: Sizes) -> int:
    """nano-USD, with what was charged for requests that were lost."""
    return sums[_AT["cost"]] + sums[_AT["recovered"]]


def _cells(sums: Sizes) -> Iterator[Value]:
    for one in _SUMS:
        amount = sums[_AT[one.measure]]
        if one.known and not sums[_AT[one.known]]:
            yield None
        elif one.whole:
            whole = sums[_AT[one.whole]]
            yield amount / whole if whole else None
        else:
            yield usd_from_nano(amount) if one.column.kind is Kind.USD else amount


def _notes(by: Sequence[str], asked: Asked, total: Sizes) -> Iterator[str]:
    yield _AT_TARGETS if _OF_ATTEMPTS & {*by, *(one.dimension for one in asked.where)} else _PER_REQUEST
    if "tag" in by:
        yield _PER_TAG
    if "day" in by:
        yield f"Days begin at midnight, {asked.zone}."
    for one in _SUMS:
        if one.column.name in _LEGEND and total[_AT[one.measure]]:
            yield _LEGEND[one.column.name]


REPORT = Definition(name="spend", summary="What was spent, on what.", make=spend, by=BY, where=_NAMES)
