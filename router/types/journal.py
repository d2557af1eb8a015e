"""The port through which budgets and ledger share one transaction."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

T = TypeVar("T")
Row = tuple[str | int | float | None, ...]


class Journal(Protocol):
    """Writes are applied in order, many requests to a transaction; all of them or none."""

    @property
    def available(self) -> bool:
        """The last commit succeeded."""
        ...

    def write(self, statement: str, row: Row) -> None:
        """Queue one statement for the next commit."""
        ...

    def call(self, operation: Callable[[sqlite3.Connection], T]) -> "asyncio.Future[T]":
        """Queue a read-and-write step; it sees everything queued before it and is atomic with the commit."""
        ...

    def committed(self) -> Awaitable[None]:
        """Done when everything queued so far is on disk for every other process; raises when it can't be."""
        ...
