"""What waits for the next transaction, in the order in which it is written."""

from router.ledger.postgres.wire import Encoded, encoded
from router.types.journal import Row

LARGEST = 50_000
"""Statements that wait at most, about 50 MB; so many come together only from requests that are refused meanwhile."""
Item = tuple[str, Encoded]
"""A statement and its values."""


class Queue:
    """Statements beyond `LARGEST` are dropped and counted."""

    def __init__(self) -> None:
        self.dropped = 0
        self._rows: dict[str, list[Encoded]] = {}
        self._changes: list[Item] = []
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, statement: str, row: Row) -> None:
        if self._room():
            self._rows.setdefault(statement, []).append(encoded(row))

    def change(self, statement: str, row: Row) -> None:
        if self._room():
            self._changes.append((statement, encoded(row)))

    def take(self, most: int) -> list[Item]:
        """New rows first, in the order in which their statements were first used; then changes."""
        items: list[Item] = []
        for statement, rows in self._rows.items():
            taken, self._rows[statement] = rows[: most - len(items)], rows[most - len(items) :]
            items += [(statement, row) for row in taken]
        taken_changes, self._changes = self._changes[: most - len(items)], self._changes[most - len(items) :]
        items += taken_changes
        self._length -= len(items)
        return items

    def _room(self) -> bool:
        if self._length >= LARGEST:
            self.dropped += 1
            return False
        self._length += 1
        return True


def repeatable(item: Item) -> Item:
    """Writes nothing where the row is there already: the answer to the first try was lost, not its work, perhaps."""
    statement, values = item
    if statement.startswith("INSERT") and "ON CONFLICT" not in statement:
        return f"{statement} ON CONFLICT DO NOTHING", values
    return item
