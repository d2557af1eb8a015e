"""Sums by hour beside the rows that they were made of, and charges of moved requests beside what is booked for them."""

from collections.abc import Iterator, Sequence

import msgspec

from router.ledger.connection import Connection
from router.ledger.facts.attempts import HOUR_MS
from router.ledger.facts.query import Label, Sums
from router.ledger.past import EXPIRED, MOVED, progress
from router.ledger.query import LONGEST_WINDOW_MS
from router.ledger.rollups import GROUPINGS, LATE, Counted, Grouping, count
from router.ledger.verify.finding import Finding

_HOURS = """
    SELECT hour FROM hourly_attempts UNION SELECT hour FROM hourly_offers
    UNION SELECT DISTINCT started_ms / 3600000 FROM past_requests ORDER BY 1
"""
_KEPT = """
    SELECT g.labels, {} FROM hourly_{} AS h JOIN sum_groups AS g ON g.id = h.group_id
    WHERE h.hour = ? AND h.grouping_id = (SELECT id FROM names WHERE name = ?)
"""
_MOVED_SUMS = """
    SELECT account, window_start_ms, SUM(moved), SUM(booked) FROM (
        SELECT (SELECT name FROM names WHERE id = p.account) AS account, window_start_ms, charged AS moved, 0 AS booked
        FROM past_bookings AS p
        UNION ALL SELECT account, window_start_ms, 0, charged FROM bookings WHERE request_id LIKE 'packed-%'
            AND account NOT LIKE 'key.rpm|%' AND account NOT LIKE 'key.tpm|%' AND account NOT LIKE 'key.parallel|%'
    ) AS both_sides GROUP BY account, window_start_ms HAVING SUM(moved) <> SUM(booked)
"""
_ANY = "SELECT 1 FROM past_requests WHERE started_ms >= ? AND started_ms < ? LIMIT 1"
_LAST = "SELECT MAX(started_ms) FROM past_requests"
_labels = msgspec.json.Decoder(tuple[Label, ...])


def findings(connection: Connection, *, own_budgets: bool) -> Iterator[Finding]:
    """Of hours whose rows have expired all groupings must say the same; of the others, what the rows say."""
    expired_ms = progress(connection, EXPIRED)
    cursors = {one: progress(connection, one.name) for one in GROUPINGS}
    late = {LATE, *(one for one in GROUPINGS if progress(connection, one.since))}
    for one, cursor in cursors.items():
        if cursor > (moved := progress(connection, MOVED)):
            yield Finding("progress", one.name, f"its sums go up to {cursor}, and rows up to {moved}")
    for (hour,) in connection.execute(_HOURS).fetchall():
        kept = {one: _kept(connection, one, hour) for one in GROUPINGS}
        if hour * HOUR_MS < expired_ms:
            # Groupings are written one after the other: what is furthest may be ahead of the others for a moment.
            most = max((cursors[one] for one in GROUPINGS if one not in late), default=0)
            some = {one: kept[one] for one in GROUPINGS if one not in late and cursors[one] == most}
            if LATE in late and not connection.execute(_ANY, (hour * HOUR_MS, (hour + 1) * HOUR_MS)).fetchone():
                some[LATE] = kept[LATE]
            yield from _alike(hour, some)
        else:
            yield from _as_rows(connection, hour, cursors, kept)
    if own_budgets:
        yield from _booked(connection, expired_ms)


def _kept(connection: Connection, grouping: Grouping, hour: int) -> Sums:
    measures = ", ".join(f"h.{name}" for name in grouping.measures)
    rows = connection.execute(_KEPT.format(measures, grouping.table), (hour, grouping.name))
    return {(hour, *_labels.decode(labels)): tuple(amounts) for labels, *amounts in rows}


def _as_rows(
    connection: Connection, hour: int, cursors: dict[Grouping, int], kept: dict[Grouping, Sums]
) -> Iterator[Finding]:
    made = {one: Counted(0, cursor) for one, cursor in cursors.items()}
    count(connection, made, ("r.started_ms >= ? AND r.started_ms < ?", [hour * HOUR_MS, (hour + 1) * HOUR_MS]))
    for grouping, counted in made.items():
        yield from _differ(grouping, hour, counted.sums, kept[grouping], "its rows")


def _alike(hour: int, kept: dict[Grouping, Sums]) -> Iterator[Finding]:
    first: dict[str, Sums] = {}
    for grouping, sums in kept.items():
        whole: Sums = {(hour,): _total(list(sums.values()), len(grouping.measures))}
        yield from _differ(grouping, hour, first.setdefault(grouping.table, whole), whole, "other sums")


def _total(rows: Sequence[tuple[int, ...]], measures: int) -> tuple[int, ...]:
    return tuple(map(sum, zip(*rows, strict=True))) if rows else (0,) * measures


def _differ(grouping: Grouping, hour: int, right: Sums, found: Sums, whose: str) -> Iterator[Finding]:
    """The first difference of each measure."""
    nothing = (0,) * len(grouping.measures)
    both = ((key, right.get(key, nothing), found.get(key, nothing)) for key in right.keys() | found.keys())
    wrong = sorted((line for line in both if line[1] != line[2]), key=str)
    for at, measure in enumerate(grouping.measures):
        differing = next((line for line in wrong if line[1][at] != line[2][at]), None)
        if differing is not None:
            key, wanted, amounts = differing
            label = " / ".join("-" if one is None else str(one) for one in key[1:]) or "all"
            says = f"it sums {measure} of {label} to {amounts[at]}, and {whose} to {wanted[at]}"
            yield Finding(f"hourly_{grouping.table}", f"{','.join(grouping.by)} in hour {hour}", says)


def _booked(connection: Connection, expired_ms: int) -> Iterator[Finding]:
    """Windows that began before rows expired have sums of rows that are gone."""
    last = connection.execute(_LAST).fetchone()[0] or 0
    for account, start, moved, booked in connection.execute(_MOVED_SUMS).fetchall():
        dropped = booked == 0 and start < last - LONGEST_WINDOW_MS
        if not dropped and start >= expired_ms:
            says = f"moved requests were charged {moved}, and {booked} is booked for them"
            yield Finding("bookings", f"packed-{start} in {account}", says)
