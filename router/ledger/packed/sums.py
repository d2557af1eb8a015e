"""Sums over segments: from the smallest sums by hour that tell apart what is asked, else from facts, else from rows."""

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from router.ledger.connection import Connection
from router.ledger.facts import attempts
from router.ledger.facts.attempts import HOUR_MS, QUARTER_MS
from router.ledger.facts.query import Expired, Label, Query, Sums, Where
from router.ledger.packed import cube, stored
from router.ledger.packed.column import Numbers
from router.ledger.packed.cube import FACTS, STARTED, Facts
from router.ledger.packed.facts import offered
from router.ledger.packed.group import Tally, of_numbers
from router.ledger.packed.stored import Stored
from router.ledger.packed.unpack import decided

_TOGETHER = 64
"""Segments whose facts are read at a time: some ten MB."""
_SIZES = "SELECT part, LENGTH(data) FROM segment_parts WHERE segment = ? AND part LIKE ?"
_BY_TIME = {"hour": HOUR_MS, "quarter": QUARTER_MS}


def of_packed(connection: Connection, query: Query) -> Sums:
    """Raises `Expired`."""
    tally = Tally(len(query.by), len(query.measures))
    for window in _windows(query):
        _tell(connection, window, tally)
    return tally.sums()


def _windows(query: Query) -> list[Query]:
    """Whole hours, and what is cut off of one at the beginning and at the end."""
    since, until = query.since_ms, query.until_ms
    first = None if since is None else -(-since // HOUR_MS) * HOUR_MS
    last = None if until is None else until // HOUR_MS * HOUR_MS
    if first is not None and last is not None and first > last:
        return [query]
    cuts = [(since, first)] if since != first else []
    cuts += [(first, last)] if first is None or first != last else []
    cuts += [(last, until)] if last != until else []
    return [structs.replace(query, since_ms=one, until_ms=other) for one, other in cuts]


def _tell(connection: Connection, query: Query, tally: Tally) -> None:
    left = {one.number: one for one in stored.within(connection, query.since_ms, query.until_ms)}
    for name in _parts(connection, query, list(left.values())):
        able = [one.number for one in left.values() if _whole_hours(query, one)]
        for number, _, data in stored.parts(connection, able, [name]):
            segment = left.pop(number)
            if data:
                _add(tally, query, segment, cube.sums(data, _named(query), query.measures))
    gone = [one.last_ms for one in left.values() if one.expired_ms is not None]
    if gone:
        raise Expired(max(gone) + 1, query.dimensions)
    of_rows = _of_facts if query.table == attempts.TABLE else _of_offers
    for segment, facts in of_rows(connection, query, list(left.values())):
        _add(tally, query, segment, facts)


def _named(query: Query) -> list[str]:
    """Dimensions other than time."""
    return sorted(query.dimensions - _BY_TIME.keys())


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


def _of_facts(connection: Connection, query: Query, segments: Sequence[Stored]) -> Iterator[tuple[Stored, Facts]]:
    dimensions = _named(query)
    names = [FACTS + name for name in (STARTED, *dimensions, *query.measures)]
    for at in range(0, len(segments), _TOGETHER):
        some = segments[at : at + _TOGETHER]
        found: dict[int, dict[str, bytes]] = {one.number: {} for one in some}
        for number, name, data in stored.parts(connection, list(found), names):
            found[number][name.removeprefix(FACTS)] = data
        for one in some:
            yield one, cube.facts(found.pop(one.number), dimensions, query.measures)


def _of_offers(connection: Connection, query: Query, segments: Sequence[Stored]) -> Iterator[tuple[Stored, Facts]]:
    """Of requests in the window only: what is summed out of their decisions knows the hour, and nothing finer."""
    since = query.since_ms or 0
    for one in segments:
        until = one.last_ms + 1 if query.until_ms is None else query.until_ms
        facts = offered(decided(connection, one, since, until))
        if facts is not None:
            yield one, Facts(np.maximum(facts.starts, since), facts.labels, facts.measures)


def _add(tally: Tally, query: Query, segment: Stored, facts: Facts) -> None:
    times = {name: of_numbers(facts.starts // _BY_TIME[name]) for name in query.dimensions & _BY_TIME.keys()}
    labels, amounts = {**facts.labels, **times}, [facts.measures[name] for name in query.measures]
    by = [labels[name] for name in query.by]
    filters = [_held(one, *labels[one.dimension]) for one in query.where] + list(_within(query, segment, facts))
    if not filters:
        tally.add(by, amounts, len(facts.starts))
        return
    held = np.logical_and.reduce(filters)
    if held.any():
        cut = [(names, codes[held]) for names, codes in by]
        tally.add(cut, [amount[held] for amount in amounts], int(held.sum()))


def _within(query: Query, segment: Stored, facts: Facts) -> Iterator[NDArray[np.bool_]]:
    if query.since_ms is not None and query.since_ms > segment.first_ms:
        yield facts.starts >= query.since_ms
    if query.until_ms is not None and query.until_ms <= segment.last_ms:
        yield facts.starts < query.until_ms


def _held(where: Where, labels: Sequence[Label], codes: Numbers) -> NDArray[np.bool_]:
    """By their texts, as in a database: what somebody asks for comes as text."""
    named = {None if label is None else str(label) for label in where.labels}
    held = [((None if label is None else str(label)) in named) != where.inverted for label in labels]
    return np.array(held, np.bool_)[codes]
