"""The port through which rows reach the ledger, many requests to a transaction."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from router.types.store import StoreUnavailable

T = TypeVar("T")
Value = str | int | float | None
Row = tuple[Value, ...]


class Journal(Protocol):
    """Many requests to a transaction: all of their rows and changes, or none.

    Where the answer to a commit is lost with the connection, the commit is repeated: every row needs a key, and every
    change must be one that may be made twice.
    """

    @property
    def owner(self) -> str:
        """Names this process in the rows that it holds."""
        ...

    @property
    def available(self) -> bool:
        """The last commit succeeded."""
        ...

    def add(self, statement: str, row: Row) -> None:
        """Queue a new row; new rows come first in a commit, in the order in which their statements were first used."""
        ...

    def change(self, statement: str, row: Row) -> None:
        """Queue a change; changes follow the new rows, in the order given."""
        ...

    def committed(self) -> Awaitable[None]:
        """Done when everything queued so far is on disk for every other process; raises when it can't be."""
        ...

    async def end(self) -> None:
        """Writes what is queued, as far as that is possible within seconds, and closes."""
        ...


class LocalJournal(Journal, Protocol):
    """A journal over a file of this machine, whose transactions can hold decisions."""

    def read(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """A step that writes nothing, at once; it sees what is committed, by whichever process.

        Raises `LedgerUnavailable`.
        """
        ...

    def call(self, operation: Callable[[sqlite3.Connection], T]) -> "asyncio.Future[T]":
        """Queue a read-and-write step; it sees all rows and changes of its commit and is atomic with the commit."""
        ...


class LedgerUnavailable(StoreUnavailable):
    """The ledger can't be read or written: full or broken disk, a lock of another process, a server out of reach."""
