"""Whether machines of one's own are worth their hours: at the load that was measured, against the cheapest API."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

from router.ledger.facts.attempts import HOUR_MS, TABLE
from router.ledger.facts.query import LabelFilter
from router.report.egress import RESTING, PastPolicies
from router.report.engines import worked
from router.report.query import LedgerView, grouped
from router.report.report import Kind, Mark, Report, Row, Shape, declared, made, plots, usd
from router.report.vendors import VendorLoss, cells, vendor_loss
from router.types.price import added

_MEASURES = ("requests", "input_tokens", "output_tokens")


class _Compared(NamedTuple):
    """One target: what it served, and what the same requests would have cost elsewhere. Hours of the window in ms;
    money in nano-USD."""

    target: str
    requests: int
    by_hour: Mapping[int, int]
    """Tokens."""
    window_ms: int
    hourly: int | None
    other: VendorLoss
    paid: int | None
    """Where its engine is metered: for its share of the hours in which that was up, and …"""
    idle: int | None
    """… of those the part in which it did nothing."""

    @property
    def machine(self) -> int | None:
        if self.paid is not None or self.hourly is None:
            return self.paid
        return (2 * self.hourly * self.window_ms + HOUR_MS) // (2 * HOUR_MS)

    @property
    def load(self) -> float | None:
        """Of the break-even."""
        machine = self.machine
        return self.other.then / machine if machine and self.other.served else None

    @property
    def cheaper(self) -> str | None:
        """What had no price elsewhere can only speak for the machine."""
        if self.load is None:
            return None
        return "local" if self.load >= 1 else "api" if not self.other.stranded else "api, for what it could serve"


def local_vs_api(source: LedgerView) -> Report:
    targets = _compared(source)
    note = " ".join((declared()["local-vs-api"].note, *_unknown(targets)))
    marks = []
    for target in targets:
        if target.machine is not None:
            marks.append(Mark(label=f"{target.target}: machine", value=target.machine, series="machine"))
        if target.other.served:
            marks.append(Mark(label=f"{target.target}: API", value=target.other.then, series="API"))
    chart = plots("The machine, and the same requests at an API", Shape.BARS, Kind.USD, marks)
    return made("local-vs-api", map(_row, targets), note=note, plots=chart)


def _compared(source: LedgerView) -> list[_Compared]:
    """The local targets of the policy in force and of the window, also those that served nothing."""
    policies = PastPolicies(source)
    known_targets = {str(target) for (target,) in source.sums(TABLE, ("target",), ("attempts",)) if target is not None}
    names = sorted(name for name in known_targets | set(source.targets) if policies.now(name).local)
    requests, by_hour = Counter[str](), {name: dict[int, int]() for name in names}
    filters = (LabelFilter("target", frozenset(names)), LabelFilter("outcome", frozenset({RESTING}), inverted=True))
    for (target, hour), (count, *tokens) in source.sums(TABLE, ("target", "hour"), _MEASURES, *filters).items():
        requests[str(target)] += count
        by_hour[str(target)][int(hour or 0)] = sum(tokens)
    tokens_of = {name: sum(hours.values()) for name, hours in by_hour.items()}
    window_ms, metered = _window_ms(source), _metered(source, tokens_of)
    chosen = grouped((cell.chosen, cell) for cell in cells(source))

    def remote(target: str) -> bool:
        return policies.offered(target) and not policies.now(target).local

    return [
        _Compared(
            name,
            requests[name],
            by_hour[name],
            window_ms,
            source.targets[name].hourly if name in source.targets else None,
            vendor_loss(chosen.get(name, ()), remote),
            *metered.get(name, (None, None)),
        )
        for name in sorted(names, key=lambda name: (-tokens_of[name], name))
    ]


def _metered(source: LedgerView, tokens_of: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Target → what its engine's hours cost, and the idle ones of them; those who share an engine share its hours."""
    targets = (source.targets[name] for name in tokens_of if name in source.targets)
    sharing = grouped((target.engine.name, target.id) for target in targets if target.engine and target.hourly)
    paid = {}
    for engine, hours in grouped((hour.engine, hour) for hour in worked(source)).items():
        did, names = reduce(added, hours), sharing.get(engine, [])
        tokens = sum(tokens_of[name] for name in names)
        for name in names:
            share = tokens_of[name] / tokens if tokens else 1 / len(names)
            idle = did.cost - did.cost * did.busy_ms // did.wall_ms
            paid[name] = (round(did.cost * share), round(idle * share))
    return paid


def _window_ms(source: LedgerView) -> int:
    """From its begin, or the first hour of the ledger, until its end or now."""
    request, since = source.request, source.request.since_ms
    if since is None:
        hours = [int(hour or 0) for (hour,) in source.sums(TABLE, ("hour",), ("requests",))]
        since = min(hours) * HOUR_MS if hours else request.now_ms
    until = request.now_ms if request.until_ms is None else min(request.until_ms, request.now_ms)
    return max(0, until - since)


def _row(compared: _Compared) -> Row:
    tokens, busy, other = sum(compared.by_hour.values()), len(compared.by_hour), compared.other
    # Requests an hour at which machine and API cost the same.
    even = compared.hourly * other.served / other.then if compared.hourly and other.then else None
    return (
        *(compared.target, compared.requests, tokens, round(compared.window_ms / HOUR_MS), busy),
        *(round(tokens / busy) if busy else None, max(compared.by_hour.values(), default=None)),
        *map(usd, (compared.hourly, compared.machine, compared.idle)),
        *(other.served, usd(other.then) if other.served else None, None if even is None else round(even)),
        None if even is None or not compared.requests else round(even * (tokens / compared.requests)),
        *(compared.load, compared.cheaper),
    )


def _unknown(targets: Sequence[_Compared]) -> Iterator[str]:
    unpriced = [compared.target for compared in targets if compared.hourly is None]
    if unpriced:
        yield f"No hourly price is declared for {', '.join(unpriced)}: write hourly_usd in its target."
    for compared in targets:
        if compared.other.stranded:
            which = f"{compared.other.stranded:,} of {compared.other.requests:,} requests of {compared.target}"
            yield f"{which} had no remote candidate: they can't be compared."
        elif compared.requests and not compared.other.requests:
            yield f"No decision of the window chose {compared.target} first: what an API had cost is not known."
    if not targets:
        yield "There is no local target."
