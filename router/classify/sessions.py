"""The classes that sessions have had, which bind their later requests. All processes of a gateway share them.

There is one row per session and class: in the gateway's local file, or in the ledger beside the session's hash in
Redis, which is rebuilt from these rows.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from router.types.account import Journal, LocalJournal, StoreUnavailable
from router.types.request import CLEAN, SessionClasses

_INSERT_CLASS = "INSERT INTO taints (session, data_class, firm) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
Mark = tuple[str, int]
"""A class, and 1 if it is firm (declared, or due to unscannable content), 0 if it comes from findings alone."""


def marks_of(classes: SessionClasses) -> Iterator[Mark]:
    yield from ((name, 1) for name in classes.permanent)
    yield from ((name, 0) for name in classes.found)


def classes_of(marks: Iterable[Mark]) -> SessionClasses:
    permanent, found = set[str](), set[str]()
    for name, is_firm in marks:
        (permanent if is_firm else found).add(name)
    return SessionClasses(frozenset(permanent), frozenset(found))


_SELECT_CLASSES = "SELECT data_class, firm FROM taints WHERE session = ?"


class SqliteSessions:
    """Stores classes through a `LocalJournal`. Reads see the last commit of every process and wait for none.

    Rows that can't be written are written once the file is writable again. The file grows by one row per session and
    class above the default; nothing is kept in memory.
    """

    def __init__(self, journal: LocalJournal) -> None:
        self._journal = journal

    async def taint(self, session: str) -> SessionClasses:
        rows = self._journal.read(lambda connection: connection.execute(_SELECT_CLASSES, (session,)).fetchall())
        return classes_of(rows) if rows else CLEAN

    async def add(self, session: str, classes: SessionClasses) -> None:
        for mark in marks_of(classes):
            self._journal.add(_INSERT_CLASS, (session, *mark))
        await self._journal.committed()


class SessionServer(Protocol):
    """Runs scripts on a server with data of the current epoch; raises `StoreUnavailable` within a bounded time."""

    async def run(self, name: str, keys: Sequence[str], *arguments: str | int | bytes) -> list[object]: ...


class RedisSessions:
    """Stores classes in Redis: a session is a hash whose fields are its marks, and never expires.

    Redis and the ledger grow by one entry per session and class above the default. Memory holds only the entries that
    Redis could not take, until it is back (`resume`).
    """

    def __init__(self, server: SessionServer, prefix: str, journal: Journal) -> None:
        """`prefix`: beginning of the keys, which puts them all in one slot of a Redis cluster."""
        self.server, self._prefix, self._journal = server, prefix, journal
        self._unsent: dict[str, set[str]] = {}
        self._sending: asyncio.Task[None] | None = None

    async def taint(self, session: str) -> SessionClasses:
        fields = {*map(str, await self.server.run("seen", [self._prefix + session])), *self._unsent.get(session, ())}
        return classes_of((field[1:], int(field[0])) for field in fields) if fields else CLEAN

    async def add(self, session: str, classes: SessionClasses) -> None:
        """Writes to the ledger first, so that a rebuild of a server that lost its data finds the classes."""
        fields = self._unsent.setdefault(session, set())
        for mark in marks_of(classes):
            fields.add(_hash_field(*mark))
            self._journal.add(_INSERT_CLASS, (session, *mark))
        try:
            await self._journal.committed()
        finally:
            await self._send(session)

    def resume(self) -> None:
        """Sends Redis what it could not take, now that it is back."""
        if self._unsent and (self._sending is None or self._sending.done()):
            self._sending = asyncio.get_running_loop().create_task(self._send_all())

    async def _send_all(self) -> None:
        for session in list(self._unsent):
            try:
                await self._send(session)
            except StoreUnavailable:
                return

    async def _send(self, session: str) -> None:
        sent = frozenset(self._unsent.get(session, ()))
        await self.server.run("taint", [self._prefix + session], *sent)
        unsent = self._unsent.get(session, set()) - sent
        if unsent:
            self._unsent[session] = unsent
        else:
            self._unsent.pop(session, None)


SessionStore: TypeAlias = SqliteSessions | RedisSessions
"""Store of the classes of sessions, by `session_key`. `add` returns once the classes can't be lost and every process
sees them; none is ever removed. Methods raise `StoreUnavailable`: then a session's classes are unknown."""


def hash_fields(rows: Iterable[tuple[str, str, int]]) -> Mapping[str, list[str]]:
    """Returns the fields of each session's hash, from ledger rows of session, class and firm."""
    fields: dict[str, list[str]] = {}
    for session, data_class, firm in rows:
        fields.setdefault(session, []).append(_hash_field(data_class, firm))
    return fields


def _hash_field(name: str, firm: int) -> str:
    return f"{firm}{name}"
