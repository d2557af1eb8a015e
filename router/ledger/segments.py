"""Packed rows of versions 10 and 11, read once: when a ledger that has them is brought to rows of the past.

A segment was a run of requests, its rows column by column, a thousand requests a block; and sums by hour, which stayed
when its rows expired. Everything is MessagePack: fields stand in order, without their names.
"""

import logging
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, repeat
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from router.ledger import past
from router.ledger.facts.attempts import HOUR_MS
from router.ledger.facts.query import Label, Sums, add
from router.ledger.past import EXPIRED, NameTable
from router.ledger.rollups import GROUPINGS, Grouping, begin, write
from router.ledger.rows import Connection, Documents, Line, RequestRecord, among, batched
from router.types.account import Value

_PARTS = "SELECT part, data FROM segment_parts WHERE segment = ? AND part LIKE ? ORDER BY part"
_LIVE = "SELECT id FROM live_requests WHERE id IN ({})"
_OPEN = "SELECT request_id, account FROM bookings WHERE request_id IN ({})"
_LATEST = "UPDATE progress SET position = ? WHERE name = ? AND position < ?"
_BESIDE = ("rows.checks", "rows.index", "rows.times")
"""Parts that hold no rows."""
_log = logging.getLogger(__name__)
Numbers = NDArray[np.int64]


def take_over(connection: Connection) -> None:
    """Every segment's rows, or the sums of those that expired; then the segments are gone. Inside a transaction."""
    every = connection.execute("SELECT number, last_ms, expired_ms FROM segments ORDER BY number").fetchall()
    if every:
        _log.warning("%d packed segments become rows again: a few seconds each", len(every))
    for at, (number, last_ms, expired_ms) in enumerate(every, 1):
        if expired_ms is None:
            for name, data in connection.execute(_PARTS, (number, "rows.%")).fetchall():
                if name not in _BESIDE:
                    _add_rows(connection, _block(bytes(data)))
        else:
            _add_sums(connection, number)
            boundary = -(-(last_ms + 1) // HOUR_MS) * HOUR_MS
            connection.execute(_LATEST, (boundary, EXPIRED, boundary))
        _log.info("segment %d of %d is rows again", at, len(every))
    connection.execute("DROP TABLE segment_parts")
    connection.execute("DROP TABLE segments")


def _add_rows(connection: Connection, rows: Sequence[RequestRecord]) -> None:
    """Those that were not taken out of the tables yet are there; so are bookings that were not settled."""
    names, ids = NameTable(connection), [record.id for record in rows]
    there, unsettled = set[str](), set[tuple[str, str]]()
    for some in batched(ids):
        there |= {identifier for (identifier,) in among(connection, _LIVE, some)}
        unsettled.update(among(connection, _OPEN, some).fetchall())
    gone = [record for record in rows if record.id not in there]
    decisions = Documents(connection).compressed([record.decision for record in gone if record.decision is not None])
    past.add(connection, names, gone, decisions)
    lines = [line for record in gone for line in record.bookings if (record.id, str(line["account"])) not in unsettled]
    names.learn(str(line["account"]) for line in lines)
    past.add_bookings(connection, names, [[line[name] for name in past.BOOKING] for line in lines])


def _add_sums(connection: Connection, segment: int) -> None:
    parts = {str(name): bytes(data) for name, data in connection.execute(_PARTS, (segment, "sums.%")) if data}
    for grouping in GROUPINGS:
        rollups = {name.split(".")[2]: data for name, data in parts.items() if name.split(".")[1] == grouping.table}
        finer = [name for name in rollups if set(grouping.by) <= set(name.split(","))]
        if finer:
            begin(connection, grouping)
            write(connection, grouping, _sums(rollups[min(finer, key=lambda name: len(name.split(",")))], grouping))


def _sums(data: bytes, grouping: Grouping) -> Sums:
    """By hour and the grouping's dimensions. A measure that was not known then is 0, a label none."""
    packed_hours, dimensions, measures = msgspec.msgpack.decode(data)
    hours = _numbers(packed_hours).tolist()
    columns: list[list[Label]] = [hours]
    columns += [_decoded((_LABELS, *dimensions[name])) for name in grouping.by]
    unknown = (_CONSTANT, len(hours), 0)
    amounts = [_numbers(measures.get(name, unknown)).tolist() for name in grouping.measures]
    totals: Sums = {}
    for key, row in zip(zip(*columns, strict=True), zip(*amounts, strict=True), strict=True):
        add(totals, key, row)
    return totals


def _block(data: bytes) -> list[RequestRecord]:
    request_table, *tables, decision_table, documents = msgspec.msgpack.decode(data)
    requests = _columns(request_table, None)
    attempts, bookings = (_lines(table, requests, "request_id") for table in tables)
    decided = _lines(decision_table, requests, "id")
    ids = [str(identifier) for identifier, some in zip(requests["id"], decided, strict=True) if some]
    texts = iter(_texts_of(ids, *documents))
    decisions: list[Line | None] = [{**some[0], "document": next(texts)} if some else None for some in decided]
    return list(map(RequestRecord, _rows(requests), attempts, bookings, decisions))


def _texts_of(identifiers: Sequence[str], length: int, shapes: Any, others: Mapping[int, str]) -> list[str]:
    """`shapes`: of documents of one structure that, which they are, and a column for each gap; a number: as in the gap
    of that number."""
    documents = [others.get(place, "") for place in range(length)]
    for structure, places, gap_columns in shapes:
        frame = _inflated(structure).decode().replace("%", "%%").replace("\x00", "%s")
        columns: list[list[Any]] = []
        for gap in gap_columns:
            columns.append(columns[gap] if isinstance(gap, int) else _decoded(gap))
        rows = zip(*columns, strict=True) if columns else repeat(())
        for place, gaps in zip(_numbers(places).tolist(), rows, strict=False):
            documents[place] = (frame % gaps).replace("\x01", identifiers[place])
    return documents


def _columns(table: Any, owners: Mapping[str, list[Value]] | None) -> dict[str, list[Value]]:
    """`table`: how many rows each request has, the columns, and of those that are differences what from. `owners`:
    columns of the requests; None: these are they."""
    counts, packed, apart = table
    columns = {name: _decoded(column) for name, column in packed.items()}
    numbers = _numbers(counts)
    of = np.repeat(np.arange(len(numbers)), numbers).tolist()
    for name, like in apart.items():
        others = (columns if owners is None else owners)[like]
        pairs = [(value, others[owner]) for value, owner in zip(columns[name], of, strict=True)]
        columns[name] = [a + b if isinstance(a, int) and isinstance(b, int) else None for a, b in pairs]
    return columns


def _rows(columns: Mapping[str, list[Value]]) -> Iterator[Line]:
    return (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))


def _lines(table: Any, requests: Mapping[str, list[Value]], owned_by: str) -> list[tuple[Line, ...]]:
    """Of each request; `owned_by`: the column that names it."""
    columns, counts = _columns(table, requests), _numbers(table[0]).tolist()
    owned: list[Value] = [value for value, count in zip(requests["id"], counts, strict=True) for _ in range(count)]
    lines = iter(list(_rows({owned_by: owned, **columns})))
    return [tuple(islice(lines, count)) for count in counts]


_CONSTANT, _LABELS = 0, 2
"""Of the kinds of columns, whose number stands in front; see `_decoded`."""


def _decoded(column: Any) -> list[Any]:
    match column:
        case 0, length, value:
            return [value] * length
        case 1, *_:
            return list(_numbers(column).tolist())
        case 2, labels, codes:  # distinct values, and which of them each is
            values = msgspec.json.decode(_inflated(labels))
            return [values[code] for code in _numbers(codes).tolist()]
        case 3, texts:
            return list(msgspec.json.decode(_inflated(texts)))
        case 4, digits, point, numbers:  # texts of numbers, times 10 to the power of `digits`
            return [_decimal(value, digits, point) for value in _numbers(numbers).tolist()]
        case 5, length, planes:  # texts of as many hexadecimal digits each
            return [row.tobytes().hex() for row in np.array([_plane(plane, length) for plane in planes]).T]
        case 6, texts:
            return [float(str(text)) for text in _decoded(texts)]
        case 7, length, present, values:  # the values of those that are there
            bits = np.unpackbits(np.frombuffer(_inflated(present), np.uint8), count=length)
            rest = iter(_decoded(values))
            return [next(rest) if bit else None for bit in bits.tolist()]
    raise ValueError(f"a column of kind {column[0]}")


def _decimal(value: int, digits: int, point: bool) -> str:
    """`point`: whole ones end in ".0"."""
    whole, fraction = divmod(abs(value), 10**digits)
    sign = "-" if value < 0 else ""
    if fraction:
        return f"{sign}{whole}." + f"{fraction:0{digits}d}".rstrip("0")
    return f"{sign}{whole}{'.0' if point else ''}"


def _numbers(column: Any) -> Numbers:
    """One number over and over, or distances from `low`; with `first`: differences from one to the next."""
    kind, length, low, *packed = column
    if kind == _CONSTANT:
        return np.full(length, low, np.int64)
    planes, first = packed
    if first is None:
        return _joined(planes, length, low)
    values = np.empty(length, np.int64)
    values[0], values[1:] = first, _joined(planes, length - 1, low)
    return values.cumsum()


def _joined(planes: list[bytes], length: int, low: int) -> Numbers:
    """A plane a byte, the lowest first."""
    table = np.zeros((length, 8), np.uint8)
    for at, plane in enumerate(planes):
        table[:, at] = _plane(plane, length)
    return table.view("<u8").reshape(length).astype(np.int64) + low


def _plane(data: bytes, length: int) -> NDArray[np.uint8]:
    """One that is as long as the column is not deflated."""
    return np.frombuffer(data if len(data) == length else _inflated(data), np.uint8)


def _inflated(data: bytes) -> bytes:
    return zlib.decompress(data, wbits=-zlib.MAX_WBITS)
