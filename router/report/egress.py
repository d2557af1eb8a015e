"""Where requests went, per class, and whether any of it broke the policy that was in force then."""

from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec import Struct

from router.ledger.facts import attempts
from router.ledger.facts.query import Where
from router.ledger.policies import documents
from router.report.proof import Judge, Sent
from router.report.report import Column, Kind, Mark, Plot, Report, Row, Shape
from router.report.source import Definition, Source
from router.report.violations import MOST, NOTHING, RESTING, SENT, Found, Search, sent

_MEASURES = ("sent_there", "attempts", "counted", "input_tokens", "output_tokens")
_OF_REQUESTS = frozenset({"class", "policy"})
"""Filters that hold for all of a request or for nothing of it."""
_EXPIRED = "they went about the time when evidence expired, and their rows are gone"
_MOST_BARS = 20
_COLUMNS = (
    Column("class", Kind.LABEL),
    Column("sent_as"),
    Column("target"),
    Column("entity"),
    Column("jurisdiction"),
    Column("region"),
    Column("region_is"),
    Column("redacted"),
    Column("requests", Kind.COUNT),
    Column("attempts", Kind.COUNT),
    Column("refused", Kind.COUNT, rare=True),
    Column("input_tokens", Kind.COUNT),
    Column("output_tokens", Kind.COUNT),
    Column("incidents", Kind.COUNT, rare=True),
    Column("unchecked", Kind.COUNT, rare=True),
    Column("violations", Kind.COUNT, rare=True),
)
_COUNTS_FROM = next(number for number, column in enumerate(_COLUMNS) if column.kind is Kind.COUNT)
_VIOLATION_COLUMNS = (
    Column("request", Kind.REQUEST),
    Column("attempt", Kind.COUNT),
    Column("time", Kind.TIME),
    Column("class", Kind.LABEL),
    Column("sent_as"),
    Column("target"),
    Column("rule"),
)


class _Group(Struct, frozen=True):
    """Attempts that are alike. Tokens are None where the usage of none of them is known."""

    sent: Sent
    went: bool
    requests: int
    attempts: int
    input_tokens: int | None
    output_tokens: int | None


class _Judged(Struct, frozen=True):
    group: _Group
    unknown: str
    """Why they can't be checked."""
    found: Found


def _made(source: Source) -> Report:
    judge = Judge(documents(source.connection))
    search = Search(source, judge)
    judged = [_judged(judge, search, group) for group in _groups(source)]
    refused = source.sums(attempts.TABLE, ("class",), ("requests",), Where("error", frozenset({"no_eligible_target"})))
    rows = [*_rows(judge, judged), *(_refusal(str(name), count) for (name,), (count,) in refused.items())]
    rows.sort(key=_by_place)
    violations = sum(one.found.violations for one in judged)
    return Report(
        name="egress",
        title="Egress",
        columns=_COLUMNS,
        rows=tuple(rows),
        totals=_totals(rows, _requests(source)),
        note=" ".join(_notes(source, judged, violations)),
        since_ms=source.asked.since_ms,
        until_ms=source.asked.until_ms,
        sound=not violations,
        below=_listed([row for one in judged for row in one.found.listed], violations),
        plots=_plots(rows),
    )


REPORT = Definition(
    name="egress",
    summary="Where requests of each class went, and whether the policy of their time allowed it.",
    make=_made,
    where=("class", "target", "region", "policy"),
)


def _groups(source: Source) -> list[_Group]:
    """Nothing is sent to a target that rests after failures."""
    found: dict[tuple[Sent, bool], list[int]] = {}
    for (*labels, outcome), sums in source.sums(attempts.TABLE, (*SENT, "outcome"), _MEASURES).items():
        alike = (sent(labels), outcome != RESTING)
        if sums[1] and (alike[1] or alike[0].classes):
            found[alike] = [one + other for one, other in zip(found.get(alike, [0] * len(sums)), sums, strict=True)]
    return [
        _Group(alike, went, requests, count, *((tokens[0], tokens[1]) if counted else (None, None)))
        for (alike, went), (requests, count, counted, *tokens) in sorted(found.items())
    ]


def _judged(judge: Judge, search: Search, group: _Group) -> _Judged:
    unknown = judge.unknown(group.sent)
    return _Judged(group, unknown, NOTHING if unknown else search.among(group.sent))


def _requests(source: Source) -> int | None:
    """Of which anything was sent; None where a filter takes single attempts, and nobody can say of how many."""
    if not {one.dimension for one in source.asked.where} <= _OF_REQUESTS:
        return None
    return sum(count for (count,) in source.sums(attempts.TABLE, (), ("sent_requests",)).values())


def _rows(judge: Judge, judged: Iterable[_Judged]) -> Iterator[Row]:
    """One row a place: groups that differ in nothing but their policy are one."""
    found: dict[Row, list[int | None]] = {}
    for one in judged:
        if one.group.went or one.found.violations:
            label, counts = _label(judge, one.group.sent), _counts(one)
            before = found.get(label)
            found[label] = counts if before is None else [_plus(*pair) for pair in zip(before, counts, strict=True)]
    for label, counts in found.items():
        yield (*label, *counts)


def _label(judge: Judge, sent: Sent) -> Row:
    """Entity and jurisdiction as the policy of that time had them; None where that is not known."""
    past = judge.past(sent.policy)
    target = None if past is None else past.targets.get(sent.target)
    entity = None if target is None else target.provider.entity or target.provider.id
    law = None if target is None else target.provider.jurisdiction or None
    said = "local" if target is not None and target.local else sent.region_source or None
    return (
        *(sent.data_class, sent.classes or None, sent.target, entity, law, sent.region or None, said),
        "yes" if sent.redacted else "no",
    )


def _counts(judged: _Judged) -> list[int | None]:
    group, found = judged.group, judged.found
    went = group.attempts if group.went else 0
    misplaced = group.attempts if group.sent.region_source == "mismatch" else 0
    tokens = (group.input_tokens, group.output_tokens)
    unchecked = group.attempts if judged.unknown else found.lost
    return [group.requests, went, 0, *tokens, misplaced, unchecked, found.violations]


def _refusal(data_class: str, count: int) -> Row:
    return (data_class, *(None for _ in _COLUMNS[1:_COUNTS_FROM]), count, 0, count, None, None, 0, 0, 0)


def _totals(rows: list[Row], requests: int | None) -> Row:
    """A request that went to several places counts once."""
    columns = list(zip(*rows, strict=True))[_COUNTS_FROM:] if rows else [()] * (len(_COLUMNS) - _COUNTS_FROM)
    _, tried, refused, *rest = [sum(value for value in column if isinstance(value, int)) for column in columns]
    every = None if requests is None else requests + refused
    return ("total", *(None for _ in _COLUMNS[1:_COUNTS_FROM]), every, tried, refused, *rest)


def _notes(source: Source, judged: list[_Judged], violations: int) -> Iterator[str]:
    checked = sum(one.group.attempts - one.found.lost for one in judged if not one.unknown)
    yield f"{_number(checked, 'attempt')} checked again, each under the policy that was in force for it:"
    yield f"{_number(violations, 'violation')}."
    unknown: Counter[str] = Counter()
    for one in judged:
        unknown[one.unknown or _EXPIRED] += one.group.attempts if one.unknown else one.found.lost
    for why, count in unknown.items():
        if count:
            yield f"{count:,} can't be checked: {why}."
    unwritten = sum(count for (count,) in source.sums(attempts.TABLE, (), ("unwritten",)).values())
    if unwritten:
        yield f"{_number(unwritten, 'request')} in progress, or lost with the gateway: where to is not written."
    misplaced = sum(one.group.attempts for one in judged if one.group.sent.region_source == "mismatch")
    if misplaced:
        yield f"{_number(misplaced, 'attempt')} came from another region than the target states."
    yield "A request that went to several places counts in each of their rows, and once in the total."


def _listed(listed: list[Row], violations: int) -> tuple[Report, ...]:
    if not violations:
        return ()
    shown = tuple(sorted(listed[:MOST], key=lambda row: (str(row[0]), str(row[1]))))
    note = f"{len(shown):,} of {violations:,}." if violations > len(shown) else ""
    return (Report(name="violations", title="Violations", columns=_VIOLATION_COLUMNS, rows=shown, note=note),)


def _plots(rows: list[Row]) -> tuple[Plot, ...]:
    """Attempts by class and place, most first."""
    names = [column.name for column in _COLUMNS]
    places = [names.index(name) for name in ("class", "target", "region", "attempts")]
    found: Counter[str] = Counter()
    for row in rows:
        data_class, target, region, count = (row[place] for place in places)
        if target is not None and isinstance(count, int):
            found[f"{data_class} → {target}{f' ({region})' if region else ''}"] += count
    marks = tuple(Mark(label=label, value=count) for label, count in found.most_common(_MOST_BARS))
    return (Plot(title="Attempts by class and place", shape=Shape.BARS, unit=Kind.COUNT, marks=marks),) if marks else ()


def _by_place(row: Row) -> tuple[str, ...]:
    return tuple(str(value or "") for value in row[:_COUNTS_FROM])


def _plus(one: int | None, other: int | None) -> int | None:
    """Unknown counts for nothing beside what is known."""
    return one if other is None else other if one is None else one + other


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
