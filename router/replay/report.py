"""The report of a replay. Money in nano-USD, passes and refusals in requests; a change is new less old."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct, structs

from router.report.charts import dollars
from router.report.report import Report, Row, made, usd

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


class Move(NamedTuple):
    """What changes. `before` and `after`: who was and who would be asked."""

    route: str
    before: str
    after: str
    why: str


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
    """Those of the most money first."""
    decisions: tuple[ChangedDecision, ...]
    egress: tuple[Egress, ...]
    unknown: tuple[Unknown, ...]
    calibrated: tuple[Calibrated, ...]


# A replay as a report: one row a route, and below it what changes, where data goes, and what can't be known.

NAME = "replay"
NO_TARGET = "(refused)"


def as_report(replayed: Replayed) -> Report:
    """Every list that has something in it is a table below."""
    below: Mapping[str, Iterable[Row]] = {
        "changes": ((*_moved(row.move), row.requests, usd(row.cost), row.passes) for row in replayed.shifts),
        "decisions": ((row.id, row.at_ms, *_moved(row.move), usd(row.cost), row.passes) for row in replayed.decisions),
        "egress": map(_egress, replayed.egress),
        "calibration": replayed.calibrated,
        "unknown": map(structs.astuple, replayed.unknown),
    }
    tables = [made(f"{NAME}/{name}", rows) for name, rows in below.items()]
    return made(
        NAME,
        map(_row, replayed.routes),
        title=f"{verdict(replayed)} (replay under policy {replayed.policy})",
        totals=("total", *_row(replayed.total)[1:]),
        since_ms=replayed.since_ms,
        until_ms=replayed.until_ms,
        below=tuple(table for table in tables if table.rows),
    )


LEAST_PASSES = 0.05
"""Right answers that are told from none."""


def verdict(replayed: Replayed) -> str:
    """In one sentence: "$1.52 dearer and 13.8 fewer right answers: no"."""
    total, terms = replayed.total, any(row.code == "repriced" for row in replayed.unknown)
    besides = "; another price or model behind a target is not looked at where decisions stay" if terms else ""
    if not total.changed:
        return f"Nothing changes{besides}"
    cost, passes = round(total.cost.value), total.passes.value if abs(total.passes.value) >= LEAST_PASSES else 0.0
    parts = [f"{dollars(abs(cost))} {'dearer' if cost > 0 else 'cheaper'}" if cost else "as dear"]
    parts += [f"{abs(passes):,.1f} {'more' if passes > 0 else 'fewer'} right answers" if passes else "as often right"]
    if refused := round(total.refusals.value):
        parts.append(f"{abs(refused):,} {'more' if refused > 0 else 'fewer'} refused")
    return f"{', '.join(parts[:-1])} and {parts[-1]}: {_judged(total, cost, passes)}{besides}"


def _judged(total: Effect, cost: int, passes: float) -> str:
    if all(change.low < 0 < change.high for change in (total.cost, total.passes)):
        return "by chance it may be either"
    if cost and passes and (cost > 0) == (passes > 0):
        return f"{dollars(abs(round(cost / passes)))} for each right answer {'more' if passes > 0 else 'given up'}"
    return "no" if cost > 0 or passes < 0 else "yes"


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
