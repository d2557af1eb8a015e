"""What reports, keys and look-ups need of a database: SQLite's own connection has it, PostgreSQL's is made to."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, Protocol

from router.types.journal import Value

Parameters = Sequence[Value] | Mapping[str, Value]
"""For `?` or for `:name`."""
PARAMETERS = 900
"""Of one statement at most; SQLite's own limit was 999 once."""


class Rows(Protocol):
    """Integers, floats, text, bytes and None: never a Decimal, a bool or a date, whatever the database."""

    @property
    def description(self) -> Any:
        """One sequence a column; the first of it is the column's name."""
        ...

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """Each statement is its own transaction, unless it stands between BEGIN and COMMIT."""

    def execute(self, statement: str, parameters: Any = ..., /) -> Rows: ...


@contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    """All of it or nothing."""
    connection.execute("BEGIN")
    try:
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
    """Adds rows, many to a statement. `given` stands before VALUES, `then` after them (ON CONFLICT …)."""
    rest, line = iter(rows), f"({', '.join('?' * len(columns))})"
    into = f"INSERT INTO {table} ({', '.join(columns)}){given} VALUES "  # noqa: S608 - names of ours
    while some := list(islice(rest, max(1, PARAMETERS // len(columns)))):
        statement = f"{into}{', '.join([line] * len(some))} {then}"
        connection.execute(statement, tuple(value for row in some for value in row))


def places(values: Sequence[object]) -> str:
    """`?, ?, …`, for IN."""
    return ", ".join("?" * len(values))
