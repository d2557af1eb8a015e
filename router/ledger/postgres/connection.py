"""A connection for reports, keys and look-ups, used from any thread. It never waits longer than `ANSWER_S`."""

import select
import time
from collections.abc import Iterator, Mapping, Sequence

import psycopg
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult

from router.ledger.postgres.place import Place
from router.ledger.postgres.wire import Encoded, Sent, StatementRefused, numbered, parameters, rows
from router.types.journal import LedgerUnavailable

ANSWER_S = 10.0
"""How long a statement may take; a server that hangs is left then."""
_READ_ONLY = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class Result:
    """The whole answer to one statement; see `router.ledger.connection.Rows`."""

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

    def __init__(self, place: Place, *, read_only: bool = False) -> None:
        self._connection = place.connect()
        self._pgconn: PGconn = self._connection.pgconn
        self._pgconn.nonblocking = 1
        if read_only:
            self.execute(_READ_ONLY)
            self.execute(f"SET LOCAL statement_timeout = {round(ANSWER_S * 1000)}")

    def execute(self, statement: str, values: Sequence[Sent] | Mapping[str, Sent] = (), /) -> Result:
        text, names = numbered(statement)
        try:
            result = self._ask(text, parameters(names, values))
        except psycopg.Error:
            raise LedgerUnavailable("the connection to the database broke") from None
        if result.status in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
            return Result(result)
        raise StatementRefused(result).as_ledger()

    def close(self) -> None:
        self._connection.close()

    def _ask(self, text: bytes, values: Encoded) -> PGresult:
        until, pgconn = time.monotonic() + ANSWER_S, self._pgconn
        pgconn.send_query_params(text, values)
        while pgconn.flush():
            self._wait(select.POLLIN | select.POLLOUT, until)
            pgconn.consume_input()
        last = None
        while result := self._next(until):
            last = result
        if last is None:
            raise psycopg.OperationalError("no answer")
        return last

    def _next(self, until: float) -> PGresult | None:
        while self._pgconn.is_busy():
            self._wait(select.POLLIN, until)
            self._pgconn.consume_input()
        return self._pgconn.get_result()

    def _wait(self, events: int, until: float) -> None:
        poll = select.poll()
        poll.register(self._pgconn.socket, events)
        if not poll.poll(max(0, until - time.monotonic()) * 1000):
            self.close()
            raise LedgerUnavailable(f"the database did not answer within {ANSWER_S:g} s")
