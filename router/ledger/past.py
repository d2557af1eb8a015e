"""Moves settled requests into compact rows, which are chained by digests and expire by age."""

import hashlib
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec

from router.ledger import rows as records
from router.ledger.facts import HOUR_MS
from router.ledger.ledger import Ledger
from router.ledger.query import LONGEST_WINDOW_MS
from router.ledger.rows import Connection, Line, RequestRecord, among, batched, insert, transaction
from router.types import tables
from router.types.account import RATE_ACCOUNTS, Value
from router.types.clock import least_id
from router.types.request import DAY_MS
from router.types.tables import patterns

_SQL: dict[str, str] = patterns("ledger/data/sql.yaml")["past"]

# Rows of the past are in batches, each with a digest over its rows and the digest before. So later changes, removals
# and insertions are detected (`lowpass ledger verify`).

_PAGE = 1_000
NAMED_OF_REQUESTS, NAMED_OF_ATTEMPTS = (
    frozenset(tables.table("ledger/data/named.yaml")[name]) for name in ("requests", "attempts")
)
"""Columns whose texts are stored as ids of the table `names` in compact rows."""


def head(connection: Connection) -> str:
    """Returns the newest digest, which covers all rows of the past; empty if there is none. If it is also stored
    elsewhere, a rewritten chain can be detected."""
    row = connection.execute("SELECT digest FROM chain ORDER BY last DESC LIMIT 1").fetchone()
    return "" if row is None else str(row[0])


def damaged_ranges(connection: Connection) -> Iterator[tuple[int, int, str]]:
    """Yields ranges of damaged rows: first and last position in `past_requests`, and what is wrong. Call it inside one
    transaction."""
    before, end = "", 0
    last = 0
    while batches := connection.execute(_SQL["batches"], (last, _PAGE)).fetchall():
        for first, last, digest, complete in batches:
            if end and first != end + 1:
                yield end + 1, first - 1, "the chain has no batch of them"
            if complete and _digest(connection, first, last, before) != digest:
                yield first, last, "a row, attempt, booking or name is not what was written, or is gone"
            before, end = digest, last
    if end and (row := connection.execute(_SQL["alone"], (end, 2**62)).fetchone()):
        yield row[0], row[0], "it stands beyond the end of the chain"


def _digest(connection: Connection, first: int, last: int, before: str) -> str:
    rows = _without_nulls(connection.execute(_SQL["requests"], (first, last)))
    ids = [str(row["id"]) for row in rows]
    attempts, bookings = (_without_nulls(among(connection, _SQL[name], ids)) for name in ("attempts", "bookings_of"))
    named = ((rows, NAMED_OF_REQUESTS), (attempts, NAMED_OF_ATTEMPTS), (bookings, ("account",)))
    used = {line[name] for lines, names in named for line in lines for name in names if name in line}
    names_of = sorted(used, key=lambda name: (isinstance(name, str), name))  # texts occur in damaged rows only
    content: list[Any] = [before, first, last, rows, attempts, bookings]
    content += [among(connection, _SQL["names"], some).fetchall() for some in batched(names_of)]
    return _digest_of(content)


def _digest_of(content: object) -> str:
    return hashlib.blake2b(msgspec.json.encode(content, order="sorted"), digest_size=16).hexdigest()


def _without_nulls(rows: records.SqlRows) -> list[dict[str, Any]]:
    """Returns rows by column, without NULLs, so that a column added later changes no digest."""
    return [{name: value for name, value in line.items() if value is not None} for line in records.lines(rows)]


# Seals protect rows outside the past: the audit log, corrections, and settled requests that have not moved yet. Each
# seal has a digest of its row, and one over that and the seal before.

SUBJECTS = {subject: _SQL[f"unsealed_{subject}"] for subject in ("requests", "adjustments", "audit")}
"""Subject → query for the ids of rows without a seal."""
_SEALED = ("subject", "position", "id", "state", "content", "digest")
_MUTABLE = frozenset({"task", "difficulty", "lease_until_ms"})
"""Columns of a settled request that may still change, as when its text is classified after its answer."""


def unsealed(connection: Connection) -> bool:
    """Whether there are rows without a seal."""
    return any(connection.execute(sql).fetchone() for sql in SUBJECTS.values())


def seal(connection: Connection, *subjects: str) -> None:
    """Seals all rows without a seal, of `subjects` or of all; call it inside a transaction."""
    lock(connection)
    for subject in subjects or SUBJECTS:
        while ids := [identifier for (identifier,) in connection.execute(SUBJECTS[subject]).fetchall()]:
            sealed = progress(connection, SEALED + subject)
            position, digest = connection.execute(_SQL["last_seal"], (subject,)).fetchone() or (sealed, "")
            seals = []
            for identifier, (state, content) in _contents(connection, subject, ids).items():
                position, digest = position + 1, _digest_of([digest, position + 1, identifier, state, content])
                seals.append((subject, position, identifier, state, content, digest))
            insert(connection, "seals", _SEALED, seals)
            connection.execute(_SQL["set"], (SEALED + subject, position))


def _contents(connection: Connection, subject: str, ids: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Returns id → state and digest of each row that exists, live or past; the digest covers what charges depend on."""
    if subject != "requests":
        rows = _without_nulls(among(connection, f"SELECT * FROM {subject} WHERE id IN ({{}})", ids))  # noqa: S608
        return {row["id"]: ("", _digest_of(row)) for row in rows}
    contents = {}
    for record in records.some(connection, ids):
        request = {name: value for name, value in record.request.items() if name not in _MUTABLE}
        bookings = [line for line in record.bookings if not line["account"].startswith(RATE_ACCOUNTS)]
        amounts = [(line["account"], line["window_start_ms"], line["charged"]) for line in bookings]
        if request["state"] == "recovered":  # its true charge may still arrive
            request = {name: request[name] for name in ("id", "state", "started_ms", "key_id", "tags", "session")}
            amounts = []
        # Empty columns are left out, since they may have been added later.
        lines = [{k: v for k, v in line.items() if v not in (None, "", 0)} for line in (request, *record.attempts)]
        contents[record.id] = request["state"], _digest_of([lines, amounts])
    return contents


def check_seals(connection: Connection, subject: str) -> Iterator[tuple[int, str, str]]:
    """Yields each seal's position, its row's id, and what is wrong (empty if nothing). Call it inside a transaction."""
    first = progress(connection, UNSEALED) if subject == "requests" else 0
    last, before, oldest = first, "", least_id(progress(connection, EXPIRED))
    while seals := connection.execute(_SQL["seals"], (subject, last)).fetchall():
        rows = _contents(connection, subject, sorted({identifier for _, identifier, *_ in seals}))
        for position, identifier, state, content, digest in seals:
            found, problem = rows.get(identifier), ""
            chained = last == first > 0 or digest == _digest_of([before, position, identifier, state, content])
            if position != last + 1 or not chained:
                problem = "its seal, or the one before, is not what was written"
            elif found is None and (subject != "requests" or identifier >= oldest):
                problem = "it is gone"
            elif found is not None and found != (state, content) and (found[0] == state or state != "recovered"):
                problem = "it is not what was written: a column, an attempt or a booking of it was changed, or is gone"
            yield position, identifier, problem
            last, before = position, digest
    if last < (sealed := progress(connection, SEALED + subject)):
        yield last, f"sealed from position {last + 1} to {sealed}", "the seals are gone"


def unseal(connection: Connection) -> None:
    """Drops the oldest seals whose requests are intact and have moved: the chain covers them now."""
    moved = 0
    for position, identifier, problem in islice(check_seals(connection, "requests"), 1_000):
        if problem or connection.execute(_SQL["still"].format("?"), (identifier,)).fetchone():
            break
        moved = position
    # The last of them stays, since the next seal is chained to it.
    connection.execute("DELETE FROM seals WHERE subject = 'requests' AND position < ?", (moved,))
    if moved:
        connection.execute(_SQL["set"], (UNSEALED, moved - 1))


# Requests that nothing changes any more move from the live tables into compact rows, which are dropped when old.
#
# If a run is killed, the next one continues. All writers of these tables first update the row 'moved' of `progress`,
# and so wait for each other.

CHUNK = 24
"""Number of requests per transaction; it blocks other processes for about 3 ms in SQLite."""
TOGETHER = 10_000
"""Maximum number of requests that one call moves, so that they are summed soon."""
ENOUGH = 256
"""Number of requests that are moved at once; fewer wait for more, so that compression dictionaries pay off."""
PATIENCE_MS = 60_000
"""Maximum time in ms that fewer than `ENOUGH` requests wait."""
CAME_BACK_MS = 900_000
"""Time in ms after the end of a lease in which a process that was cut off may still settle a recovered request; longer
than any answer takes."""
MOVED, EXPIRED, SWEPT, UNSEALED, SEALED = "moved", "expired", "swept", "unsealed", "sealed "
"""Names of rows of `progress`; a subject follows `SEALED`."""
_SLEEP_RATIO = 3
"""Ratio of sleep to the time of the transaction before, so that other processes can write."""

_LIVE = (("live_decisions", "id"), ("live_attempts", "request_id"), ("live_requests", "id"))
_OLD = (("past_bookings", "request_id"), *((name.replace("live", "past"), column) for name, column in _LIVE))
BOOKING = ("request_id", "account", "window_start_ms", "held", "charged")


class NameTable(dict[str, int]):
    """Text → id in the table `names`, within one transaction; `learn` looks up texts and adds new ones."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection

    def learn(self, texts: Iterable[str]) -> None:
        wanted = sorted(set(texts) - self.keys())
        for some in batched(wanted):
            self.update(among(self._connection, _SQL["numbers"], some).fetchall())
        new = [text for text in wanted if text not in self]
        last = self._connection.execute("SELECT COALESCE(MAX(id), 0) FROM names").fetchone()[0] if new else 0
        numbered = [(text, number) for number, text in enumerate(new, last + 1)]
        insert(self._connection, "names", ("name", "id"), numbered)
        self.update(numbered)


def progress(connection: Connection, name: str) -> int:
    row = connection.execute("SELECT position FROM progress WHERE name = ?", (name,)).fetchone()
    return 0 if row is None else int(row[0])


def hours(first: str, end: str) -> Iterator[tuple[str, str]]:
    """Yields id ranges of an hour each, from `first` to before `end`, so that no table is read at once."""
    for hour in range(int(first[:12], 16) // HOUR_MS, int(end[:12], 16) // HOUR_MS + 1):
        yield max(first, least_id(hour * HOUR_MS)), min(end, least_id((hour + 1) * HOUR_MS))


def lock(connection: Connection) -> None:
    """Blocks other writers of these tables until the end of the transaction."""
    connection.execute("UPDATE progress SET position = position WHERE name = 'moved'")


def due(connection: Connection, now_ms: int, *, all_of_them: bool = False) -> list[str]:
    """Returns the ids of requests to move: those whose lease is over, since other processes learn from live rows."""
    rows = connection.execute(_SQL["due"], (now_ms + DAY_MS * all_of_them, now_ms - CAME_BACK_MS, TOGETHER)).fetchall()
    wait = not all_of_them and len(rows) < ENOUGH and all(began > now_ms - PATIENCE_MS for _, began in rows)
    return [] if wait else [identifier for identifier, _ in rows]


def move(ledger: Ledger, now_ms: int, *, all_of_them: bool = False) -> int:
    """Moves the requests that are due and returns their number. On `LedgerUnavailable`, some may have moved already."""
    with ledger.reading() as connection:
        ids = due(connection, now_ms, all_of_them=all_of_them)
    with ledger.writing() as connection:
        documents = records.Documents(connection)
        for at in range(0, len(ids), CHUNK):
            chunk = ids[at : at + CHUNK]
            rows = records.some(connection, chunk, documents)
            decisions = documents.compressed([record.decision for record in rows if record.decision is not None])
            began = time.perf_counter()
            with transaction(connection):
                _move(connection, chunk, rows, decisions)
            time.sleep(_SLEEP_RATIO * (time.perf_counter() - began))
        connection.execute(_SQL["stray"], (least_id(progress(connection, EXPIRED)),))
        old = now_ms - HOUR_MS
        with transaction(connection):
            lock(connection)
            connection.execute(_SQL["old_rates"], (f"packed-{old - DAY_MS}", f"packed-{old}"))
            for prefix in RATE_ACCOUNTS:
                connection.execute(_SQL["old_minutes"], (prefix, prefix[:-1] + "}", old))
    return len(ids)


def _move(
    connection: Connection, ids: Sequence[str], rows: Sequence[RequestRecord], decisions: Sequence[records.Compressed]
) -> None:
    lock(connection)
    names = NameTable(connection)
    # If the answer to a commit is lost, rows are written again, perhaps after the first ones were moved.
    already_moved = {identifier for (identifier,) in among(connection, _SQL["moved"], ids)}
    # Another process may have moved the requests since they were read, and dropped them if they were old.
    new = {identifier for (identifier,) in among(connection, _SQL["still"], ids)} - already_moved
    add(connection, names, [record for record in rows if record.id in new], [row for row in decisions if row[0] in new])
    among(connection, _SQL["booked_twice"], ids)
    if new:
        # Bookings settled later stay in `bookings`: the digest of a batch covers those settled by now.
        moved = among(connection, _SQL["unbooked"], sorted(new), "").fetchall()
        lines = [line for line in moved if not line[1].startswith(RATE_ACCOUNTS)]
        names.learn(account for _, account, *_ in lines)
        add_bookings(connection, names, lines)
        # Of rate limits, which count for a minute, only sums are kept, for an hour.
        book_sums(connection, moved)
        last = progress(connection, MOVED)
        first = last - len(new) + 1
        connection.execute(_SQL["chain"], (last, first, _digest(connection, first, last, head(connection))))
    for table, column in _LIVE:
        among(connection, f"DELETE FROM {table} WHERE {column} IN ({{}})", ids)  # noqa: S608 - names of ours


def book_sums(connection: Connection, lines: Iterable[Sequence[Any]]) -> None:
    """Adds removed bookings to their sums, so that budget windows stay the same. `lines`: values of `BOOKING`."""
    sums: Counter[tuple[str, int]] = Counter()
    for _, account, window, _, charged in lines:
        sums[account, window] += charged
    for (account, window), charged in sorted(sums.items()):
        connection.execute(_SQL["booked"], (f"packed-{window}", account, window, charged))


def add(
    connection: Connection, names: NameTable, rows: Sequence[RequestRecord], decisions: Sequence[records.Compressed]
) -> None:
    """Inserts compact rows of requests, attempts and decisions, without bookings; call it inside a transaction."""
    requests = [record.request for record in rows]
    attempts = [line for record in rows for line in record.attempts]
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
    insert(connection, "past_decisions", columns, ((row[0], row[1], names[row[2]], *row[3:]) for row in decisions))


def add_bookings(connection: Connection, names: NameTable, lines: Sequence[Sequence[Any]]) -> None:
    """Inserts compact rows of bookings. `lines`: values of the columns `BOOKING`."""
    insert(connection, "past_bookings", BOOKING, ((line[0], names[line[1]], *line[2:]) for line in lines))


def _texts(lines: Iterable[Line], columns: Iterable[str]) -> set[str]:
    return {value for line in lines for name in columns if isinstance(value := line.get(name), str)}


def _narrow(line: Line, columns: Sequence[str], named: frozenset[str], names: NameTable) -> tuple[Value, ...]:
    return tuple(
        names[value] if name in named and isinstance(value := line[name], str) else line[name] for name in columns
    )


def expire(ledger: Ledger, now_ms: int, keep_ms: int, groupings: Sequence[str]) -> int:
    """Drops requests older than `keep_ms`, to the hour, that are in the sums of all `groupings`, and rows of no use
    without them. Returns the number of requests. Raises `LedgerUnavailable`; the next call drops the rest."""
    before, dropped = (now_ms - keep_ms) // HOUR_MS * HOUR_MS, 0
    with ledger.writing() as connection:
        while some := _expire_some(connection, before, groupings):
            dropped += some
        # Once an hour, old rows of other tables are dropped.
        if progress(connection, SWEPT) < before:
            _sweep(connection, before, now_ms)
    return dropped


def _expire_some(connection: Connection, before_ms: int, groupings: Sequence[str]) -> int:
    began = time.perf_counter()
    with transaction(connection):
        lock(connection)
        summed = min(progress(connection, name) for name in groupings)
        expiring = connection.execute(_SQL["expiring"], (before_ms, summed, CHUNK)).fetchall()
        ids = [identifier for identifier, _ in expiring]
        if ids:
            # The remaining rows of their batches can't be verified any more.
            positions = [position for _, position in expiring]
            connection.execute(_SQL["dropped"], (min(positions), max(positions)))
            # Set with the first dropped row, so that reports refuse queries instead of answering with less.
            hours = connection.execute(_SQL["last"], (before_ms,)).fetchone()[0] // HOUR_MS + 1
            connection.execute(_SQL["set"], (EXPIRED, max(hours * HOUR_MS, progress(connection, EXPIRED))))
            # Bookings that were recovered, and so did not move.
            book_sums(connection, among(connection, _SQL["unbooked"], ids, "recovered").fetchall())
        for table, column in _OLD if ids else ():
            among(connection, f"DELETE FROM {table} WHERE {column} IN ({{}})", ids)  # noqa: S608 - names of ours
    time.sleep(_SLEEP_RATIO * (time.perf_counter() - began))
    return len(ids)


def _sweep(connection: Connection, before_ms: int, now_ms: int) -> None:
    """Drops outcomes, undecided decisions, incidents, sums of bookings and windows that are of no use any more."""
    position = 0
    while rows := connection.execute(_SQL["outcomes"], (position, records.PARAMETERS)).fetchall():
        position = rows[-1][0]
        old = [at for at, given_ms in rows if given_ms < before_ms]
        if not old:
            break
        # The newest outcome stays, so that its position, up to which readers have read, is not used again.
        among(connection, _SQL["outcome"], old)
    connection.execute(_SQL["decisions"], {"id": least_id(before_ms), "before": before_ms})
    connection.execute("DELETE FROM incidents WHERE at_ms < :before AND until_ms < :before", {"before": before_ms})
    windows_ms = min(before_ms, now_ms - LONGEST_WINDOW_MS)
    connection.execute(_SQL["old_bookings"], {"packed": f"packed-{windows_ms}", "before": windows_ms})
    connection.execute(_SQL["old_windows"], {"before": windows_ms})
    connection.execute(_SQL["set"], (SWEPT, before_ms))


def expiring(connection: Connection, now_ms: int, keep_ms: int) -> int:
    """Returns the last position of rows older than `keep_ms`, to the hour; 0 if there are none."""
    before = (now_ms - keep_ms) // HOUR_MS * HOUR_MS
    oldest = connection.execute("SELECT MIN(started_ms) FROM past_requests").fetchone()[0]
    if oldest is None or oldest >= before:
        return 0
    return int(connection.execute(_SQL["last"], (before,)).fetchone()[1])
