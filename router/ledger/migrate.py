"""Migrations of the ledger up and down, and its schema in either database."""

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

# Numbered SQL files, applied once each and in order; the ledger itself keeps the number of the last one.
#
# NNNN_name.sql goes up to version N, NNNN_name.down.sql takes it back. A line `-- loses WHAT: SELECT …` of the latter
# says what is gone where that finds a row. They are written for SQLite; PostgreSQL gets them in its own `words`.

FIRST = 14
"""The version that nothing goes back from: those before it were never released."""
_UNRELEASED = "which was never released: begin a new ledger"
_COMPATIBLE = "SELECT version FROM compatible"
"""The oldest version that can use the ledger as it is: a migration that only adds leaves it as it was."""
_LOSES = re.compile(r"^-- loses (.+?): (SELECT .+)$", re.MULTILINE)


class LedgerTooNew(Exception):
    """A newer lowpass wrote this ledger, in a way that this one does not understand."""


class LedgerTooOld(LedgerUnavailable):
    """It must be brought up before it can be read, or can't be."""


class WouldLose(Exception):
    """The way back has no place for something that is there."""


class Dialect(Struct, frozen=True):
    """How a database keeps others out and a version in; the head of `data/dialects.yaml` explains the fields."""

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
    """Brings the ledger to a version, the newest one if none is named, and returns it. Several processes may start at
    once. Raises `LedgerTooNew`, `WouldLose` and, for a version that there is not, ValueError; then nothing is changed.
    """
    goal = newest(dialect) if to is None else to
    if not FIRST <= goal <= newest(dialect):
        raise ValueError(f"there is no version {goal} of a ledger: this lowpass knows {FIRST} to {newest(dialect)}")
    with transaction(connection, dialect.begin):
        version = current(connection, dialect)
        if to is None:
            # The version before goes on beside a newer one, and may start again.
            goal = max(goal, version)
        for number in range(max(version + 1, FIRST), goal + 1):
            _run(connection, _scripts(dialect)[number])
        losses = []
        for number in range(version, goal, -1):
            script = _scripts(dialect, ".down.sql")[number]
            rows = [(loss, connection.execute(f"{where} LIMIT 1").fetchone()) for loss, where in _LOSES.findall(script)]
            losses += [loss for loss, row in rows if row]
            _run(connection, script)
        if losses and not lose_data:
            raise WouldLose(f"version {goal} has no place for {', '.join(losses)}: --lose-data gives them up")
        if version != goal:
            connection.execute(dialect.write.format(goal))
    return goal


def current(connection: Connection, dialect: Dialect) -> int:
    """The version that the ledger has; 0: it has none. Raises `LedgerTooNew` and `LedgerTooOld`."""
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
    """Raises `LedgerUnavailable` where this lowpass would look for what is not there yet. A newer ledger has all that
    there was before: gateways of the version before go on while others come."""
    if version == 0:
        raise LedgerUnavailable(f"there is no ledger in {name} yet: `lowpass serve` makes it")
    if version < newest(dialect):
        remedy = f"this lowpass needs {newest(dialect)}: run `lowpass ledger migrate`"
        raise LedgerTooOld(f"{name} has version {version} of the ledger, {_UNRELEASED if version < FIRST else remedy}")


def newest(dialect: Dialect) -> int:
    return max(_scripts(dialect))


def _run(connection: Connection, script: str) -> None:
    """Statement by statement; a trigger has semicolons of its own."""
    code = "\n".join(line for line in script.splitlines() if not line.lstrip().startswith("--"))
    statement = ""
    for part in code.rstrip("; \n").split(";"):
        statement += part + ";"
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""


@cache
def _scripts(dialect: Dialect, ending: str = ".sql") -> dict[int, str]:
    """By number."""
    scripts: dict[int, str] = {}
    for entry in files("router.ledger").joinpath("migrations").iterdir():
        if entry.name.endswith(ending) and entry.name.count(".") == ending.count("."):
            text = entry.read_text()
            for pattern, other in dialect.words:
                text = re.sub(pattern, other, text)
            scripts[int(entry.name[:4])] = text
    return scripts


# What tables a version of the ledger has, and the rows of one in the order of its key: the same in either database.

PAGE = 1_000
"""Rows read at a time."""
PAGE_OF_BLOBS = 8
_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
_COLUMNS = "SELECT name, type, pk FROM pragma_table_info(?) ORDER BY cid"


class Table(Struct, frozen=True):
    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    """Empty where rows have none."""
    blobs: bool

    def pages(self, connection: Connection) -> Iterator[list[Sequence[Any]]]:
        """None of them is empty."""
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
    """Out of the migrations themselves, in the order in which they are made."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection, to=version)
        made = []
        for (name,) in connection.execute(_TABLES).fetchall():
            columns, kinds, places = zip(*connection.execute(_COLUMNS, (name,)).fetchall(), strict=True)
            key = [column for place, column in sorted(zip(places, columns, strict=True)) if place]
            made.append(Table(name, columns, tuple(key), "BLOB" in kinds))
        return tuple(made)
