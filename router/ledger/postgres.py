"""The ledger in PostgreSQL: connections, the journal over one of them, and the `Ledger` port.

Not imported while the ledger is a file: the client library takes a while. The URL's password is in no message, whatever
is wrong.
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
"""How long one try to connect takes at most; the client library knows no less than 2."""
_SCHEMES = ("postgresql://", "postgres://")
_SHAPE = f"{SETTING} is not a URL like postgresql://USER:PASSWORD@HOST:PORT/DATABASE"


class ServerAddress:
    """Raises `SettingError` for a URL that is none."""

    def __init__(self, url: Secret) -> None:
        """An unescaped @, / or # in a password would be read as part of the host, and so be shown: it is refused."""
        _, _, rest = url.reveal().partition("://")
        authority = rest.partition("/")[0].partition("?")[0]
        unclear = rest.count("@") != authority.count("@") or authority.count("@") > 1 or "#" in rest
        if not url.reveal().startswith(_SCHEMES) or unclear:
            raise SettingError(f"{_SHAPE}: percent-encode what is special in the password")
        try:
            self._parts = {name: str(value) for name, value in conninfo_to_dict(url.reveal()).items()}
        except psycopg.Error:
            raise SettingError(_SHAPE) from None
        host, port = self._parts.get("host", "localhost"), self._parts.get("port", "5432")
        self.name = f"postgresql://{host}:{port}/{self._parts.get('dbname', '')}"
        """For people: without user and password."""

    def connect(self) -> psycopg.Connection:
        """Blocks for at most `CONNECT_S` a host. Raises `LedgerUnavailable`."""
        ours = {"connect_timeout": str(CONNECT_S), "fallback_application_name": "lowpass"}
        address = make_conninfo("", **{**ours, **self._parts, "client_encoding": "utf8"})
        try:
            return psycopg.Connection.connect(address, autocommit=True)
        except psycopg.Error as error:
            # The client library quotes what it was given: only what stands behind its own words is repeated.
            reason = str(error).strip().splitlines()[0].rpartition("failed: ")[2]
            if password := self._parts.get("password"):
                reason = reason.replace(password, "***")
            raise LedgerUnavailable(f"{SETTING}: {self.name} can't be reached: {reason}") from None


# SQL and values as PostgreSQL takes and gives them: numbered placeholders, everything in its text form.

Sent = Value | bytes

_PLACEHOLDER = re.compile(r"'[^']*'|::|\?|:(\w+)")
"""Or something that looks like one: text in quotes, a cast."""
_NUL = "\ufffd".encode()
"""PostgreSQL's text has no NUL, and the client library would end the text there."""
_WRONG_ROW = ("22", "23", "54")
"""Classes of SQLSTATE that blame the row: not a value of its column, against a constraint, too large for an index."""
_OUT_OF_ORDER = ("08", "53", "57", "58")
"""Those that blame the connection, the server's resources, an operator or the disk; 57 has the time limit too."""


@lru_cache(256)
def numbered(statement: str) -> tuple[bytes, tuple[str, ...]]:
    """`?` and `:name` become `$1` …; the names in the order of their numbers, none for `?`."""
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
    """Sums of integers are integers here, as in SQLite; PostgreSQL has them as `numeric`."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data)
        return float(text) if b"." in text else int(text)


_OTHER = -1
"""Place of an answer that belongs to no item of a transaction."""


class StatementRefused(Exception):
    """The server refused a statement. Says what kind of mistake and where, never a value: it may be a user's."""

    def __init__(self, result: PGresult, place: int = _OTHER) -> None:
        """`place`: of the item of a transaction that it came with."""
        self.place = place
        self.state = (result.error_field(DiagnosticField.SQLSTATE) or b"").decode()
        names = [result.error_field(field) for field in (DiagnosticField.TABLE_NAME, DiagnosticField.CONSTRAINT_NAME)]
        named = " in " + ", ".join(name.decode() for name in names if name) if any(names) else ""
        try:
            kind = f"{lookup(self.state).__name__} ({self.state})"
        except KeyError:
            kind = f"SQLSTATE {self.state or 'unknown'}"
        super().__init__(f"{kind}{named}")


# A connection, used from one thread at a time. It never waits longer than `ANSWER_S`.

ANSWER_S = 10.0
"""How long a statement may take; a server that hangs is left then."""
_READ_ONLY = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
COMMIT_S = 2.0
"""How long a transaction of the journal may take; a server that hangs is left then."""
_BEGIN = (
    b"BEGIN",
    b"SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'",
)
"""What is committed survives a power cut, whatever the server's own setting."""


class Result:
    """The whole answer to one statement; see `router.ledger.rows.SqlRows`."""

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
    """The `Connection` port. Raises `LedgerUnavailable`, or `StatementRefused` for a wrong statement.

    A reader is one transaction, and so changes nothing in a session that a pooler lends to others next. Straight on
    `psycopg.pq`, since a cursor costs 50 µs a statement: https://www.psycopg.org/psycopg3/docs/api/pq.html
    """

    def __init__(self, place: ServerAddress, *, read_only: bool = False) -> None:
        self._connection = place.connect()
        self._connection.adapters.register_loader("bool", _BoolLoader)
        self._connection.adapters.register_loader("numeric", _NumericLoader)
        self._pgconn: PGconn = self._connection.pgconn
        self._pgconn.nonblocking = 1
        self._poll, self._within, self._until = select.poll(), 0.0, 0.0
        if read_only:
            self.execute(_READ_ONLY)
            self.execute(f"SET LOCAL statement_timeout = {round(ANSWER_S * 1000)}")

    def execute(self, statement: str, values: Sequence[Sent] | Mapping[str, Sent] = (), /) -> Result:
        text, names = numbered(statement)
        with self._talking(ANSWER_S):
            ordered = [values[name] for name in names] if isinstance(values, Mapping) else values
            self._pgconn.send_query_params(text, [encoded(value) for value in ordered])
            self._flush()
            *_, result = [None, *iter(self._result, None)]
            if result is None:
                raise psycopg.OperationalError("no answer")
        if result.status in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
            return Result(self._connection, result)
        refused = StatementRefused(result)
        if refused.state[:2] in _OUT_OF_ORDER:
            raise LedgerUnavailable(f"the database refused: {refused}")
        raise refused

    def commit(self, items: Sequence[Item]) -> None:
        """All of them or none: a transaction in libpq's pipeline mode, which is one round trip.

        Raises `StatementRefused` for a wrong row, and the connection is as good as before; after `LedgerUnavailable` it
        is closed. Nothing is left on the server's side, so a pooler may give the next transaction another session.
        """
        pgconn, prepared, places = self._pgconn, "", [_OTHER] * len(_BEGIN)
        failure: StatementRefused | None = None
        with self._talking(COMMIT_S):
            pgconn.enter_pipeline_mode()
            for command in _BEGIN:
                pgconn.send_query_params(command, None)
            for place, (statement, row) in enumerate(items):
                if statement != prepared:
                    pgconn.send_prepare(b"", numbered(statement)[0])
                    prepared = statement
                    places.append(_OTHER)
                pgconn.send_query_prepared(b"", [encoded(value) for value in row])
                places.append(place)
            pgconn.send_query_params(b"COMMIT", None)
            pgconn.pipeline_sync()
            self._flush()
            for place in (*places, _OTHER):
                if (result := self._result()) is None:
                    raise psycopg.OperationalError("the answers ended early")
                if result.status == ExecStatus.FATAL_ERROR and failure is None:
                    failure = StatementRefused(result, place)
                self._result()  # every answer is followed by None …
            self._result()  # … and the last None by the answer to the sync
            pgconn.exit_pipeline_mode()
        if failure is not None:
            self.execute("ROLLBACK")
            if failure.state[:2] in _WRONG_ROW and failure.place != _OTHER:
                raise failure
            self.close()
            raise LedgerUnavailable(f"the database refused: {failure}")

    def hung_up(self) -> bool:
        """The connection is closed, or the server says that it will be."""
        if self._connection.closed:
            return True
        self._poll.register(self._pgconn.socket, select.POLLIN)
        return bool(self._poll.poll(0))

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _talking(self, within_s: float) -> Iterator[None]:
        self._within, self._until = within_s, time.monotonic() + within_s
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
        if not self._poll.poll(max(0, self._until - time.monotonic()) * 1000):
            raise LedgerUnavailable(f"the database did not answer within {self._within:g} s")
        self._pgconn.consume_input()


# Group commit to a server. One that is gone is looked for until it is back. New requests are refused meanwhile
# (`available`); rows of requests that were answered wait in memory.

LARGEST = 50_000
"""Statements that wait at most, about 50 MB; so many come together only from requests that are refused meanwhile."""
LARGEST_COMMIT = 500
"""Statements of one transaction: what gathered during an outage is written in several, each well within its time."""
END_S = 5.0
"""How long the end of a gateway waits for rows to be written."""
_log = logging.getLogger(__name__)


class PostgresJournal(GroupJournal):
    """The `Journal` port over one connection. Raises `LedgerUnavailable` at first. Statements beyond `LARGEST` are
    dropped and counted."""

    def __init__(self, place: ServerAddress) -> None:
        self._place = place
        self._connection = PostgresConnection(place)
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
        give_up = self._loop.time() + END_S
        while self.waiting and self._loop.time() < give_up:
            with suppress(LedgerUnavailable):
                await self.committed()
            await asyncio.sleep(0.01)
        self._handed.put(None)
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
        if self._connection.hung_up():
            self._connection.close()
            self._connection = PostgresConnection(self._place)
        while some := self._backlog[:LARGEST_COMMIT]:
            try:
                self._connection.commit(some)
            except StatementRefused as error:
                _log.error("a row was dropped: %s", error)
                del self._backlog[error.place]
                wrong = error
            except BaseException:
                # The answer was lost, not the work, perhaps: rows that are there already are left alone.
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
    """In the database of a URL. Raises `SettingError` for a URL that is none."""

    dialect = POSTGRES

    def __init__(self, url: Secret) -> None:
        self._place = ServerAddress(url)
        self.name = self._place.name

    def exists(self) -> bool:
        with self._open(read_only=True) as connection:
            return bool(connection.execute(POSTGRES.made).fetchone()[0])

    def size(self, connection: Connection) -> int:
        return int(connection.execute(patterns("ledger/data/sql.yaml")["postgres"]["size"]).fetchone()[0])

    def damage(self) -> list[str]:
        return []

    def open_journal(self) -> PostgresJournal:
        return PostgresJournal(self._place)

    @contextmanager
    def _open(self, *, read_only: bool = False) -> Iterator[Connection]:
        with closing(PostgresConnection(self._place, read_only=read_only)) as connection:
            yield connection
