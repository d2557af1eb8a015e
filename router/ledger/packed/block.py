"""A few hundred requests with all their rows, column by column: with the columns that they had, and no others."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import msgspec
import numpy as np
from msgspec import Struct, structs

from router.ledger.kept import Kept, Line
from router.ledger.packed import document
from router.ledger.packed.column import Column, Ints, Same, decoded, encoded, ints, numbers
from router.types.journal import Value

LIKE: Mapping[str, str] = {
    **{"started_ms": "started_ms", "lease_until_ms": "started_ms", "decided_ms": "started_ms"},
    **{"total_ms": "total_ms", "first_ms": "first_ms", "held": "held"},
    **{"cost": "cost", "own_cost": "cost", "charged": "cost"},
}
"""Columns of numbers that are mostly near another one of the request's own: kept as the difference."""


class _Table(Struct, frozen=True, array_like=True):
    """`counts`: rows of each request. `apart`: columns that are differences → what from."""

    counts: Ints | Same
    columns: dict[str, Column]
    apart: dict[str, str]


class Block(Struct, frozen=True, array_like=True):
    requests: _Table
    attempts: _Table
    bookings: _Table
    decisions: _Table
    documents: document.Documents


def packed(rows: Sequence[Kept]) -> bytes:
    """Of at least one request."""
    requests = [kept.request for kept in rows]
    decisions = [() if kept.decision is None else (kept.decision,) for kept in rows]
    written = [(str(kept.decision["document"]), kept.id) for kept in rows if kept.decision is not None]
    block = Block(
        _table([(one,) for one in requests], requests, ()),
        _table([kept.attempts for kept in rows], requests, ("request_id",)),
        _table([kept.bookings for kept in rows], requests, ("request_id",)),
        _table(decisions, requests, ("id", "document")),
        document.packed([text for text, _ in written], [identifier for _, identifier in written]),
    )
    return msgspec.msgpack.encode(block)


def unpacked(data: bytes) -> list[Kept]:
    block = msgspec.msgpack.decode(data, type=Block)
    requests = _columns(block.requests, None)
    attempts, bookings = (_lines(table, requests, "request_id") for table in (block.attempts, block.bookings))
    return list(map(Kept, _rows(requests), attempts, bookings, _decisions(block, requests)))


def some(data: bytes, names: Sequence[str]) -> list[tuple[Sequence[Value], int, str | None]]:
    """Of each request these columns, the number of its attempts, and its decision's document."""
    block = msgspec.msgpack.decode(data, type=Block)
    table = block.requests
    needed = {*names, *(like for name, like in table.apart.items() if name in names)}
    columns = {name: column for name, column in table.columns.items() if name in needed}
    apart = {name: like for name, like in table.apart.items() if name in needed}
    found = _columns(structs.replace(table, columns=columns, apart=apart), None)
    decisions = numbers(block.decisions.counts).tolist()
    ids = [str(identifier) for identifier, count in zip(found["id"], decisions, strict=True) if count]
    documents = iter(document.unpacked(block.documents, ids))
    texts = [next(documents) if count else None for count in decisions]
    rows = zip(*(found[name] for name in names), strict=True)
    return list(zip(rows, numbers(block.attempts.counts).tolist(), texts, strict=True))


def decided(data: bytes) -> list[Kept]:
    """The requests themselves and their decisions, without attempts and bookings."""
    block = msgspec.msgpack.decode(data, type=Block)
    requests = _columns(block.requests, None)
    decisions = _decisions(block, requests)
    return [Kept(request, (), (), decision) for request, decision in zip(_rows(requests), decisions, strict=True)]


def identifiers(data: bytes) -> tuple[list[str], set[str]]:
    """Of the requests in it; and of those whose bookings are all settled."""
    block = msgspec.msgpack.decode(data, type=Block)
    ids = [str(identifier) for identifier in decoded(block.requests.columns["id"])]
    owners = np.repeat(np.arange(len(ids)), numbers(block.bookings.counts)).tolist()
    states = decoded(block.bookings.columns["state"]) if owners else []
    open_ = {ids[owner] for owner, state in zip(owners, states, strict=True) if state != "settled"}
    return ids, set(ids) - open_


def _decisions(block: Block, requests: Mapping[str, list[Value]]) -> list[Line | None]:
    lines = _lines(block.decisions, requests, "id")
    ids = [str(identifier) for identifier, some in zip(requests["id"], lines, strict=True) if some]
    documents = iter(document.unpacked(block.documents, ids))
    return [{**some[0], "document": next(documents)} if some else None for some in lines]


def _table(rows: Sequence[Sequence[Line]], requests: Sequence[Line], implied: Sequence[str]) -> _Table:
    counts = ints(np.array([len(some) for some in rows], np.int64))
    lines = [line for some in rows for line in some]
    owners = [owner for owner, some in zip(requests, rows, strict=True) for _ in some]
    columns: dict[str, Column] = {}
    apart: dict[str, str] = {}
    for name in lines[0] if lines else ():
        if name in implied:
            continue
        values, like = [line[name] for line in lines], LIKE.get(name)
        own = not implied and like == name
        near = None if like is None or own else _near(values, [owner[like] for owner in owners])
        if near is not None and like is not None:
            apart[name] = like
        columns[name] = encoded(values if near is None else near)
    return _Table(counts, columns, apart)


def _near(values: Sequence[Value], others: Sequence[Value]) -> list[Value] | None:
    """Differences, where they are there and lie closer together than the values themselves."""
    found: list[Value] = []
    for value, other in zip(values, others, strict=True):
        if value is None:
            found.append(None)
        elif isinstance(value, int) and isinstance(other, int):
            found.append(value - other)
        else:
            return None
    return found if _spread(found) < _spread(values) else None


def _spread(values: Sequence[Value]) -> int:
    whole = [value for value in values if isinstance(value, int)]
    return max(whole) - min(whole) if whole else 0


def _columns(table: _Table, owners: Mapping[str, list[Value]] | None) -> dict[str, list[Value]]:
    """`owners`: columns of the requests; None: these are they."""
    found = {name: decoded(column) for name, column in table.columns.items()}
    of = np.repeat(np.arange(table.counts.length), numbers(table.counts)).tolist()
    for name, like in table.apart.items():
        others = (found if owners is None else owners)[like]
        found[name] = [_sum(value, others[owner]) for value, owner in zip(found[name], of, strict=True)]
    return found


def _sum(value: Value, other: Value) -> Value:
    return value + other if isinstance(value, int) and isinstance(other, int) else None


def _rows(columns: Mapping[str, list[Value]]) -> Iterator[Line]:
    return (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))


def _lines(table: _Table, requests: Mapping[str, list[Value]], owned_by: str) -> list[tuple[Line, ...]]:
    """Of each request; `owned_by`: the column that names it."""
    columns, counts = _columns(table, requests), numbers(table.counts).tolist()
    owned = [identifier for identifier, count in zip(requests["id"], counts, strict=True) for _ in range(count)]
    lines = iter(list(_rows({owned_by: owned, **columns})))
    return [tuple(islice(lines, count)) for count in counts]
