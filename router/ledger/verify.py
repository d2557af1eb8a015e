"""`lowpass ledger verify`: books, charges, outcomes and sums compared with their rows."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import chain, islice
from typing import Any

import msgspec
from msgspec import Struct

from router.ledger import past
from router.ledger.adjust import ADJUSTED, ADJUSTMENT
from router.ledger.facts.attempts import HOUR_MS
from router.ledger.facts.query import Label, Sums
from router.ledger.ledger import Ledger
from router.ledger.past import EXPIRED, MOVED, progress
from router.ledger.query import LONGEST_WINDOW_MS
from router.ledger.rollups import GROUPINGS, LATE, Counted, Grouping, count
from router.ledger.rows import Connection, Kept, every
from router.ledger.write import BUCKETS
from router.types.account import RATE_ACCOUNTS
from router.types.clock import least_id
from router.types.tables import table

# What is wrong, and in which row.


class Finding(Struct, frozen=True):
    table: str
    row: str
    """Its key."""
    says: str

    def __str__(self) -> str:
        return f"{self.table} {self.row}: {self.says}"


# What must hold between the tables: sums of windows, and rows that belong to a request (`data/checks.yaml`).

GRACE_MS = 600_000
"""How long a settlement may wait for the budgets' store, or a lease for a gateway that charges it."""


class _Rule(Struct, frozen=True):
    table: str
    row: str
    says: str
    sql: str


@cache
def rules() -> dict[str, list[_Rule]]:
    return msgspec.convert(table("ledger/data/checks.yaml"), dict[str, list[_Rule]])


def _violations(connection: Connection, part: str) -> Iterator[Finding]:
    newest = connection.execute("SELECT started_ms FROM requests ORDER BY id DESC LIMIT 1").fetchone()
    before_ms = (newest[0] if newest else 0) - GRACE_MS
    expired = progress(connection, EXPIRED)
    values = {"before": before_ms, "expired": expired, "kept": least_id(expired), "longest": LONGEST_WINDOW_MS}
    for rule in rules()[part]:
        for row in connection.execute(rule.sql, values).fetchall():
            yield Finding(rule.table, rule.row.format(*row), rule.says.format(*row))


# What must hold within one request, however it ended: see `router.ledger.write` and `router.accounting`.

_INPUT = [name for name in BUCKETS if not name.startswith("output")]
_OUTPUT = [name for name in BUCKETS if name.startswith("output")]
Row = Mapping[str, Any]
_STATES = frozenset({"held", "released", "recovered", "settled"})


class _Document(Struct):
    id: str


_document = msgspec.json.Decoder(_Document)


def findings(kept: Kept) -> Iterator[Finding]:
    """A column may hold anything in a damaged file: then that is what is found."""
    try:
        yield from (Finding("requests", kept.id, says) for says in _of_request(kept.request, kept.attempts))
        for attempt in kept.attempts:
            row = f"{kept.id} attempt {attempt['number']!s}"
            yield from (Finding("attempts", row, says) for says in _of_attempt(attempt))
        for booking in kept.bookings:
            row = f"{kept.id} in {booking['account']!s}"
            yield from (Finding("bookings", row, says) for says in _of_booking(kept.request, booking))
        if kept.decision is not None:
            yield from _of_decision(kept.decision)
    except (KeyError, TypeError, ValueError):
        yield Finding("requests", kept.id, "a value of it, of an attempt or of a booking is none of its column")


def _of_request(request: Row, attempts: tuple[Row, ...]) -> Iterator[str]:
    state = request["state"]
    if state not in _STATES:
        yield f"there is no state '{state}'"
    if state == "settled":
        yield from _sums(request, attempts)
        if [attempt["number"] for attempt in attempts] != list(range(1, len(attempts) + 1)) or not attempts:
            numbers = ", ".join(str(attempt["number"]) for attempt in attempts) or "none"
            yield f"its attempts are numbered {numbers}, and should be from 1 on without a gap"
    elif attempts:
        yield f"it is {state}, and has {len(attempts)} attempts"
    if state == "held" and request["cost"] is not None:
        yield f"it is held, and cost {request['cost']} already"
    if state == "released" and (_whole(request["cost"]) or _whole(request["thinking"])):
        yield f"it was released, and cost {request['cost']} nano-USD and {request['thinking']} thinking tokens"
    if state == "recovered":  # charged at its hold, since nobody knows better
        for charge, held, unit in (("cost", "held", "nano-USD"), ("thinking", "held_thinking", "thinking tokens")):
            if request[charge] != request[held] and (charge == "cost" or request[charge] is not None):
                yield f"it was recovered at {request[charge]} {unit}, and held {request[held]}"


def _sums(request: Row, attempts: tuple[Row, ...]) -> Iterator[str]:
    cost = sum(_whole(attempt["cost"]) for attempt in attempts)
    if request["cost"] != cost:
        yield f"it cost {request['cost']} nano-USD, and its attempts {cost}"
    counted = [attempt for attempt in attempts if attempt["usage_source"] is not None]
    for column, buckets in (("input_tokens", _INPUT), ("output_tokens", _OUTPUT)):
        tokens = sum(_whole(attempt[name]) for attempt in counted for name in buckets)
        if request[column] != tokens:
            yield f"it has {request[column]} {column}, and its attempts {tokens}"
    split = [_whole(attempt["output_reasoning"]) for attempt in counted if attempt["output_reasoning"] is not None]
    if request["reasoning_tokens"] != (sum(split) if split else None):
        yield f"it has {request['reasoning_tokens']} reasoning tokens, and its attempts {sum(split)}"
    thinking, most = request["thinking"], sum(map(_most_thinking, counted))
    if thinking is not None and not sum(split) <= _whole(thinking) <= most:
        yield f"it was charged {thinking} thinking tokens, and its attempts thought {sum(split)} to {most}"


def _most_thinking(attempt: Row) -> int:
    """All of its output, where the provider does not tell thoughts apart (`router.dispatch.hold.thought`)."""
    if attempt["output_reasoning"] is not None:
        return _whole(attempt["output_reasoning"])
    return 0 if attempt["thinking"] == "off" else sum(_whole(attempt[name]) for name in _OUTPUT)


def _of_attempt(attempt: Row) -> Iterator[str]:
    cost = _whole(attempt["cost"])
    if cost < 0 and attempt["cost_source"] != ADJUSTED:
        yield f"it cost {cost} nano-USD"
    if not attempt["price_version"] and (cost or attempt["usage_source"] is not None):
        yield "it does not name the version of its price"
    negative = [name for name in BUCKETS if _whole(attempt[name]) < 0]
    if negative:
        yield f"it has less than no {' and '.join(negative)}"


def _of_booking(request: Row, booking: Row) -> Iterator[str]:
    """An account counts nano-USD or thinking tokens, and perhaps only those of some targets: so it can't be charged
    more than the request was of either."""
    charged, state = booking["charged"], request["state"]
    if charged is None or str(booking["account"]).startswith(RATE_ACCOUNTS) or request["endpoint"] == ADJUSTMENT:
        return
    if state == "held":
        yield f"it is charged {charged} already, and its request is held"
    elif booking["state"] == "recovered" and charged != booking["held"]:
        yield f"it was recovered at {charged}, and held {booking['held']}"
    elif booking["state"] != "recovered" and state in ("settled", "released"):
        most = max(_whole(request["cost"]), _whole(request["thinking"]))
        if not 0 <= _whole(charged) <= most:
            yield f"it is charged {charged}, and its request cost {request['cost']} and thought {request['thinking']}"


def _of_decision(decision: Row) -> Iterator[Finding]:
    identifier = str(decision["id"])
    try:
        read = _document.decode(str(decision["document"]))
    except msgspec.DecodeError:
        yield Finding("decisions", identifier, "its document can't be read")
        return
    if read.id != identifier:
        yield Finding("decisions", identifier, f"its document is that of {read.id}")


def _whole(value: object) -> int:
    """NULL counts for nothing."""
    if value is None:
        return 0
    if not isinstance(value, int):
        raise TypeError
    return value


# Sums by hour beside the rows that they were made of, and charges of moved requests beside what is booked for them.

_HOURS = """
    SELECT hour FROM hourly_attempts UNION SELECT hour FROM hourly_offers
    UNION SELECT DISTINCT started_ms / 3600000 FROM past_requests ORDER BY 1
"""
_KEPT = """
    SELECT g.labels, {} FROM hourly_{} AS h JOIN sum_groups AS g ON g.id = h.group_id
    WHERE h.hour = ? AND h.grouping_id = (SELECT id FROM names WHERE name = ?)
"""
_ANY = "SELECT 1 FROM past_requests WHERE started_ms >= ? AND started_ms < ? LIMIT 1"
_labels = msgspec.json.Decoder(tuple[Label, ...])


def sums_findings(connection: Connection) -> Iterator[Finding]:
    """Of hours whose rows have expired all groupings must say the same; of the others, what the rows say."""
    expired_ms = progress(connection, EXPIRED)
    cursors = {one: progress(connection, one.name) for one in GROUPINGS}
    late = {LATE, *(one for one in GROUPINGS if progress(connection, one.since))}
    for one, cursor in cursors.items():
        if cursor > (moved := progress(connection, MOVED)):
            yield Finding("progress", one.name, f"its sums go up to {cursor}, and rows up to {moved}")
    for (hour,) in connection.execute(_HOURS).fetchall():
        kept = {one: _kept(connection, one, hour) for one in GROUPINGS}
        if hour * HOUR_MS < expired_ms:
            # Groupings are written one after the other: what is furthest may be ahead of the others for a moment.
            most = max((cursors[one] for one in GROUPINGS if one not in late), default=0)
            some = {one: kept[one] for one in GROUPINGS if one not in late and cursors[one] == most}
            if LATE in late and not connection.execute(_ANY, (hour * HOUR_MS, (hour + 1) * HOUR_MS)).fetchone():
                some[LATE] = kept[LATE]
            yield from _alike(hour, some)
        else:
            made = {one: Counted(0, cursor) for one, cursor in cursors.items()}
            count(connection, made, ("r.started_ms >= ? AND r.started_ms < ?", [hour * HOUR_MS, (hour + 1) * HOUR_MS]))
            for grouping, counted in made.items():
                yield from _differ(grouping, hour, counted.sums, kept[grouping], "its rows")


def _kept(connection: Connection, grouping: Grouping, hour: int) -> Sums:
    measures = ", ".join(f"h.{name}" for name in grouping.measures)
    rows = connection.execute(_KEPT.format(measures, grouping.table), (hour, grouping.name))
    return {(hour, *_labels.decode(labels)): tuple(amounts) for labels, *amounts in rows}


def _alike(hour: int, kept: dict[Grouping, Sums]) -> Iterator[Finding]:
    first: dict[str, Sums] = {}
    for grouping, sums in kept.items():
        whole: Sums = {(hour,): tuple(map(sum, zip(*sums.values(), strict=True))) or (0,) * len(grouping.measures)}
        yield from _differ(grouping, hour, first.setdefault(grouping.table, whole), whole, "other sums")


def _differ(grouping: Grouping, hour: int, right: Sums, found: Sums, whose: str) -> Iterator[Finding]:
    """The first difference of each measure."""
    nothing = (0,) * len(grouping.measures)
    both = ((key, right.get(key, nothing), found.get(key, nothing)) for key in right.keys() | found.keys())
    wrong = sorted((line for line in both if line[1] != line[2]), key=str)
    for at, measure in enumerate(grouping.measures):
        differing = next((line for line in wrong if line[1][at] != line[2][at]), None)
        if differing is not None:
            key, wanted, amounts = differing
            label = " / ".join("-" if part is None else str(part) for part in key[1:]) or "all"
            says = f"it sums {measure} of {label} to {amounts[at]}, and {whose} to {wanted[at]}"
            yield Finding(f"hourly_{grouping.table}", f"{','.join(grouping.by)} in hour {hour}", says)


# Everything that must hold in a ledger, looked at in one pass over its rows, as of one moment.

MOST = 200
"""Findings that are told; all are counted."""
TOLD_EVERY = 10_000
Check = Callable[[Kept], Iterable[Finding]]


class Verified(Struct, frozen=True, kw_only=True):
    """How much was looked at, and what was wrong."""

    requests: int = 0
    attempts: int = 0
    bookings: int = 0
    decisions: int = 0
    outcomes: int = 0
    chain: str = ""
    """The newest digest of the rows of the past: noted elsewhere, it tells later whether they are the same still."""
    findings: tuple[Finding, ...] = ()
    """The first `MOST`."""
    found: int = 0

    @property
    def sound(self) -> bool:
        return not self.found


def verify(
    ledger: Ledger,
    *,
    also: Check = lambda _: (),
    own_budgets: bool = True,
    told: Callable[[int], object] = lambda _: None,
) -> Verified:
    """Reads all rows, some at a time, beside a gateway that goes on writing. Raises `LedgerUnavailable`.

    `also`: further checks of a request. `own_budgets`: budgets are kept in the ledger's file, not in a server. `told`
    hears how many requests there were so far.
    """
    if damage := _damage(ledger):
        return damage
    with ledger.reading() as connection:
        connection.execute("BEGIN")
        counts: Counter[str] = Counter()
        chained = (
            Finding("past_requests", f"positions {first} to {last}", says)
            for first, last, says in past.broken(connection)
        )
        parts = [_rows(connection, also, told, counts), chained]
        rules_of = ("moved", "belonging", "budgets") if own_budgets else ("belonging",)
        parts += [sums_findings(connection), *(_violations(connection, part) for part in rules_of)]
        every_finding = chain.from_iterable(parts)
        shown = tuple(islice(every_finding, MOST))
        found = len(shown) + sum(1 for _ in every_finding)
        return Verified(**counts, chain=past.head(connection), findings=shown, found=found)


def verify_budgets(ledger: Ledger) -> Verified:
    """Only what budgets hold and have spent: of a file beside a ledger that is elsewhere."""
    if damage := _damage(ledger):
        return damage
    with ledger.reading() as connection:
        connection.execute("BEGIN")
        findings = tuple(_violations(connection, "budgets"))
        return Verified(findings=findings[:MOST], found=len(findings))


def _damage(ledger: Ledger) -> Verified | None:
    """What can't be read needs no other look."""
    found = tuple(Finding("file", ledger.name, says) for says in ledger.damage())
    return Verified(findings=found, found=len(found)) if found else None


def _rows(
    connection: Connection, also: Check, told: Callable[[int], object], counts: Counter[str]
) -> Iterator[Finding]:
    """`counts`: of what was looked at, by the names of `Verified`."""
    last = ""
    for kept in every(connection):
        if kept.id == last:
            yield Finding("requests", kept.id, "it is there twice")
        last = kept.id
        decisions = int(kept.decision is not None)
        counts.update(requests=1, attempts=len(kept.attempts), bookings=len(kept.bookings), decisions=decisions)
        if not counts["requests"] % TOLD_EVERY:
            told(counts["requests"])
        yield from findings(kept)
        yield from also(kept)
    counts["outcomes"] = int(connection.execute("SELECT COUNT(*) FROM outcomes").fetchone()[0])
    yield from _violations(connection, "outcomes")
