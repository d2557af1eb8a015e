"""`lowpass report egress`: which data went to which provider and region, and whether the policy allowed it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from router.decide.eligibility import Redact
from router.decide.in_force import PastPolicy, read
from router.ledger import rows
from router.ledger.facts import ATTEMPTS, HOUR_MS, Label, LabelFilter, add
from router.ledger.rows import Connection, documents
from router.report.query import LedgerView
from router.report.report import Kind, Mark, Report, Row, Shape, columns, made, plots
from router.types.target import Target

# The legal entity behind a target, which is paid and sees the data, and its jurisdiction.


class Destination(NamedTuple):
    """The entity that serves a target; None: unknown. Local targets have no jurisdiction: no vendor sees the data."""

    entity: str | None = None
    jurisdiction: str | None = None
    local: bool = False

    @classmethod
    def of(cls, target: Target | None) -> "Destination":
        if target is None:
            return cls()
        provider = target.provider
        law = None if provider.local else provider.jurisdiction or None
        return cls(provider.entity or provider.id, law, provider.local)


# Checks of recorded attempts against the policy that was in force for each, with the rules that dispatch applied.


class SentGroup(NamedTuple):
    """What attempts have in common that the rules depend on. Classes are joined by commas, as in their columns."""

    policy: str
    data_class: str
    held: str
    """All classes of the request."""
    classes: str
    target: str
    redacted: int
    region: str
    region_source: str


class PastPolicies:
    """The policy documents in the ledger, each read once, and the targets of the policy in force."""

    def __init__(self, connection: Connection, targets: Mapping[str, Target]) -> None:
        self._documents, self._targets = documents(connection), targets
        self._read: dict[str, PastPolicy | None] = {}

    def past(self, policy: str) -> PastPolicy | None:
        """Returns a past policy; None if the ledger has no readable document of it."""
        if policy not in self._read:
            try:
                self._read[policy] = read(self._documents[policy])
            except (KeyError, ValueError):
                self._read[policy] = None
        return self._read[policy]

    def target(self, policy: str, target: str) -> Target | None:
        past = self.past(policy)
        return None if past is None else past.targets.get(target)

    def then(self, policy: str, target: str) -> Destination:
        """Returns the destination under the policy of that time, or under today's if the old document is missing."""
        then = self.target(policy, target)
        return self.now(target) if then is None else Destination.of(then)

    def now(self, target: str) -> Destination:
        """Returns the destination under the policy in force, else under any earlier one."""
        ever = (self.target(policy, target) for policy in sorted(self._documents))
        return Destination.of(self._targets.get(target) or next(filter(None, ever), None))

    def offered(self, target: str) -> bool:
        """Whether the policy in force has the target; always true if no targets were given."""
        return not self._targets or target in self._targets

    def unknown(self, sent: SentGroup) -> str:
        """Returns why attempts of this group can't be checked; empty if they can."""
        if not (sent.held and sent.classes):
            return "it was written before classes were"
        if self.past(sent.policy) is None:
            there = sent.policy in self._documents
            return "its policy can't be read by this version" if there else "its policy is not in the ledger"
        return ""

    def violation(self, sent: SentGroup, at_ms: int) -> str:
        """Returns the rule that the group broke at a time (Unix ms), as one sentence; empty if it broke none.

        A group that breaks no rule broke none at any earlier time either, because only evidence expires.
        """
        past = self.past(sent.policy)
        if past is None:
            return ""
        held, classes = frozenset(sent.held.split(",")), frozenset(sent.classes.split(","))
        target = past.targets.get(sent.target)
        if target is None:
            return f"the policy has no target {sent.target}"
        if unknown_classes := (held | classes | {sent.data_class}) - past.classes.keys():
            return f"the policy has no class {_names(unknown_classes)}"
        if sent.data_class not in held:
            return f"its class is {sent.data_class}, which is not among those it held"
        if past.default not in classes:
            return f"it was sent without class {past.default}, which binds always"
        # The region that the provider reported, if any, takes precedence.
        sent_target = structs.replace(target, region=sent.region) if sent.region_source in _FROM_PROVIDER else target
        redacted = bool(sent.redacted)
        wrong_loss = _wrongly_lost(past, held - classes, redacted=redacted)
        broken = wrong_loss or past.guard.refusal(sent_target, classes, at_ms, redacted=redacted)
        if not broken and sent.region_source == "asserted" and sent.region != target.region:
            return f"its region is said to be {sent.region or 'none'}, and the policy says {target.region or 'none'}"
        return broken


_FROM_PROVIDER = ("verified", "mismatch")


def _wrongly_lost(past: PastPolicy, lost_classes: frozenset[str], *, redacted: bool) -> str:
    """Checks that lost classes were removed by redaction, and that the policy allows this."""
    if not lost_classes:
        return ""
    if not redacted:
        return f"it held class {_names(lost_classes)}, was not redacted, and was sent without that class"
    unredactable = {name for name in lost_classes if past.classes[name].redact is Redact.NEVER}
    return f"class {_names(unredactable)} may not be redacted away" if unredactable else ""


def _names(classes: frozenset[str] | set[str]) -> str:
    return " and ".join(sorted(classes))


# Violations are located in sums of alike attempts, and rows are read only where there are any.

SENT = ("policy", "class", "classes", "sent_classes", "target", "redacted", "region", "region_source")
"""Dimensions in the order of `SentGroup`."""
MAX_LISTED = 1_000
"""Maximum number of violations that are listed; all are counted."""
MAX_ATTEMPT_DELAY_MS = 86_400_000
"""Maximum time in ms between the start of a request and of its last attempt."""
CIRCUIT_OPEN = "circuit_open"
"""Outcome of an attempt at a target with an open circuit breaker, to which nothing was sent."""


def sent(labels: Sequence[object]) -> SentGroup:
    """Returns the group for values of `SENT`, with empty texts in place of None."""
    texts = ["" if label is None else str(label) for label in labels]
    policy, data_class, held, classes, target, redacted, region, source = texts
    return SentGroup(policy, data_class, held, classes, target, int(redacted == "1"), region, source)


class ViolationSearch:
    """Searches the window of `source`; `listed` holds the first violations found."""

    def __init__(self, source: LedgerView, policies: PastPolicies) -> None:
        self._source, self._policies = source, policies
        self.listed: list[Row] = []
        hours = [int(hour or 0) for (hour,) in source.sums(ATTEMPTS, ("hour",), ("attempts",))]
        self._latest_ms = (max(hours, default=0) + 1) * HOUR_MS + MAX_ATTEMPT_DELAY_MS

    def among(self, alike: SentGroup) -> tuple[int, int]:
        """Returns the number of violations in a group, and of attempts that would have to be read but have expired. A
        group without a violation at the latest time has none at any earlier time."""
        if not self._policies.violation(alike, self._latest_ms):
            return 0, 0
        labels: list[Label] = [value if isinstance(value, int) else value or None for value in alike]
        like = (LabelFilter(name, frozenset({label})) for name, label in zip(SENT, labels, strict=True))
        hours = self._source.sums(ATTEMPTS, ("hour",), ("attempts",), *like)
        counts = sorted((int(hour or 0), count) for (hour,), (count,) in hours.items())
        violations = lost = 0
        for hour, count in counts:
            begin, end = hour * HOUR_MS, (hour + 1) * HOUR_MS
            ever, always = (self._policies.violation(alike, at_ms) for at_ms in (end + MAX_ATTEMPT_DELAY_MS, begin))
            room = MAX_LISTED - len(self.listed)
            read = list(self._read(alike, begin, end)) if ever and (room or not always) else []
            broken = [row for row in read if row[-1]]
            self.listed += broken[:room]
            violations += count if always else len(broken)
            lost += max(0, count - len(read)) if ever and not always else 0
        return violations, lost

    def _read(self, alike: SentGroup, begin: int, end: int) -> Iterator[Row]:
        """Yields each attempt with the rule that it broke, or an empty text."""
        since, until = self._source.request.bounds
        for record in rows.every(self._source.connection, max(begin, since), min(end, until)):
            held = [record.request[name] for name in ("policy", "data_class", "classes")]
            for attempt in record.attempts:
                went = (attempt[name] for name in ("classes", "target", "redacted", "region", "region_source"))
                if sent((*held, *went)) == alike:
                    at_ms = int(attempt["started_ms"] or 0)
                    about = (alike.data_class, alike.classes, alike.target, self._policies.violation(alike, at_ms))
                    yield (record.id, attempt["number"], at_ms, *about)


# Where requests of each class went, and whether this broke the policy that was in force.

_MEASURES = ("sent_there", "attempts", "counted", "input_tokens", "output_tokens")
_REQUEST_DIMENSIONS = frozenset({"class", "policy"})
"""Dimensions that have one label for the whole request."""
_EXPIRED = "they went about the time when evidence expired, and their rows are gone"
_MAX_BARS = 20
_COUNTS_FROM = next(number for number, column in enumerate(columns("egress")) if column.kind is Kind.COUNT)


def egress(source: LedgerView) -> Report:
    policies = PastPolicies(source.connection, source.targets)
    search, places = ViolationSearch(source, policies), dict[Row, tuple[int, ...]]()
    counts, unchecked_by = Counter[str](), Counter[str]()
    for (sent_alike, went), (requests, tried, *usage) in sorted(_alike(source).items()):
        unknown = policies.unknown(sent_alike)
        # The number of violations, and of attempts that would have to be read but have expired.
        violations, lost = (0, 0) if unknown else search.among(sent_alike)
        unchecked, misplaced = tried if unknown else lost, tried * (sent_alike.region_source == "mismatch")
        unchecked_by[unknown or _EXPIRED] += unchecked
        counts.update(checked=tried - unchecked, violations=violations, misplaced=misplaced)
        if went or violations:
            # By the policy of that time; groups that differ only in their policy are merged.
            there = Destination.of(policies.target(sent_alike.policy, sent_alike.target))
            region_is = "local" if there.local else sent_alike.region_source or None
            place = (
                *(sent_alike.data_class, sent_alike.classes or None, sent_alike.target, there.entity),
                *(there.jurisdiction, sent_alike.region or None, region_is, "yes" if sent_alike.redacted else "no"),
            )
            add(places, place, (requests, tried * went, *usage, misplaced, unchecked, violations))
    rows: list[Row] = []
    for labels, (requests, tried, counted, *tokens, misplaced, unchecked, violations) in places.items():
        # Tokens are unknown if no attempt has a known usage.
        known = tokens if counted else (None, None)
        rows.append((*labels, requests, tried, 0, *known, misplaced, unchecked, violations))
    refused = source.sums(ATTEMPTS, ("class",), ("requests",), LabelFilter("error", frozenset({"no_eligible_target"})))
    nowhere = [None] * (_COUNTS_FROM - 1)
    rows += [(str(name), *nowhere, count, 0, count, None, None, 0, 0, 0) for (name,), (count,) in refused.items()]
    rows.sort(key=lambda row: tuple(str(value or "") for value in row[:_COUNTS_FROM]))
    by_place: Counter[str] = Counter()
    for data_class, _, target, _, _, region, _, _, _, count, *_ in rows:
        if target is not None and isinstance(count, int):
            by_place[f"{data_class} → {target}{f' ({region})' if region else ''}"] += count
    marks = (Mark(label=label, value=count) for label, count in by_place.most_common(_MAX_BARS))
    violations, listed = counts["violations"], search.listed
    listed.sort(key=lambda row: (str(row[0]), str(row[1])))
    more = f"{len(listed):,} of {violations:,}." if violations > len(listed) else ""
    return made(
        "egress",
        rows,
        totals=_totals(source, rows),
        note=" ".join(_notes(source, counts, unchecked_by)),
        sound=not violations,
        below=(made("violations", listed, note=more),) if violations else (),
        plots=plots("Attempts by class and place", Shape.BARS, Kind.COUNT, marks),
    )


def _alike(source: LedgerView) -> dict[tuple[SentGroup, bool], tuple[int, ...]]:
    """Returns sums by group of alike attempts and by whether anything was sent: with an open circuit breaker nothing
    is."""
    alike: dict[tuple[SentGroup, bool], tuple[int, ...]] = {}
    for (*labels, outcome), sums in source.sums(ATTEMPTS, (*SENT, "outcome"), _MEASURES).items():
        key = (sent(labels), outcome != CIRCUIT_OPEN)
        if sums[1] and (key[1] or key[0].classes):
            add(alike, key, sums)
    return alike


def _totals(source: LedgerView, rows: list[Row]) -> Row:
    """Returns the totals. A request that went to several places counts once; the number of requests is unknown under a
    filter that selects single attempts."""
    places = list(zip(*rows, strict=True))[_COUNTS_FROM:] if rows else [()] * (len(columns("egress")) - _COUNTS_FROM)
    _, tried, refused, *rest = [sum(value for value in place if isinstance(value, int)) for place in places]
    requests = None
    if {condition.dimension for condition in source.request.where} <= _REQUEST_DIMENSIONS:
        requests = refused + sum(count for (count,) in source.sums(ATTEMPTS, (), ("sent_requests",)).values())
    return ("total", *(None for _ in range(1, _COUNTS_FROM)), requests, tried, refused, *rest)


def _notes(source: LedgerView, counts: Counter[str], unchecked: Counter[str]) -> Iterator[str]:
    """Yields the notes; `unchecked` counts the attempts that could not be checked, by reason."""
    yield f"{_number(counts['checked'], 'attempt')} checked again, each under the policy that was in force for it:"
    yield f"{_number(counts['violations'], 'violation')}."
    yield from (f"{count:,} can't be checked: {why}." for why, count in unchecked.items() if count)
    sums = source.sums(ATTEMPTS, ("target",), ("unwritten",)).items()
    unwritten = Counter({str(to): count for (to,), (count,) in sums})
    if unwritten.total():
        places = ", ".join(f"{place} ({count:,})" for place, count in unwritten.most_common() if count)
        yield f"{_number(unwritten.total(), 'request')} in progress, or lost with the gateway; planned for {places}."
    if counts["misplaced"]:
        yield f"{_number(counts['misplaced'], 'attempt')} came from another region than the target states."
    yield "A request that went to several places counts in each of their rows, and once in the total."


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
