"""Packed rows of versions 10 and 11, read once: when a ledger that has them is brought to rows of the past.

A segment was a run of requests, its rows column by column, a thousand requests a block; and sums by hour, which stayed
when its rows expired.
"""

import logging
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, repeat

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from router.ledger import past
from router.ledger.facts.attempts import HOUR_MS
from router.ledger.facts.query import Label, Sums, add
from router.ledger.past import EXPIRED, NameTable
from router.ledger.rollups import GROUPINGS, Grouping, begin, write
from router.ledger.rows import Connection, Documents, Line, RequestRecord, sql_placeholders
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
    names, ids = NameTable(connection), [kept.id for kept in rows]
    there: set[str] = set()
    unsettled: set[tuple[str, str]] = set()
    for some in (ids[at : at + 500] for at in range(0, len(ids), 500)):
        there |= {identifier for (identifier,) in connection.execute(_LIVE.format(sql_placeholders(some)), some)}
        unsettled |= {
            (request, account) for request, account in connection.execute(_OPEN.format(sql_placeholders(some)), some)
        }
    gone = [kept for kept in rows if kept.id not in there]
    decisions = Documents(connection).compressed([kept.decision for kept in gone if kept.decision is not None])
    past.add(connection, names, gone, decisions)
    lines = [line for kept in gone for line in kept.bookings if (kept.id, str(line["account"])) not in unsettled]
    names.learn(str(line["account"]) for line in lines)
    past.add_bookings(connection, names, [[line[name] for name in past.BOOKING] for line in lines])


def _add_sums(connection: Connection, segment: int) -> None:
    parts = {str(name): bytes(data) for name, data in connection.execute(_PARTS, (segment, "sums.%")) if data}
    for grouping in GROUPINGS:
        kept = {name.split(".", 2)[2]: data for name, data in parts.items() if name.split(".", 2)[1] == grouping.table}
        finer = [name for name in kept if set(grouping.by) <= set(name.split(","))]
        if finer:
            begin(connection, grouping)
            write(connection, grouping, _sums(kept[min(finer, key=lambda name: len(name.split(",")))], grouping))


class _ConstantColumn(Struct, frozen=True, array_like=True, tag=0):
    """One value, over and over."""

    length: int
    value: str | int | float | None


class _Ints(Struct, frozen=True, array_like=True, tag=1):
    """Distances from `low`, a plane a byte, the lowest first; one that is as long as the column is not deflated.
    With `first`: differences from one to the next."""

    length: int
    low: int
    planes: list[bytes]
    first: int | None = None


class _Labels(Struct, frozen=True, array_like=True, tag=2):
    """Distinct values as deflated JSON, and which of them each is."""

    labels: bytes
    codes: _Ints | _ConstantColumn


class _TextColumn(Struct, frozen=True, array_like=True, tag=3):
    """Deflated JSON."""

    values: bytes


class _Decimals(Struct, frozen=True, array_like=True, tag=4):
    """Texts of numbers, times 10 to the power of `digits`. `point`: whole ones end in ".0"."""

    digits: int
    point: bool
    numbers: _Ints | _ConstantColumn


class _Hex(Struct, frozen=True, array_like=True, tag=5):
    """Texts of as many hexadecimal digits each: a plane a byte."""

    length: int
    planes: list[bytes]


class _Floats(Struct, frozen=True, array_like=True, tag=6):
    texts: "_ConstantColumn | _Labels | _TextColumn | _Decimals | _Hex"


class _Sparse(Struct, frozen=True, array_like=True, tag=7):
    """`present`: deflated bits; the values are of those that are there."""

    length: int
    present: bytes
    values: "_ConstantColumn | _Ints | _Labels | _TextColumn | _Decimals | _Hex | _Floats"


_Texts = _ConstantColumn | _Labels | _TextColumn | _Decimals | _Hex
_Column = _ConstantColumn | _Ints | _Labels | _TextColumn | _Decimals | _Hex | _Floats | _Sparse


class _SegmentTable(Struct, frozen=True, array_like=True):
    """`counts`: rows of each request. `apart`: columns that are differences → what from."""

    counts: _Ints | _ConstantColumn
    columns: dict[str, _Column]
    apart: dict[str, str]


class _Shape(Struct, frozen=True, array_like=True):
    """Documents of one structure: which they are, and a column for each gap; a number: as in the gap of that number."""

    frame: bytes
    places: _Ints | _ConstantColumn
    gaps: list[_Texts | int]


class _Documents(Struct, frozen=True, array_like=True):
    length: int
    shapes: list[_Shape]
    others: dict[int, str]


class _SegmentBlock(Struct, frozen=True, array_like=True):
    requests: _SegmentTable
    attempts: _SegmentTable
    bookings: _SegmentTable
    decisions: _SegmentTable
    documents: _Documents


class _Dimension(Struct, frozen=True, array_like=True):
    """`labels`: deflated JSON."""

    labels: bytes
    codes: _Ints | _ConstantColumn


class _Rollup(Struct, frozen=True, array_like=True):
    hours: _Ints | _ConstantColumn
    labels: dict[str, _Dimension]
    measures: dict[str, _Ints | _ConstantColumn]


def _sums(data: bytes, grouping: Grouping) -> Sums:
    """By hour and the grouping's dimensions. A measure that was not known then is 0, a label none."""
    rollup = msgspec.msgpack.decode(data, type=_Rollup)
    hours = _numbers(rollup.hours).tolist()
    columns: list[list[Label]] = [hours]
    for name in grouping.by:
        labels = msgspec.json.decode(_inflated(rollup.labels[name].labels), type=list[Label])
        columns.append([labels[code] for code in _numbers(rollup.labels[name].codes).tolist()])
    unknown = _ConstantColumn(len(hours), 0)
    amounts = [_numbers(rollup.measures.get(name, unknown)).tolist() for name in grouping.measures]
    found: Sums = {}
    for key, row in zip(zip(*columns, strict=True), zip(*amounts, strict=True), strict=True):
        add(found, key, row)
    return found


def _block(data: bytes) -> list[RequestRecord]:
    block = msgspec.msgpack.decode(data, type=_SegmentBlock)
    requests = _columns(block.requests, None)
    attempts, bookings = (_lines(table, requests, "request_id") for table in (block.attempts, block.bookings))
    return list(map(RequestRecord, _rows(requests), attempts, bookings, _decisions(block, requests)))


def _decisions(block: _SegmentBlock, requests: Mapping[str, list[Value]]) -> list[Line | None]:
    lines = _lines(block.decisions, requests, "id")
    ids = [str(identifier) for identifier, some in zip(requests["id"], lines, strict=True) if some]
    documents = iter(_texts_of(block.documents, ids))
    return [{**some[0], "document": next(documents)} if some else None for some in lines]


def _texts_of(found: _Documents, identifiers: Sequence[str]) -> list[str]:
    documents = [found.others.get(place, "") for place in range(found.length)]
    for shape in found.shapes:
        frame = _inflated(shape.frame).decode().replace("%", "%%").replace("\x00", "%s")
        columns: list[list[Value]] = []
        for gap in shape.gaps:
            columns.append(columns[gap] if isinstance(gap, int) else _decoded(gap))
        rows = zip(*columns, strict=True) if columns else repeat(())
        for place, gaps in zip(_numbers(shape.places).tolist(), rows, strict=False):
            documents[place] = (frame % gaps).replace("\x01", identifiers[place])
    return documents


def _columns(table: _SegmentTable, owners: Mapping[str, list[Value]] | None) -> dict[str, list[Value]]:
    """`owners`: columns of the requests; None: these are they."""
    found = {name: _decoded(column) for name, column in table.columns.items()}
    of = np.repeat(np.arange(table.counts.length), _numbers(table.counts)).tolist()
    for name, like in table.apart.items():
        others = (found if owners is None else owners)[like]
        pairs = [(value, others[owner]) for value, owner in zip(found[name], of, strict=True)]
        found[name] = [a + b if isinstance(a, int) and isinstance(b, int) else None for a, b in pairs]
    return found


def _rows(columns: Mapping[str, list[Value]]) -> Iterator[Line]:
    return (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))


def _lines(table: _SegmentTable, requests: Mapping[str, list[Value]], owned_by: str) -> list[tuple[Line, ...]]:
    """Of each request; `owned_by`: the column that names it."""
    columns, counts = _columns(table, requests), _numbers(table.counts).tolist()
    owned: list[Value] = [value for value, count in zip(requests["id"], counts, strict=True) for _ in range(count)]
    lines = iter(list(_rows({owned_by: owned, **columns})))
    return [tuple(islice(lines, count)) for count in counts]


def _decoded(column: _Column) -> list[Value]:
    match column:
        case _ConstantColumn():
            return [column.value] * column.length
        case _Ints():
            return list(_numbers(column).tolist())
        case _Labels():
            labels = msgspec.json.decode(_inflated(column.labels), type=list[str | int])
            return [labels[code] for code in _numbers(column.codes).tolist()]
        case _TextColumn():
            return list(msgspec.json.decode(_inflated(column.values), type=list[str | int | float]))
        case _Decimals():
            return [_decimal(value, column) for value in _numbers(column.numbers).tolist()]
        case _Hex():
            table = np.array([_plane(plane, column.length) for plane in column.planes]).T
            return [row.tobytes().hex() for row in table]
        case _Floats():
            return [float(str(text)) for text in _decoded(column.texts)]
        case _Sparse():
            bits = np.unpackbits(np.frombuffer(_inflated(column.present), np.uint8), count=column.length)
            values = iter(_decoded(column.values))
            return [next(values) if bit else None for bit in bits.tolist()]


def _decimal(value: int, column: _Decimals) -> str:
    whole, fraction = divmod(abs(value), 10**column.digits)
    sign = "-" if value < 0 else ""
    if fraction:
        return f"{sign}{whole}." + f"{fraction:0{column.digits}d}".rstrip("0")
    return f"{sign}{whole}{'.0' if column.point else ''}"


def _numbers(column: _Ints | _ConstantColumn) -> Numbers:
    if isinstance(column, _ConstantColumn):
        assert isinstance(column.value, int)  # noqa: S101
        return np.full(column.length, column.value, np.int64)
    if column.first is None:
        return _joined(column.planes, column.length, column.low)
    values = np.empty(column.length, np.int64)
    values[0], values[1:] = column.first, _joined(column.planes, column.length - 1, column.low)
    return values.cumsum()


def _joined(planes: list[bytes], length: int, low: int) -> Numbers:
    table = np.zeros((length, 8), np.uint8)
    for at, plane in enumerate(planes):
        table[:, at] = _plane(plane, length)
    return table.view("<u8").reshape(length).astype(np.int64) + low


def _plane(data: bytes, length: int) -> NDArray[np.uint8]:
    return np.frombuffer(data if len(data) == length else _inflated(data), np.uint8)


def _inflated(data: bytes) -> bytes:
    return zlib.decompress(data, wbits=-zlib.MAX_WBITS)
