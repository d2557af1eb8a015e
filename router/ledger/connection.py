"""What reports, keys and look-ups need of a database: SQLite's own connection has it, PostgreSQL's is made to."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from router.types.journal import Value

Parameters = Sequence[Value] | Mapping[str, Value]
"""For `?` or for `:name`."""


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
