"""Sums over segments: from the smallest sums by hour that tell apart what is asked, else from facts, else from rows."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from router.ledger.connection import Connection
from router.ledger.facts import attempts
from router.ledger.facts.attempts import HOUR_MS, QUARTER_MS
from router.ledger.facts.query import Expired, Label, Query, Sums, Where
from router.ledger.packed import cube, stored
from router.ledger.packed.column import Numbers
from router.ledger.packed.cube import FACTS, STARTED, Rollup
from router.ledger.packed.facts import offered
from router.ledger.packed.group import Labelled, Tally, of_numbers
from router.ledger.packed.stored import Stored
from router.ledger.packed.unpack import rows

_TOGETHER = 64
"""Segments whose facts are read at a time: some ten MB."""
_SIZES = "SELECT part, LENGTH(data) FROM segment_parts WHERE segment = ? AND part LIKE ?"
_BY_TIME = {"hour": HOUR_MS, "quarter": QUARTER_MS}


class _Columns(Struct, frozen=True, eq=False):
    """Of one part or segment: what is asked for, in the query's order. `starts`: Unix ms, of rows or of their hours."""

    starts: Numbers
    labels: Mapping[str, Labelled]
    amounts: Sequence[Numbers]


def of_packed(connection: Connection, query: Query) -> Sums:
    """Raises `Expired`."""
    tally = Tally(len(query.by), len(query.measures))
    left = {one.number: one for one in stored.within(connection, query.since_ms, query.until_ms)}
    for name in _parts(connection, query, list(left.values())):
        able = [one.number for one in left.values() if _whole_hours(query, one)]
        for number, _, data in stored.parts(connection, able, [name]):
            _add(tally, query, left.pop(number), _summed(query, Rollup(data)))
    gone = [one for one in left.values() if one.expired_ms is not None]
    if gone:
        raise Expired(max(one.last_ms for one in gone) + 1, query.dimensions)
    of_rows = _of_facts if query.table == attempts.TABLE else _of_rows
    for segment, columns in of_rows(connection, query, list(left.values())):
        _add(tally, query, segment, columns)
    return tally.sums()


def _parts(connection: Connection, query: Query, segments: Sequence[Stored]) -> list[str]:
    """Parts with sums that could answer it, the smallest first, by what the oldest and the newest segment have."""
    sizes: dict[str, int] = {}
    for one in {segments[0].number, segments[-1].number} if segments else ():
        for name, size in connection.execute(_SIZES, (one, cube.part(query.table, ("%",)))):
            sizes[name] = max(size, sizes.get(name, 0))
    needed = query.dimensions - {"hour"}
    return sorted((name for name in sizes if needed <= set(cube.grouping(name))), key=lambda name: sizes[name])


def _whole_hours(query: Query, segment: Stored) -> bool:
    """Whatever the window cuts off of the segment are whole hours."""
    cut = [query.since_ms] if query.since_ms is not None and query.since_ms > segment.first_ms else []
    cut += [query.until_ms] if query.until_ms is not None and query.until_ms <= segment.last_ms else []
    return all(edge % HOUR_MS == 0 for edge in cut)


def _summed(query: Query, found: Rollup) -> _Columns:
    labels = {name: found.labels(name) for name in query.dimensions if name != "hour"}
    if "hour" in query.dimensions:
        labels["hour"] = of_numbers(found.hours)
    return _Columns(found.hours * HOUR_MS, labels, [found.measure(name) for name in query.measures])


def _of_facts(connection: Connection, query: Query, segments: Sequence[Stored]) -> Iterator[tuple[Stored, _Columns]]:
    names = [FACTS + name for name in (STARTED, *query.dimensions, *query.measures)]
    for at in range(0, len(segments), _TOGETHER):
        some = segments[at : at + _TOGETHER]
        found: dict[int, dict[str, bytes]] = {one.number: {} for one in some}
        for number, name, data in stored.parts(connection, list(found), names):
            found[number][name.removeprefix(FACTS)] = data
        for one in some:
            yield one, _read(query, found.pop(one.number))


def _read(query: Query, parts: Mapping[str, bytes]) -> _Columns:
    """A label that was not known when the rows were packed is none; a measure is 0."""
    started = cube.measure(parts[STARTED])
    nothing = np.zeros(len(started), np.int64)
    labels: dict[str, Labelled] = {}
    for name in query.dimensions:
        if name in _BY_TIME:
            labels[name] = of_numbers(started // _BY_TIME[name])
        else:
            labels[name] = cube.labels(parts[name]) if name in parts else ([None], nothing)
    amounts = [cube.measure(parts[name]) if name in parts else nothing for name in query.measures]
    return _Columns(started, labels, amounts)


def _of_rows(connection: Connection, query: Query, segments: Sequence[Stored]) -> Iterator[tuple[Stored, _Columns]]:
    """Of requests in the window only: what is summed out of their decisions knows the hour, and nothing finer."""
    since, until = query.since_ms or 0, query.until_ms
    for one in segments:
        found = rows(connection, one)
        facts = offered(
            kept for kept in found if kept.started_ms >= since and (until is None or kept.started_ms < until)
        )
        if facts is not None:
            labels = {**facts.labels, "hour": of_numbers(facts.hours)}
            amounts = [facts.measures[name] for name in query.measures]
            yield one, _Columns(np.maximum(facts.hours * HOUR_MS, since), labels, amounts)


def _add(tally: Tally, query: Query, segment: Stored, columns: _Columns) -> None:
    kept: NDArray[np.bool_] | None = None
    for flags in _filters(query, segment, columns):
        kept = flags if kept is None else kept & flags
    by = [columns.labels[name] for name in query.by]
    if kept is None:
        tally.add(by, columns.amounts, len(columns.starts))
    elif kept.any():
        by = [(labels, codes[kept]) for labels, codes in by]
        tally.add(by, [amounts[kept] for amounts in columns.amounts], int(kept.sum()))


def _filters(query: Query, segment: Stored, columns: _Columns) -> Iterator[NDArray[np.bool_]]:
    if query.since_ms is not None and query.since_ms > segment.first_ms:
        yield columns.starts >= query.since_ms
    if query.until_ms is not None and query.until_ms <= segment.last_ms:
        yield columns.starts < query.until_ms
    for one in query.where:
        labels, codes = columns.labels[one.dimension]
        yield _held(one, labels)[codes]


def _held(where: Where, labels: Sequence[Label]) -> NDArray[np.bool_]:
    """By their texts, as in a database: what somebody asks for comes as text."""
    named = {None if label is None else str(label) for label in where.labels}
    return np.array([((None if label is None else str(label)) in named) != where.inverted for label in labels])
