"""Numbered SQL files, applied once each and in order; `PRAGMA user_version` holds the last one."""

import sqlite3
from collections.abc import Iterator
from importlib.resources import files


class LedgerTooNew(Exception):
    """A newer lowpass wrote this ledger."""


def migrate(connection: sqlite3.Connection) -> int:
    """Brings the ledger to the newest form; safe when several processes start at once. Returns its version."""
    scripts = _scripts()
    connection.execute("BEGIN IMMEDIATE")
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > len(scripts):
            raise LedgerTooNew(
                f"the ledger has version {version}, this lowpass knows {len(scripts)}: install a newer one"
            )
        for number, script in enumerate(scripts[version:], version + 1):
            for statement in _statements(script):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    return len(scripts)


def _scripts() -> list[str]:
    folder = files("router.ledger").joinpath("migrations", "sqlite")
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
