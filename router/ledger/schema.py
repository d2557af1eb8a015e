"""What tables a version of the ledger has, and the rows of one in the order of its key: the same in either database."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import cache
from typing import Any

from msgspec import Struct

from router.ledger.connection import Connection
from router.ledger.migrate import migrate

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
        places, last = [self.columns.index(name) for name in self.key], None
        while rows := self._page(connection, last):
            yield rows
            last = [rows[-1][place] for place in places]

    def _page(self, connection: Connection, last: Sequence[Any] | None) -> list[Sequence[Any]]:
        key, places = ", ".join(self.key), ", ".join("?" * len(self.key))
        beyond = "" if last is None else f" WHERE ({key}) > ({places})"
        statement = f"SELECT {', '.join(self.columns)} FROM {self.name}{beyond} ORDER BY {key} LIMIT ?"  # noqa: S608
        return connection.execute(statement, (*(last or ()), PAGE_OF_BLOBS if self.blobs else PAGE)).fetchall()

    def count(self, connection: Connection) -> int:
        return int(connection.execute(f"SELECT COUNT(*) FROM {self.name}").fetchone()[0])  # noqa: S608


@cache
def tables(version: int) -> tuple[Table, ...]:
    """Out of the migrations themselves, in the order in which they are made."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection, to=version)
        return tuple(_table(connection, name) for (name,) in connection.execute(_TABLES).fetchall())


def _table(connection: sqlite3.Connection, name: str) -> Table:
    columns = connection.execute(_COLUMNS, (name,)).fetchall()
    keyed = sorted((place, column) for column, _, place in columns if place)
    blobs = any(kind == "BLOB" for _, kind, _ in columns)
    return Table(name, tuple(column for column, *_ in columns), tuple(column for _, column in keyed), blobs)
