"""How often each target failed, what stood in for it, how long it took, and how long we did."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

import msgspec
from msgspec import Struct, field

from router.ledger import rows
from router.ledger.facts.attempts import EDGES_MS, EDGES_US, TABLE
from router.ledger.facts.query import Label, Where
from router.ledger.rows import Kept
from router.report.egress import RESTING
from router.report.query import Source
from router.report.report import Kind, Mark, Plot, Report, Row, Shape, Value, made, plots
from router.report.statistics import percentile, wilson
from router.types.attempt import ErrorKind

OK = "ok"
GIVEN_UP = frozenset({"client_gone", "outrun"})
"""Outcomes that say nothing about a target: its answer was not waited for to the end."""
REFUSED = frozenset({ErrorKind.CONTEXT_LENGTH, ErrorKind.CONTENT_FILTER, ErrorKind.BAD_REQUEST})
"""It was there, and said that it does not answer such a request."""


class _Seen(Struct):
    """Of one target, or of all: how often each outcome, and each role, retries and fallbacks among them; how many in
    each bucket of time."""

    outcomes: Counter[str] = field(default_factory=Counter)
    roles: Counter[str] = field(default_factory=Counter)
    total_ms: Counter[int] = field(default_factory=Counter)
    first_ms: Counter[int] = field(default_factory=Counter)
    overhead_us: Counter[int] = field(default_factory=Counter)

    @property
    def asked(self) -> int:
        return self.outcomes.total() - self.outcomes[RESTING]

    @property
    def refused(self) -> int:
        return sum(self.outcomes[outcome] for outcome in REFUSED)

    @property
    def given_up(self) -> int:
        return sum(self.outcomes[outcome] for outcome in GIVEN_UP)

    @property
    def judged(self) -> int:
        """Attempts by which the target can be judged."""
        return self.asked - self.refused - self.given_up

    @property
    def failed(self) -> int:
        """An unknown outcome is a failure."""
        return self.judged - self.outcomes[OK]


def reliability(source: Source) -> Report:
    seen, every = _seen(source)
    ranked = sorted(seen.items(), key=lambda item: (-item[1].asked, item[0]))
    return made(
        "reliability",
        (_row(name, counts) for name, counts in ranked),
        totals=_row("total", every) if ranked else None,
        below=(*_outcomes(ranked), *_skipped(source)),
        plots=_plots(ranked),
    )


def _seen(source: Source) -> tuple[Mapping[str, _Seen], _Seen]:
    """By target, and of all; without requests that asked no target."""
    by_target: defaultdict[str, _Seen] = defaultdict(_Seen)
    every = _Seen()

    def note(target: Label, counter: str, key: Label, count: int) -> None:
        if target is not None and key is not None:
            for seen in (by_target[str(target)], every):
                getattr(seen, counter)[key] += count

    measures = ("attempts", "retries", "fallbacks")
    for (target, outcome), (count, retries, fallbacks) in source.sums(TABLE, ("target", "outcome"), measures).items():
        note(target, "outcomes", str(outcome), count)
        note(target, "roles", "retry", retries)
        note(target, "roles", "fallback", fallbacks)
    for (target, role), (count,) in source.sums(TABLE, ("target", "role"), ("attempts",)).items():
        note(target, "roles", role, count)
    answered, streams = Where("outcome", frozenset({OK})), Where("stream", frozenset({1}))
    for name, measure, where in (
        ("total_ms", "attempts", (answered,)),
        ("first_ms", "attempts", (streams,)),
        ("overhead_us", "requests", ()),
    ):
        for (target, edge), (count,) in source.sums(TABLE, ("target", name), (measure,), *where).items():
            if count:
                note(target, name, edge, count)
    return by_target, every


def _row(label: str, seen: _Seen) -> Row:
    interval = wilson(seen.failed, seen.judged)
    rates: tuple[Value, ...] = (None, None, None) if interval is None else (seen.failed / seen.judged, *interval)
    return (
        *(label, seen.asked, seen.outcomes[OK], seen.failed, *rates),
        *(seen.refused, seen.given_up, seen.outcomes[RESTING]),
        *(seen.roles[role] for role in ("retry", "fallback", "hedge", "cascade", "vote")),
        *(percentile(seen.total_ms, EDGES_MS, share) for share in (0.5, 0.9, 0.99)),
        *(percentile(seen.first_ms, EDGES_MS, share) for share in (0.5, 0.9, 0.99)),
        *(percentile(seen.overhead_us, EDGES_US, share) for share in (0.5, 0.99)),
    )


def _outcomes(ranked: list[tuple[str, _Seen]]) -> tuple[Report, ...]:
    wrong = tuple(
        (name, outcome, count, count / seen.asked if outcome != RESTING else None)
        for name, seen in ranked
        for outcome, count in sorted(seen.outcomes.items(), key=lambda item: (-item[1], item[0]))
        if outcome != OK and count
    )
    return (made("reliability/outcomes", wrong),) if wrong else ()


# Targets that were left out of a decision, or stood in its plan and were never asked.

_LOOKED_AT = 2_000
_LEFT_OUT = {"circuit_open": "circuit", "engine_down": "circuit", "saturated": "queue"}
"""Reasons of decisions for targets that the policy would have allowed."""
_SHORT = (ErrorKind.BUDGET, "budget_exceeded")


class _Target(Struct, frozen=True):
    target: str
    reason: str = ""
    spilled: bool = False


class _Stakes(Struct, frozen=True):
    deadline_ms: int | None = None


class _Decided(Struct, frozen=True):
    considered: tuple[_Target, ...] = ()
    dropped: tuple[_Target, ...] = ()
    queued: tuple[_Target, ...] = ()
    stakes: _Stakes = _Stakes()


def _skipped(source: Source) -> tuple[Report, ...]:
    counts, (since_ms, until_ms) = Counter[tuple[str, str]](), source.asked.bounds
    for kept in rows.newest(source.connection, _LOOKED_AT):
        if since_ms <= kept.started_ms < until_ms and kept.decision is not None:
            decided = msgspec.json.decode(str(kept.decision["document"]), type=_Decided)
            counts.update(dict.fromkeys(_passed_by(kept, decided), 1))
    holds = [where.holds for where in source.asked.where]
    ranked = [(*names, count) for names, count in sorted(counts.items()) if all(hold(names[0]) for hold in holds)]
    return (made("reliability/skipped", ranked),) if ranked else ()


def _passed_by(kept: Kept, decided: _Decided) -> Iterator[tuple[str, str]]:
    """Each target with why; its attempts are told elsewhere."""
    yield from ((each.target, _LEFT_OUT[each.reason]) for each in decided.dropped if each.reason in _LEFT_OUT)
    yield from ((each.target, "queue") for each in decided.queued if each.spilled)
    planned, asked = [each.target for each in decided.considered], {attempt["target"] for attempt in kept.attempts}
    served, why = kept.request["target"], "budget" if decided.stakes.deadline_ms is None else "deadline"
    if kept.request["status"] == 200 and served in planned:
        yield from ((target, why) for target in planned[: planned.index(str(served))] if target not in asked)
    elif kept.request["error"] in _SHORT:
        yield from ((target, "budget") for target in planned if target not in asked)


def _plots(ranked: list[tuple[str, _Seen]]) -> tuple[Plot, ...]:
    rates = (
        Mark(label=name, value=seen.failed / seen.judged, low=interval[0], high=interval[1])
        for name, seen in ranked
        if (interval := wilson(seen.failed, seen.judged)) is not None
    )
    slow = (
        Mark(label=name, value=p90)
        for name, seen in ranked
        if (p90 := percentile(seen.total_ms, EDGES_MS, 0.9)) is not None
    )
    return (
        *plots("Error rate, with 95 % intervals", Shape.BARS, Kind.SHARE, rates),
        *plots("Nine of ten answers were complete within", Shape.BARS, Kind.MS, slow),
    )
