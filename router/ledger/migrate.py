"""Migrations of the ledger up and down, and the schema of its versions."""

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from msgspec import Struct

from router.ledger.rows import Connection, sql_placeholders, transaction
from router.types.account import LedgerUnavailable
from router.types.tables import table

# Migrations are numbered SQL files, applied once each and in order; the ledger stores the number of the last one.
#
# NNNN_name.sql migrates up to version N, NNNN_name.down.sql back to N-1. A line `-- loses WHAT: SELECT …` of the latter
# names what is lost if the SELECT finds a row. They are written for SQLite, and translated by `Dialect.words`.

FIRST = 14
"""Oldest supported version; earlier ones were never released."""
_UNRELEASED = "which was never released: begin a new ledger"
_COMPATIBLE = "SELECT version FROM compatible"
"""Query for the oldest version that can use the ledger; migrations that only add things do not change it."""
_LOSES = re.compile(r"^-- loses (.+?): (SELECT .+)$", re.MULTILINE)


class LedgerTooNew(Exception):
    """The ledger was written by a newer lowpass in a format unknown to this one."""


class LedgerTooOld(LedgerUnavailable):
    """The ledger must be migrated before it can be read, or is too old to be migrated."""


class WouldLose(Exception):
    """A migration down would lose data."""


class Dialect(Struct, frozen=True):
    """What differs between the databases; the head of `data/dialects.yaml` explains the fields."""

    name: str
    begin: tuple[str, ...]
    made: str
    read: str
    write: str
    given: str = ""
    recount: str = ""
    words: tuple[tuple[str, str], ...] = ()


SQLITE, POSTGRES = msgspec.convert(table("ledger/data/dialects.yaml"), tuple[Dialect, Dialect])


def migrate(
    connection: Connection, dialect: Dialect = SQLITE, to: int | None = None, *, lose_data: bool = False
) -> int:
    """Migrates the ledger to version `to`, by default the newest, and returns the version. Several processes may call
    it at once. On `LedgerTooNew`, `WouldLose`, or ValueError for an unknown version, nothing is changed."""
    goal = newest(dialect) if to is None else to
    if not FIRST <= goal <= newest(dialect):
        raise ValueError(f"there is no version {goal} of a ledger: this lowpass knows {FIRST} to {newest(dialect)}")
    with transaction(connection, dialect.begin):
        version = current(connection, dialect)
        if to is None:
            # Gateways of an older version may run, and restart, beside newer ones.
            goal = max(goal, version)
        for number in range(max(version + 1, FIRST), goal + 1):
            _run_script(connection, _scripts(dialect)[number])
        losses = []
        for number in range(version, goal, -1):
            script = _scripts(dialect, ".down.sql")[number]
            rows = [(loss, connection.execute(f"{where} LIMIT 1").fetchone()) for loss, where in _LOSES.findall(script)]
            losses += [loss for loss, row in rows if row]
            _run_script(connection, script)
        if losses and not lose_data:
            raise WouldLose(f"version {goal} has no place for {', '.join(losses)}: --lose-data gives them up")
        if version != goal:
            connection.execute(dialect.write.format(goal))
    return goal


def current(connection: Connection, dialect: Dialect) -> int:
    """Returns the ledger's version; 0 if there is no ledger yet. Raises `LedgerTooNew` and `LedgerTooOld`."""
    made = connection.execute(dialect.made).fetchone()[0]
    version = int(connection.execute(dialect.read).fetchone()[0]) if made else 0
    if 0 < version < FIRST:
        raise LedgerTooOld(f"the ledger has version {version}, {_UNRELEASED}")
    if version > newest(dialect):
        needed = int(connection.execute(_COMPATIBLE).fetchone()[0])
        if needed > newest(dialect):
            raise LedgerTooNew(
                f"the ledger has version {version}, which a lowpass that knows {needed} can use; this one knows"
                f" {newest(dialect)}: install a newer one"
            )
    return version


def readable(name: str, version: int, dialect: Dialect) -> None:
    """Raises `LedgerUnavailable` if the ledger lacks what this lowpass reads. A newer ledger is fine, since it has
    everything that older ones had."""
    if version == 0:
        raise LedgerUnavailable(f"there is no ledger in {name} yet: `lowpass serve` makes it")
    if version < newest(dialect):
        remedy = f"this lowpass needs {newest(dialect)}: run `lowpass ledger migrate`"
        raise LedgerTooOld(f"{name} has version {version} of the ledger, {_UNRELEASED if version < FIRST else remedy}")


def newest(dialect: Dialect) -> int:
    return max(_scripts(dialect))


def _run_script(connection: Connection, script: str) -> None:
    """Runs a script statement by statement; triggers contain semicolons."""
    code = "\n".join(line for line in script.splitlines() if not line.lstrip().startswith("--"))
    statement = ""
    for part in code.rstrip("; \n").split(";"):
        statement += part + ";"
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""


@cache
def _scripts(dialect: Dialect, ending: str = ".sql") -> dict[int, str]:
    """Returns the scripts in the database's dialect, by number."""
    scripts: dict[int, str] = {}
    for entry in files("router.ledger").joinpath("migrations").iterdir():
        if entry.name.endswith(ending) and entry.name.count(".") == ending.count("."):
            text = entry.read_text()
            for pattern, other in dialect.words:
                text = re.sub(pattern, other, text)
            scripts[int(entry.name[:4])] = text
    return scripts


# The tables of a version of the ledger, and their rows in the order of the key, the same in either database.

PAGE = 1_000
PAGE_OF_BLOBS = 8
_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
_COLUMNS = "SELECT name, type, pk FROM pragma_table_info(?) ORDER BY cid"


class Table(Struct, frozen=True):
    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    """Columns of the primary key; empty if there is none."""
    blobs: bool

    def pages(self, connection: Connection) -> Iterator[list[Sequence[Any]]]:
        """Yields all rows in non-empty pages, in the order of the key."""
        if not self.key:
            rows = connection.execute(f"SELECT {', '.join(self.columns)} FROM {self.name}").fetchall()  # noqa: S608
            yield from [rows] if rows else []
            return
        key, most = ", ".join(self.key), PAGE_OF_BLOBS if self.blobs else PAGE
        statement = f"SELECT {', '.join(self.columns)} FROM {self.name}{{}} ORDER BY {key} LIMIT ?"  # noqa: S608
        beyond, last = "", list[Any]()
        while rows := connection.execute(statement.format(beyond), (*last, most)).fetchall():
            yield rows
            last = [rows[-1][self.columns.index(name)] for name in self.key]
            beyond = f" WHERE ({key}) > ({sql_placeholders(self.key)})"

    def count(self, connection: Connection) -> int:
        return int(connection.execute(f"SELECT COUNT(*) FROM {self.name}").fetchone()[0])  # noqa: S608


@cache
def tables(version: int) -> tuple[Table, ...]:
    """Returns the tables of a version in order of creation, found by running its migrations in memory."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection, to=version)
        found = []
        for (name,) in connection.execute(_TABLES).fetchall():
            columns, kinds, places = zip(*connection.execute(_COLUMNS, (name,)).fetchall(), strict=True)
            key = [column for place, column in sorted(zip(places, columns, strict=True)) if place]
            found.append(Table(name, columns, tuple(key), "BLOB" in kinds))
        return tuple(found)
