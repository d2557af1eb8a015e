"""The ledger: access to its database, its secret, and claims of alerts."""

import secrets
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

from router.ledger.journal import BUSY_MS, SqliteJournal, connect
from router.ledger.migrate import SQLITE, Dialect, current, migrate, newest, readable
from router.ledger.rows import Connection, transaction
from router.types.account import Journal, LedgerUnavailable
from router.types.tables import table
from router.types.target import Secret

# The ledger is a file or a database that several gateways share. All readers and writers open it here.


class Ledger(ABC):
    """A ledger. Every method raises `LedgerUnavailable` if the database can't be used, and none blocks forever."""

    name: str
    """Name for messages, without a password."""
    dialect: Dialect
    _readable = False
    """Whether the ledger was found to have everything that this version of lowpass reads."""

    @abstractmethod
    def exists(self) -> bool:
        """Whether `migrate` has created the ledger."""

    @abstractmethod
    def size(self, connection: Connection) -> int:
        """Returns the size of its tables and indexes in bytes; `connection` is one of this ledger."""

    @abstractmethod
    def damage(self) -> list[str]:
        """Returns damage that the database finds in its file; empty for a server, which checks its own files."""

    @abstractmethod
    def open_journal(self) -> Journal:
        """Opens a journal; call it inside the event loop in which the journal will run."""

    @abstractmethod
    def _open(self, *, read_only: bool = False) -> AbstractContextManager[Connection]:
        """Opens a connection; a read-only one is one transaction."""

    def version(self) -> int:
        """Returns the ledger's version; 0 if there is no ledger yet. Raises `LedgerTooNew`."""
        if not self.exists():
            return 0
        with self._open(read_only=True) as connection:
            return current(connection, self.dialect)

    def migrate(self, to: int | None = None, *, lose_data: bool = False) -> int:
        """Creates or migrates the ledger to a version, by default the newest; see `router.ledger.migrate.migrate`."""
        goal, self._readable = newest(self.dialect) if to is None else to, False
        with self._open() as connection:
            # A ledger of that version is not touched, so its database role needs no right to create tables.
            is_current = current(connection, self.dialect) == goal
            return goal if is_current else migrate(connection, self.dialect, to, lose_data=lose_data)

    @contextmanager
    def reading(self, *, any_version: bool = False) -> Iterator[Connection]:
        """Opens a read-only connection to a snapshot of the ledger.

        Raises `LedgerTooOld` for a ledger that lacks what this lowpass reads, unless `any_version` is set.
        """
        with self._open(read_only=True) as connection:
            if not (any_version or self._readable):
                readable(self.name, current(connection, self.dialect), self.dialect)
                self._readable = True
            yield connection

    def writing(self) -> AbstractContextManager[Connection]:
        """Opens a connection for writes outside the journal, such as those of keys."""
        return self._open()


def ledger_at(path: Path, url: Secret | None) -> Ledger:
    """Returns a PostgreSQL ledger if `url` is given, else the SQLite file. Raises `SettingError` for an invalid URL."""
    if url is None:
        return SqliteLedger(path)
    from router.ledger.postgres import PostgresLedger

    return PostgresLedger(url)


_REMEDIES = {getattr(sqlite3, name): text for name, text in table("ledger/data/remedies.yaml").items()}
"""SQLite's primary result code → remedy, for errors caused by the file or its other users, not by a statement."""


class SqliteLedger(Ledger):
    """A ledger in one SQLite file."""

    dialect = SQLITE

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, str(path)

    def exists(self) -> bool:
        return self.path.exists()

    def size(self, connection: Connection) -> int:
        pages, size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        return int(pages * size)

    def damage(self) -> list[str]:
        with self.reading(any_version=True) as connection:
            lines = connection.execute("PRAGMA integrity_check(20)").fetchall()
        damage = [" ".join(line.split()) for (line,) in lines if line != "ok"]
        return [*damage, _REMEDIES[sqlite3.SQLITE_CORRUPT]] if damage else []

    def open_journal(self) -> SqliteJournal:
        return SqliteJournal(self.path)

    @contextmanager
    def _open(self, *, read_only: bool = False) -> Iterator[Connection]:
        file: dict[str, Any] = {"database": f"{self.path.absolute().as_uri()}?mode=ro", "uri": True}
        file |= {"isolation_level": None, "timeout": BUSY_MS / 1000}
        try:
            with closing(sqlite3.connect(**file) if read_only else connect(self.path)) as connection:
                if read_only:
                    connection.execute("BEGIN")
                yield connection
        except sqlite3.DatabaseError as error:
            # Errors raised by Python, such as for invalid text in the file, have no code. Else the low byte is the
            # primary result code: https://www.sqlite.org/rescode.html#primary_result_codes
            corrupt = sqlite3.SQLITE_CORRUPT if isinstance(error, sqlite3.OperationalError) else 0
            remedy = _REMEDIES.get(getattr(error, "sqlite_errorcode", corrupt) & 0xFF)
            if remedy is None:  # caused by the statement
                raise
            raise LedgerUnavailable(f"{self.path} can't be used ({error}): {remedy}") from None


# The secret of a ledger, shared by all of its gateways only.

_OFFER = "INSERT INTO instance (id, secret) VALUES (1, ?) ON CONFLICT DO NOTHING"


def instance_secret(ledger: Ledger) -> Secret:
    """Returns the ledger's secret, which the first call creates. Raises `LedgerUnavailable`."""
    with ledger.writing() as connection:
        connection.execute(_OFFER, (secrets.token_hex(32),))
        return Secret(connection.execute("SELECT secret FROM instance WHERE id = 1").fetchone()[0])


# Alerts already sent: the process that inserts the row of an alert first sends it, over all gateways and restarts.

_CLAIM = "INSERT INTO alerts (account, window_start_ms, share) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"


def claim(ledger: Ledger, account: str, window_start_ms: int, shares: Sequence[int]) -> list[int]:
    """Claims shares (in ten-thousandths) in one transaction, and returns those that were not claimed before.

    It waits for locks: call it in a thread. Raises `LedgerUnavailable`; then no share is claimed.
    """
    try:
        with ledger.writing() as connection, transaction(connection):
            rows = [(account, window_start_ms, share) for share in shares]
            return [row[2] for row in rows if connection.execute(_CLAIM, row).rowcount == 1]
    except sqlite3.Error as error:
        raise LedgerUnavailable(str(error)) from None
