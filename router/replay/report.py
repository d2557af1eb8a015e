"""The report of a replay. Money in nano-USD, passes and refusals in requests; a change is new less old."""

from collections.abc import Iterator
from decimal import Decimal

from msgspec import Struct

from router.replay.part import Move
from router.report.report import Column, Kind, Report, Row
from router.types.price import usd_from_nano

# What a replay found. Money in nano-USD, passes and refusals in requests; a change is new less old.


class Change(Struct, frozen=True):
    """An expected change, and the interval that it lies in with 95 %, as far as chance goes: which requests came."""

    value: float = 0.0
    low: float = 0.0
    high: float = 0.0


class Effect(Struct, frozen=True, kw_only=True):
    """Of one route, or of all."""

    route: str
    requests: int
    changed: int
    spent: int
    cost: Change
    passes: Change
    """Expected right answers."""
    refused: int
    """So far, as no target was eligible."""
    refusals: Change
    corrected: bool
    """The expected cost of the new choices is corrected by experiments that asked them …"""
    sample: float
    """… of this effective size."""
    passes_corrected: bool


class Shift(Struct, frozen=True):
    """Decisions that change alike."""

    move: Move
    requests: int
    cost: float
    passes: float


class Changed(Struct, frozen=True):
    """One decision that changes."""

    id: str
    at_ms: int
    move: Move
    cost: float
    passes: float


class Egress(Struct, frozen=True, kw_only=True):
    """How many requests of a class go somewhere. Empty: not stated; `entity` is also that where it is not known."""

    data_class: str
    target: str
    entity: str
    jurisdiction: str
    region: str
    local: bool
    redacted: bool
    before: int
    after: int


class Unknown(Struct, frozen=True):
    """What can't be known, by a stable code, and of how many requests."""

    code: str
    count: int
    text: str


class Calibrated(Struct, frozen=True):
    """What answers of a target cost, so many times what they were expected to; 1 where they are too few to tell."""

    target: str
    answers: int
    factor: float


class Replayed(Struct, frozen=True, kw_only=True):
    policy: str
    """Its hash, as decisions have it."""
    path: str
    since_ms: int | None
    until_ms: int | None
    routes: tuple[Effect, ...]
    total: Effect
    shifts: tuple[Shift, ...]
    """The most consequential first, like `decisions`."""
    decisions: tuple[Changed, ...]
    egress: tuple[Egress, ...]
    unknown: tuple[Unknown, ...]
    calibrated: tuple[Calibrated, ...]


# A replay as a report: one row a route, and below it what changes, where data goes, and what can't be known.

NAME = "replay"
_COLUMNS = (
    Column("route", Kind.LABEL),
    Column("requests", Kind.COUNT),
    Column("changed", Kind.COUNT),
    Column("spent_usd", Kind.USD),
    Column("change_usd", Kind.USD),
    Column("low_usd", Kind.USD),
    Column("high_usd", Kind.USD),
    Column("change_share", Kind.SHARE),
    Column("passes", Kind.COUNT),
    Column("passes_low", Kind.COUNT),
    Column("passes_high", Kind.COUNT),
    Column("refused", Kind.COUNT),
    Column("refusals", Kind.COUNT),
    Column("refusals_low", Kind.COUNT, rare=True),
    Column("refusals_high", Kind.COUNT, rare=True),
    Column("cost_is"),
    Column("experiments", Kind.COUNT, rare=True),
)
_MOVED = (Column("route", Kind.LABEL), Column("before"), Column("after"), Column("why"))
_SHIFTS = (*_MOVED, Column("requests", Kind.COUNT), Column("change_usd", Kind.USD), Column("passes", Kind.COUNT))
_DECISIONS = (
    Column("request", Kind.REQUEST),
    Column("time", Kind.TIME),
    *_MOVED,
    Column("change_usd", Kind.USD),
    Column("passes", Kind.COUNT),
)
_EGRESS = (
    Column("class", Kind.LABEL),
    Column("target"),
    Column("entity"),
    Column("jurisdiction"),
    Column("region"),
    Column("redacted"),
    Column("before", Kind.COUNT),
    Column("after", Kind.COUNT),
    Column("change", Kind.COUNT),
)
_UNKNOWN = (Column("what"), Column("requests", Kind.COUNT), Column("text"))
_CALIBRATED = (Column("target"), Column("answers", Kind.COUNT), Column("observed_by_expected", Kind.FACTOR))
NOBODY = "(refused)"
_NOTE = (
    "A change is what the new policy would have cost, passed and refused, less what the old one did; the interval is"
    " 95 % of what other requests of that kind might have shown. Decisions that stay cost what they did cost, exactly."
    " The cost of a new choice is expected, times what answers of that target cost compared with what was expected of"
    " them; cost_is: observed (nothing changes), expected, or corrected by experiments that asked the new choice."
    " passes are right answers, by what is known of the targets today."
)


def as_report(replayed: Replayed) -> Report:
    """Every list that has something in it is a table below."""
    below = (
        _below("changes", "What changes", _SHIFTS, _shifts(replayed)),
        _below("decisions", "Decisions that change, the most consequential first", _DECISIONS, _decisions(replayed)),
        _below("egress", "Where classes go", _EGRESS, _egress(replayed)),
        _below("calibration", "What targets cost, compared with what was expected", _CALIBRATED, _targets(replayed)),
        _below("unknown", "What can't be known", _UNKNOWN, _unknown(replayed)),
    )
    return Report(
        name=NAME,
        title=f"Replay under policy {replayed.policy}",
        columns=_COLUMNS,
        rows=tuple(map(_row, replayed.routes)),
        totals=("total", *_row(replayed.total)[1:]),
        note=_NOTE,
        since_ms=replayed.since_ms,
        until_ms=replayed.until_ms,
        below=tuple(one for one in below if one.rows),
    )


def _below(name: str, title: str, columns: tuple[Column, ...], rows: Iterator[Row]) -> Report:
    return Report(name=name, title=title, columns=columns, rows=tuple(rows))


def _row(effect: Effect) -> Row:
    share = effect.cost.value / effect.spent if effect.spent else None
    return (
        *(effect.route, effect.requests, effect.changed, usd_from_nano(effect.spent)),
        *(*_money(effect.cost), share),
        *_three(effect.passes),
        *(effect.refused, *_three(effect.refusals)),
        *(_method(effect), effect.sample or None),
    )


def _method(effect: Effect) -> str:
    return "corrected" if effect.corrected else "expected" if effect.changed else "observed"


def _money(change: Change) -> Row:
    return tuple(map(_usd, (change.value, change.low, change.high)))


def _three(change: Change) -> Row:
    return change.value, change.low, change.high


def _usd(nano: float) -> Decimal:
    """An expectation, to the nano-dollar."""
    return usd_from_nano(round(nano))


def _shifts(replayed: Replayed) -> Iterator[Row]:
    for one in replayed.shifts:
        route, before, after, why = one.move
        yield route, before or NOBODY, after or NOBODY, why, one.requests, _usd(one.cost), one.passes


def _decisions(replayed: Replayed) -> Iterator[Row]:
    for one in replayed.decisions:
        route, before, after, why = one.move
        yield one.id, one.at_ms, route, before or NOBODY, after or NOBODY, why, _usd(one.cost), one.passes


def _egress(replayed: Replayed) -> Iterator[Row]:
    for one in replayed.egress:
        region = "local" if one.local else one.region or None
        redacted = "yes" if one.redacted else "no"
        place = (one.data_class, one.target, one.entity or None, one.jurisdiction or None, region, redacted)
        yield *place, one.before, one.after, one.after - one.before


def _targets(replayed: Replayed) -> Iterator[Row]:
    for one in replayed.calibrated:
        yield one.target, one.answers, one.factor


def _unknown(replayed: Replayed) -> Iterator[Row]:
    for one in replayed.unknown:
        yield one.code, one.count, one.text
