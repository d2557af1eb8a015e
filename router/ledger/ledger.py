"""The ledger: where it is, its secret, and which alerts were claimed."""

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

# Where the ledger is: a file, or a database that several gateways share. Readers and writers all ask here.


class Ledger(ABC):
    """Every method raises `LedgerUnavailable` where the database can't be used, and none waits for ever."""

    name: str
    """For people; without a password."""
    dialect: Dialect
    _readable = False
    """It has all that this lowpass reads."""

    @abstractmethod
    def exists(self) -> bool:
        """It was made by `migrate`."""

    @abstractmethod
    def size(self, connection: Connection) -> int:
        """Bytes of its tables and indexes; `connection` is one of its own."""

    @abstractmethod
    def damage(self) -> list[str]:
        """What the database itself finds wrong with its file; a server looks after its own."""

    @abstractmethod
    def open_journal(self) -> Journal:
        """Inside the event loop that it will run in."""

    @abstractmethod
    def _open(self, *, read_only: bool = False) -> AbstractContextManager[Connection]:
        """A connection; one that reads is a transaction."""

    def version(self) -> int:
        """0: there is none yet. Raises `LedgerTooNew`."""
        if not self.exists():
            return 0
        with self._open(read_only=True) as connection:
            return current(connection, self.dialect)

    def migrate(self, to: int | None = None, *, lose_data: bool = False) -> int:
        """Makes it, or brings it to a version, the newest one if none is named; see `router.ledger.migrate.migrate`."""
        goal, self._readable = newest(self.dialect) if to is None else to, False
        with self._open() as connection:
            # What is there already is left alone: the role may then do without the right to create tables.
            there = current(connection, self.dialect) == goal
            return goal if there else migrate(connection, self.dialect, to, lose_data=lose_data)

    @contextmanager
    def reading(self, *, any_version: bool = False) -> Iterator[Connection]:
        """A connection that can't write, and sees the ledger as of one moment.

        Raises `LedgerTooOld` for a ledger that lacks what this lowpass reads, unless `any_version` will do.
        """
        with self._open(read_only=True) as connection:
            if not (any_version or self._readable):
                readable(self.name, current(connection, self.dialect), self.dialect)
                self._readable = True
            yield connection

    def writing(self) -> AbstractContextManager[Connection]:
        """For single writes beside the journal: keys, feedback."""
        return self._open()


def ledger_at(path: Path, url: Secret | None) -> Ledger:
    """PostgreSQL where there is a URL, else the SQLite file. Raises `SettingError` for a URL that is none."""
    if url is None:
        return SqliteLedger(path)
    from router.ledger.postgres import PostgresLedger

    return PostgresLedger(url)


_REMEDIES = {getattr(sqlite3, name): text for name, text in table("ledger/data/remedies.yaml").items()}
"""Kinds of errors that blame the file, or who else uses it, and no statement; and what to do about them."""


class SqliteLedger(Ledger):
    """In one file."""

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
            # What Python finds has no code: a text of the file that is none. Else the low byte is the kind:
            # https://www.sqlite.org/rescode.html#primary_result_codes
            corrupt = sqlite3.SQLITE_CORRUPT if isinstance(error, sqlite3.OperationalError) else 0
            remedy = _REMEDIES.get(getattr(error, "sqlite_errorcode", corrupt) & 0xFF)
            if remedy is None:  # the statement is to blame
                raise
            raise LedgerUnavailable(f"{self.path} can't be used ({error}): {remedy}") from None


# The secret of a ledger: made with it, shared by all of its gateways, known to nobody else.

_OFFER = "INSERT INTO instance (id, secret) VALUES (1, ?) ON CONFLICT DO NOTHING"


def instance_secret(ledger: Ledger) -> Secret:
    """Made at the first call. Raises `LedgerUnavailable`."""
    with ledger.writing() as connection:
        connection.execute(_OFFER, (secrets.token_hex(32),))
        return Secret(connection.execute("SELECT secret FROM instance WHERE id = 1").fetchone()[0])


# Which alerts were told: an alert belongs to whoever inserts its row first, of all gateways and restarts.

_CLAIM = "INSERT INTO alerts (account, window_start_ms, share) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"


def claim(ledger: Ledger, account: str, window_start_ms: int, shares: Sequence[int]) -> list[int]:
    """The shares (in ten-thousandths) that nobody claimed before. Waits for locks: call it in a thread.

    All of them in one transaction. Raises `LedgerUnavailable`: then none is claimed.
    """
    try:
        with ledger.writing() as connection, transaction(connection):
            rows = [(account, window_start_ms, share) for share in shares]
            return [row[2] for row in rows if connection.execute(_CLAIM, row).rowcount == 1]
    except sqlite3.Error as error:
        raise LedgerUnavailable(str(error)) from None
