"""The ledger as a PostgreSQL database."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from router.ledger.connection import Connection
from router.ledger.migrate import POSTGRES, current, migrate, newest
from router.ledger.postgres.connection import PostgresConnection
from router.ledger.postgres.journal import PostgresJournal
from router.ledger.postgres.place import Place
from router.types.secret import Secret

_MADE = "SELECT to_regclass('schema_version') IS NOT NULL"


class PostgresLedger:
    """The `Ledger` port over the database of a URL. Raises `SettingError` for a URL that is none."""

    def __init__(self, url: Secret) -> None:
        self._place = Place(url)

    @property
    def name(self) -> str:
        return self._place.name

    def exists(self) -> bool:
        with self.reading() as connection:
            return bool(connection.execute(_MADE).fetchone()[0])

    def migrate(self) -> int:
        with self.writing() as connection:
            # What is new enough is left alone: the role may then do without the right to create tables.
            if connection.execute(_MADE).fetchone()[0] and current(connection, POSTGRES) == newest(POSTGRES):
                return newest(POSTGRES)
            return migrate(connection, POSTGRES)

    def open_journal(self) -> PostgresJournal:
        return PostgresJournal(self._place)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with closing(PostgresConnection(self._place, read_only=True)) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        with closing(PostgresConnection(self._place)) as connection:
            yield connection
