"""Where the ledger is: a file, or a database that several gateways share. Readers and writers all ask here."""

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Protocol

from router.ledger.connection import Connection
from router.ledger.journal import SqliteJournal, connect
from router.ledger.migrate import migrate
from router.types.journal import Journal, LedgerUnavailable
from router.types.secret import Secret


class Ledger(Protocol):
    """Every method raises `LedgerUnavailable` where the database can't be used, and none waits for ever."""

    @property
    def name(self) -> str:
        """For people; without a password."""
        ...

    def exists(self) -> bool:
        """It was made by `migrate`."""
        ...

    def migrate(self) -> int:
        """Makes it, or brings it to the newest form; returns its version. Raises `LedgerTooNew`."""
        ...

    def open_journal(self) -> Journal:
        """Inside the event loop that it will run in."""
        ...

    def reading(self) -> AbstractContextManager[Connection]:
        """A connection that can't write. After BEGIN it sees the ledger as of one moment; a server's does so anyway."""
        ...

    def writing(self) -> AbstractContextManager[Connection]:
        """For single writes beside the journal: keys, feedback."""
        ...


def ledger_at(path: Path, url: Secret | None) -> Ledger:
    """PostgreSQL where there is a URL, else the SQLite file. Raises `SettingError` for a URL that is none."""
    if url is None:
        return SqliteLedger(path)
    from router.ledger.postgres.ledger import PostgresLedger

    return PostgresLedger(url)


_UNUSABLE = frozenset(
    {
        *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN),
        *(sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB),
    }
)
"""Kinds of errors that blame the file, or who else uses it, and no statement."""


class SqliteLedger:
    """The `Ledger` port over one file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def name(self) -> str:
        return str(self.path)

    def exists(self) -> bool:
        return self.path.exists()

    def migrate(self) -> int:
        with self.writing() as connection:
            return migrate(connection)

    def open_journal(self) -> SqliteJournal:
        return SqliteJournal(self.path)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        address = f"{self.path.absolute().as_uri()}?mode=ro"
        with self._usable(), closing(sqlite3.connect(address, uri=True)) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        with self._usable(), closing(connect(self.path)) as connection:
            yield connection

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            # The low byte is the kind: https://www.sqlite.org/rescode.html#primary_result_codes
            if error.sqlite_errorcode & 0xFF not in _UNUSABLE:
                raise
            raise LedgerUnavailable(f"{self.path} can't be used: {error}") from None
