"""`lowpass ledger verify`: books, charges, outcomes and sums compared with their rows."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from router.ledger import past, rows
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

# What is wrong, and in which row.


class Finding(Struct, frozen=True):
    table: str
    row: str
    """Its key."""
    says: str

    def __str__(self) -> str:
        return f"{self.table} {self.row}: {self.says}"


# What must hold between the tables: sums of windows, and rows that belong to a request.

GRACE_MS = 600_000
"""How long a settlement may wait for the budgets' store, or a lease for a gateway that charges it."""
_WINDOWS = """
    SELECT account, window_start_ms, SUM(booked), SUM(held), SUM(kept), SUM(kept_held) FROM (
        SELECT account, window_start_ms, COALESCE(charged, 0) AS booked,
            CASE WHEN charged IS NULL THEN held ELSE 0 END AS held, 0 AS kept, 0 AS kept_held FROM bookings
        UNION ALL SELECT budget, window_start_ms, 0, 0, spent, held FROM budget_windows
    ) AS both_sides GROUP BY account, window_start_ms
    HAVING SUM(booked) <> SUM(kept) OR SUM(held) <> SUM(kept_held)
"""
_CHILDREN = """
    SELECT c.id, c.parent, b.charged, COALESCE(w.spent, 0) FROM children AS c
    JOIN bookings AS b ON b.request_id = c.id AND b.account = c.parent
    LEFT JOIN budget_windows AS w ON w.budget = c.id AND w.window_start_ms = 0
    WHERE c.closed_ms IS NOT NULL AND COALESCE(w.held, 0) = 0
        AND (b.charged IS NULL OR b.charged <> COALESCE(w.spent, 0))
"""
_UNBOOKED = """
    SELECT id, parent FROM children AS c WHERE NOT EXISTS (
        SELECT 1 FROM bookings AS b WHERE b.request_id = c.id AND b.account = c.parent
    )
"""
_ATTEMPTS = """
    SELECT DISTINCT request_id FROM attempts AS a
    WHERE NOT EXISTS (SELECT 1 FROM requests AS r WHERE r.id = a.request_id)
"""
_BOOKINGS = """
    SELECT b.request_id, b.account FROM bookings AS b
    WHERE NOT EXISTS (SELECT 1 FROM requests AS r WHERE r.id = b.request_id)
        AND NOT EXISTS (SELECT 1 FROM children AS c WHERE c.id = b.request_id)
        AND b.request_id NOT LIKE 'opening-%' AND b.request_id NOT LIKE 'lease:%'
        AND b.request_id NOT LIKE 'packed-%'
"""
_LATE = """
    SELECT b.request_id, b.account, r.state FROM bookings AS b JOIN requests AS r ON r.id = b.request_id
    WHERE b.charged IS NULL AND r.state <> 'held' AND r.started_ms + COALESCE(r.total_ms, 0) < ?
"""
_CHARGED = """
    SELECT b.request_id, b.account, b.charged, r.cost, r.thinking FROM bookings AS b
    JOIN live_requests AS r ON r.id = b.request_id
    WHERE b.charged IS NOT NULL AND r.state IN ('settled', 'recovered') AND b.charged NOT IN (0, r.cost, r.thinking)
        AND r.endpoint <> 'adjustment'
        AND b.account NOT LIKE 'key.rpm|%' AND b.account NOT LIKE 'key.tpm|%' AND b.account NOT LIKE 'key.parallel|%'
        AND (b.charged > CASE WHEN r.cost > r.thinking THEN r.cost ELSE r.thinking END
            OR (SELECT COUNT(DISTINCT a.target) FROM live_attempts AS a WHERE a.request_id = r.id) = 1)
"""
"""A budget for some targets is charged less than the request, where several were asked, or nothing."""
_CHARGED_PAST = """
    SELECT b.request_id, n.name, b.charged, r.cost, r.thinking FROM past_bookings AS b
    JOIN past_requests AS r ON r.id = b.request_id JOIN names AS n ON n.id = b.account
    WHERE b.charged NOT IN (0, r.cost, r.thinking)
        AND r.endpoint <> COALESCE((SELECT id FROM names WHERE name = 'adjustment'), 0)
        AND ((SELECT COUNT(DISTINCT a.target) FROM past_attempts AS a WHERE a.request_id = r.id) = 1
            OR b.charged > CASE WHEN r.cost > r.thinking THEN r.cost ELSE r.thinking END)
"""
_TWICE = """
    SELECT b.request_id, b.account FROM bookings AS b JOIN past_bookings AS p ON p.request_id = b.request_id
    JOIN names AS n ON n.id = p.account WHERE n.name = b.account
        AND NOT EXISTS (SELECT 1 FROM live_requests AS r WHERE r.id = b.request_id)
"""
"""What is live too was written a second time; upkeep sees to it."""
_ADJUSTMENTS = """
    SELECT a.id, a.cost, r.cost FROM adjustments AS a LEFT JOIN requests AS r ON r.id = a.id
    WHERE a.given_ms >= ? AND (r.id IS NULL OR r.cost <> a.cost)
    UNION ALL SELECT r.id, NULL, r.cost FROM requests AS r
    WHERE r.endpoint = 'adjustment' AND NOT EXISTS (SELECT 1 FROM adjustments AS a WHERE a.id = r.id)
"""
_EXPIRED = "SELECT id, lease_until_ms FROM requests WHERE state = 'held' AND lease_until_ms < ?"
_NEWEST = "SELECT started_ms FROM requests ORDER BY id DESC LIMIT 1"


def belonging(connection: Connection) -> Iterator[Finding]:
    """Rows that belong to a request which there is not, and requests that nobody looked after."""
    for (identifier,) in connection.execute(_ATTEMPTS).fetchall():
        yield Finding("attempts", identifier, "there is no such request")
    newest = connection.execute(_NEWEST).fetchone()
    before = (newest[0] if newest else 0) - GRACE_MS
    for identifier, until_ms in connection.execute(_EXPIRED, (before,)).fetchall():
        yield Finding("requests", identifier, f"it is held, and its lease ended at {until_ms}: a gateway charges it")
    for identifier, account, state in connection.execute(_LATE, (before,)).fetchall():
        says = f"it is held, and its request is {state}: it is charged once the budgets' store can be reached"
        yield Finding("bookings", f"{identifier} in {account}", says)

    for statement in (_CHARGED, _CHARGED_PAST):
        for identifier, account, charged, cost, thinking in connection.execute(statement).fetchall():
            says = f"it is charged {charged}, and its request cost {cost} nano-USD and {thinking} thinking tokens"
            yield Finding("bookings", f"{identifier} in {account}", says)
    for identifier, stated, cost in connection.execute(_ADJUSTMENTS, (progress(connection, EXPIRED),)).fetchall():
        yield Finding("adjustments", identifier, f"it adds {stated} nano-USD, and its row {cost}")
    for identifier, account in connection.execute(_TWICE).fetchall():
        yield Finding("bookings", f"{identifier} in {account}", "it is booked twice")


def budgets(connection: Connection) -> Iterator[Finding]:
    """Where the budgets are kept in the ledger's own file: all that they hold and have spent is booked."""
    for account, start, booked, held, kept, kept_held in connection.execute(_WINDOWS).fetchall():
        says = f"it says {kept} spent and {kept_held} held, and its bookings {booked} and {held}"
        yield Finding("budget_windows", f"{account} from {start}", says)
    for identifier, account in connection.execute(_BOOKINGS).fetchall():
        yield Finding("bookings", f"{identifier} in {account}", "there is no such request and no such budget")
    for identifier, parent in connection.execute(_UNBOOKED).fetchall():
        yield Finding("children", identifier, f"nothing is booked for it in {parent}")
    for identifier, parent, charged, spent in connection.execute(_CHILDREN).fetchall():
        yield Finding("children", identifier, f"it spent {spent}, and {parent} is charged {charged} for it")


# The log of outcomes beside the requests that it is about, both in the order of the requests' ids.

PAGE = 1_000
"""Rows read at a time."""
_COLUMNS = "request_id, attempt, source, revision, target, score, weight, was_score, was_weight, position"
_FIRST = f"SELECT {_COLUMNS} FROM outcomes ORDER BY request_id, attempt, source, revision LIMIT ?"  # noqa: S608
_NEXT = (
    f"SELECT {_COLUMNS} FROM outcomes WHERE (request_id, attempt, source, revision) > (?, ?, ?, ?)"  # noqa: S608
    " ORDER BY request_id, attempt, source, revision LIMIT ?"
)


class _Said(NamedTuple):
    request_id: str
    attempt: int
    source: str
    revision: int
    target: str
    score: float | None
    weight: float
    was_score: float | None
    was_weight: float
    position: int


class Outcomes:
    """`expired` tells whether the rows of a request may be gone."""

    def __init__(self, connection: Connection, expired: Callable[[str], bool]) -> None:
        self.count = 0
        self._connection, self._expired = connection, expired
        self._rows = _read(connection)
        self._next = next(self._rows, None)
        self._before: _Said | None = None

    def beside(self, kept: Kept) -> Iterator[Finding]:
        """What is said of requests up to this one; `rest` follows when there are no more."""
        while self._next is not None and self._next.request_id < kept.id:
            yield from self._stray()
        while self._next is not None and self._next.request_id == kept.id:
            yield from self._step(kept)

    def rest(self) -> Iterator[Finding]:
        while self._next is not None:
            yield from self._stray()

    def _stray(self) -> Iterator[Finding]:
        """Its request came late, and is not packed yet; or is gone; or never was."""
        said = self._next
        assert said is not None  # noqa: S101 - of the callers
        kept = None if self._expired(said.request_id) else rows.one(self._connection, said.request_id)
        if kept is None and not self._expired(said.request_id):
            yield _finding(said, "there is no such request")
        yield from self._step(kept)

    def _step(self, kept: Kept | None) -> Iterator[Finding]:
        said, before = self._next, self._before
        assert said is not None  # noqa: S101 - of the callers
        targets = {} if kept is None else {attempt["number"]: attempt["target"] for attempt in kept.attempts}
        # Before outcomes named their attempt, feedback might be about none.
        if kept is not None and said.attempt and targets.get(said.attempt) != said.target:
            yield _finding(said, f"its request has no attempt {said.attempt} at {said.target}")
        # What was said first may have expired before the rest.
        if before is not None and before[:3] == said[:3]:
            was = (before.revision + 1, before.score, before.weight)
            if (said.revision, said.was_score, said.was_weight) != was:
                yield _finding(said, "it does not follow on what the same source said before")
        self.count, self._before, self._next = self.count + 1, said, next(self._rows, None)


def _read(connection: Connection) -> Iterator[_Said]:
    found = connection.execute(_FIRST, (PAGE,)).fetchall()
    while found:
        yield from map(_Said._make, found)
        found = connection.execute(_NEXT, (*found[-1][:4], PAGE)).fetchall()


def _finding(said: _Said, says: str) -> Finding:
    return Finding("outcomes", f"{said.position} by {said.source} about {said.request_id}", says)


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
_MOVED_SUMS = """
    SELECT account, window_start_ms, SUM(moved), SUM(booked) FROM (
        SELECT (SELECT name FROM names WHERE id = p.account) AS account, window_start_ms, charged AS moved, 0 AS booked
        FROM past_bookings AS p
        UNION ALL SELECT account, window_start_ms, 0, charged FROM bookings WHERE request_id LIKE 'packed-%'
            AND account NOT LIKE 'key.rpm|%' AND account NOT LIKE 'key.tpm|%' AND account NOT LIKE 'key.parallel|%'
    ) AS both_sides GROUP BY account, window_start_ms HAVING SUM(moved) <> SUM(booked)
"""
_ANY = "SELECT 1 FROM past_requests WHERE started_ms >= ? AND started_ms < ? LIMIT 1"
_LAST = "SELECT MAX(started_ms) FROM past_requests"
_labels = msgspec.json.Decoder(tuple[Label, ...])


def sums_findings(connection: Connection, *, own_budgets: bool) -> Iterator[Finding]:
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
    if own_budgets:
        yield from _booked(connection, expired_ms)


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
            label = " / ".join("-" if one is None else str(one) for one in key[1:]) or "all"
            says = f"it sums {measure} of {label} to {amounts[at]}, and {whose} to {wanted[at]}"
            yield Finding(f"hourly_{grouping.table}", f"{','.join(grouping.by)} in hour {hour}", says)


def _booked(connection: Connection, expired_ms: int) -> Iterator[Finding]:
    """Windows that began before rows expired have sums of rows that are gone."""
    last = connection.execute(_LAST).fetchone()[0] or 0
    for account, start, moved, booked in connection.execute(_MOVED_SUMS).fetchall():
        dropped = booked == 0 and start < last - LONGEST_WINDOW_MS
        if not dropped and start >= expired_ms:
            says = f"moved requests were charged {moved}, and {booked} is booked for them"
            yield Finding("bookings", f"packed-{start} in {account}", says)


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
        return _Pass(connection, also, told).run(own_budgets)


def verify_budgets(ledger: Ledger) -> Verified:
    """Only what budgets hold and have spent: of a file beside a ledger that is elsewhere."""
    if damage := _damage(ledger):
        return damage
    with ledger.reading() as connection:
        connection.execute("BEGIN")
        findings = tuple(budgets(connection))
        return Verified(findings=findings[:MOST], found=len(findings))


def _damage(ledger: Ledger) -> Verified | None:
    """What can't be read needs no other look."""
    found = tuple(Finding("file", ledger.name, says) for says in ledger.damage())
    return Verified(findings=found, found=len(found)) if found else None


class _Pass:
    def __init__(self, connection: Connection, also: Check, told: Callable[[int], object]) -> None:
        self._connection, self._also, self._told = connection, also, told
        expired = least_id(progress(connection, EXPIRED))
        self._outcomes = Outcomes(connection, lambda identifier: identifier < expired)
        self._requests = self._attempts = self._bookings = self._decisions = self._found = 0
        self._findings: list[Finding] = []

    def run(self, own_budgets: bool) -> Verified:
        self._note(self._rows())
        self._note(
            Finding("past_requests", f"positions {part.first} to {part.last}", part.says)
            for part in past.broken(self._connection)
        )
        self._note(sums_findings(self._connection, own_budgets=own_budgets))
        self._note(belonging(self._connection))
        if own_budgets:
            self._note(budgets(self._connection))
        return Verified(
            requests=self._requests,
            attempts=self._attempts,
            bookings=self._bookings,
            decisions=self._decisions,
            outcomes=self._outcomes.count,
            chain=past.head(self._connection),
            findings=tuple(self._findings),
            found=self._found,
        )

    def _rows(self) -> Iterator[Finding]:
        last = ""
        for kept in every(self._connection):
            if kept.id == last:
                yield Finding("requests", kept.id, "it is there twice")
            last = kept.id
            self._count(kept)
            yield from findings(kept)
            yield from self._also(kept)
            yield from self._outcomes.beside(kept)
        yield from self._outcomes.rest()

    def _count(self, kept: Kept) -> None:
        self._requests += 1
        self._attempts += len(kept.attempts)
        self._bookings += len(kept.bookings)
        self._decisions += kept.decision is not None
        if not self._requests % TOLD_EVERY:
            self._told(self._requests)

    def _note(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self._found += 1
            if len(self._findings) < MOST:
                self._findings.append(finding)
