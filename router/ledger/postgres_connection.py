"""Connections to PostgreSQL: address, values, errors. The URL's password is in no message, whatever is wrong."""

import re
import select
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import lookup
from psycopg.pq import DiagnosticField, ExecStatus
from psycopg.pq.abc import PGconn, PGresult

from router.settings import SettingError
from router.types.account import LedgerUnavailable, Value
from router.types.target import Secret

SETTING = "LOWPASS_DATABASE_URL"
CONNECT_S = 3
"""How long one try to connect takes at most; the client library knows no less than 2."""
_SCHEMES = ("postgresql://", "postgres://")
_SHAPE = f"{SETTING} is not a URL like postgresql://USER:PASSWORD@HOST:PORT/DATABASE"


class ServerAddress:
    """Raises `SettingError` for a URL that is none."""

    def __init__(self, url: Secret) -> None:
        self._url = url
        self._parts = _parts(url.reveal())

    @cached_property
    def name(self) -> str:
        """For people: without user and password."""
        host, port = self._parts.get("host", "localhost"), self._parts.get("port", "5432")
        return f"postgresql://{host}:{port}/{self._parts.get('dbname', '')}"

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


def _parts(url: str) -> dict[str, str]:
    """An unescaped @, / or # in a password would be read as part of the host, and so be shown: it is refused."""
    _, _, rest = url.partition("://")
    authority = rest.partition("/")[0].partition("?")[0]
    unclear = rest.count("@") != authority.count("@") or authority.count("@") > 1 or "#" in rest
    if not url.startswith(_SCHEMES) or unclear:
        raise SettingError(f"{_SHAPE}: percent-encode what is special in the password")
    try:
        return {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except psycopg.Error:
        raise SettingError(_SHAPE) from None


# SQL and values as PostgreSQL takes and gives them: numbered placeholders, everything in its text form.

Encoded = list[bytes | None]
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

    text = _PLACEHOLDER.sub(number, statement)
    return text.encode(), tuple(name for name in names if not name.startswith("?"))


def encoded(values: Sequence[Sent]) -> Encoded:
    return [_text(value) for value in values]


def _text(value: Sent) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, bytes):
        return b"\\x" + value.hex().encode()
    if isinstance(value, str):
        text = value.encode("utf-8", "replace")
        return text.replace(b"\0", _NUL) if b"\0" in text else text
    return repr(value).encode() if isinstance(value, float) else b"%d" % value


def rows(result: PGresult) -> list[tuple[Sent, ...]]:
    """Sums of integers are integers here, as in SQLite; PostgreSQL has them as `numeric`."""
    columns = range(result.nfields)
    readers = [_READERS.get(result.ftype(column), bytes.decode) for column in columns]
    return [
        tuple(
            None if (value := result.get_value(line, column)) is None else readers[column](value) for column in columns
        )
        for line in range(result.ntuples)
    ]


_READERS: dict[int, Callable[[bytes], Sent]] = {
    16: lambda value: int(value == b"t"),
    17: lambda value: bytes.fromhex(value[2:].decode()),
    20: int,
    21: int,
    23: int,
    700: float,
    701: float,
    1700: lambda value: float(value) if b"." in value else int(value),
}
"""By the type's OID in `pg_type`: bool, bytea, int8, int2, int4, float4, float8, numeric. All else is text."""


class StatementRefused(Exception):
    """The server refused a statement. Says what kind of mistake and where, never a value: it may be a user's."""

    def __init__(self, result: PGresult) -> None:
        self.state = (result.error_field(DiagnosticField.SQLSTATE) or b"").decode()
        place = [result.error_field(field) for field in (DiagnosticField.TABLE_NAME, DiagnosticField.CONSTRAINT_NAME)]
        named = " in " + ", ".join(name.decode() for name in place if name) if any(place) else ""
        try:
            kind = f"{lookup(self.state).__name__} ({self.state})"
        except KeyError:
            kind = f"SQLSTATE {self.state or 'unknown'}"
        super().__init__(f"{kind}{named}")

    @property
    def wrong_row(self) -> bool:
        return self.state[:2] in _WRONG_ROW


# A connection for reports, keys and look-ups, used from any thread. It never waits longer than `ANSWER_S`.

ANSWER_S = 10.0
"""How long a statement may take; a server that hangs is left then."""
_READ_ONLY = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class Result:
    """The whole answer to one statement; see `router.ledger.rows.SqlRows`."""

    def __init__(self, result: PGresult) -> None:
        self.description = [((result.fname(column) or b"").decode(),) for column in range(result.nfields)]
        self.rowcount = result.command_tuples or 0
        self._rows = iter(rows(result))

    def fetchone(self) -> tuple[Sent, ...] | None:
        return next(self._rows, None)

    def fetchall(self) -> list[tuple[Sent, ...]]:
        return list(self._rows)

    def __iter__(self) -> Iterator[tuple[Sent, ...]]:
        return self._rows


class PostgresConnection:
    """The `Connection` port. Raises `LedgerUnavailable`, or `StatementRefused` for a wrong statement.

    A reader is one transaction, and so changes nothing in a session that a pooler lends to others next.
    """

    def __init__(self, place: ServerAddress, *, read_only: bool = False) -> None:
        self._connection = place.connect()
        self._pgconn: PGconn = self._connection.pgconn
        self._pgconn.nonblocking = 1
        if read_only:
            self.execute(_READ_ONLY)
            self.execute(f"SET LOCAL statement_timeout = {round(ANSWER_S * 1000)}")

    def execute(self, statement: str, values: Sequence[Sent] | Mapping[str, Sent] = (), /) -> Result:
        text, names = numbered(statement)
        try:
            ordered = [values[name] for name in names] if isinstance(values, Mapping) else values
            result = self._ask(text, encoded(ordered))
        except psycopg.Error:
            raise LedgerUnavailable("the connection to the database broke") from None
        if result.status in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
            return Result(result)
        refused = StatementRefused(result)
        if refused.state[:2] in _OUT_OF_ORDER:
            raise LedgerUnavailable(f"the database refused: {refused}")
        raise refused

    def close(self) -> None:
        self._connection.close()

    def _ask(self, text: bytes, values: Encoded) -> PGresult:
        until, pgconn = time.monotonic() + ANSWER_S, self._pgconn
        pgconn.send_query_params(text, values)
        while pgconn.flush():
            self._wait(select.POLLIN | select.POLLOUT, until)
            pgconn.consume_input()
        last: PGresult | None = None
        while True:
            while pgconn.is_busy():
                self._wait(select.POLLIN, until)
                pgconn.consume_input()
            if (result := pgconn.get_result()) is None:
                break
            last = result
        if last is None:
            raise psycopg.OperationalError("no answer")
        return last

    def _wait(self, events: int, until: float) -> None:
        poll = select.poll()
        poll.register(self._pgconn.socket, events)
        if not poll.poll(max(0, until - time.monotonic()) * 1000):
            self.close()
            raise LedgerUnavailable(f"the database did not answer within {ANSWER_S:g} s")
