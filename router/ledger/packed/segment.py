"""Requests that follow each other → the parts of a segment. Pure."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from zlib import crc32

import msgspec
from msgspec import Struct

from router.ledger.facts import attempts, offers
from router.ledger.kept import Kept
from router.ledger.packed import block, cube
from router.ledger.packed.facts import Keys, Workbench

REQUESTS = 16_384
"""In a segment, at most."""
BLOCK = 1_024
"""Requests packed together: whoever wants one unpacks them all, in about 0.1 s."""
ROWS = "rows."
INDEX = f"{ROWS}index"
"""The part that says with which request each block of rows begins."""
CHECKS = f"{ROWS}checks"
"""The CRC-32 of every other part, for `lowpass ledger verify`."""
TIMES = f"{ROWS}times"
"""The part that says between when and when (Unix ms, both included) the requests of each block began."""
_WORTH_IT = 4
"""Sums are kept beside the facts where they are so many times fewer: else the facts are read as fast."""


class Segment(Struct, frozen=True):
    """Of `requests` requests; their ids, and when they began (Unix ms)."""

    first_id: str
    last_id: str
    first_ms: int
    last_ms: int
    requests: int
    parts: Mapping[str, bytes]


def packed(rows: Iterable[Kept], keys: Keys) -> Segment:
    """`rows`: at least one, in the order of their ids; `keys`: of the ledger, for the names that facts have."""
    parts: dict[str, bytes] = {}
    firsts: list[str] = []
    times: list[tuple[int, int]] = []
    last_id, requests = "", 0
    with Workbench(keys) as bench:
        for number, some in enumerate(_blocks(rows)):
            parts[_block(number)] = block.packed(some)
            bench.take(some)
            firsts.append(some[0].id)
            last_id, requests = some[-1].id, requests + len(some)
            began = [kept.started_ms for kept in some]
            times.append((min(began), max(began)))
        parts[INDEX], parts[TIMES] = msgspec.msgpack.encode(firsts), msgspec.msgpack.encode(times)
        parts.update(_facts(bench))
    parts[CHECKS] = msgspec.msgpack.encode({name: crc32(data) for name, data in parts.items()})
    first_ms, last_ms = min(first for first, _ in times), max(last for _, last in times)
    return Segment(firsts[0], last_id, first_ms, last_ms, requests, parts)


def blocks(index: bytes) -> list[str]:
    """The parts that have rows, in the order of their ids."""
    return [_block(number) for number in range(len(msgspec.msgpack.decode(index, type=list[str])))]


def blocks_of(times: bytes, since_ms: int, until_ms: int) -> list[str]:
    """The parts that have rows of a window; its end is not included."""
    known = enumerate(msgspec.msgpack.decode(times, type=list[tuple[int, int]]))
    return [_block(number) for number, (first, last) in known if last >= since_ms and first < until_ms]


def block_of(index: bytes, identifier: str) -> str:
    """The part that has this request's rows, if any has."""
    firsts = msgspec.msgpack.decode(index, type=list[str])
    return _block(max(0, bisect_right(firsts, identifier) - 1))


def _block(number: int) -> str:
    return f"{ROWS}{number:02d}"


def _facts(bench: Workbench) -> Iterator[tuple[str, bytes]]:
    facts = bench.attempts()
    yield from cube.columns(facts)
    for grouping in attempts.GROUPINGS:
        rows, data = cube.summed(facts, grouping)
        if rows * _WORTH_IT <= len(facts.starts):
            yield cube.part(attempts.TABLE, grouping), data
    offered = bench.offers()
    for grouping in offers.GROUPINGS:
        # Empty: nothing was offered to anybody, which is known also when the rows have expired.
        yield cube.part(offers.TABLE, grouping), b"" if offered is None else cube.summed(offered, grouping)[1]


def _blocks(rows: Iterable[Kept]) -> Iterator[Sequence[Kept]]:
    rest = iter(rows)
    while some := list(islice(rest, BLOCK)):
        yield some
