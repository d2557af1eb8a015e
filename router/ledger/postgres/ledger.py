"""The ledger as a PostgreSQL database."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from router.ledger.connection import Connection
from router.ledger.migrate import POSTGRES, Dialect, current, migrate, newest, readable
from router.ledger.postgres.connection import PostgresConnection
from router.ledger.postgres.journal import PostgresJournal
from router.ledger.postgres.place import Place
from router.types.secret import Secret

_MADE = "SELECT to_regclass('schema_version') IS NOT NULL"

_SIZE = """
    SELECT CAST(COALESCE(SUM(pg_total_relation_size(c.oid)), 0) AS BIGINT) FROM pg_class AS c
    WHERE c.relkind = 'r' AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('requests'))
"""


class PostgresLedger:
    """The `Ledger` port over the database of a URL. Raises `SettingError` for a URL that is none."""

    def __init__(self, url: Secret) -> None:
        self._place = Place(url)
        self._readable = False

    @property
    def name(self) -> str:
        return self._place.name

    @property
    def dialect(self) -> Dialect:
        return POSTGRES

    def exists(self) -> bool:
        with self.reading(any_version=True) as connection:
            return bool(connection.execute(_MADE).fetchone()[0])

    def version(self) -> int:
        with self.reading(any_version=True) as connection:
            return _version(connection)

    def size(self, connection: Connection) -> int:
        return int(connection.execute(_SIZE).fetchone()[0])

    def damage(self) -> list[str]:
        return []

    def migrate(self, to: int | None = None, *, lose_data: bool = False) -> int:
        goal, self._readable = newest(POSTGRES) if to is None else to, False
        with self.writing() as connection:
            # What is there already is left alone: the role may then do without the right to create tables.
            return goal if _version(connection) == goal else migrate(connection, POSTGRES, to, lose_data=lose_data)

    def open_journal(self) -> PostgresJournal:
        return PostgresJournal(self._place)

    @contextmanager
    def reading(self, *, any_version: bool = False) -> Iterator[Connection]:
        with closing(PostgresConnection(self._place, read_only=True)) as connection:
            if not (any_version or self._readable):
                readable(self.name, _version(connection), POSTGRES)
                self._readable = True
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        with closing(PostgresConnection(self._place)) as connection:
            yield connection


def _version(connection: Connection) -> int:
    return current(connection, POSTGRES) if connection.execute(_MADE).fetchone()[0] else 0
