"""What budgets and the loop breaker stopped, and how much more was held than it cost."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from router.budget.loops.loops import Kind as Loop
from router.ledger.connection import Connection
from router.ledger.facts.attempts import TABLE
from router.ledger.incident import EXHAUSTED
from router.report.report import Column, Kind, Report, Row
from router.report.source import Source
from router.types.money import usd_from_nano

_REFUSED = "budget_exceeded"
"""`requests.error`; with status 200 it began to answer, and was stopped."""
_ANSWERED = 200
_BY = ("route", "state", "status", "error")
_MEASURES = ("requests", "lowered_requests", "overruns", "request_held", "cost")
_COLUMNS = (
    Column("route", Kind.LABEL),
    Column("requests", Kind.COUNT),
    Column("refused", Kind.COUNT),
    Column("stopped", Kind.COUNT),
    Column("lowered", Kind.COUNT),
    Column("overruns", Kind.COUNT),
    Column("held_usd", Kind.USD),
    Column("cost_usd", Kind.USD),
    Column("over_reservation", Kind.FACTOR),
)
_NOTE = (
    "Refused: answered with budget_exceeded; stopped: cut where the budget ended; lowered: made smaller until it"
    " fitted; overruns: charged more than was held. Over-reservation: held, of what settled requests cost. Held is what"
    " a request asked its budgets to keep, the worst case also where none binds it. Rows don't name the budget that"
    " refused: its answer does, and the first refusal in a window is an incident."
)
_TRIPS = """
    SELECT kind, scope, COUNT(*), MIN(at_ms), MAX(at_ms) FROM incidents
    WHERE at_ms >= ? AND at_ms < ? GROUP BY kind, scope ORDER BY COUNT(*) DESC, kind, scope
"""
_TRIP_COLUMNS = (
    Column("loop", Kind.LABEL),
    Column("scope"),
    Column("trips", Kind.COUNT),
    Column("first", Kind.TIME),
    Column("last", Kind.TIME),
)
_SINCE = "SELECT subject, MAX(at_ms) FROM incidents WHERE kind = ? GROUP BY subject"


def since(connection: Connection) -> Mapping[str, int]:
    """By account: when it first refused a request in the last window in which it did (Unix ms)."""
    return dict(connection.execute(_SINCE, (EXHAUSTED,)).fetchall())


def by_route(source: Source) -> Report:
    found: dict[str | None, list[int]] = defaultdict(lambda: [0] * 7)
    every = source.sums(TABLE, _BY, _MEASURES)
    for (route, state, status, error), (requests, lowered, overruns, held, cost) in every.items():
        refused = requests if error == _REFUSED else 0
        stopped = refused if status == _ANSWERED else 0
        settled = state == "settled"
        line = (requests, refused - stopped, stopped, lowered, overruns, held * settled, cost * settled)
        place = found[None if route is None else str(route)]
        place[:] = [one + other for one, other in zip(place, line, strict=True)]
    rows = tuple(_row(route, found[route]) for route in sorted(found, key=lambda name: (name is None, name or "")))
    totals = [sum(column) for column in zip(*found.values(), strict=True)]
    return Report(
        name="refused",
        title="Refusals and holds by route",
        columns=_COLUMNS,
        rows=rows,
        totals=_row("total", totals) if rows else None,
        note=_NOTE,
    )


def _row(route: str | None, sums: Sequence[int]) -> Row:
    *counts, held, cost = sums
    return (route, *counts, usd_from_nano(held), usd_from_nano(cost), held / cost if cost else None)


def trips(source: Source) -> Report:
    found = source.connection.execute(_TRIPS, source.asked.bounds).fetchall()
    rows = tuple(tuple(line) for line in found if line[0] in set(Loop))
    return Report(name="loops", title="Loops that were stopped", columns=_TRIP_COLUMNS, rows=rows)


TABLES: tuple[Callable[[Source], Report], ...] = (by_route, trips)
