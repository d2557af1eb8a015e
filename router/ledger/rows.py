"""Access to rows for reports and look-ups: connections, documents of decisions, and whole requests."""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from router.types.account import Journal, Value
from router.types.tables import patterns

_SQL: dict[str, str] = patterns("ledger/data/sql.yaml")["rows"]

# The interface of a database connection: that of `sqlite3`, which the PostgreSQL connection implements too.

K = TypeVar("K")
PARAMETERS = 900
"""Maximum number of parameters of a statement; SQLite's limit was once 999."""


class SqlRows(Protocol):
    """Rows of integers, floats, text, bytes and None; never a Decimal, bool or date, whatever the database."""

    @property
    def description(self) -> Any:
        """One sequence per column, whose first item is the column's name."""
        ...

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """A connection. Each statement is its own transaction, unless it is between BEGIN and COMMIT."""

    def execute(self, statement: str, parameters: Any = ..., /) -> SqlRows: ...


@contextmanager
def transaction(connection: Connection, begin: Sequence[str] = ("BEGIN",)) -> Iterator[None]:
    """Runs its block in a transaction: commits at the end, and rolls back if an exception is raised."""
    try:
        for statement in begin:
            connection.execute(statement)
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(Exception):
            connection.execute("ROLLBACK")
        raise


def insert(
    connection: Connection,
    table: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Value | bytes]],
    given: str = "",
    then: str = "",
) -> None:
    """Inserts rows, many per statement. `given` is SQL before VALUES, `then` SQL after them (ON CONFLICT …)."""
    rest, placeholders = iter(rows), f"({sql_placeholders(columns)})"
    into = f"INSERT INTO {table} ({', '.join(columns)}){given} VALUES "  # noqa: S608 - names of ours
    while batch := list(islice(rest, max(1, PARAMETERS // len(columns)))):
        statement = f"{into}{', '.join([placeholders] * len(batch))} {then}"
        connection.execute(statement, tuple(value for row in batch for value in row))


def sql_placeholders(values: Sequence[object]) -> str:
    """Returns `?, ?, …`, with a placeholder for each value."""
    return ", ".join("?" * len(values))


def among(connection: Connection, statement: str, ids: Sequence[Value], *before: Value) -> SqlRows:
    """Runs a statement with `{}` replaced by placeholders for `ids`, which follow the parameters `before`."""
    return connection.execute(statement.format(sql_placeholders(ids)), (*before, *ids))


def batched(values: Sequence[K]) -> Iterator[Sequence[K]]:
    """Yields values in batches of `PARAMETERS`."""
    return (values[at : at + PARAMETERS] for at in range(0, len(values), PARAMETERS))


# Documents of decisions are compressed by raw deflate, with documents of the same policy as the dictionary.

NO_DICTIONARY = 0
"""Number of the empty dictionary."""
DICTIONARY_SIZE = 16
"""Number of documents in a dictionary."""
_LARGEST = 32_768
"""Maximum size of a dictionary in bytes: deflate's window."""
_LEVEL = 6
_RAW = -zlib.MAX_WBITS
Compressed = tuple[str, int, str, int, bytes]
"""A decision: id, when it was made (Unix ms), policy, number of the dictionary, document."""


class Documents:
    """Compresses and restores the documents of one ledger, with its dictionaries."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._data: dict[int, bytes] = {NO_DICTIONARY: b""}
        self._of_policy: dict[str, int] = {}
        self._read()

    def compressed(self, decisions: Sequence[Mapping[str, Any]]) -> list[Compressed]:
        """Compresses documents, after adding a dictionary per policy that has none and at least `DICTIONARY_SIZE` of
        the documents. Other policies without one use the newest."""
        by_policy: dict[str, list[str]] = {}
        for line in decisions:
            by_policy.setdefault(line["policy"], []).append(line["document"])
        for policy, texts in by_policy.items():
            if policy not in self._of_policy and len(texts) >= DICTIONARY_SIZE:
                data = "".join(texts[:DICTIONARY_SIZE]).encode()[-_LARGEST:]
                self._connection.execute(_SQL["add_dictionary"], (max(self._data) + 1, policy, data))
                self._read()
        rows: list[Compressed] = []
        for line in decisions:
            number = self._of_policy.get(line["policy"], max(self._data))
            packer = zlib.compressobj(_LEVEL, wbits=_RAW, zdict=self._data[number])
            data = packer.compress(line["document"].encode()) + packer.flush()
            rows.append((line["id"], line["decided_ms"], line["policy"], number, data))
        return rows

    def _read(self) -> None:
        for number, policy, data in self._connection.execute(_SQL["dictionaries"], (max(self._data),)):
            self._data[number], self._of_policy[policy] = bytes(data), number

    def restored(self, dictionary: int, data: bytes) -> str:
        """Returns a document; empty if it is damaged, which `lowpass ledger verify` reports."""
        try:
            return zlib.decompressobj(_RAW, zdict=self._data[dictionary]).decompress(data).decode()
        except (KeyError, UnicodeDecodeError, zlib.error):
            return ""


# Whole requests: the request's row, its attempts, its bookings, and its decision.

CHUNK = 1_000
Line = Mapping[str, Any]
"""A row: column → value."""
EVER_MS = 2**62
NOT_MOVED = "NOT EXISTS (SELECT 1 FROM past_requests AS p WHERE p.id = r.id)"
"""Condition on a live request `r`. If the answer to a commit is lost, requests that have moved may be written again."""


class RequestRecord(Struct, frozen=True):
    """A whole request. `attempts` are ordered by number and `bookings` by account; `decision` may be missing."""

    request: Line
    attempts: tuple[Line, ...]
    bookings: tuple[Line, ...]
    decision: Line | None

    @property
    def id(self) -> str:
        identifier: str = self.request["id"]
        return identifier

    @property
    def started_ms(self) -> int:
        began: int = self.request["started_ms"]
        return began


def one(connection: Connection, identifier: str) -> RequestRecord | None:
    """Returns a request; None if there is none or its rows have expired."""
    return next(iter(_read(connection, "id = ?", (identifier,), Documents(connection))), None)


def every(connection: Connection, since_ms: int | None = None, until_ms: int | None = None) -> Iterator[RequestRecord]:
    """Yields the requests that began in the window (end excluded) and have not expired, ordered by id and so by time.

    Call it inside one transaction.
    """
    documents, which, values = Documents(connection), "id >= ?", list[Value]([""])
    if since_ms is not None or until_ms is not None:
        window = (since_ms or 0, EVER_MS if until_ms is None else until_ms)
        first, last = connection.execute(_SQL["span"], window).fetchone()
        if first is None:
            return
        # Read in the order of ids; the unary plus disables the index of times, which would need a sort for each page.
        which, values = "id >= ? AND id <= ? AND +started_ms >= ? AND +started_ms < ?", [first, last, *window]
    while page := _read(connection, which, tuple(values), documents, CHUNK):
        yield from page
        which, values[0] = which.replace("id >= ?", "id > ?"), page[-1].id


def newest(connection: Connection, most: int) -> list[RequestRecord]:
    """Returns the newest requests, newest first. Each table is read by its index; the view would be sorted whole."""
    tables = ("live_requests", "past_requests")
    ids = {row[0] for name in tables for row in connection.execute(_SQL["newest"].format(name), (most,))}
    first = sorted(ids, reverse=True)[:most][-1:]
    return _read(connection, "id >= ?", (*first,), Documents(connection))[::-1] if first else []


def some(connection: Connection, ids: Sequence[str], documents: Documents | None = None) -> list[RequestRecord]:
    """Returns the existing requests among `ids`, ordered by id; with decisions only if `documents` are given."""
    return _read(connection, f"id IN ({sql_placeholders(ids)})", ids, documents)


def _read(
    connection: Connection,
    which: str,
    values: Sequence[Value],
    documents: Documents | None = None,
    most: int | None = None,
) -> list[RequestRecord]:
    """Returns requests that meet the condition `which`, ordered by id, at most the first `most`; with decisions only if
    `documents` are given."""
    limit = "" if most is None else f" LIMIT {most}"
    requests = lines(connection.execute(_SQL["requests_where"].format(which, limit), values))
    if not requests:
        return []
    span = (str(requests[0]["id"]), str(requests[-1]["id"]))
    attempts = _by_request(lines(connection.execute(_SQL["attempts_between"], span)))
    bookings = booked(connection, *span)
    decisions = lines(connection.execute(_SQL["live_decisions"], span)) if documents else []
    for identifier, at, policy, *data in connection.execute(_SQL["past_decisions"], span) if documents else ():
        text = documents.restored(*data) if documents else ""
        decisions.append({"id": identifier, "decided_ms": at, "policy": policy, "document": text})
    decided = {line["id"]: line for line in decisions}  # the last of several counts
    ids = [(request, request["id"]) for request in requests]
    return [
        RequestRecord(row, tuple(attempts.get(at, ())), tuple(bookings.get(at, ())), decided.get(at)) for row, at in ids
    ]


def booked(connection: Connection, first_id: str, last_id: str) -> dict[Value, list[Line]]:
    """Returns the bookings of requests from `first_id` to `last_id` (included), by request."""
    return _by_request(lines(connection.execute(_SQL["all_bookings"], {"first": first_id, "last": last_id})))


def lines(rows: SqlRows) -> list[Line]:
    names = [column for column, *_ in rows.description]
    return [dict(zip(names, row, strict=True)) for row in rows]


def _by_request(lines: list[Line]) -> dict[Value, list[Line]]:
    return {identifier: list(group) for identifier, group in groupby(lines, key=itemgetter("request_id"))}


# All policies that have been in force, by the hash that rows of requests refer to.


def adopted(journal: Journal, policy: str, now_ms: int, document: bytes) -> None:
    """Records a policy, before the first decision under it. Only the first call for a policy counts."""
    journal.add(_SQL["adopted"], (policy, now_ms, document.decode()))


def documents(connection: Connection) -> dict[str, bytes]:
    return {policy: document.encode() for policy, document in connection.execute("SELECT hash, document FROM policies")}
