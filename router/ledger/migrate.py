"""Numbered SQL files, applied once each and in order; the ledger itself keeps the number of the last one."""

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from importlib.resources import files

from msgspec import Struct

from router.ledger.connection import Connection


class LedgerTooNew(Exception):
    """A newer lowpass wrote this ledger."""


class Dialect(Struct, frozen=True):
    """Where the scripts are, and how a database keeps others out and a version in. `write` has a place for it."""

    folder: str
    begin: tuple[str, ...]
    read: str
    write: str


SQLITE = Dialect("sqlite", ("BEGIN IMMEDIATE",), "PRAGMA user_version", "PRAGMA user_version = {}")
POSTGRES = Dialect(
    "postgres",
    (
        "BEGIN",
        "SELECT pg_advisory_xact_lock(7816810)",
        "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)",
        "INSERT INTO schema_version SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM schema_version)",
    ),
    "SELECT version FROM schema_version",
    "UPDATE schema_version SET version = {}",
)
"""The lock's number is of no meaning, but always the same."""


def migrate(connection: Connection, dialect: Dialect = SQLITE) -> int:
    """Brings the ledger to the newest form; safe when several processes start at once. Returns its version."""
    scripts = _scripts(dialect)
    try:
        for statement in dialect.begin:
            connection.execute(statement)
        version = current(connection, dialect)
        for number, script in enumerate(scripts[version:], version + 1):
            for statement in _statements(script):
                connection.execute(statement)
            connection.execute(dialect.write.format(number))
        connection.execute("COMMIT")
    except BaseException:
        with suppress(Exception):
            connection.execute("ROLLBACK")
        raise
    return len(scripts)


def current(connection: Connection, dialect: Dialect) -> int:
    """The version that the ledger has. Raises `LedgerTooNew`."""
    version, newest = int(connection.execute(dialect.read).fetchone()[0]), len(_scripts(dialect))
    if version > newest:
        raise LedgerTooNew(f"the ledger has version {version}, this lowpass knows {newest}: install a newer one")
    return version


def newest(dialect: Dialect) -> int:
    return len(_scripts(dialect))


def _scripts(dialect: Dialect) -> list[str]:
    folder = files("router.ledger").joinpath("migrations", dialect.folder)
    named = {int(entry.name[:4]): entry for entry in folder.iterdir() if entry.name.endswith(".sql")}
    return [named[number].read_text() for number in sorted(named)]


def _statements(script: str) -> Iterator[str]:
    """A trigger has semicolons of its own."""
    code = "\n".join(line for line in script.splitlines() if not line.lstrip().startswith("--"))
    statement = ""
    for part in code.rstrip("; \n").split(";"):
        statement += part + ";"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
