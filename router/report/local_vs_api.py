"""Whether machines of one's own are worth their hours: at the load that was measured, against the cheapest API."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct

from router.ledger.facts.attempts import HOUR_MS, TABLE
from router.ledger.facts.query import Where
from router.ledger.rows import documents
from router.report.egress import Places
from router.report.engines import totals
from router.report.query import Definition, Source
from router.report.report import Column, Kind, Mark, Plot, Report, Row, Shape, Value
from router.report.vendors import Cell, Instead, cells, instead
from router.types.price import usd_from_nano

_MEASURES = ("requests", "input_tokens", "output_tokens")
_COLUMNS = (
    Column("target", Kind.LABEL),
    Column("requests", Kind.COUNT),
    Column("tokens", Kind.COUNT),
    Column("hours", Kind.COUNT),
    Column("busy_hours", Kind.COUNT),
    Column("tokens_per_busy_hour", Kind.COUNT),
    Column("tokens_in_best_hour", Kind.COUNT),
    Column("hourly_usd", Kind.USD),
    Column("machine_usd", Kind.USD),
    Column("idle_usd", Kind.USD),
    Column("comparable", Kind.COUNT),
    Column("api_usd", Kind.USD),
    Column("break_even_requests_per_hour", Kind.COUNT),
    Column("break_even_tokens_per_hour", Kind.COUNT),
    Column("load", Kind.SHARE),
    Column("cheaper"),
)
_NOTE = (
    "Hours: of the window, until now. Busy: clock hours in which it was asked anything. Machine: its hourly price for"
    " all hours, busy or not; where its engine is metered, for those in which that was up (idle: and did nothing),"
    " shared by its targets as their tokens are. API: what was expected of the cheapest remote candidates for the"
    " requests that it was the first choice for (comparable: those that had one); so it is an estimate, not an invoice."
    " Load is of the break-even: at 100 % both cost the same."
)
_RESTING = frozenset({"circuit_open"})
"""Outcomes of attempts of which nothing was sent."""


class _Served(Struct):
    """Of one target. `by_hour`: tokens."""

    requests: int
    by_hour: dict[int, int]

    @property
    def tokens(self) -> int:
        return sum(self.by_hour.values())


class _Compared(Struct, frozen=True):
    """Hours of the window in ms; `hourly` in nano-USD."""

    target: str
    served: _Served
    window_ms: int
    hourly: int | None
    other: Instead
    paid: int | None = None
    """Where its engine is metered: nano-USD for its share of the hours in which that was up, and …"""
    idle: int | None = None
    """… of those the part in which it did nothing."""

    @property
    def machine(self) -> int | None:
        if self.paid is not None:
            return self.paid
        return None if self.hourly is None else (2 * self.hourly * self.window_ms + HOUR_MS) // (2 * HOUR_MS)

    @property
    def break_even(self) -> float | None:
        """Requests an hour at which machine and API cost the same."""
        other = self.other
        return self.hourly * other.served / other.then if self.hourly and other.then else None

    @property
    def each(self) -> float | None:
        """Tokens of a request."""
        return self.served.tokens / self.served.requests if self.served.requests else None

    @property
    def load(self) -> float | None:
        """Of the break-even."""
        machine = self.machine
        return self.other.then / machine if machine and self.other.served else None


def _made(source: Source) -> Report:
    found = _compared(source)
    return Report(
        name="local-vs-api",
        title="Local engines against the cheapest API",
        columns=_COLUMNS,
        rows=tuple(map(_row, found)),
        note=" ".join((_NOTE, *_unknown(found))),
        since_ms=source.asked.since_ms,
        until_ms=source.asked.until_ms,
        plots=_plots(found),
    )


REPORT = Definition(
    name="local-vs-api",
    summary="Break-even of the local engines at the measured load.",
    make=_made,
    where=("route", "class"),
)


def _compared(source: Source) -> list[_Compared]:
    places = Places(documents(source.connection), source.targets)
    served = _served(source, _locals(source, places))
    window_ms = _window_ms(source, served.values())
    chosen: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells(source):
        chosen[cell.chosen].append(cell)
    metered = _metered(source, served)
    return [
        _Compared(
            name,
            one,
            window_ms,
            _hourly(source, name),
            instead(chosen[name], lambda at: _remote(places, at)),
            *metered.get(name, ()),
        )
        for name, one in sorted(served.items(), key=lambda item: (-item[1].tokens, item[0]))
    ]


def _metered(source: Source, served: Mapping[str, _Served]) -> dict[str, tuple[int, int]]:
    """Target → what its engine's hours cost, and the idle ones of them; those who share an engine share its hours."""
    sharing: dict[str, list[str]] = defaultdict(list)
    for name in served:
        target = source.targets.get(name)
        if target is not None and target.engine is not None and target.hourly:
            sharing[target.engine.name].append(name)
    found = {}
    for engine, did in totals(source).items():
        tokens = sum(served[name].tokens for name in sharing[engine])
        for name in sharing[engine]:
            share = served[name].tokens / tokens if tokens else 1 / len(sharing[engine])
            idle = did.cost - did.cost * did.busy_ms // did.wall_ms
            found[name] = (round(did.cost * share), round(idle * share))
    return found


def _locals(source: Source, places: Places) -> list[str]:
    """Of the policy in force and of the window, also those that served nothing."""
    seen = {str(target) for (target,) in source.sums(TABLE, ("target",), ("attempts",)) if target is not None}
    return sorted(name for name in seen | set(source.targets) if places.now(name).local)


def _served(source: Source, names: Sequence[str]) -> Mapping[str, _Served]:
    found = {name: _Served(0, {}) for name in names}
    asked = (Where("target", frozenset(names)), Where("outcome", _RESTING, inverted=True))
    sums = source.sums(TABLE, ("target", "hour"), _MEASURES, *asked)
    for (target, hour), (requests, *tokens) in sums.items():
        one = found[str(target)]
        one.requests += requests
        one.by_hour[int(hour or 0)] = sum(tokens)
    return found


def _window_ms(source: Source, served: object) -> int:
    """From its begin, or the first hour of the ledger, until its end or now."""
    asked = source.asked
    since = asked.since_ms
    if since is None:
        hours = [int(hour or 0) for (hour,) in source.sums(TABLE, ("hour",), ("requests",))]
        since = min(hours) * HOUR_MS if hours else asked.now_ms
    until = asked.now_ms if asked.until_ms is None else min(asked.until_ms, asked.now_ms)
    return max(0, until - since)


def _remote(places: Places, target: str) -> bool:
    return places.offered(target) and not places.now(target).local


def _hourly(source: Source, target: str) -> int | None:
    found = source.targets.get(target)
    return None if found is None else found.hourly


def _row(one: _Compared) -> Row:
    served, other, tokens = one.served, one.other, one.served.tokens
    busy, requests = len(served.by_hour), one.break_even
    return (
        *(one.target, served.requests, tokens, round(one.window_ms / HOUR_MS), busy),
        *(round(tokens / busy) if busy else None, max(served.by_hour.values(), default=None)),
        *(
            _usd(one.hourly),
            _usd(one.machine),
            _usd(one.idle),
            other.served,
            _usd(other.then) if other.served else None,
        ),
        None if requests is None else round(requests),
        None if requests is None or one.each is None else round(requests * one.each),
        one.load,
        _cheaper(one),
    )


def _cheaper(one: _Compared) -> Value:
    """What had no price elsewhere can only speak for the machine."""
    load = one.load
    if load is None:
        return None
    return "local" if load >= 1 else "api" if not one.other.stranded else "api, for what it could serve"


def _usd(nano: int | None) -> Value:
    return None if nano is None else usd_from_nano(nano)


def _unknown(found: Sequence[_Compared]) -> list[str]:
    said = []
    unpriced = [one.target for one in found if one.hourly is None]
    if unpriced:
        said.append(f"No hourly price is declared for {', '.join(unpriced)}: write hourly_usd in its target.")
    for one in found:
        if one.other.stranded:
            said.append(
                f"{one.other.stranded:,} of {one.other.requests:,} requests of {one.target} had no remote candidate:"
                " they can't be compared."
            )
        elif one.served.requests and not one.other.requests:
            said.append(f"No decision of the window chose {one.target} first: what an API had cost is not known.")
    if not found:
        said.append("There is no local target.")
    return said


def _plots(found: Sequence[_Compared]) -> tuple[Plot, ...]:
    marks = []
    for one in found:
        if one.machine is not None:
            marks.append(Mark(label=f"{one.target}: machine", value=one.machine, series="machine"))
        if one.other.served:
            marks.append(Mark(label=f"{one.target}: API", value=one.other.then, series="API"))
    if not marks:
        return ()
    title = "The machine, and the same requests at an API"
    return (Plot(title=title, shape=Shape.BARS, unit=Kind.USD, marks=tuple(marks)),)
