"""A window of the ledger in stretches of about as many requests, so that several processes can share them."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from router.ledger.connection import Connection
from router.ledger.facts import attempts
from router.ledger.facts.query import Query
from router.ledger.facts.read import sums

SLICES = 64
"""So many whatever the number of processes: all come to the same."""


class Slice(NamedTuple):
    """Unix ms; the end is not included."""

    since_ms: int
    until_ms: int


def slices(connection: Connection, since_ms: int | None, until_ms: int | None) -> list[Slice]:
    """In the order of time; none where there is nothing."""
    query = Query(table=attempts.TABLE, by=("hour",), measures=("requests",), since_ms=since_ms, until_ms=until_ms)
    found = sums(connection, query)
    hours = sorted((int(hour or 0), count) for (hour,), (count,) in found.items() if count)
    if not hours:
        return []
    most = -(-sum(count for _, count in hours) // SLICES)
    first = since_ms if since_ms is not None else hours[0][0] * attempts.HOUR_MS
    last = until_ms if until_ms is not None else (hours[-1][0] + 1) * attempts.HOUR_MS
    cuts = [first, *_cuts(hours, most, first, last), last]
    return [Slice(*pair) for pair in pairwise(cuts) if pair[0] < pair[1]]


def _cuts(hours: Sequence[tuple[int, int]], most: int, first: int, last: int) -> list[int]:
    """Ends of hours by which there are enough; a full hour is cut evenly."""
    cuts, count = list[int](), 0
    for hour, requests in hours:
        begin, parts = hour * attempts.HOUR_MS, -(-requests // most)
        cuts += [begin + attempts.HOUR_MS * part // parts for part in range(1, parts)]
        count += requests
        if count >= most:
            cuts.append(begin + attempts.HOUR_MS)
            count = 0
    return sorted({cut for cut in cuts if first < cut < last})
