"""Facts of a segment: one by one, a part a column; and summed by hour, a part a grouping."""

from collections.abc import Iterator, Mapping, Sequence

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
_labels = msgspec.json.Decoder(list[Label])
_encode = msgspec.msgpack.encode


class Facts(Struct, frozen=True, eq=False):
    """Columns of equal length."""

    hours: Numbers
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


class Rollup:
    def __init__(self, data: bytes) -> None:
        self._rollup = msgspec.msgpack.decode(data, type=_Rollup)
        self.hours = numbers(self._rollup.hours)

    def labels(self, name: str) -> Labelled:
        return labels(self._rollup.labels[name])

    def measure(self, name: str) -> Numbers:
        """What it knows nothing of was not there yet."""
        found = self._rollup.measures.get(name)
        return np.zeros(len(self.hours), np.int64) if found is None else measure(found)


def part(table: str, grouping: Sequence[str]) -> str:
    """Name of the part with the sums by these dimensions, and the hour."""
    return f"{SUMS}{table}.{','.join(grouping)}"


def grouping(name: str) -> tuple[str, ...]:
    """What `part` made the name of."""
    return tuple(name.split(".", 2)[2].split(","))


def columns(facts: Facts, started: Numbers) -> Iterator[tuple[str, bytes]]:
    """A part for each column."""
    yield FACTS + STARTED, _encode(ints(started))
    for name, column in facts.labels.items():
        yield FACTS + name, _encode(_dimension(column))
    for name, amounts in facts.measures.items():
        yield FACTS + name, _encode(ints(amounts))


def summed(facts: Facts, by: Sequence[str]) -> tuple[int, bytes]:
    """The part of a grouping, and of how many rows."""
    hours = facts.hours - facts.hours.min()
    chosen = [facts.labels[name] for name in by]
    keys = [(hours, int(hours.max()) + 1), *((codes, len(names)) for names, codes in chosen)]
    found = groups(keys, len(hours))
    rollup = _Rollup(
        ints(facts.hours[found.firsts]),
        {
            name: Raw(_encode(_dimension((names, codes[found.firsts]))))
            for name, (names, codes) in zip(by, chosen, strict=True)
        },
        {name: Raw(_encode(ints(found.sums(amounts).astype(np.int64)))) for name, amounts in facts.measures.items()},
    )
    return len(found.starts), _encode(rollup)


def labels(data: bytes | Raw) -> Labelled:
    found = msgspec.msgpack.decode(data, type=_Dimension)
    return _labels.decode(inflated(found.labels)), numbers(found.codes)


def measure(data: bytes | Raw) -> Numbers:
    return numbers(msgspec.msgpack.decode(data, type=Ints | Same))


def hours_of(started: Numbers) -> Numbers:
    return started // HOUR_MS


def _dimension(column: Labelled) -> _Dimension:
    return _Dimension(deflated(msgspec.json.encode(column[0])), ints(column[1]))
