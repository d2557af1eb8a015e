"""Sessions in the gateway's own file, which all of its processes share."""

from router.sessions.rows import TAINT, joined, marks
from router.types.account import LocalJournal
from router.types.request import CLEAN, SessionClasses

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
