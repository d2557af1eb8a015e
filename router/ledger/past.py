"""Settled requests move into narrow rows, which are chained by digests and expire by age."""

import hashlib
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from router.ledger import rows as whole
from router.ledger.facts.attempts import HOUR_MS
from router.ledger.ledger import Ledger
from router.ledger.query import LONGEST_WINDOW_MS
from router.ledger.rows import (
    PARAMETERS,
    Compressed,
    Connection,
    Documents,
    Kept,
    Line,
    every,
    insert,
    places,
    transaction,
)
from router.types.account import RATE_ACCOUNTS, Value
from router.types.clock import least_id
from router.types.request import DAY_MS

# Batches of rows of the past, each with a digest over its rows and the digest before: what is changed, taken out or
# put in afterwards shows (`lowpass ledger verify`).

_SIZE = 16
_ADD = "INSERT INTO chain (last, first, digest, complete) VALUES (?, ?, ?, 1)"
_BATCHES = "SELECT first, last, digest, complete FROM chain WHERE last > ? ORDER BY last LIMIT ?"
_REQUESTS = "SELECT * FROM past_requests WHERE position >= ? AND position <= ? ORDER BY position"
_ATTEMPTS = "SELECT * FROM past_attempts WHERE request_id IN ({}) ORDER BY request_id, number"
_BOOKINGS = "SELECT * FROM past_bookings WHERE request_id IN ({}) ORDER BY request_id, account"
_NAMES = "SELECT id, name FROM names WHERE id IN ({}) ORDER BY id"
_DROPPED = "UPDATE chain SET complete = 0 WHERE last >= ? AND first <= ?"
_ALONE = "SELECT position FROM past_requests WHERE position > ? AND position < ? LIMIT 1"
_PAGE = 1_000
NAMED_OF_REQUESTS = frozenset(
    {
        *("state", "owner", "endpoint", "requested", "route", "key_id", "tags", "data_class", "classes", "policy"),
        *("task", "target", "model", "error", "lowered", "app", "template"),
    }
)
NAMED_OF_ATTEMPTS = frozenset(
    {
        *("target", "model", "provider", "model_served", "outcome", "finish_reason", "thinking", "usage_source"),
        *("reasoning_source", "service_tier", "region", "region_source", "cost_source", "price_version", "classes"),
        "role",
    }
)
"""Columns whose texts are numbers of `names` in narrow rows."""


def head(connection: Connection) -> str:
    """The newest digest, which all rows of the past are in; empty: there is none. Who notes it elsewhere can tell later
    whether the chain itself was written anew."""
    row = connection.execute("SELECT digest FROM chain ORDER BY last DESC LIMIT 1").fetchone()
    return "" if row is None else str(row[0])


def broken(connection: Connection) -> Iterator[tuple[int, int, str]]:
    """Rows that are not those that were written: first and last position in `past_requests`, and what is wrong with
    them; inside one transaction."""
    before, end = "", 0
    last = 0
    while batches := connection.execute(_BATCHES, (last, _PAGE)).fetchall():
        for first, last, digest, complete in batches:
            if end and first != end + 1:
                yield end + 1, first - 1, "the chain has no batch of them"
            if complete and _digest(connection, first, last, before) != digest:
                yield first, last, "a row, attempt, booking or name is not what was written, or is gone"
            before, end = digest, last
    if end and (row := connection.execute(_ALONE, (end, 2**62)).fetchone()):
        yield row[0], row[0], "it stands beyond the end of the chain"


def _digest(connection: Connection, first: int, last: int, before: str) -> str:
    rows = _known(connection, _REQUESTS, (first, last))
    identifiers = [str(row["id"]) for row in rows]
    attempts, bookings = (
        _known(connection, statement.format(places(identifiers)), identifiers) for statement in (_ATTEMPTS, _BOOKINGS)
    )
    named = ((rows, NAMED_OF_REQUESTS), (attempts, NAMED_OF_ATTEMPTS), (bookings, ("account",)))
    used = sorted({line[name] for lines, names in named for line in lines for name in names if name in line})
    content: list[Any] = [before, first, last, rows, attempts, bookings]
    for at in range(0, len(used), PARAMETERS):
        some = used[at : at + PARAMETERS]
        content.append(connection.execute(_NAMES.format(places(some)), some).fetchall())
    return hashlib.blake2b(msgspec.json.encode(content, order="sorted"), digest_size=_SIZE).hexdigest()


def _known(connection: Connection, statement: str, values: Sequence[Value]) -> list[dict[str, Any]]:
    """Rows by column, without what is NULL: so a column that is added later changes no digest."""
    lines = whole.lines(connection, statement, values)
    return [{name: value for name, value in line.items() if value is not None} for line in lines]


# Moves requests that nothing changes any more from the live tables into narrow rows; drops these when they are old.
#
# Killed at any moment, the next run goes on where this one ended. All writers of these tables take the row 'moved' of
# `progress` first, so they wait for each other.

CHUNK = 24
"""Requests in a transaction: about 3 ms in which no other process can commit, in SQLite."""
TOGETHER = 10_000
"""Requests that one call moves at most, so that their sums are made soon."""
ENOUGH = 256
"""Requests that are moved at once; fewer wait for more of them, so that dictionaries are worth their bytes …"""
PATIENCE_MS = 60_000
"""… but not longer than this."""
CAME_BACK_MS = 900_000
"""How long after its lease a process that was cut off may still come back with the true charge of a request that was
recovered meanwhile: longer than any answer takes."""
MOVED, EXPIRED, SWEPT = "moved", "expired", "swept"
"""Rows of `progress`."""
_REST = 3
"""For each second that others may have had to wait, how many follow in which they need not."""

_DUE = (
    "SELECT id, started_ms FROM live_requests WHERE state IN ('settled', 'released')"
    " OR (state = 'recovered' AND lease_until_ms <= ?) ORDER BY id LIMIT ?"
)
_PAST_NAMES = "SELECT name, id FROM names WHERE name IN ({})"
_SWEPT = (
    "INSERT INTO progress (name, position) VALUES ('swept', ?)"
    " ON CONFLICT (name) DO UPDATE SET position = excluded.position"
)
_SET = "UPDATE progress SET position = ? WHERE name = ?"
_PAST = "SELECT id FROM past_requests WHERE id IN ({})"
_STILL = "SELECT id FROM live_requests WHERE id IN ({})"
_TWICE = "SELECT id FROM live_requests AS l WHERE EXISTS (SELECT 1 FROM past_requests AS p WHERE p.id = l.id)"
_STRAY = (
    # Their request was charged at its hold, and moved, before its process came back; or it was written twice.
    "DELETE FROM live_attempts WHERE NOT EXISTS (SELECT 1 FROM live_requests AS r WHERE r.id = request_id) AND"
    " (request_id < ? OR EXISTS (SELECT 1 FROM past_requests AS p WHERE p.id = request_id))"
)
_UNBOOKED = (
    "DELETE FROM bookings WHERE state = 'settled' AND charged IS NOT NULL AND request_id IN ({})"
    " RETURNING request_id, account, window_start_ms, held, charged"
)
_UNBOOKED_LATE = (
    "DELETE FROM bookings WHERE charged IS NOT NULL AND request_id IN ({})"
    " RETURNING request_id, account, window_start_ms, held, charged"
)
_BOOKED_BEFORE = "SELECT request_id, account FROM past_bookings WHERE request_id IN ({})"
_BOOKED = (
    "INSERT INTO bookings (request_id, account, window_start_ms, held, charged, state)"
    " VALUES (?, ?, ?, 0, ?, 'settled')"
    " ON CONFLICT (request_id, account) DO UPDATE SET charged = bookings.charged + excluded.charged"
)
_LIVE = (("live_decisions", "id"), ("live_attempts", "request_id"), ("live_requests", "id"))
_OLD = (
    ("past_decisions", "id"),
    ("past_bookings", "request_id"),
    ("past_attempts", "request_id"),
    ("past_requests", "id"),
)
_PAST_LAST = "SELECT MAX(started_ms), MAX(position) FROM past_requests WHERE started_ms < ?"
_EXPIRING = "SELECT id, position FROM past_requests WHERE started_ms < ? AND position <= ? ORDER BY started_ms LIMIT ?"
_OUTCOMES = "SELECT position, given_ms FROM outcomes WHERE position > ? ORDER BY position LIMIT ?"
_OUTCOME = "DELETE FROM outcomes WHERE position IN ({}) AND position < (SELECT MAX(position) FROM outcomes)"
_DECISIONS = (
    # What was only decided, and asked of no target, belongs to no request.
    "DELETE FROM live_decisions WHERE id < :id AND decided_ms < :before"
    " AND NOT EXISTS (SELECT 1 FROM live_requests AS r WHERE r.id = live_decisions.id)"
)
_WINDOWS = (
    "DELETE FROM bookings WHERE request_id > 'packed-0' AND request_id < :packed AND window_start_ms > 0"
    " AND window_start_ms < :before",
    "DELETE FROM budget_windows WHERE spent = 0 AND held = 0 AND window_start_ms > 0 AND window_start_ms < :before",
)
_OLD_RATES = (
    "DELETE FROM bookings WHERE request_id > ? AND request_id < ?"
    " AND (account LIKE 'key.rpm|%' OR account LIKE 'key.tpm|%')"
)
_OLD_MINUTES = (
    # "}" follows "|".
    "DELETE FROM budget_windows WHERE budget >= ? AND budget < ? AND window_start_ms > 0 AND window_start_ms < ?"
    " AND spent = 0 AND held = 0"
)
_UNSUMMED = "UPDATE bookings SET charged = charged - ? WHERE request_id = ? AND account = ?"
BOOKING = ("request_id", "account", "window_start_ms", "held", "charged")
"""Columns of `past_bookings`."""


class Names(dict[str, int]):
    """Numbers of texts, in one transaction; `learn` looks them up, and adds those that are new."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection

    def learn(self, texts: Iterable[str]) -> None:
        wanted = sorted(set(texts) - self.keys())
        for at in range(0, len(wanted), PARAMETERS):
            some = wanted[at : at + PARAMETERS]
            self.update(self._connection.execute(_PAST_NAMES.format(places(some)), some).fetchall())
        new = [text for text in wanted if text not in self]
        last = self._connection.execute("SELECT COALESCE(MAX(id), 0) FROM names").fetchone()[0] if new else 0
        numbered = [(text, number) for number, text in enumerate(new, last + 1)]
        insert(self._connection, "names", ("name", "id"), numbered)
        self.update(numbered)


def progress(connection: Connection, name: str) -> int:
    row = connection.execute("SELECT position FROM progress WHERE name = ?", (name,)).fetchone()
    return 0 if row is None else int(row[0])


def lock(connection: Connection) -> None:
    """Keeps other writers of these tables out until the end of the transaction."""
    connection.execute("UPDATE progress SET position = position WHERE name = 'moved'")


def due(connection: Connection, now_ms: int, *, all_of_them: bool = False) -> list[str]:
    """Ids of requests that are to be moved now."""
    found = connection.execute(_DUE, (now_ms - CAME_BACK_MS, TOGETHER)).fetchall()
    wait = not all_of_them and len(found) < ENOUGH and all(began > now_ms - PATIENCE_MS for _, began in found)
    return [] if wait else [identifier for identifier, _ in found]


def move(ledger: Ledger, now_ms: int, *, all_of_them: bool = False) -> int:
    """Returns how many requests it moved; 0: none is due. Raises `LedgerUnavailable`: what is done by then is done."""
    with ledger.reading() as connection:
        ids = due(connection, now_ms, all_of_them=all_of_them)
    with ledger.writing() as connection:
        documents = Documents(connection)
        for at in range(0, len(ids), CHUNK):
            some = ids[at : at + CHUNK]
            rows = whole.live(connection, some)
            decisions = documents.compressed([kept.decision for kept in rows if kept.decision is not None])
            began = time.perf_counter()
            with transaction(connection):
                _move(connection, some, rows, decisions)
            time.sleep(_REST * (time.perf_counter() - began))
        connection.execute(_STRAY, (least_id(progress(connection, EXPIRED)),))
        old = now_ms - HOUR_MS
        with transaction(connection):
            lock(connection)
            connection.execute(_OLD_RATES, (f"packed-{old - DAY_MS}", f"packed-{old}"))
            for prefix in RATE_ACCOUNTS:
                connection.execute(_OLD_MINUTES, (prefix, prefix[:-1] + "}", old))
    return len(ids)


def _move(connection: Connection, ids: Sequence[str], rows: Sequence[Kept], decisions: Sequence[Compressed]) -> None:
    lock(connection)
    names = Names(connection)
    # Where the answer to a commit was lost, rows are written a second time, perhaps after the first ones were moved.
    there = {identifier for (identifier,) in connection.execute(_PAST.format(places(ids)), ids)}
    # Another process may have moved them since they were read, and dropped them again if they were old.
    still = {identifier for (identifier,) in connection.execute(_STILL.format(places(ids)), ids)}
    new = still - there
    add(connection, names, [kept for kept in rows if kept.id in new], [row for row in decisions if row[0] in new])
    moved = connection.execute(_UNBOOKED.format(places(ids)), ids).fetchall()
    known = set(connection.execute(_BOOKED_BEFORE.format(places(ids)), ids).fetchall()) if there else set()
    booked = [line for line in moved if not line[1].startswith(RATE_ACCOUNTS)]
    names.learn(account for _, account, *_ in booked)
    lines = [line for line in booked if (line[0], names[line[1]]) not in known]
    add_bookings(connection, names, lines)
    # Rates count for a minute: of them only the sums are kept, for an hour.
    book_sums(connection, [*lines, *(line for line in moved if line[1].startswith(RATE_ACCOUNTS))])
    if new:
        last = progress(connection, MOVED)
        first = last - len(new) + 1
        connection.execute(_ADD, (last, first, _digest(connection, first, last, head(connection))))
    for table, column in _LIVE:
        connection.execute(f"DELETE FROM {table} WHERE {column} IN ({places(ids)})", ids)  # noqa: S608 - names of ours


def book_sums(connection: Connection, lines: Iterable[Sequence[Any]]) -> None:
    """Windows of budgets stay as they are. `lines`: values of `BOOKING`."""
    sums: Counter[tuple[str, int]] = Counter()
    for _, account, window, _, charged in lines:
        sums[account, window] += charged
    for (account, window), charged in sorted(sums.items()):
        connection.execute(_BOOKED, (f"packed-{window}", account, window, charged))


def add(connection: Connection, names: Names, rows: Sequence[Kept], decisions: Sequence[Compressed]) -> None:
    """Narrow rows of whole requests, and their decisions, without their bookings; inside a transaction."""
    requests = [kept.request for kept in rows]
    attempts = [line for kept in rows for line in kept.attempts]
    policies = {policy for _, _, policy, *_ in decisions}
    names.learn(_texts(requests, NAMED_OF_REQUESTS) | _texts(attempts, NAMED_OF_ATTEMPTS) | policies)
    if requests:
        connection.execute("UPDATE progress SET position = position + ? WHERE name = 'moved'", (len(requests),))
        first = progress(connection, MOVED) - len(requests) + 1
        columns = tuple(requests[0])
        narrow = ((first + at, *_narrow(line, columns, NAMED_OF_REQUESTS, names)) for at, line in enumerate(requests))
        insert(connection, "past_requests", ("position", *columns), narrow)
    if attempts:
        columns = tuple(attempts[0])
        rows_of_attempts = (_narrow(line, columns, NAMED_OF_ATTEMPTS, names) for line in attempts)
        insert(connection, "past_attempts", columns, rows_of_attempts)
    columns = ("id", "decided_ms", "policy", "dictionary", "document")
    rows_of_decisions = ((row[0], row[1], names[row[2]], *row[3:]) for row in decisions)
    insert(connection, "past_decisions", columns, rows_of_decisions)


def add_bookings(connection: Connection, names: Names, lines: Sequence[Sequence[Value]]) -> None:
    """`lines`: values of `BOOKING`."""
    insert(connection, "past_bookings", BOOKING, ((line[0], names[str(line[1])], *line[2:]) for line in lines))


def _texts(lines: Iterable[Line], columns: Iterable[str]) -> set[str]:
    return {value for line in lines for name in columns if isinstance(value := line.get(name), str)}


def _narrow(line: Line, columns: Sequence[str], named: frozenset[str], names: Names) -> tuple[Value, ...]:
    return tuple(
        names[value] if name in named and isinstance(value := line[name], str) else line[name] for name in columns
    )


def expire(ledger: Ledger, now_ms: int, keep_ms: int, groupings: Sequence[str]) -> int:
    """Drops requests older than `keep_ms`, to the hour, as far as they are in the sums of all `groupings`; and what is
    of no use without them. Returns how many requests. Raises `LedgerUnavailable`; the next call drops what is left."""
    before, dropped = _before(now_ms, keep_ms), 0
    with ledger.writing() as connection:
        while some := _expire_some(connection, before, groupings):
            dropped += some
        # Once an hour: what stands beside the rows is looked through for what is old.
        if progress(connection, SWEPT) < before:
            _sweep(connection, before, now_ms)
    return dropped


def _expire_some(connection: Connection, before_ms: int, groupings: Sequence[str]) -> int:
    began = time.perf_counter()
    with transaction(connection):
        lock(connection)
        summed = min(progress(connection, name) for name in groupings)
        expiring = connection.execute(_EXPIRING, (before_ms, summed, CHUNK)).fetchall()
        ids = [identifier for identifier, _ in expiring]
        if ids:
            # The rest of their batches can't be told from what was written any more.
            positions = [position for _, position in expiring]
            connection.execute(_DROPPED, (min(positions), max(positions)))
            # With the first row: reports refuse what they can't answer any more, and never answer with less.
            hours = connection.execute(_PAST_LAST, (before_ms,)).fetchone()[0] // HOUR_MS + 1
            connection.execute(_SET, (max(hours * HOUR_MS, progress(connection, EXPIRED)), EXPIRED))
            # What was recovered before it moved.
            book_sums(connection, connection.execute(_UNBOOKED_LATE.format(places(ids)), ids).fetchall())
        for table, column in _OLD if ids else ():
            connection.execute(f"DELETE FROM {table} WHERE {column} IN ({places(ids)})", ids)  # noqa: S608
    time.sleep(_REST * (time.perf_counter() - began))
    return len(ids)


def _sweep(connection: Connection, before_ms: int, now_ms: int) -> None:
    """What is of no use without the rows of that time."""
    position = 0
    while rows := connection.execute(_OUTCOMES, (position, PARAMETERS)).fetchall():
        position = rows[-1][0]
        old = [at for at, given_ms in rows if given_ms < before_ms]
        if not old:
            break
        # Readers of the log know how far they have read: the newest stays, so that no later one gets its place.
        connection.execute(_OUTCOME.format(places(old)), old)
    connection.execute(_DECISIONS, {"id": least_id(before_ms), "before": before_ms})
    connection.execute("DELETE FROM incidents WHERE at_ms < :before AND until_ms < :before", {"before": before_ms})
    windows_ms = min(before_ms, now_ms - LONGEST_WINDOW_MS)
    connection.execute(_WINDOWS[0], {"packed": f"packed-{windows_ms}", "before": windows_ms})
    connection.execute(_WINDOWS[1], {"before": windows_ms})
    connection.execute(_SWEPT, (before_ms,))


def _before(now_ms: int, keep_ms: int) -> int:
    return (now_ms - keep_ms) // HOUR_MS * HOUR_MS


def expiring(connection: Connection, now_ms: int, keep_ms: int) -> int:
    """The last position of rows that are older than `keep_ms`, to the hour; 0: there are none."""
    before = _before(now_ms, keep_ms)
    oldest = connection.execute("SELECT MIN(started_ms) FROM past_requests").fetchone()[0]
    if oldest is None or oldest >= before:
        return 0
    return int(connection.execute(_PAST_LAST, (before,)).fetchone()[1])


def unmove(connection: Connection) -> None:
    """All rows back into the live tables, for a version that knows no others; inside a transaction."""
    for (identifier,) in connection.execute(_TWICE).fetchall():
        _move(connection, [identifier], [], [])
    for kept in every(connection):
        decisions = () if kept.decision is None else (kept.decision,)
        whole_rows = {"live_requests": (kept.request,), "live_attempts": kept.attempts, "live_decisions": decisions}
        for table, line in [(table, line) for table, lines in whole_rows.items() for line in lines]:
            insert(connection, table, tuple(line), [tuple(line.values())], then="ON CONFLICT DO NOTHING")
        for line in kept.bookings:
            if insert(connection, "bookings", tuple(line), [tuple(line.values())], then="ON CONFLICT DO NOTHING"):
                window = f"packed-{line['window_start_ms']!s}"
                connection.execute(_UNSUMMED, (line["charged"], window, line["account"]))
    connection.execute("DELETE FROM bookings WHERE request_id LIKE 'packed-%' AND charged = 0")
