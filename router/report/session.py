"""One session: its requests in order, whom they asked, and what they cost."""

from collections.abc import Mapping

from router.errors import ClientError
from router.ledger import rows
from router.ledger.facts.attempts import HOUR_MS, TABLE
from router.ledger.facts.query import Where
from router.ledger.rows import Kept
from router.report.charges import charges
from router.report.report import Column, Kind, Report, Row
from router.report.requests import COLUMNS, line
from router.report.source import Definition, Source
from router.types.money import usd_from_nano

MOST = 5_000
"""Requests that are listed; the sums are of all."""
_KEYS = "SELECT id, name FROM keys"
_COLUMNS = (*COLUMNS[:2], Column("key"), *COLUMNS[2:])
_LABELS = tuple(column for column in _COLUMNS if column.kind not in (Kind.COUNT, Kind.USD, Kind.MS))
_TARGET_COLUMNS = (
    Column("target", Kind.LABEL),
    Column("requests", Kind.COUNT),
    Column("attempts", Kind.COUNT),
    Column("input_tokens", Kind.COUNT),
    Column("output_tokens", Kind.COUNT),
    Column("cost_usd", Kind.USD),
    Column("recovered_usd", Kind.USD, rare=True),
)
_MEASURES = ("requests", "attempts", "input_tokens", "output_tokens", "cost", "recovered")
_NOTE = "A session is a name under a key: keys that use the same name have sessions of their own."


def _made(source: Source) -> Report:
    """Raises a 404 `ClientError` for a session that the ledger does not hold."""
    kept = _requests(source)
    if not kept:
        message = f"The ledger holds no session {source.asked.subject[:80]} in that time."
        raise ClientError(404, "not_found", message, param="subject")
    listed, names = kept[:MOST], dict(source.connection.execute(_KEYS).fetchall())
    bookings = charges(kept, source.pots)
    return Report(
        name="session",
        title="Session",
        columns=_COLUMNS,
        rows=tuple(_row(one, names) for one in listed),
        totals=_totals(kept),
        note=_NOTE + (f" The first {MOST:,} of {len(kept):,} requests." if len(kept) > MOST else ""),
        since_ms=source.asked.since_ms,
        until_ms=source.asked.until_ms,
        below=(_targets(source), *((bookings,) if bookings.rows else ())),
    )


REPORT = Definition(
    name="session",
    summary="One session: its requests in order, whom they asked, what they cost.",
    make=_made,
    needs_subject=True,
)


def _of(source: Source) -> Where:
    return Where("session", frozenset({source.asked.subject}))


def _requests(source: Source) -> list[Kept]:
    """Rows of those hours only in which the session was there."""
    asked = source.asked
    found = []
    for hour in sorted(int(hour or 0) for (hour,) in source.sums(TABLE, ("hour",), ("requests",), _of(source))):
        begin, end = hour * HOUR_MS, (hour + 1) * HOUR_MS
        since = begin if asked.since_ms is None else max(begin, asked.since_ms)
        until = end if asked.until_ms is None else min(end, asked.until_ms)
        every = rows.every(source.connection, since, until)
        found += [one for one in every if one.request["session"] == asked.subject]
    return sorted(found, key=lambda one: (one.started_ms, one.id))


def _row(kept: Kept, names: Mapping[str, str]) -> Row:
    identifier, time, *rest = line(kept)
    key = str(kept.request["key_id"])
    return (identifier, time, names.get(key, key) or None, *rest)


def _totals(kept: list[Kept]) -> Row:
    """Of all, listed or not."""
    names = ("input_tokens", "output_tokens", "reasoning_tokens", "cost")
    *tokens, cost = (sum(value for one in kept if isinstance(value := one.request[name], int)) for name in names)
    return ("total", *(None for _ in _LABELS[1:]), *tokens, usd_from_nano(cost), None)


def _targets(source: Source) -> Report:
    sums = source.sums(TABLE, ("target",), _MEASURES, _of(source))
    ranked = sorted(sums.items(), key=lambda item: (item[0][0] is None, -item[1][4], str(item[0][0])))
    found = tuple(
        (target, *counts, usd_from_nano(cost), usd_from_nano(back)) for (target,), (*counts, cost, back) in ranked
    )
    return Report(name="targets", title="By target", columns=_TARGET_COLUMNS, rows=found)
