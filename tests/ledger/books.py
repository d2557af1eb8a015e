"""A journal on a real ledger, and what its tables say about the money."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from router.ledger.journal import SqliteJournal
from router.ledger.ledger import Ledger
from router.types.account import Journal

T = TypeVar("T")
NOTES = (
    "CREATE TABLE notes (request_id TEXT NOT NULL, given_ms BIGINT NOT NULL, score DOUBLE PRECISION NOT NULL,"
    " source TEXT NOT NULL)"
)


def with_ledger(ledger: Ledger, work: Callable[[Journal], Awaitable[T]]) -> T:
    """As `with_journal`, wherever the ledger is."""

    async def run() -> T:
        journal = ledger.open_journal()
        try:
            return await work(journal)
        finally:
            await journal.end()

    return asyncio.run(run())


def with_journal(path: Path, work: Callable[[SqliteJournal], Awaitable[T]]) -> T:
    """Runs `work` in an event loop of its own and closes the journal as a gateway does."""

    async def run() -> T:
        with closing(SqliteJournal(path)) as journal:
            return await work(journal)

    return asyncio.run(run())


def found(ledger: Ledger, query: str, *values: str | int) -> list[dict[str, Any]]:
    """As `rows`, wherever the ledger is."""
    with ledger.reading() as connection:
        cursor = connection.execute(query, values)
        names = [name for name, *_ in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]


def rows(path: Path, query: str, *values: object) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(query, values)]


def windows(path: Path) -> dict[tuple[str, int], tuple[int, int]]:
    """(budget, window start) → (spent, held)."""
    sums = rows(path, "SELECT * FROM budget_windows")
    return {(row["budget"], row["window_start_ms"]): (row["spent"], row["held"]) for row in sums}
