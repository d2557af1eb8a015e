"""A replay as a report: one row a route, and below it what changes, where data goes, and what can't be known."""

from collections.abc import Iterator
from decimal import Decimal

from router.replay.replayed import Change, Effect, Replayed
from router.report.report import Column, Kind, Report, Row
from router.types.money import usd_from_nano

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
