"""The ledger in PostgreSQL: connections, the journal over one of them, and the `Ledger`.

It is imported only if needed, since the client library is slow to import. No message contains the URL's password.
"""

import asyncio
import logging
import re
import select
import time
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import lru_cache

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader, Transformer
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import lookup
from psycopg.pq import DiagnosticField, ExecStatus
from psycopg.pq.abc import PGconn, PGresult

from router.ledger.journal import GroupJournal, Item, Transaction
from router.ledger.ledger import Ledger
from router.ledger.migrate import POSTGRES
from router.ledger.rows import Connection
from router.settings import SettingError
from router.types.account import LedgerUnavailable, Row, Value
from router.types.tables import patterns
from router.types.target import Secret

SETTING = "LOWPASS_DATABASE_URL"
CONNECT_S = 3
"""Timeout in seconds of an attempt to connect; the client library's minimum is 2."""
_SCHEMES = ("postgresql://", "postgres://")
_BAD_URL = f"{SETTING} is not a URL like postgresql://USER:PASSWORD@HOST:PORT/DATABASE"


class ServerAddress:
    """The parsed URL of a database."""

    def __init__(self, url: Secret) -> None:
        """Raises `SettingError` for an invalid URL, and for an unescaped @, / or # in the password, since a part of it
        would be taken for the host and shown."""
        _, _, rest = url.reveal().partition("://")
        authority = rest.partition("/")[0].partition("?")[0]
        unclear = rest.count("@") != authority.count("@") or authority.count("@") > 1 or "#" in rest
        if not url.reveal().startswith(_SCHEMES) or unclear:
            raise SettingError(f"{_BAD_URL}: percent-encode what is special in the password")
        try:
            self._parts = {name: str(value) for name, value in conninfo_to_dict(url.reveal()).items()}
        except psycopg.Error:
            raise SettingError(_BAD_URL) from None
        host, port = self._parts.get("host", "localhost"), self._parts.get("port", "5432")
        self.name = f"postgresql://{host}:{port}/{self._parts.get('dbname', '')}"
        """Name for messages, without user and password."""

    def connect(self) -> psycopg.Connection:
        """Connects; blocks for at most `CONNECT_S` per host. Raises `LedgerUnavailable`."""
        defaults = {"connect_timeout": str(CONNECT_S), "fallback_application_name": "lowpass"}
        address = make_conninfo("", **{**defaults, **self._parts, "client_encoding": "utf8"})
        try:
            return psycopg.Connection.connect(address, autocommit=True)
        except psycopg.Error as error:
            # The client library quotes its arguments, so only the text after its own words is repeated.
            reason = str(error).strip().splitlines()[0].rpartition("failed: ")[2]
            if password := self._parts.get("password"):
                reason = reason.replace(password, "***")
            raise LedgerUnavailable(f"{SETTING}: {self.name} can't be reached: {reason}") from None


# SQL and values in PostgreSQL's form: numbered placeholders, and all values as text.

Sent = Value | bytes

_PLACEHOLDER = re.compile(r"'[^']*'|::|\?|:(\w+)")
"""A placeholder, or what looks like one: quoted text and casts."""
_NUL = "\ufffd".encode()
"""Replacement for NUL, which PostgreSQL's text can't have and at which the client library would cut the text."""
_WRONG_ROW = ("22", "23", "54")
"""SQLSTATE classes of errors of the row: an invalid value, a violated constraint, a program limit exceeded."""
_SERVER_FAILURE = ("08", "53", "57", "58")
"""SQLSTATE classes of errors of the connection, resources, operator intervention (also timeouts), and the system."""


@lru_cache(256)
def numbered(statement: str) -> tuple[bytes, tuple[str, ...]]:
    """Returns a statement with `$1` … in place of `?` and `:name`, and the names by number (empty for `?`)."""
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[0] != "?" and match[1] is None:
            return match[0]
        name = match[1] or f"?{len(names)}"
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    return _PLACEHOLDER.sub(number, statement).encode(), tuple(name for name in names if not name.startswith("?"))


def encoded(value: Sent) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, bytes):
        return b"\\x" + value.hex().encode()
    if isinstance(value, str):
        text = value.encode("utf-8", "replace")
        return text.replace(b"\0", _NUL) if b"\0" in text else text
    return repr(value).encode() if isinstance(value, float) else b"%d" % value


class _BoolLoader(Loader):
    def load(self, data: Buffer) -> int:
        return int(data == b"t")


class _NumericLoader(Loader):
    """Loads sums of integers, which PostgreSQL returns as `numeric`, as integers, like SQLite."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data)
        return float(text) if b"." in text else int(text)


_NO_ITEM = -1
"""Place of a result that belongs to no item of a transaction."""


class StatementRefused(Exception):
    """The server refused a statement. The message has the kind of error and its place, never a value of a user."""

    def __init__(self, result: PGresult, place: int = _NO_ITEM) -> None:
        """`place`: index of the statement among the items of a transaction."""
        self.place = place
        self.state = (result.error_field(DiagnosticField.SQLSTATE) or b"").decode()
        names = [result.error_field(field) for field in (DiagnosticField.TABLE_NAME, DiagnosticField.CONSTRAINT_NAME)]
        named = " in " + ", ".join(name.decode() for name in names if name) if any(names) else ""
        try:
            kind = f"{lookup(self.state).__name__} ({self.state})"
        except KeyError:
            kind = f"SQLSTATE {self.state or 'unknown'}"
        super().__init__(f"{kind}{named}")


# A connection is used from one thread at a time, and never waits longer than `ANSWER_S`.

ANSWER_S = 10.0
"""Timeout of a statement in seconds, after which the connection is closed."""
_READ_ONLY = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
COMMIT_S = 2.0
"""Timeout in seconds of a transaction of the journal, after which the connection is closed."""
_BEGIN = (
    b"BEGIN",
    b"SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'",
)
"""Statements that begin a transaction; commits survive a power cut even if the server's setting is off."""


class Result:
    """The complete result of a statement; see `router.ledger.rows.SqlRows`."""

    def __init__(self, connection: psycopg.Connection, result: PGresult) -> None:
        self.description = [((result.fname(column) or b"").decode(),) for column in range(result.nfields)]
        self.rowcount = result.command_tuples or 0
        loaders = Transformer(connection)
        loaders.set_pgresult(result)
        self._rows = iter(loaders.load_rows(0, result.ntuples, tuple))

    def fetchone(self) -> tuple[Sent, ...] | None:
        return next(self._rows, None)

    def fetchall(self) -> list[tuple[Sent, ...]]:
        return list(self._rows)

    def __iter__(self) -> Iterator[tuple[Sent, ...]]:
        return self._rows


class PostgresConnection:
    """A `Connection` to PostgreSQL. Raises `LedgerUnavailable`, or `StatementRefused` for a wrong statement.

    A read-only connection is one transaction, so it changes no settings of a session that a pooler reuses. It uses
    `psycopg.pq`, since a cursor costs 50 µs per statement: https://www.psycopg.org/psycopg3/docs/api/pq.html
    """

    def __init__(self, address: ServerAddress, *, read_only: bool = False) -> None:
        self._connection = address.connect()
        self._connection.adapters.register_loader("bool", _BoolLoader)
        self._connection.adapters.register_loader("numeric", _NumericLoader)
        self._pgconn: PGconn = self._connection.pgconn
        self._pgconn.nonblocking = 1
        self._poll, self._timeout_s, self._deadline_s = select.poll(), 0.0, 0.0
        if read_only:
            self.execute(_READ_ONLY)
            self.execute(f"SET LOCAL statement_timeout = {round(ANSWER_S * 1000)}")

    def execute(self, statement: str, values: Sequence[Sent] | Mapping[str, Sent] = (), /) -> Result:
        text, names = numbered(statement)
        with self._within_timeout(ANSWER_S):
            ordered = [values[name] for name in names] if isinstance(values, Mapping) else values
            self._pgconn.send_query_params(text, [encoded(value) for value in ordered])
            self._flush()
            *_, result = [None, *iter(self._result, None)]
            if result is None:
                raise psycopg.OperationalError("no answer")
        if result.status in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
            return Result(self._connection, result)
        refused = StatementRefused(result)
        if refused.state[:2] in _SERVER_FAILURE:
            raise LedgerUnavailable(f"the database refused: {refused}")
        raise refused

    def commit(self, items: Sequence[Item]) -> None:
        """Commits all items or none, in libpq's pipeline mode, which takes one round trip.

        After `StatementRefused`, for a wrong row, the connection is still usable; after `LedgerUnavailable` it is
        closed. No state is left on the server, so a pooler may use another session for the next transaction.
        """
        pgconn, prepared, places = self._pgconn, "", [_NO_ITEM] * len(_BEGIN)
        failure: StatementRefused | None = None
        with self._within_timeout(COMMIT_S):
            pgconn.enter_pipeline_mode()
            for command in _BEGIN:
                pgconn.send_query_params(command, None)
            for place, (statement, row) in enumerate(items):
                if statement != prepared:
                    pgconn.send_prepare(b"", numbered(statement)[0])
                    prepared = statement
                    places.append(_NO_ITEM)
                pgconn.send_query_prepared(b"", [encoded(value) for value in row])
                places.append(place)
            pgconn.send_query_params(b"COMMIT", None)
            pgconn.pipeline_sync()
            self._flush()
            for place in (*places, _NO_ITEM):
                if (result := self._result()) is None:
                    raise psycopg.OperationalError("the answers ended early")
                if result.status == ExecStatus.FATAL_ERROR and failure is None:
                    failure = StatementRefused(result, place)
                self._result()  # every result is followed by None
            self._result()  # the result of the sync
            pgconn.exit_pipeline_mode()
        if failure is not None:
            self.execute("ROLLBACK")
            if failure.state[:2] in _WRONG_ROW and failure.place != _NO_ITEM:
                raise failure
            self.close()
            raise LedgerUnavailable(f"the database refused: {failure}")

    def closed_by_server(self) -> bool:
        """Whether the connection is closed, or the server has sent that it closes it."""
        if self._connection.closed:
            return True
        self._poll.register(self._pgconn.socket, select.POLLIN)
        return bool(self._poll.poll(0))

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _within_timeout(self, within_s: float) -> Iterator[None]:
        self._timeout_s, self._deadline_s = within_s, time.monotonic() + within_s
        try:
            yield
        except BaseException as error:
            self.close()
            if isinstance(error, psycopg.Error):
                raise LedgerUnavailable("the connection to the database broke") from None
            raise

    def _flush(self) -> None:
        while self._pgconn.flush():
            self._wait(select.POLLIN | select.POLLOUT)

    def _result(self) -> PGresult | None:
        while self._pgconn.is_busy():
            self._wait(select.POLLIN)
        return self._pgconn.get_result()

    def _wait(self, events: int) -> None:
        self._poll.register(self._pgconn.socket, events)
        if not self._poll.poll(max(0, self._deadline_s - time.monotonic()) * 1000):
            raise LedgerUnavailable(f"the database did not answer within {self._timeout_s:g} s")
        self._pgconn.consume_input()


# Group commit to a server. While the server is unavailable, reconnecting is retried, new requests are refused
# (`available`), and rows of answered requests wait in memory.

LARGEST = 50_000
"""Maximum number of waiting statements, about 50 MB; only the rows of requests refused meanwhile can reach it."""
LARGEST_COMMIT = 500
"""Maximum number of statements per transaction, so that each ends well within its timeout after an outage."""
END_S = 5.0
"""Time in seconds that a gateway waits for rows to be written when it ends."""
_log = logging.getLogger(__name__)


class PostgresJournal(GroupJournal):
    """A `Journal` over one connection; creating it raises `LedgerUnavailable`. Statements beyond `LARGEST` are dropped
    and counted."""

    def __init__(self, address: ServerAddress) -> None:
        self._address = address
        self._connection = PostgresConnection(address)
        super().__init__()

    def add(self, statement: str, row: Row) -> None:
        if self._has_room():
            super().add(statement, row)

    def change(self, statement: str, row: Row) -> None:
        if self._has_room():
            super().change(statement, row)

    def committed(self) -> Awaitable[None]:
        if self.available:
            return super().committed()
        future = self._loop.create_future()
        future.set_exception(LedgerUnavailable("the ledger could not be written"))
        return future

    async def end(self) -> None:
        deadline_s = self._loop.time() + END_S
        while self.waiting and self._loop.time() < deadline_s:
            with suppress(LedgerUnavailable):
                await self.committed()
            await asyncio.sleep(0.01)
        self._handed_over.put(None)
        await asyncio.to_thread(self._thread.join, COMMIT_S)
        self._connection.close()
        if self.waiting:
            _log.error("%d rows are lost: the ledger could not be written before the end", self.waiting)

    def _has_room(self) -> bool:
        full = self.waiting >= LARGEST
        self.dropped += full
        return not full

    def _write(self, transaction: Transaction) -> None:
        self._backlog += transaction.items()
        wrong: StatementRefused | None = None
        if self._connection.closed_by_server():
            self._connection.close()
            self._connection = PostgresConnection(self._address)
        while some := self._backlog[:LARGEST_COMMIT]:
            try:
                self._connection.commit(some)
            except StatementRefused as error:
                _log.error("a row was dropped: %s", error)
                del self._backlog[error.place]
                wrong = error
            except BaseException:
                # The commit may have succeeded, with only its answer lost: rows that exist already are left alone.
                self._backlog[:LARGEST_COMMIT] = [
                    (f"{statement} ON CONFLICT DO NOTHING", row)
                    if statement.startswith("INSERT") and "ON CONFLICT" not in statement
                    else (statement, row)
                    for statement, row in some
                ]
                raise
            else:
                del self._backlog[:LARGEST_COMMIT]
        if wrong is not None:
            raise LedgerUnavailable(str(wrong))


# The ledger as a PostgreSQL database.


class PostgresLedger(Ledger):
    """A ledger in a PostgreSQL database."""

    dialect = POSTGRES

    def __init__(self, url: Secret) -> None:
        self._address = ServerAddress(url)
        self.name = self._address.name

    def exists(self) -> bool:
        with self._open(read_only=True) as connection:
            return bool(connection.execute(POSTGRES.made).fetchone()[0])

    def size(self, connection: Connection) -> int:
        return int(connection.execute(patterns("ledger/data/sql.yaml")["postgres"]["size"]).fetchone()[0])

    def damage(self) -> list[str]:
        return []

    def open_journal(self) -> PostgresJournal:
        return PostgresJournal(self._address)

    @contextmanager
    def _open(self, *, read_only: bool = False) -> Iterator[Connection]:
        with closing(PostgresConnection(self._address, read_only=read_only)) as connection:
            yield connection
