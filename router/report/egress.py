"""`lowpass report egress`: which data went to which provider and region, and whether the policy allowed it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, structs

from router.decide.eligibility import Redact
from router.decide.in_force import Past, read
from router.ledger import rows
from router.ledger.facts import attempts
from router.ledger.facts.query import Label, Where, add
from router.ledger.rows import documents
from router.report.query import Source
from router.report.report import Kind, Mark, Plot, Report, Row, Shape, columns, made, plots
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


class PolicyJudge:
    """Reads each policy once."""

    def __init__(self, documents: Mapping[str, bytes]) -> None:
        self._documents = documents
        self._read: dict[str, Past | None] = {}

    def past(self, policy: str) -> Past | None:
        """None where there is no document that can be read."""
        if policy not in self._read:
            try:
                self._read[policy] = read(self._documents[policy])
            except (KeyError, ValueError):
                self._read[policy] = None
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
        if sent.data_class not in held:
            return f"its class is {sent.data_class}, which is not among those it held"
        if past.default not in classes:
            return f"it was sent without class {past.default}, which binds always"
        # Where it really went to, as far as the provider said.
        went = structs.replace(target, region=sent.region) if sent.region_source in _FROM_PROVIDER else target
        redacted = bool(sent.redacted)
        lost = _lost(past, held - classes, redacted=redacted)
        broken = lost or past.guard.refusal(went, classes, at_ms, redacted=redacted)
        if not broken and sent.region_source == "asserted" and sent.region != target.region:
            return f"its region is said to be {sent.region or 'none'}, and the policy says {target.region or 'none'}"
        return broken


_FROM_PROVIDER = ("verified", "mismatch")


def _lost(past: Past, gone: frozenset[str], *, redacted: bool) -> str:
    """Only redaction takes a class away, and only where the policy lets it."""
    if not gone:
        return ""
    if not redacted:
        return f"it held class {_names(gone)}, was not redacted, and was sent without that class"
    kept = {name for name in gone if past.classes[name].redact is Redact.NEVER}
    return f"class {_names(kept)} may not be redacted away" if kept else ""


def _names(classes: frozenset[str] | set[str]) -> str:
    return " and ".join(sorted(classes))


# Who stood behind a target: a name for the one that is paid and sees the data, and the law that it is under.


class Place(NamedTuple):
    """None: not known. What is local has no jurisdiction of its own: no vendor sees it."""

    entity: str | None
    jurisdiction: str | None
    local: bool


NOWHERE = Place(None, None, local=False)


class Places:
    """By the policy documents of the ledger, and the `targets` of the policy in force."""

    def __init__(self, documents: Mapping[str, bytes], targets: Mapping[str, Target]) -> None:
        self._judge, self._policies, self._targets = PolicyJudge(documents), sorted(documents), targets

    def then(self, target: str, policy: str) -> Place:
        """As the policy of that time had it; today's word where its document is not there."""
        past = self._judge.past(policy)
        then = None if past is None else past.targets.get(target)
        return self.now(target) if then is None else _place(then)

    def now(self, target: str) -> Place:
        """As the policy in force has it, else any that ever was."""
        if target in self._targets:
            return _place(self._targets[target])
        pasts = (self._judge.past(policy) for policy in self._policies)
        return next((_place(past.targets[target]) for past in pasts if past and target in past.targets), NOWHERE)

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

    def __init__(self, source: Source, judge: PolicyJudge) -> None:
        self._source, self._judge, self.room = source, judge, MOST
        hours = [int(hour or 0) for (hour,) in source.sums(attempts.TABLE, ("hour",), ("attempts",))]
        self._latest_ms = (max(hours, default=0) + 1) * attempts.HOUR_MS + LONGEST_MS

    def among(self, alike: Sent) -> Found:
        """Of all that was sent alike. What breaks no rule late breaks none at any earlier time."""
        if not self._judge.violation(alike, self._latest_ms):
            return NOTHING
        labels: list[Label] = [value if isinstance(value, int) else value or None for value in alike]
        like = (Where(name, frozenset({label})) for name, label in zip(SENT, labels, strict=True))
        hours = self._source.sums(attempts.TABLE, ("hour",), ("attempts",), *like)
        counts = sorted((int(hour or 0), count) for (hour,), (count,) in hours.items())
        parts = [self._in_hour(alike, hour, count) for hour, count in counts]
        listed = tuple(row for part in parts for row in part.listed)
        return Found(sum(part.violations for part in parts), sum(part.lost for part in parts), listed)

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
        since, until = self._source.asked.bounds
        for kept in rows.every(self._source.connection, max(begin, since), min(end, until)):
            held = [kept.request[name] for name in ("policy", "data_class", "classes")]
            for attempt in kept.attempts:
                went = (attempt[name] for name in ("classes", "target", "redacted", "region", "region_source"))
                if sent((*held, *went)) == alike:
                    at_ms = int(attempt["started_ms"] or 0)
                    rule = self._judge.violation(alike, at_ms)
                    about = (alike.data_class, alike.classes, alike.target)
                    yield (kept.id, attempt["number"], at_ms, *about, rule), rule


# Where requests went, per class, and whether any of it broke the policy that was in force then.

_MEASURES = ("sent_there", "attempts", "counted", "input_tokens", "output_tokens")
_OF_REQUESTS = frozenset({"class", "policy"})
"""Filters that hold for all of a request or for nothing of it."""
_EXPIRED = "they went about the time when evidence expired, and their rows are gone"
_MOST_BARS = 20
_COUNTS_FROM = next(number for number, column in enumerate(columns("egress")) if column.kind is Kind.COUNT)


class _Group(Struct, frozen=True):
    """Attempts that are alike. Tokens are None where the usage of none of them is known. `unknown`: why they can't be
    checked; `found`: what of them broke a rule."""

    sent: Sent
    went: bool
    requests: int
    attempts: int
    tokens: tuple[int | None, int | None]
    """Input and output."""
    unknown: str
    found: Found


def egress(source: Source) -> Report:
    judge = PolicyJudge(documents(source.connection))
    groups = _groups(source, judge)
    refused = source.sums(attempts.TABLE, ("class",), ("requests",), Where("error", frozenset({"no_eligible_target"})))
    nowhere = [None] * (_COUNTS_FROM - 1)
    rows = [
        *_rows(judge, groups),
        *((str(name), *nowhere, count, 0, count, None, None, 0, 0, 0) for (name,), (count,) in refused.items()),
    ]
    rows.sort(key=lambda row: tuple(str(value or "") for value in row[:_COUNTS_FROM]))
    violations = sum(group.found.violations for group in groups)
    return made(
        "egress",
        rows,
        totals=_totals(source, rows),
        note=" ".join(_notes(source, groups, violations)),
        sound=not violations,
        below=_listed([row for group in groups for row in group.found.listed], violations),
        plots=_plots(rows),
    )


def _groups(source: Source, judge: PolicyJudge) -> list[_Group]:
    """Nothing is sent to a target that rests after failures."""
    search = Search(source, judge)
    alike: dict[tuple[Sent, bool], tuple[int, ...]] = {}
    for (*labels, outcome), sums in source.sums(attempts.TABLE, (*SENT, "outcome"), _MEASURES).items():
        key = (sent(labels), outcome != RESTING)
        if sums[1] and (key[1] or key[0].classes):
            add(alike, key, sums)
    groups = []
    for (about, went), (requests, count, counted, tokens_in, tokens_out) in sorted(alike.items()):
        unknown = judge.unknown(about)
        broken = NOTHING if unknown else search.among(about)
        tokens = (tokens_in, tokens_out) if counted else (None, None)
        groups.append(_Group(about, went, requests, count, tokens, unknown, broken))
    return groups


def _rows(judge: PolicyJudge, groups: Iterable[_Group]) -> Iterator[Row]:
    """One row a place: groups that differ in nothing but their policy are one."""
    places: dict[Row, list[int | None]] = {}
    for group in groups:
        if group.went or group.found.violations:
            place, counts = _place_of(judge, group.sent), _counts(group)
            before = places.get(place)
            places[place] = counts if before is None else [_plus(*pair) for pair in zip(before, counts, strict=True)]
    for place, counts in places.items():
        yield (*place, *counts)


def _place_of(judge: PolicyJudge, sent: Sent) -> Row:
    """Entity and jurisdiction as the policy of that time had them; None where that is not known."""
    past = judge.past(sent.policy)
    target = None if past is None else past.targets.get(sent.target)
    entity = None if target is None else target.provider.entity or target.provider.id
    law = None if target is None else target.provider.jurisdiction or None
    region_is = "local" if target is not None and target.local else sent.region_source or None
    return (
        *(sent.data_class, sent.classes or None, sent.target, entity, law, sent.region or None, region_is),
        "yes" if sent.redacted else "no",
    )


def _counts(group: _Group) -> list[int | None]:
    went = group.attempts if group.went else 0
    misplaced = group.attempts if group.sent.region_source == "mismatch" else 0
    unchecked = group.attempts if group.unknown else group.found.lost
    return [group.requests, went, 0, *group.tokens, misplaced, unchecked, group.found.violations]


def _totals(source: Source, rows: list[Row]) -> Row:
    """A request that went to several places counts once. How many requests is not known where a filter takes single
    attempts."""
    places = list(zip(*rows, strict=True))[_COUNTS_FROM:] if rows else [()] * (len(columns("egress")) - _COUNTS_FROM)
    _, tried, refused, *rest = [sum(value for value in place if isinstance(value, int)) for place in places]
    requests = None
    if {condition.dimension for condition in source.asked.where} <= _OF_REQUESTS:
        sent_requests = source.sums(attempts.TABLE, (), ("sent_requests",))
        requests = refused + sum(count for (count,) in sent_requests.values())
    return ("total", *(None for _ in range(1, _COUNTS_FROM)), requests, tried, refused, *rest)


def _notes(source: Source, groups: list[_Group], violations: int) -> Iterator[str]:
    checked = sum(group.attempts - group.found.lost for group in groups if not group.unknown)
    yield f"{_number(checked, 'attempt')} checked again, each under the policy that was in force for it:"
    yield f"{_number(violations, 'violation')}."
    unknown: Counter[str] = Counter()
    for group in groups:
        unknown[group.unknown or _EXPIRED] += group.attempts if group.unknown else group.found.lost
    for why, count in unknown.items():
        if count:
            yield f"{count:,} can't be checked: {why}."
    unwritten = Counter(
        {str(to): count for (to,), (count,) in source.sums(attempts.TABLE, ("target",), ("unwritten",)).items()}
    )
    if unwritten.total():
        places = ", ".join(f"{place} ({count:,})" for place, count in unwritten.most_common() if count)
        yield f"{_number(unwritten.total(), 'request')} in progress, or lost with the gateway; planned for {places}."
    misplaced = sum(group.attempts for group in groups if group.sent.region_source == "mismatch")
    if misplaced:
        yield f"{_number(misplaced, 'attempt')} came from another region than the target states."
    yield "A request that went to several places counts in each of their rows, and once in the total."


def _listed(listed: list[Row], violations: int) -> tuple[Report, ...]:
    if not violations:
        return ()
    shown = tuple(sorted(listed[:MOST], key=lambda row: (str(row[0]), str(row[1]))))
    note = f"{len(shown):,} of {violations:,}." if violations > len(shown) else ""
    return (made("violations", shown, note=note),)


def _plots(rows: list[Row]) -> tuple[Plot, ...]:
    """Attempts by class and place, most first."""
    sums: Counter[str] = Counter()
    for data_class, _, target, _, _, region, _, _, _, count, *_ in rows:
        if target is not None and isinstance(count, int):
            sums[f"{data_class} → {target}{f' ({region})' if region else ''}"] += count
    marks = (Mark(label=label, value=count) for label, count in sums.most_common(_MOST_BARS))
    return plots("Attempts by class and place", Shape.BARS, Kind.COUNT, marks)


def _plus(count: int | None, other: int | None) -> int | None:
    """Unknown counts for nothing beside what is known."""
    return count if other is None else other if count is None else count + other


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
