"""Packed rows: each segment in its place, every part readable, and its sums those of its rows, to the nano-dollar."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from typing import Any
from zlib import crc32

import msgspec
import numpy as np
from msgspec import structs

from router.ledger.connection import Connection
from router.ledger.facts import attempts, offers
from router.ledger.facts.attempts import HOUR_MS
from router.ledger.facts.query import Label
from router.ledger.packed import block, cube, stored, unpack
from router.ledger.packed.cube import FACTS, STARTED, SUMS, Facts
from router.ledger.packed.facts import KEYS, Workbench
from router.ledger.packed.segment import CHECKS, INDEX, blocks
from router.ledger.packed.stored import Stored
from router.ledger.query import LONGEST_WINDOW_MS
from router.ledger.rows import Kept
from router.ledger.tables import booked
from router.ledger.verify.finding import Finding

_PARTS = "SELECT part FROM segment_parts WHERE segment = ? AND part LIKE ?"
_CHAIN = "SELECT number, previous FROM segments ORDER BY number"
_MOVED = "SELECT account, window_start_ms, charged FROM bookings WHERE request_id LIKE 'packed-%'"
Groups = dict[str, Counter[tuple[Label, ...]]]
"""Measure → hour and labels → sum, as Python's own integers: 64 bits might not hold it."""


class Segments:
    """`rows` streams all that is packed, and finds what is wrong on its way; `findings` are complete after it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._all = stored.within(connection, None, None)
        self._expired = sorted((one.last_id, one.first_id) for one in self._all if one.expired_ms is not None)
        self.findings = list(_chained(connection))
        self.count = len(self._all)
        self._keys = connection.execute(KEYS).fetchall()
        self._moved: Counter[tuple[Any, Any]] = Counter()

    def expired(self, identifier: str) -> bool:
        """The rows of a request with this id are gone, if it was there."""
        at = bisect_left(self._expired, (identifier,))
        return any(first <= identifier for _, first in self._expired[at:])

    def has(self, identifier: str) -> bool:
        """It is in a segment, or was in one."""
        return self.expired(identifier) or unpack.one(self._connection, identifier) is not None

    def rows(self) -> Iterator[Kept]:
        """By id."""
        together: list[Stored] = []
        for segment in self._all:
            if segment.expired_ms is not None:
                self._agree(segment)
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
        self._note(segment, self._damaged(segment))
        with Workbench(self._keys) as bench:
            count, last, firsts, sound = 0, "", list[str](), True
            for some in self._blocks(segment):
                if [kept.id for kept in some] != sorted({kept.id for kept in some}) or some[0].id <= last:
                    self._note(segment, ["its requests are not in the order of their ids"])
                count, last = count + len(some), some[-1].id
                firsts.append(some[0].id)
                sound = self._take(segment, bench, some) and sound
                yield from self._with_later_bookings(segment, some)
            if count != segment.requests:
                self._note(segment, [f"it has {count} requests, and should have {segment.requests}"])
            elif count and sound:
                self._compare(segment, bench)
                self._note(segment, self._placed(segment, firsts, last))

    def _damaged(self, segment: Stored) -> list[str]:
        checks = stored.part(self._connection, segment.number, CHECKS)
        if checks is None:
            return [f"{CHECKS} is not there"]
        try:
            known = msgspec.msgpack.decode(checks, type=dict[str, int])
        except Exception as error:  # a damaged part may raise anything
            return self._unreadable(segment, CHECKS, error)
        found = ((name, stored.part(self._connection, segment.number, name), check) for name, check in known.items())
        return [f"{name} is damaged" for name, data, check in found if data is None or crc32(data) != check]

    def _take(self, segment: Stored, bench: Workbench, some: Sequence[Kept]) -> bool:
        try:
            bench.take(some)
        except Exception as error:  # what stands in a damaged part may be anything
            self._unreadable(segment, f"a row from {some[0].id} on", error)
            return False
        return True

    def _placed(self, segment: Stored, firsts: Sequence[str], last: str) -> Iterator[str]:
        """Requests are looked for where these say."""
        if (segment.first_id, segment.last_id) != (firsts[0], last):
            yield f"it has requests from {firsts[0]} to {last}, and should have those to {segment.last_id}"
        index = stored.part(self._connection, segment.number, INDEX)
        if index is None or msgspec.msgpack.decode(index, type=list[str]) != firsts:
            yield f"{INDEX} does not say where its requests are"

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
            self._note(segment, self._sums(segment, attempts.TABLE, facts))
            self._note(segment, self._offers(segment, offered))
        except Exception as error:  # a damaged part may raise anything
            self._unreadable(segment, "facts or sums", error)

    def _facts(self, segment: Stored, right: Facts) -> Iterator[str]:
        made = dict(cube.columns(right))
        for name, data in self._parts(segment, f"{FACTS}%"):
            # The same numbers may be written otherwise by another version.
            if made.get(name) != data and not _same_column(made, name, data):
                yield f"{name} is not what its rows say"

    def _offers(self, segment: Stored, right: Facts | None) -> Iterator[str]:
        """Where nothing was offered to anybody nothing is what is kept of it."""
        if right is not None:
            yield from self._sums(segment, offers.TABLE, right)
        elif any(data for _, data in self._parts(segment, f"{SUMS}{offers.TABLE}.%")):
            yield "it has sums of offers, and its rows have none"

    def _sums(self, segment: Stored, table: str, right: Facts) -> Iterator[str]:
        for name, data in self._parts(segment, f"{SUMS}{table}.%"):
            by = cube.grouping(name)
            made = cube.summed(right, by)[1] if right.labels.keys() >= set(by) else data
            if made != data:
                found, wanted = (_groups(cube.sums(one, by, right.measures), by) for one in (data, made))
                yield from (f"{name} {says}" for says in _differ(wanted, found))

    def _agree(self, segment: Stored) -> None:
        """Where rows are gone the groupings vouch for each other."""
        first: Groups | None = None
        try:
            for name, data in self._parts(segment, f"{SUMS}{attempts.TABLE}.%"):
                cube.sums(data, cube.grouping(name), ())
                found = _groups(cube.sums(data, (), attempts.MEASURES), ())
                first = found if first is None else first
                self._note(segment, [f"{name} {says}" for says in _differ(first, found)])
        except Exception as error:  # a damaged part may raise anything
            self._unreadable(segment, "sums", error)

    def _parts(self, segment: Stored, like: str) -> Iterator[tuple[str, bytes]]:
        for (name,) in self._connection.execute(_PARTS, (segment.number, like)).fetchall():
            data = stored.part(self._connection, segment.number, name)
            if data is not None:
                yield name, data

    def _summed_up(self) -> Iterator[Finding]:
        """Bookings that left their table left their sums, which stay for as long as any window is."""
        long_ago = max((one.last_ms for one in self._all), default=0) - LONGEST_WINDOW_MS
        kept = {(account, start): charged for account, start, charged in self._connection.execute(_MOVED).fetchall()}
        for account, start in sorted(self._moved.keys() | kept.keys()):
            moved, left = self._moved[account, start], kept.get((account, start), 0)
            if moved != left and not (left == 0 and start < long_ago):
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


def _same_column(made: Mapping[str, bytes], name: str, data: bytes) -> bool:
    """A column that this version does not know says nothing."""
    column, measures = name.removeprefix(FACTS), (*attempts.MEASURES, STARTED)
    if name not in made:
        return True
    parts = [{STARTED: made[FACTS + STARTED], column: one} for one in (data, made[name])]
    names = ((), (column,)) if column in measures else ((column,), ())
    found, wanted = (cube.facts(part, *names) for part in parts)
    if column in measures:
        return np.array_equal(found.measures[column], wanted.measures[column])
    return _labels(found, column) == _labels(wanted, column)


def _labels(facts: Facts, name: str) -> list[Label]:
    labels, codes = facts.labels[name]
    return [labels[code] for code in codes.tolist()]


def _groups(facts: Facts, by: Sequence[str]) -> Groups:
    keys = list(zip((facts.starts // HOUR_MS).tolist(), *(_labels(facts, name) for name in by), strict=True))
    found: Groups = {name: Counter() for name in facts.measures}
    for name, amounts in facts.measures.items():
        for key, amount in zip(keys, amounts.tolist(), strict=True):
            found[name][key] += amount
    return found


def _differ(right: Groups, found: Groups) -> Iterator[str]:
    """What nobody knew of when it was packed is 0 throughout."""
    for measure, groups in found.items():
        wanted = right[measure]
        wrong = next((key for key in groups.keys() | wanted.keys() if groups[key] != wanted[key]), None)
        if wrong is not None and any(groups.values()):
            label = " / ".join("-" if one is None else str(one) for one in wrong)
            yield f"sums {measure} of {label} to {groups[wrong]}, and its rows to {wanted[wrong]}"


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
