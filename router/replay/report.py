"""The report of a replay. Money in nano-USD, passes and refusals in requests; a change is new less old."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from router.report.charts import dollars
from router.report.report import Report, Row, made

Line = tuple[str | int | float | None, ...]
NO_TARGET = "(refused)"

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


class Replayed(Struct, frozen=True, kw_only=True):
    policy: str
    """Its hash, as decisions have it."""
    since_ms: int | None
    until_ms: int | None
    routes: tuple[Effect, ...]
    total: Effect
    tables: Mapping[str, Sequence[Line]]
    """Of `reports.yaml` below `replay`, in nano-USD: what changes and the decisions that do, those of the most money
    first; where data goes; what answers cost compared with what was expected; and what can't be known, by its code."""


# A replay as a report: one row a route, and below it every table that has something in it.

NAME = "replay"


def as_report(replayed: Replayed) -> Report:
    return made(
        NAME,
        map(_row, replayed.routes),
        title=f"{verdict(replayed)} (replay under policy {replayed.policy})",
        totals=("total", *_row(replayed.total)[1:]),
        since_ms=replayed.since_ms,
        until_ms=replayed.until_ms,
        below=tuple(made(f"{NAME}/{name}", lines) for name, lines in replayed.tables.items() if lines),
    )


LEAST_PASSES = 0.05
"""Right answers that are told from none."""


def verdict(replayed: Replayed) -> str:
    """In one sentence: "$1.52 dearer and 13.8 fewer right answers: no"."""
    total, terms = replayed.total, any(code == "repriced" for code, *_ in replayed.tables["unknown"])
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
        *(effect.route, effect.requests, effect.changed, effect.spent, *effect.cost),
        effect.cost.value / effect.spent if effect.spent else None,
        *(*effect.passes, effect.refused, *effect.refusals),
        "corrected" if effect.corrected else "expected" if effect.changed else "observed",
        effect.sample or None,
    )
