"""Single look-ups by id. Each opens its own connection, so that it can run on any thread."""

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from router.ledger import rows
from router.ledger.connection import Connection
from router.ledger.kept import Line
from router.ledger.ledger import Ledger
from router.ledger.packed import block, stored
from router.ledger.packed.segment import INDEX, blocks
from router.types.clock import now_ms

Spent = tuple[str, int, int]
"""Account, start of its window (Unix ms), what was charged there."""
Held = tuple[str, str, int, int]
"""Request, account, start of its window, what is held and not charged yet."""

_SPENT = (
    "SELECT account, window_start_ms, CAST(SUM(charged) AS BIGINT) FROM bookings WHERE charged IS NOT NULL"
    " AND (window_start_ms = 0 OR window_start_ms >= ?) GROUP BY account, window_start_ms"
)
LONGEST_WINDOW_MS = 400 * 86_400_000
"""A year and more; what counts for ever is booked at 0."""
_HELD = "SELECT request_id, account, window_start_ms, held FROM bookings WHERE charged IS NULL"
_TAINTS = "SELECT session, data_class, firm FROM taints"
_LATEST = (
    "SELECT a.target, a.thinking, r.task, a.outcome, a.finish_reason, a.input_uncached, a.output_visible,"
    " a.output_reasoning, a.output_audio, CASE r.stream WHEN 1 THEN a.first_ms END, a.total_ms, a.started_ms"
    " FROM attempts AS a JOIN requests AS r ON r.id = a.request_id"
    " WHERE a.usage_source = 'reported' AND a.violations = '' ORDER BY a.request_id DESC LIMIT ?"
)

_NEWEST = "SELECT number FROM segments WHERE cleared = 1 AND expired_ms IS NULL ORDER BY last_id DESC LIMIT 1"
"""What is not cleared yet is in its tables too."""


class Finished(Struct, frozen=True):
    """An attempt that told what it used. Tokens over all choices."""

    target: str
    thinking: str
    task: str
    outcome: str
    finish_reason: str
    input: int
    visible: int
    reasoning: int | None
    audio: int
    first_ms: int | None
    """Of a stream."""
    total_ms: int
    started_ms: int


def booked(ledger: Ledger) -> tuple[list[Spent], list[Held]]:
    """What accounts were charged in windows that may still count, and what they hold, as of one moment."""
    with ledger.reading() as connection:
        connection.execute("BEGIN")
        return connection.execute(_SPENT, (now_ms() - LONGEST_WINDOW_MS,)).fetchall(), connection.execute(
            _HELD
        ).fetchall()


def taints(ledger: Ledger) -> list[tuple[str, str, int]]:
    """What sessions have seen: session, class, and whether it is firm."""
    with ledger.reading() as connection:
        return connection.execute(_TAINTS).fetchall()


def finished(ledger: Ledger, most: int) -> list[Finished]:
    """The latest attempts, the oldest of them first; of packed ones no more than are packed together."""
    with ledger.reading() as connection:
        connection.execute("BEGIN")
        fresh = [Finished(*row) for row in reversed(connection.execute(_LATEST, (most,)).fetchall())]
        older = list(_packed(connection)) if len(fresh) < most else []
    return (older + fresh)[-most:]


def _packed(connection: Connection) -> Iterator[Finished]:
    """Of the newest segment a thousand requests or more, if it has them."""
    row = connection.execute(_NEWEST).fetchone()
    index = None if row is None else stored.part(connection, row[0], INDEX)
    names = () if index is None else blocks(index)[-2:]
    for _, _, data in sorted(stored.parts(connection, [row[0]], names)) if names else ():
        for kept in block.unpacked(data):
            for attempt in kept.attempts:
                if attempt["usage_source"] == "reported" and attempt["violations"] == "":
                    yield msgspec.convert(_finished(kept.request, attempt), Finished)


def _finished(request: Line, attempt: Line) -> dict[str, object]:
    tokens = {"input": "input_uncached", "visible": "output_visible", "reasoning": "output_reasoning"}
    return {
        **{name: attempt[name] for name in Finished.__struct_fields__ if name in attempt},
        **{name: attempt[column] for name, column in (tokens | {"audio": "output_audio"}).items()},
        "task": request["task"],
        "first_ms": attempt["first_ms"] if request["stream"] else None,
    }


def decision(ledger: Ledger, identifier: str) -> bytes | None:
    """The JSON document of one decision; None where there is none, or its rows expired."""
    with ledger.reading() as connection:
        # One that nobody was asked for belongs to no request, and stays where it is.
        row = connection.execute("SELECT document FROM decisions WHERE id = ?", (identifier,)).fetchone()
        if row is not None:
            return str(row[0]).encode()
        kept = rows.one(connection, identifier)
    return None if kept is None or kept.decision is None else str(kept.decision["document"]).encode()
