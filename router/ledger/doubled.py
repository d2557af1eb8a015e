"""The ledger elsewhere, the budgets here: a request's row is in both, since the local budgets go by its lease."""

from router.types.journal import Journal, LocalJournal, Row


class Doubled:
    """The `Journal` port: everything goes to `ledger`, what becomes of requests goes to `local` too."""

    def __init__(self, ledger: Journal, local: LocalJournal) -> None:
        self._ledger, self._local = ledger, local

    @property
    def owner(self) -> str:
        return self._local.owner

    @property
    def available(self) -> bool:
        return self._ledger.available and self._local.available

    def add(self, statement: str, row: Row) -> None:
        self._ledger.add(statement, row)
        if statement.startswith("INSERT INTO live_requests"):
            self._local.add(statement, row)

    def change(self, statement: str, row: Row) -> None:
        self._ledger.change(statement, row)
        if statement.startswith("UPDATE live_requests"):
            self._local.change(statement, row)

    async def committed(self) -> None:
        await self._local.committed()
        await self._ledger.committed()

    async def end(self) -> None:
        await self._ledger.end()
        await self._local.end()
