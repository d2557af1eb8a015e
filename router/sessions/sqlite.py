"""Sessions as rows of the ledger, one a session and class; and those of the gateway's own file, which all of its
processes share."""

from collections.abc import Iterable, Iterator

from router.types.account import LocalJournal
from router.types.request import CLEAN, SessionClasses

TAINT = "INSERT INTO taints (session, data_class, firm) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
Mark = tuple[str, int]
"""A class, and whether it is firm."""


def marks(taint: SessionClasses) -> Iterator[Mark]:
    yield from ((name, 1) for name in taint.permanent)
    yield from ((name, 0) for name in taint.found)


def joined(found: Iterable[Mark]) -> SessionClasses:
    firm, loose = set[str](), set[str]()
    for name, is_firm in found:
        (firm if is_firm else loose).add(name)
    return SessionClasses(frozenset(firm), frozenset(loose))


_SEEN = "SELECT data_class, firm FROM taints WHERE session = ?"


class SqliteSessions:
    """The `SessionStore` port over a `LocalJournal`. Reads see the last commit of every process, and wait for none.

    What can't be written now is written once the file can be again. On disk grows one row for each session and class
    above the default; nothing is kept in memory.
    """

    def __init__(self, journal: LocalJournal) -> None:
        self._journal = journal

    async def taint(self, session: str) -> SessionClasses:
        found = self._journal.read(lambda connection: connection.execute(_SEEN, (session,)).fetchall())
        return joined(found) if found else CLEAN

    async def add(self, session: str, taint: SessionClasses) -> None:
        for mark in marks(taint):
            self._journal.add(TAINT, (session, *mark))
        await self._journal.committed()
