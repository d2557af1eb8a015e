"""Rows written twice: a commit was repeated since its answer was lost, and meanwhile what it wrote was packed."""

from collections.abc import Sequence

from router.ledger.connection import Connection
from router.ledger.ledger import Ledger
from router.ledger.packed import block, stored
from router.ledger.packed.clear import CHUNK, drop
from router.ledger.packed.segment import INDEX, blocks

_LATE = (
    "SELECT id FROM requests WHERE id <= :boundary UNION SELECT request_id FROM attempts WHERE request_id <= :boundary"
    " UNION SELECT id FROM decisions WHERE id <= :boundary ORDER BY 1"
)


def drop_repeated(ledger: Ledger) -> None:
    """Takes them out of the tables again; bookings only where they were summed up when they were packed."""
    with ledger.reading() as connection:
        connection.execute("BEGIN")
        late = connection.execute(_LATE, {"boundary": stored.boundary(connection)}).fetchall()
        # While somebody clears a segment, its own rows look the same.
        if not late or stored.uncleared(connection):
            return
        ids, settled = _packed(connection, [row[0] for row in late])
    with ledger.writing() as connection:
        for at in range(0, len(ids), CHUNK):
            drop(connection, ids[at : at + CHUNK], settled)


def _packed(connection: Connection, late: Sequence[str]) -> tuple[list[str], set[str]]:
    """Those of them that are in a segment; and of these, those whose bookings all were settled."""
    wanted, found, closed = set(late), set[str](), set[str]()
    for segment in stored.around(connection, late[0], late[-1]):
        index = stored.part(connection, segment.number, INDEX)
        for name in () if index is None else blocks(index):
            data = stored.part(connection, segment.number, name)
            ids, settled = ([], set[str]()) if data is None else block.identifiers(data)
            found |= wanted & set(ids)
            closed |= wanted & settled
    return sorted(found), closed
