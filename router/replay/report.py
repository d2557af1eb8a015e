"""The report of a replay. Money in nano-USD, passes and refusals in requests; a change is new less old."""

from typing import NamedTuple

from msgspec import Struct, structs

from router.replay.part import Move
from router.report.report import Column, Report, Row, columns, usd

# What a replay found. Money in nano-USD, passes and refusals in requests; a change is new less old.


class Change(NamedTuple):
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


class ChangedDecision(Struct, frozen=True):
    """One decision that changes."""

    id: str
    at_ms: int
    move: Move
    cost: float
    passes: float


class Egress(Struct, frozen=True):
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


class Calibrated(NamedTuple):
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
    decisions: tuple[ChangedDecision, ...]
    egress: tuple[Egress, ...]
    unknown: tuple[Unknown, ...]
    calibrated: tuple[Calibrated, ...]


# A replay as a report: one row a route, and below it what changes, where data goes, and what can't be known.

NAME = "replay"
_COLUMNS = columns(
    "route:label requests:count changed:count spent_usd change_usd low_usd high_usd change_share:share",
    "passes:count passes_low:count passes_high:count refused:count refusals:count refusals_low:count?",
    "refusals_high:count? cost_is experiments:count?",
)
_MOVED = "route:label before after why"
_SHIFTS = columns(_MOVED, "requests:count change_usd passes:count")
_DECISIONS = columns("request:request time:time", _MOVED, "change_usd passes:count")
_EGRESS = columns("class:label target entity jurisdiction region redacted before:count after:count change:count")
_UNKNOWN = columns("what requests:count text")
_CALIBRATED = columns("target answers:count observed_by_expected:factor")
NO_TARGET = "(refused)"
_NOTE = (
    "A change is what the new policy would have cost, passed and refused, less what the old one did; the interval is"
    " 95 % of what other requests of that kind might have shown. Decisions that stay cost what they did cost, exactly."
    " The cost of a new choice is expected, times what answers of that target cost compared with what was expected of"
    " them; cost_is: observed (nothing changes), expected, or corrected by experiments that asked the new choice."
    " passes are right answers, by what is known of the targets today."
)


def as_report(replayed: Replayed) -> Report:
    """Every list that has something in it is a table below."""
    decisions = tuple((row.id, row.at_ms, *_moved(row.move), usd(row.cost), row.passes) for row in replayed.decisions)
    shifts = tuple((*_moved(row.move), row.requests, usd(row.cost), row.passes) for row in replayed.shifts)
    below: tuple[tuple[str, str, tuple[Column, ...], tuple[Row, ...]], ...] = (
        ("changes", "What changes", _SHIFTS, shifts),
        ("decisions", "Decisions that change, the most consequential first", _DECISIONS, decisions),
        ("egress", "Where classes go", _EGRESS, tuple(map(_egress, replayed.egress))),
        ("calibration", "What targets cost, compared with what was expected", _CALIBRATED, replayed.calibrated),
        ("unknown", "What can't be known", _UNKNOWN, tuple(map(structs.astuple, replayed.unknown))),
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
        below=tuple(
            Report(name=name, title=title, columns=names, rows=rows) for name, title, names, rows in below if rows
        ),
    )


def _row(effect: Effect) -> Row:
    return (
        *(effect.route, effect.requests, effect.changed, usd(effect.spent)),
        *map(usd, effect.cost),
        effect.cost.value / effect.spent if effect.spent else None,
        *(*effect.passes, effect.refused, *effect.refusals),
        "corrected" if effect.corrected else "expected" if effect.changed else "observed",
        effect.sample or None,
    )


def _moved(move: Move) -> Row:
    return move.route, move.before or NO_TARGET, move.after or NO_TARGET, move.why


def _egress(flow: Egress) -> Row:
    region = "local" if flow.local else flow.region or None
    place = (flow.data_class, flow.target, flow.entity or None, flow.jurisdiction or None, region)
    return (*place, "yes" if flow.redacted else "no", flow.before, flow.after, flow.after - flow.before)
