"""What sessions have seen: it sticks to them, and is kept where the budgets are. Shared by all processes of a gateway.

One row a session and class: in the gateway's own file, which all of its processes share, or in the ledger beside the
hash of the session in Redis, which is rebuilt from these rows.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from router.types.account import Journal, LocalJournal, StoreUnavailable
from router.types.request import CLEAN, SessionClasses

TAINT = "INSERT INTO taints (session, data_class, firm) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
Mark = tuple[str, int]
"""A class, and whether it is firm."""


def marks(taint: SessionClasses) -> Iterator[Mark]:
    yield from ((name, 1) for name in taint.permanent)
    yield from ((name, 0) for name in taint.found)


def joined(fields: Iterable[Mark]) -> SessionClasses:
    firm, loose = set[str](), set[str]()
    for name, is_firm in fields:
        (firm if is_firm else loose).add(name)
    return SessionClasses(frozenset(firm), frozenset(loose))


_SEEN = "SELECT data_class, firm FROM taints WHERE session = ?"


class SqliteSessions:
    """Over a `LocalJournal`. Reads see the last commit of every process, and wait for none.

    What can't be written now is written once the file can be again. On disk grows one row for each session and class
    above the default; nothing is kept in memory.
    """

    def __init__(self, journal: LocalJournal) -> None:
        self._journal = journal

    async def taint(self, session: str) -> SessionClasses:
        rows = self._journal.read(lambda connection: connection.execute(_SEEN, (session,)).fetchall())
        return joined(rows) if rows else CLEAN

    async def add(self, session: str, taint: SessionClasses) -> None:
        for mark in marks(taint):
            self._journal.add(TAINT, (session, *mark))
        await self._journal.committed()


class SessionServer(Protocol):
    """Runs a script on data of our time, or raises `StoreUnavailable` within a bounded time."""

    async def run(self, name: str, keys: Sequence[str], *arguments: str | int | bytes) -> list[object]: ...


class RedisSessions:
    """A session is a hash whose fields are its marks; it never expires.

    In Redis and in the ledger grows one entry for each session and class above the default; in memory only those that
    Redis could not take, until it is back (`resume`).
    """

    def __init__(self, server: SessionServer, prefix: str, journal: Journal) -> None:
        """`prefix`: of the keys; all are of one slot."""
        self.server, self._prefix, self._journal = server, prefix, journal
        self._owed: dict[str, set[str]] = {}
        self._paying: asyncio.Task[None] | None = None

    async def taint(self, session: str) -> SessionClasses:
        fields = {*map(str, await self.server.run("seen", [self._prefix + session])), *self._owed.get(session, ())}
        return joined((field[1:], int(field[0])) for field in fields) if fields else CLEAN

    async def add(self, session: str, taint: SessionClasses) -> None:
        """Into the ledger first: whoever rebuilds a server that lost its data then finds it there."""
        fields = self._owed.setdefault(session, set())
        for mark in marks(taint):
            fields.add(_field(*mark))
            self._journal.add(TAINT, (session, *mark))
        try:
            await self._journal.committed()
        finally:
            await self._pay(session)

    def resume(self) -> None:
        """The server is there again: it is given what it could not take."""
        if self._owed and (self._paying is None or self._paying.done()):
            self._paying = asyncio.get_running_loop().create_task(self._pay_all())

    async def _pay_all(self) -> None:
        for session in list(self._owed):
            try:
                await self._pay(session)
            except StoreUnavailable:
                return

    async def _pay(self, session: str) -> None:
        sent = frozenset(self._owed.get(session, ()))
        await self.server.run("taint", [self._prefix + session], *sent)
        left = self._owed.get(session, set()) - sent
        if left:
            self._owed[session] = left
        else:
            self._owed.pop(session, None)


SessionStore: TypeAlias = SqliteSessions | RedisSessions
"""`session` is `session_key` of caller and name. `add` returns once it can't be lost, and every process sees it;
nothing goes away. Raises `StoreUnavailable`: then it is not known what the session has seen."""


def hashes(taints: Iterable[tuple[str, str, int]]) -> Mapping[str, list[str]]:
    """The fields of each session's hash, from rows of the ledger: session, class, firm."""
    fields: dict[str, list[str]] = {}
    for session, name, firm in taints:
        fields.setdefault(session, []).append(_field(name, firm))
    return fields


def _field(name: str, firm: int) -> str:
    return f"{firm}{name}"
