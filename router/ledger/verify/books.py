"""What must hold between the tables: sums of windows, and rows that belong to a request."""

from collections.abc import Iterator

from router.ledger.connection import Connection
from router.ledger.past import EXPIRED, progress
from router.ledger.verify.finding import Finding

GRACE_MS = 600_000
"""How long a settlement may wait for the budgets' store, or a lease for a gateway that charges it."""
_WINDOWS = """
    SELECT account, window_start_ms, SUM(booked), SUM(held), SUM(kept), SUM(kept_held) FROM (
        SELECT account, window_start_ms, COALESCE(charged, 0) AS booked,
            CASE WHEN charged IS NULL THEN held ELSE 0 END AS held, 0 AS kept, 0 AS kept_held FROM bookings
        UNION ALL SELECT budget, window_start_ms, 0, 0, spent, held FROM budget_windows
    ) AS both_sides GROUP BY account, window_start_ms
    HAVING SUM(booked) <> SUM(kept) OR SUM(held) <> SUM(kept_held)
"""
_CHILDREN = """
    SELECT c.id, c.parent, b.charged, COALESCE(w.spent, 0) FROM children AS c
    JOIN bookings AS b ON b.request_id = c.id AND b.account = c.parent
    LEFT JOIN budget_windows AS w ON w.budget = c.id AND w.window_start_ms = 0
    WHERE c.closed_ms IS NOT NULL AND COALESCE(w.held, 0) = 0
        AND (b.charged IS NULL OR b.charged <> COALESCE(w.spent, 0))
"""
_UNBOOKED = """
    SELECT id, parent FROM children AS c WHERE NOT EXISTS (
        SELECT 1 FROM bookings AS b WHERE b.request_id = c.id AND b.account = c.parent
    )
"""
_ATTEMPTS = """
    SELECT DISTINCT request_id FROM attempts AS a
    WHERE NOT EXISTS (SELECT 1 FROM requests AS r WHERE r.id = a.request_id)
"""
_BOOKINGS = """
    SELECT b.request_id, b.account FROM bookings AS b
    WHERE NOT EXISTS (SELECT 1 FROM requests AS r WHERE r.id = b.request_id)
        AND NOT EXISTS (SELECT 1 FROM children AS c WHERE c.id = b.request_id)
        AND b.request_id NOT LIKE 'opening-%' AND b.request_id NOT LIKE 'lease:%'
        AND b.request_id NOT LIKE 'packed-%'
"""
_LATE = """
    SELECT b.request_id, b.account, r.state FROM bookings AS b JOIN requests AS r ON r.id = b.request_id
    WHERE b.charged IS NULL AND r.state <> 'held' AND r.started_ms + COALESCE(r.total_ms, 0) < ?
"""
_CHARGED = """
    SELECT b.request_id, b.account, b.charged, r.cost, r.thinking FROM bookings AS b
    JOIN live_requests AS r ON r.id = b.request_id
    WHERE b.charged IS NOT NULL AND r.state IN ('settled', 'recovered') AND b.charged NOT IN (0, r.cost, r.thinking)
        AND r.endpoint <> 'adjustment'
        AND b.account NOT LIKE 'key.rpm|%' AND b.account NOT LIKE 'key.tpm|%' AND b.account NOT LIKE 'key.parallel|%'
        AND (b.charged > CASE WHEN r.cost > r.thinking THEN r.cost ELSE r.thinking END
            OR (SELECT COUNT(DISTINCT a.target) FROM live_attempts AS a WHERE a.request_id = r.id) = 1)
"""
"""A budget for some targets is charged less than the request, where several were asked, or nothing."""
_CHARGED_PAST = """
    SELECT b.request_id, n.name, b.charged, r.cost, r.thinking FROM past_bookings AS b
    JOIN past_requests AS r ON r.id = b.request_id JOIN names AS n ON n.id = b.account
    WHERE b.charged NOT IN (0, r.cost, r.thinking)
        AND r.endpoint <> COALESCE((SELECT id FROM names WHERE name = 'adjustment'), 0)
        AND ((SELECT COUNT(DISTINCT a.target) FROM past_attempts AS a WHERE a.request_id = r.id) = 1
            OR b.charged > CASE WHEN r.cost > r.thinking THEN r.cost ELSE r.thinking END)
"""
_TWICE = """
    SELECT b.request_id, b.account FROM bookings AS b JOIN past_bookings AS p ON p.request_id = b.request_id
    JOIN names AS n ON n.id = p.account WHERE n.name = b.account
        AND NOT EXISTS (SELECT 1 FROM live_requests AS r WHERE r.id = b.request_id)
"""
"""What is live too was written a second time; upkeep sees to it."""
_ADJUSTMENTS = """
    SELECT a.id, a.cost, r.cost FROM adjustments AS a LEFT JOIN requests AS r ON r.id = a.id
    WHERE a.given_ms >= ? AND (r.id IS NULL OR r.cost <> a.cost)
    UNION ALL SELECT r.id, NULL, r.cost FROM requests AS r
    WHERE r.endpoint = 'adjustment' AND NOT EXISTS (SELECT 1 FROM adjustments AS a WHERE a.id = r.id)
"""
_EXPIRED = "SELECT id, lease_until_ms FROM requests WHERE state = 'held' AND lease_until_ms < ?"
_NEWEST = "SELECT started_ms FROM requests ORDER BY id DESC LIMIT 1"


def belonging(connection: Connection) -> Iterator[Finding]:
    """Rows that belong to a request which there is not, and requests that nobody looked after."""
    for (identifier,) in connection.execute(_ATTEMPTS).fetchall():
        yield Finding("attempts", identifier, "there is no such request")
    newest = connection.execute(_NEWEST).fetchone()
    before = (newest[0] if newest else 0) - GRACE_MS
    for identifier, until_ms in connection.execute(_EXPIRED, (before,)).fetchall():
        yield Finding("requests", identifier, f"it is held, and its lease ended at {until_ms}: a gateway charges it")
    for identifier, account, state in connection.execute(_LATE, (before,)).fetchall():
        says = f"it is held, and its request is {state}: it is charged once the budgets' store can be reached"
        yield Finding("bookings", f"{identifier} in {account}", says)

    for statement in (_CHARGED, _CHARGED_PAST):
        for identifier, account, charged, cost, thinking in connection.execute(statement).fetchall():
            says = f"it is charged {charged}, and its request cost {cost} nano-USD and {thinking} thinking tokens"
            yield Finding("bookings", f"{identifier} in {account}", says)
    for identifier, stated, cost in connection.execute(_ADJUSTMENTS, (progress(connection, EXPIRED),)).fetchall():
        yield Finding("adjustments", identifier, f"it adds {stated} nano-USD, and its row {cost}")
    for identifier, account in connection.execute(_TWICE).fetchall():
        yield Finding("bookings", f"{identifier} in {account}", "it is booked twice")


def budgets(connection: Connection) -> Iterator[Finding]:
    """Where the budgets are kept in the ledger's own file: all that they hold and have spent is booked."""
    for account, start, booked, held, kept, kept_held in connection.execute(_WINDOWS).fetchall():
        says = f"it says {kept} spent and {kept_held} held, and its bookings {booked} and {held}"
        yield Finding("budget_windows", f"{account} from {start}", says)
    for identifier, account in connection.execute(_BOOKINGS).fetchall():
        yield Finding("bookings", f"{identifier} in {account}", "there is no such request and no such budget")
    for identifier, parent in connection.execute(_UNBOOKED).fetchall():
        yield Finding("children", identifier, f"nothing is booked for it in {parent}")
    for identifier, parent, charged, spent in connection.execute(_CHILDREN).fetchall():
        yield Finding("children", identifier, f"it spent {spent}, and {parent} is charged {charged} for it")
