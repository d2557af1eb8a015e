"""Facts of a segment: one by one, a part a column; and summed by hour, a part a grouping."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np
from msgspec import Raw, Struct

from router.ledger.facts.attempts import HOUR_MS
from router.ledger.facts.query import Label
from router.ledger.packed.column import Ints, Numbers, Same, deflated, inflated, ints, numbers
from router.ledger.packed.group import Labelled, groups

FACTS, SUMS = "facts.", "sums."
STARTED = "started_ms"
"""The column of facts that windows of time are cut by."""
_decode_labels = msgspec.json.Decoder(list[Label])
_encode = msgspec.msgpack.encode


class Facts(Struct, frozen=True, eq=False):
    """Columns of equal length. `starts`: when each request began, or the hour in which it did (Unix ms)."""

    starts: Numbers
    labels: Mapping[str, Labelled]
    measures: Mapping[str, Numbers]


class _Dimension(Struct, frozen=True, array_like=True):
    """`labels`: deflated JSON."""

    labels: bytes
    codes: Ints | Same


class _Rollup(Struct, frozen=True, array_like=True):
    """By name; each is read only when it is asked for."""

    hours: Ints | Same
    labels: dict[str, Raw]
    measures: dict[str, Raw]


_decode_dimension = msgspec.msgpack.Decoder(_Dimension)
_decode_numbers = msgspec.msgpack.Decoder(Ints | Same)
_decode_rollup = msgspec.msgpack.Decoder(_Rollup)


def part(table: str, grouping: Sequence[str]) -> str:
    """Name of the part with the sums by these dimensions, and the hour."""
    return f"{SUMS}{table}.{','.join(grouping)}"


def grouping(name: str) -> tuple[str, ...]:
    """What `part` made the name of."""
    return tuple(name.split(".", 2)[2].split(","))


def columns(found: Facts) -> Iterator[tuple[str, bytes]]:
    """A part for each column."""
    yield FACTS + STARTED, _encode(ints(found.starts))
    for name, column in found.labels.items():
        yield FACTS + name, _encode(_dimension(column))
    for name, amounts in found.measures.items():
        yield FACTS + name, _encode(ints(amounts))


def facts(parts: Mapping[str, bytes], dimensions: Iterable[str], measures: Iterable[str]) -> Facts:
    """Out of parts, by their names without `FACTS`."""
    return _facts(numbers(_decode_numbers.decode(parts[STARTED])), parts, parts, dimensions, measures)


def summed(found: Facts, by: Sequence[str]) -> tuple[int, bytes]:
    """The part of a grouping, and of how many rows."""
    hours = found.starts // HOUR_MS
    since = hours - hours.min()
    chosen = {name: found.labels[name] for name in by}
    keys = [(since, int(since.max()) + 1), *((codes, len(names)) for names, codes in chosen.values())]
    some = groups(keys, len(hours))
    rollup = _Rollup(
        ints(hours[some.firsts]),
        {name: Raw(_encode(_dimension((names, codes[some.firsts])))) for name, (names, codes) in chosen.items()},
        {name: Raw(_encode(ints(some.sums(each).astype(np.int64)))) for name, each in found.measures.items()},
    )
    return len(some.starts), _encode(rollup)


def sums(data: bytes, dimensions: Iterable[str], measures: Iterable[str]) -> Facts:
    """Out of the part of a grouping."""
    rollup = _decode_rollup.decode(data)
    return _facts(numbers(rollup.hours) * HOUR_MS, rollup.labels, rollup.measures, dimensions, measures)


def _facts(
    starts: Numbers,
    labels: Mapping[str, bytes | Raw],
    amounts: Mapping[str, bytes | Raw],
    dimensions: Iterable[str],
    measures: Iterable[str],
) -> Facts:
    """A label that nobody knew when it was packed is none; a measure is 0."""
    nothing = np.zeros(len(starts), np.int64)
    return Facts(
        starts,
        {name: _labelled(labels[name]) if name in labels else ([None], nothing) for name in dimensions},
        {name: numbers(_decode_numbers.decode(amounts[name])) if name in amounts else nothing for name in measures},
    )


def _labelled(data: bytes | Raw) -> Labelled:
    found = _decode_dimension.decode(data)
    return _decode_labels.decode(inflated(found.labels)), numbers(found.codes)


def _dimension(column: Labelled) -> _Dimension:
    return _Dimension(deflated(msgspec.json.encode(column[0])), ints(column[1]))
