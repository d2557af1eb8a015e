"""Packed rows: each segment in its place, every part readable, and its sums those of its rows, to the nano-dollar."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from typing import Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from router.ledger.connection import Connection
from router.ledger.facts import attempts, offers
from router.ledger.facts.attempts import HOUR_MS
from router.ledger.packed import block, cube, stored
from router.ledger.packed.column import Numbers
from router.ledger.packed.cube import FACTS, STARTED, SUMS, Facts
from router.ledger.packed.facts import Workbench
from router.ledger.packed.segment import INDEX, blocks
from router.ledger.packed.stored import Stored
from router.ledger.rows import Kept
from router.ledger.tables import booked
from router.ledger.verify.finding import Finding

_PARTS = "SELECT part FROM segment_parts WHERE segment = ? AND part LIKE ?"
_CHAIN = "SELECT number, previous FROM segments ORDER BY number"
_MOVED = "SELECT account, window_start_ms, charged FROM bookings WHERE request_id LIKE 'packed-%'"
Sums = Mapping[str, Counter[int]]
"""Measure → hour → sum."""


class Segments:
    """`rows` streams all that is packed, and finds what is wrong on its way; `findings` are complete after it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._all = stored.within(connection, None, None)
        self._expired = sorted((one.last_id, one.first_id) for one in self._all if one.expired_ms is not None)
        self.findings = list(_chained(connection))
        self.count = len(self._all)
        self._moved: Counter[tuple[Any, Any]] = Counter()

    def expired(self, identifier: str) -> bool:
        """The rows of a request with this id are gone, if it was there."""
        at = bisect_left(self._expired, (identifier,))
        return any(first <= identifier for _, first in self._expired[at:])

    def rows(self) -> Iterator[Kept]:
        """By id."""
        together: list[Stored] = []
        for segment in self._all:
            if segment.expired_ms is not None:
                self._note(segment, _agree(self._sums(segment, attempts.TABLE)))
                continue
            if together and segment.first_id > max(one.last_id for one in together):
                yield from self._merged(together)
                together = []
            together.append(segment)
        yield from self._merged(together)
        if not self._expired:
            self.findings += self._summed_up()

    def _merged(self, together: Sequence[Stored]) -> Iterator[Kept]:
        return merge(*(self._segment(one) for one in together), key=lambda kept: kept.id)

    def _segment(self, segment: Stored) -> Iterator[Kept]:
        with Workbench(()) as bench:
            count, last = 0, ""
            for some in self._blocks(segment):
                if [kept.id for kept in some] != sorted({kept.id for kept in some}) or some[0].id <= last:
                    self._note(segment, ["its requests are not in the order of their ids"])
                count, last = count + len(some), some[-1].id
                bench.take(some)
                yield from self._with_later_bookings(segment, some)
            if count != segment.requests:
                self._note(segment, [f"it has {count} requests, and should have {segment.requests}"])
            elif count:
                self._compare(segment, bench)

    def _blocks(self, segment: Stored) -> Iterator[list[Kept]]:
        """What can't be read is missed when they are counted."""
        try:
            index = stored.part(self._connection, segment.number, INDEX)
            names = [] if index is None else blocks(index)
        except Exception as error:  # a damaged part may raise anything
            names = self._unreadable(segment, INDEX, error)
        for name in names:
            try:
                data = stored.part(self._connection, segment.number, name)
                found = [] if data is None else block.unpacked(data)
            except Exception as error:  # likewise
                found = self._unreadable(segment, name, error)
            if found:
                yield found

    def _with_later_bookings(self, segment: Stored, some: Sequence[Kept]) -> Iterator[Kept]:
        """What was not settled when it was packed stayed in its table; all else was summed up when it left that."""
        later = booked(self._connection, some[0].id, some[-1].id)
        for kept in some:
            lines = {line["account"]: line for line in (*kept.bookings, *later.get(kept.id, ()))}
            if segment.cleared and all(line["state"] == "settled" for line in kept.bookings):
                for line in kept.bookings:
                    self._moved[line["account"], line["window_start_ms"]] += _whole(line["charged"])
            yield structs.replace(kept, bookings=tuple(lines.values()))

    def _compare(self, segment: Stored, bench: Workbench) -> None:
        try:
            facts, offered = bench.attempts(), bench.offers()
            self._note(segment, self._facts(segment, facts))
            self._note(segment, _differ(_by_hour(facts), self._sums(segment, attempts.TABLE)))
            if offered is not None:
                self._note(segment, _differ(_by_hour(offered), self._sums(segment, offers.TABLE)))
        except Exception as error:  # a damaged part may raise anything
            self._unreadable(segment, "facts or sums", error)

    def _facts(self, segment: Stored, right: Facts) -> Iterator[str]:
        parts = {name.removeprefix(FACTS): data for name, data in self._parts(segment, f"{FACTS}%")}
        known = [name for name in right.measures if name in parts]
        found = cube.facts(parts, [name for name in right.labels if name in parts], known)
        if not np.array_equal(found.starts, right.starts):
            yield f"{FACTS}{STARTED} is not what its rows say"
        for name, (labels, codes) in found.labels.items():
            if len(codes) != len(right.starts) or int(codes.max()) >= len(labels):
                yield f"{FACTS}{name} is not of its rows"
        for name in known:
            if not np.array_equal(found.measures[name], right.measures[name]):
                yield f"{FACTS}{name} is not what its rows say"

    def _sums(self, segment: Stored, table: str) -> Iterator[tuple[str, Sums]]:
        """Of each grouping."""
        measures = attempts.MEASURES if table == attempts.TABLE else offers.MEASURES
        for name, data in self._parts(segment, f"{SUMS}{table}.%"):
            yield name, _by_hour(cube.sums(data, cube.grouping(name), measures))

    def _parts(self, segment: Stored, like: str) -> Iterator[tuple[str, bytes]]:
        for (name,) in self._connection.execute(_PARTS, (segment.number, like)).fetchall():
            data = stored.part(self._connection, segment.number, name)
            if data is not None:
                yield name, data

    def _summed_up(self) -> Iterator[Finding]:
        """Bookings that left their table left their sums."""
        kept = {(account, start): charged for account, start, charged in self._connection.execute(_MOVED).fetchall()}
        for account, start in sorted(self._moved.keys() | kept.keys()):
            moved, left = self._moved[account, start], kept.get((account, start), 0)
            if moved != left:
                says = f"packed requests were charged {moved}, and {left} is booked for them"
                yield Finding("bookings", f"packed-{start} in {account}", says)

    def _note(self, segment: Stored, says: Iterator[str] | Sequence[str]) -> None:
        self.findings += [Finding("segments", str(segment.number), one) for one in says]

    def _unreadable(self, segment: Stored, name: str, error: Exception) -> list[Any]:
        self._note(segment, [f"{name} can't be read ({type(error).__name__})"])
        return []


def _chained(connection: Connection) -> Iterator[Finding]:
    before = 0
    for number, previous in connection.execute(_CHAIN).fetchall():
        if previous != before:
            yield Finding("segments", str(number), f"it follows {previous}, and the one before it is {before}")
        before = number


def _agree(sums: Iterator[tuple[str, Sums]]) -> Iterator[str]:
    """Where rows are gone the groupings vouch for each other."""
    first = next(sums, None)
    if first is not None:
        yield from _differ(first[1], sums)


def _differ(right: Sums, sums: Iterator[tuple[str, Sums]]) -> Iterator[str]:
    """What nobody knew of when it was packed is 0 throughout."""
    for name, found in sums:
        for measure, hours in found.items():
            wrong = (hour for hour in sorted(hours | right[measure]) if hours[hour] != right[measure][hour])
            hour = next(wrong, None) if any(hours.values()) else None
            if hour is not None:
                yield f"{name} sums {measure} of hour {hour} to {hours[hour]}, and it is {right[measure][hour]}"


def _by_hour(facts: Facts) -> Sums:
    hours, places = np.unique(facts.starts // HOUR_MS, return_inverse=True)
    return {name: _hourly(hours.tolist(), places, amounts) for name, amounts in facts.measures.items()}


def _hourly(hours: Sequence[int], places: NDArray[np.intp], amounts: Numbers) -> Counter[int]:
    """As Python's own integers: 64 bits might not hold a sum."""
    return Counter({hour: sum(amounts[places == at].tolist()) for at, hour in enumerate(hours)})


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
