"""Single look-ups by id. Each opens its own connection, so that it can run on any thread."""

from msgspec import Struct

from router.ledger.connection import Connection
from router.ledger.documents import Documents
from router.ledger.ledger import Ledger
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
_HELD_LONG = (
    "SELECT b.request_id, b.account, b.window_start_ms, b.held FROM bookings AS b LEFT JOIN live_requests AS r"
    " ON r.id = b.request_id WHERE b.charged IS NULL AND b.request_id NOT LIKE 'lease:%'"
    " AND COALESCE(r.started_ms, 0) < ? AND NOT EXISTS (SELECT 1 FROM children AS c WHERE c.id = b.request_id)"
    " AND (r.id IS NULL OR r.state <> 'held' OR r.lease_until_ms < ?)"
)
_LOOPS = "SELECT id, document FROM loops WHERE changed_ms >= ?"
_TAINTS = "SELECT session, data_class, firm FROM taints"
_LATEST = (
    "SELECT a.target, a.thinking, r.task, r.template, a.outcome, a.finish_reason, a.input_uncached, a.output_visible,"
    " a.output_reasoning, a.output_audio, CASE r.stream WHEN 1 THEN a.first_ms END, a.total_ms, a.started_ms"
    " FROM {} AS r CROSS JOIN {} AS a WHERE r.id = a.request_id AND {}"
    " AND a.usage_source = 'reported' AND a.violations = '' ORDER BY {} DESC LIMIT ?"
)
_LATEST_LIVE = _LATEST.format("live_requests", "live_attempts", "1 = 1", "r.id")
_LATEST_PAST = _LATEST.format(
    *("past_requests_named", "past_attempts_named"),
    *("r.position > (SELECT position FROM progress WHERE name = 'moved') - 100000", "r.position"),
)
_DECISION = "SELECT document FROM live_decisions WHERE id = ?"
_PAST_DECISION = "SELECT dictionary, document FROM past_decisions WHERE id = ?"


class Finished(Struct, frozen=True):
    """An attempt that told what it used. Tokens over all choices."""

    target: str
    thinking: str
    task: str
    template: str
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


def loops(ledger: Ledger, since_ms: int) -> list[tuple[str, str]]:
    """What the loop breakers of all processes wrote down since then: id, document."""
    with ledger.reading() as connection:
        return [(str(name), str(document)) for name, document in connection.execute(_LOOPS, (since_ms,)).fetchall()]


def booked(ledger: Ledger) -> tuple[list[Spent], list[Held]]:
    """What accounts were charged in windows that may still count, and what they hold, as of one moment."""
    with ledger.reading() as connection:
        connection.execute("BEGIN")
        return connection.execute(_SPENT, (now_ms() - LONGEST_WINDOW_MS,)).fetchall(), connection.execute(
            _HELD
        ).fetchall()


def held_long(ledger: Ledger, before_ms: int) -> list[Held]:
    """Bookings that are held of requests that began before then and that no process holds a lease of."""
    with ledger.reading() as connection:
        return connection.execute(_HELD_LONG, (before_ms, before_ms)).fetchall()


def taints(ledger: Ledger) -> list[tuple[str, str, int]]:
    """What sessions have seen: session, class, and whether it is firm."""
    with ledger.reading() as connection:
        return connection.execute(_TAINTS).fetchall()


def finished(ledger: Ledger, most: int) -> list[Finished]:
    """The latest attempts, the oldest of them first; of requests of the past the last 100,000 are looked at."""
    with ledger.reading() as connection:
        connection.execute("BEGIN")
        rows = connection.execute(_LATEST_LIVE, (most,)).fetchall()
        if len(rows) < most:
            rows += connection.execute(_LATEST_PAST, (most - len(rows),)).fetchall()
    return [Finished(*row) for row in reversed(rows)]


def decision(ledger: Ledger, identifier: str) -> bytes | None:
    """The JSON document of one decision; None where there is none, or its rows expired."""
    with ledger.reading() as connection:
        connection.execute("BEGIN")
        return document(connection, identifier)


def document(connection: Connection, identifier: str) -> bytes | None:
    """As `decision`, inside a transaction."""
    row = connection.execute(_DECISION, (identifier,)).fetchone()
    if row is not None:
        return str(row[0]).encode()
    row = connection.execute(_PAST_DECISION, (identifier,)).fetchone()
    return None if row is None else Documents(connection).restored(*row).encode()
