"""`lowpass report egress`: which data went to which provider and region, and whether the policy allowed it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, structs

from router.decide.eligibility import Redact
from router.decide.in_force import Past, read
from router.ledger import rows
from router.ledger.facts import attempts
from router.ledger.facts.query import Label, Where
from router.ledger.rows import documents
from router.report.query import Definition, Source
from router.report.report import Column, Kind, Mark, Plot, Report, Row, Shape
from router.types.target import Target

# Rows of attempts judged again: by the policy that was in force for each, with the rule that stood at the door.

NO_POLICY = "its policy is not in the ledger"
NO_CLASSES = "it was written before classes were"
UNREADABLE = "its policy can't be read by this version"


class Sent(NamedTuple):
    """What attempts have in common as far as the rule goes. Classes are joined by commas, as in their columns."""

    policy: str
    data_class: str
    held: str
    """All classes of the request."""
    classes: str
    """Those of what was sent."""
    target: str
    redacted: int
    region: str
    region_source: str


class Judge:
    """Reads each policy once."""

    def __init__(self, documents: Mapping[str, bytes]) -> None:
        self._documents = documents
        self._read: dict[str, Past | None] = {}

    def past(self, policy: str) -> Past | None:
        """None where there is no document that can be read."""
        if policy not in self._read:
            self._read[policy] = self._known(policy)
        return self._read[policy]

    def unknown(self, sent: Sent) -> str:
        """Why this can't be judged; empty where it can."""
        if not (sent.held and sent.classes):
            return NO_CLASSES
        if self.past(sent.policy) is None:
            return UNREADABLE if sent.policy in self._documents else NO_POLICY
        return ""

    def violation(self, sent: Sent, at_ms: int) -> str:
        """The rule that this broke at that time (Unix ms), in one sentence; empty where it broke none.

        What breaks none broke none at any earlier time either: of all that counts only evidence ages.
        """
        past = self.past(sent.policy)
        if past is None:
            return ""
        held, classes = frozenset(sent.held.split(",")), frozenset(sent.classes.split(","))
        target = past.targets.get(sent.target)
        if target is None:
            return f"the policy has no target {sent.target}"
        if strange := (held | classes | {sent.data_class}) - past.classes.keys():
            return f"the policy has no class {_names(strange)}"
        redacted = bool(sent.redacted)
        return (
            _inconsistent(sent, held)
            or _without(past, classes)
            or _lost(past, held - classes, redacted=redacted)
            or past.guard.refusal(_where(sent, target), classes, at_ms, redacted=redacted)
            or _elsewhere(sent, target)
        )

    def _known(self, policy: str) -> Past | None:
        try:
            return read(self._documents[policy])
        except (KeyError, ValueError):
            return None


def _inconsistent(sent: Sent, held: frozenset[str]) -> str:
    return "" if sent.data_class in held else f"its class is {sent.data_class}, which is not among those it held"


def _lost(past: Past, gone: frozenset[str], *, redacted: bool) -> str:
    """Only redaction takes a class away, and only where the policy lets it."""
    if not gone:
        return ""
    if not redacted:
        return f"it held class {_names(gone)}, was not redacted, and was sent without that class"
    kept = {name for name in gone if past.classes[name].redact is Redact.NEVER}
    return f"class {_names(kept)} may not be redacted away" if kept else ""


def _without(past: Past, classes: frozenset[str]) -> str:
    """The default binds always."""
    return "" if past.default in classes else f"it was sent without class {past.default}, which binds always"


def _elsewhere(sent: Sent, target: Target) -> str:
    if sent.region_source != "asserted" or sent.region == target.region:
        return ""
    return f"its region is said to be {sent.region or 'none'}, and the policy says {target.region or 'none'}"


def _where(sent: Sent, target: Target) -> Target:
    """The place that it really went to, as far as the provider told."""
    told = sent.region_source in ("verified", "mismatch")
    return structs.replace(target, region=sent.region) if told else target


def _names(classes: frozenset[str] | set[str]) -> str:
    return " and ".join(sorted(classes))


# Who stood behind a target: a name for the one that is paid and sees the data, and the law that it is under.


class Place(NamedTuple):
    """None: not known. What is local has no jurisdiction of its own: nobody else sees it."""

    entity: str | None
    jurisdiction: str | None
    local: bool


NOWHERE = Place(None, None, local=False)


class Places:
    """By the policy documents of the ledger, and the `targets` of the policy in force."""

    def __init__(self, documents: Mapping[str, bytes], targets: Mapping[str, Target]) -> None:
        self._judge, self._policies, self._targets = Judge(documents), sorted(documents), targets

    def then(self, target: str, policy: str) -> Place:
        """As the policy of that time had it; today's word where its document is not there."""
        past = self._judge.past(policy)
        found = None if past is None else past.targets.get(target)
        return self.now(target) if found is None else _place(found)

    def now(self, target: str) -> Place:
        """As the policy in force has it, else any that ever was."""
        if target in self._targets:
            return _place(self._targets[target])
        pasts = (self._judge.past(policy) for policy in self._policies)
        found = next((past.targets[target] for past in pasts if past is not None and target in past.targets), None)
        return NOWHERE if found is None else _place(found)

    def offered(self, target: str) -> bool:
        """The policy in force has it; where none was given, every target counts."""
        return not self._targets or target in self._targets


def _place(target: Target) -> Place:
    provider = target.provider
    law = None if target.local else provider.jurisdiction or None
    return Place(provider.entity or provider.id, law, target.local)


# Which attempts broke a rule of their time: found in sums of those that are alike, and read row by row only there.

SENT = ("policy", "class", "classes", "sent_classes", "target", "redacted", "region", "region_source")
"""Dimensions, in the order of `Sent`."""
MOST = 1_000
"""Violations that are listed; all are counted."""
LONGEST_MS = 86_400_000
"""No attempt begins later than so long after its request."""
RESTING = "circuit_open"
"""Outcome of an attempt of which nothing was sent."""


class Found(Struct, frozen=True):
    violations: int
    lost: int
    """Attempts that would have to be read one by one, and whose rows have expired."""
    listed: tuple[Row, ...] = ()


NOTHING = Found(0, 0)


def sent(labels: Sequence[object]) -> Sent:
    """Values of `SENT`, as the columns have them: empty where there is nothing."""
    texts = ["" if label is None else str(label) for label in labels]
    policy, data_class, held, classes, target, redacted, region, source = texts
    return Sent(policy, data_class, held, classes, target, int(redacted == "1"), region, source)


class Search:
    """In the window of `source`; `room`: how many more are listed."""

    def __init__(self, source: Source, judge: Judge) -> None:
        self._source, self._judge = source, judge
        self._latest_ms = _latest_ms(source)
        self.room = MOST

    def among(self, alike: Sent) -> Found:
        """Of all that was sent alike. What breaks no rule late breaks none at any earlier time."""
        if not self._judge.violation(alike, self._latest_ms):
            return NOTHING
        found = [self._in_hour(alike, hour, count) for hour, count in sorted(self._by_hour(alike).items())]
        listed = tuple(row for one in found for row in one.listed)
        return Found(sum(one.violations for one in found), sum(one.lost for one in found), listed)

    def _by_hour(self, alike: Sent) -> dict[int, int]:
        labels: list[Label] = [value if isinstance(value, int) else value or None for value in alike]
        like = (Where(name, frozenset({label})) for name, label in zip(SENT, labels, strict=True))
        found = self._source.sums(attempts.TABLE, ("hour",), ("attempts",), *like)
        return {int(hour or 0): count for (hour,), (count,) in found.items()}

    def _in_hour(self, alike: Sent, hour: int, count: int) -> Found:
        begin, end = hour * attempts.HOUR_MS, (hour + 1) * attempts.HOUR_MS
        if not self._judge.violation(alike, end + LONGEST_MS):
            return NOTHING
        always = bool(self._judge.violation(alike, begin))
        if always and not self.room:
            return Found(count, 0)
        read = list(self._read(alike, begin, end))
        broken = [row for row, rule in read if rule]
        listed = tuple(broken[: self.room])
        self.room -= len(listed)
        return Found(count, 0, listed) if always else Found(len(broken), max(0, count - len(read)), listed)

    def _read(self, alike: Sent, begin: int, end: int) -> Iterator[tuple[Row, str]]:
        """Each attempt with the rule that it broke; empty where it broke none."""
        asked = self._source.asked
        since = begin if asked.since_ms is None else max(begin, asked.since_ms)
        until = end if asked.until_ms is None else min(end, asked.until_ms)
        for kept in rows.every(self._source.connection, since, until):
            for attempt in kept.attempts:
                if _of(kept.request, attempt) == alike:
                    at_ms = int(attempt["started_ms"] or 0)
                    rule = self._judge.violation(alike, at_ms)
                    about = (alike.data_class, alike.classes, alike.target)
                    yield (kept.id, attempt["number"], at_ms, *about, rule), rule


def _of(request: rows.Line, attempt: rows.Line) -> Sent:
    held = (request[name] for name in ("policy", "data_class", "classes"))
    went = (attempt[name] for name in ("classes", "target", "redacted", "region", "region_source"))
    return sent((*held, *went))


def _latest_ms(source: Source) -> int:
    hours = [int(hour or 0) for (hour,) in source.sums(attempts.TABLE, ("hour",), ("attempts",))]
    return (max(hours, default=0) + 1) * attempts.HOUR_MS + LONGEST_MS


# Where requests went, per class, and whether any of it broke the policy that was in force then.

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
