"""How often each target failed, what stood in for it, how long it took, and how long we did."""

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct

from router.ledger.facts.attempts import EDGES_MS, EDGES_US, TABLE
from router.ledger.facts.query import Label, Where
from router.report.query import Definition, Source
from router.report.report import Column, Kind, Mark, Plot, Report, Row, Shape, Value
from router.report.statistics import percentile, wilson
from router.types.attempt import ErrorKind

OK = "ok"
RESTING: str = ErrorKind.CIRCUIT_OPEN
GIVEN_UP = frozenset({"client_gone", "outrun"})
"""Outcomes that say nothing about a target: nobody waited for it to the end."""
REFUSED = frozenset({ErrorKind.CONTEXT_LENGTH, ErrorKind.CONTENT_FILTER, ErrorKind.BAD_REQUEST})
"""It was there, and said that it does not answer such a request."""
_COUNTS = ("attempts", "answered", "failed")
_ROLES = ("hedge", "cascade", "vote")
_COLUMNS = (
    Column("target", Kind.LABEL),
    *(Column(name, Kind.COUNT) for name in _COUNTS),
    *(Column(name, Kind.SHARE) for name in ("error_rate", "error_low", "error_high")),
    *(Column(name, Kind.COUNT, rare=True) for name in ("refused", "given_up", "skipped", "retries")),
    Column("fallbacks", Kind.COUNT),
    *(Column(name, Kind.COUNT, rare=True) for name in _ROLES),
    *(Column(name, Kind.MS) for name in ("p50_ms", "p90_ms", "p99_ms")),
    *(Column(name, Kind.MS) for name in ("first_p50_ms", "first_p90_ms", "first_p99_ms")),
    *(Column(name, Kind.COUNT) for name in ("overhead_p50_us", "overhead_p99_us")),
)
_OUTCOME_COLUMNS = (
    Column("target", Kind.LABEL),
    Column("outcome", Kind.LABEL),
    Column("attempts", Kind.COUNT),
    Column("share", Kind.SHARE),
)
_NOTE = (
    "Attempts: of which anything was sent; skipped: while the target rested after failures. The error rate is failed of"
    " all that were neither given up (the client left, or another target was quicker) nor refused (too long, filtered,"
    " malformed); low and high: 95 % (Wilson). Fallbacks: requests that it answered after another target had failed."
    " Times are of attempts that were answered, first bytes of streams; overhead is what a request took without any"
    " target being waited for. Percentiles come from buckets: usually right within 12 %, never off by 25 %."
)


class _Seen(Struct):
    """Of one target, or of all."""

    outcomes: Counter[str]
    roles: Counter[str]
    total_ms: Counter[int]
    first_ms: Counter[int]
    overhead_us: Counter[int]
    retries: int = 0
    fallbacks: int = 0

    def add(self, other: "_Seen") -> None:
        self.outcomes += other.outcomes
        self.roles += other.roles
        self.total_ms += other.total_ms
        self.first_ms += other.first_ms
        self.overhead_us += other.overhead_us
        self.retries += other.retries
        self.fallbacks += other.fallbacks

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
        """An outcome that nobody knows is a failure."""
        return self.judged - self.outcomes[OK]


def _nothing() -> _Seen:
    return _Seen(Counter(), Counter(), Counter(), Counter(), Counter())


def _made(source: Source) -> Report:
    seen = _seen(source)
    every = _nothing()
    for one in seen.values():
        every.add(one)
    ranked = sorted(seen.items(), key=lambda item: (-item[1].asked, item[0]))
    rows = tuple(_row(name, one) for name, one in ranked)
    return Report(
        name="reliability",
        title="Reliability by target",
        columns=_COLUMNS,
        rows=rows,
        totals=_row("total", every) if rows else None,
        note=_NOTE,
        since_ms=source.asked.since_ms,
        until_ms=source.asked.until_ms,
        below=_outcomes(ranked),
        plots=_plots(ranked),
    )


REPORT = Definition(
    name="reliability",
    summary="Errors, fallbacks, latency and our own overhead, by target.",
    make=_made,
    where=("target",),
)


def _seen(source: Source) -> Mapping[str, _Seen]:
    """Requests that asked no target are nobody's."""
    found: dict[str, _Seen] = {}

    def of(target: Label) -> _Seen:
        return found.setdefault(str(target), _nothing())

    told = ("attempts", "retries", "fallbacks")
    for (target, outcome), (count, retries, fallbacks) in source.sums(TABLE, ("target", "outcome"), told).items():
        if target is not None:
            one = of(target)
            one.outcomes[str(outcome)] += count
            one.retries += retries
            one.fallbacks += fallbacks
    for (target, role), (count,) in source.sums(TABLE, ("target", "role"), ("attempts",)).items():
        if target is not None and role is not None:
            of(target).roles[str(role)] += count
    answered, streams = Where("outcome", frozenset({OK})), Where("stream", frozenset({1}))
    for target, edge, count in _times(source, "total_ms", "attempts", answered):
        of(target).total_ms[edge] += count
    for target, edge, count in _times(source, "first_ms", "attempts", streams):
        of(target).first_ms[edge] += count
    for target, edge, count in _times(source, "overhead_us", "requests"):
        of(target).overhead_us[edge] += count
    return found


def _times(source: Source, dimension: str, measure: str, *where: Where) -> list[tuple[Label, int, int]]:
    """Target, lower edge of a bucket, how many in it."""
    found = source.sums(TABLE, ("target", dimension), (measure,), *where)
    return [
        (target, int(edge), count)
        for (target, edge), (count,) in found.items()
        if target is not None and edge is not None and count
    ]


def _row(label: str, seen: _Seen) -> Row:
    interval = wilson(seen.failed, seen.judged)
    rates: tuple[Value, ...] = (None, None, None) if interval is None else (seen.failed / seen.judged, *interval)
    return (
        *(label, seen.asked, seen.outcomes[OK], seen.failed, *rates),
        *(seen.refused, seen.given_up, seen.outcomes[RESTING], seen.retries, seen.fallbacks),
        *(seen.roles[role] for role in _ROLES),
        *(percentile(seen.total_ms, EDGES_MS, share) for share in (0.5, 0.9, 0.99)),
        *(percentile(seen.first_ms, EDGES_MS, share) for share in (0.5, 0.9, 0.99)),
        *(percentile(seen.overhead_us, EDGES_US, share) for share in (0.5, 0.99)),
    )


def _outcomes(ranked: list[tuple[str, _Seen]]) -> tuple[Report, ...]:
    rows = tuple(
        (name, outcome, count, count / seen.asked if outcome != RESTING else None)
        for name, seen in ranked
        for outcome, count in sorted(seen.outcomes.items(), key=lambda item: (-item[1], item[0]))
        if outcome != OK and count
    )
    if not rows:
        return ()
    return (Report(name="outcomes", title="What went wrong", columns=_OUTCOME_COLUMNS, rows=rows),)


def _plots(ranked: list[tuple[str, _Seen]]) -> tuple[Plot, ...]:
    rates = tuple(
        Mark(label=name, value=seen.failed / seen.judged, low=interval[0], high=interval[1])
        for name, seen in ranked
        if (interval := wilson(seen.failed, seen.judged)) is not None
    )
    slow = tuple(
        Mark(label=name, value=p90)
        for name, seen in ranked
        if (p90 := percentile(seen.total_ms, EDGES_MS, 0.9)) is not None
    )
    plots = (
        Plot(title="Error rate, with 95 % intervals", shape=Shape.BARS, unit=Kind.SHARE, marks=rates),
        Plot(title="Nine of ten answers were complete within", shape=Shape.BARS, unit=Kind.MS, marks=slow),
    )
    return tuple(plot for plot in plots if plot.marks)
