"""What the distributed store writes into the ledger: one row a request and account, so that the ledger is its audit.

Rows follow what Redis has confirmed: what is not settled there stays `held` here. All may be written twice. Rates are
in Redis alone: a minute later they count no more.
"""

from collections.abc import Iterable, Sequence

from router.types.account import RATE_ACCOUNTS, Amount, Ask, Hold, Reservation
from router.types.journal import Journal

_BOOKINGS = "INSERT INTO bookings (request_id, account, window_start_ms, held, charged, state)"
_HOLD = f"{_BOOKINGS} VALUES (?, ?, ?, ?, NULL, 'held') ON CONFLICT (request_id, account) DO NOTHING"
_GRANTED = "UPDATE live_requests SET held = ?, held_thinking = ? WHERE id = ?"
_EXTENDED = "UPDATE bookings SET held = ? WHERE request_id = ? AND account = ? AND charged IS NULL"
_SETTLED = (
    # Not a second time, when it was moved to the past meanwhile.
    f"{_BOOKINGS} SELECT CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS BIGINT),"  # noqa: S608 - a constant
    " CAST(? AS BIGINT), CAST(? AS BIGINT), 'settled' WHERE NOT EXISTS (SELECT 1 FROM past_bookings AS p"
    " JOIN names AS n ON n.id = p.account WHERE p.request_id = ? AND n.name = ?) ON CONFLICT (request_id, account)"
    " DO UPDATE SET charged = excluded.charged, state = 'settled'"
)
# Another process may have written the true charge in the meantime.
_RECOVERED = (
    f"{_BOOKINGS} VALUES (?, ?, ?, ?, ?, 'recovered') ON CONFLICT (request_id, account)"
    " DO UPDATE SET held = excluded.held, charged = excluded.charged, state = 'recovered'"
    " WHERE bookings.state = 'held'"
)
_CRASHED = (
    # The process may have died before it wrote what it was granted.
    "UPDATE live_requests SET state = 'recovered', held = COALESCE(?, held),"
    " held_thinking = COALESCE(?, held_thinking), cost = COALESCE(?, held), thinking = COALESCE(?, held_thinking),"
    " error = 'crashed' WHERE id = ? AND (state = 'held' OR (state = 'recovered' AND error = 'crashed'))"
)
_LOST = (
    "INSERT INTO incidents (id, at_ms, kind, scope, subject, reason, until_ms)"
    " VALUES (?, ?, 'lost_booking', 'request', ?, ?, ?) ON CONFLICT DO NOTHING"
)
_FOLLOWED = "UPDATE bookings SET held = ? WHERE request_id = ? AND account = ? AND charged IS NULL"
_FOLDED = "UPDATE bookings SET charged = ?, state = 'settled' WHERE request_id = ? AND account = ?"


class Rows:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def held(self, reservation: Reservation, ask: Ask) -> None:
        for hold in reservation.holds:
            if hold.account.startswith(RATE_ACCOUNTS):
                continue
            self.hold(reservation.request_id, hold.account, hold.window_start_ms, hold.amount)
        if reservation.granted != (ask.born or ask.whole):
            self._granted(reservation)

    def hold(self, request_id: str, account: str, window_start_ms: int, amount: int) -> None:
        self._journal.add(_HOLD, (request_id, account, window_start_ms, amount))

    def extended(self, reservation: Reservation) -> None:
        for hold in reservation.holds:
            self._journal.change(_EXTENDED, (hold.amount, reservation.request_id, hold.account))
        self._granted(reservation)

    def settled(self, request_id: str, holds: Sequence[Hold], charges: Sequence[int]) -> None:
        for hold, charge in zip(holds, charges, strict=True):
            if hold.account.startswith(RATE_ACCOUNTS):
                continue
            row = (request_id, hold.account, hold.window_start_ms, hold.amount, charge)
            self._journal.change(_SETTLED, (*row, request_id, hold.account))

    def recovered(self, request_id: str, holds: Iterable[tuple[str, int, int]], granted: Amount | None) -> None:
        """`holds`: account, window start, amount. `granted`: None where the ledger knows it best."""
        for account, start, amount in holds:
            if account.startswith(RATE_ACCOUNTS):
                continue
            self._journal.change(_RECOVERED, (request_id, account, start, amount, amount))
        usd, thinking = (None, None) if granted is None else (granted.usd, granted.thinking)
        self._journal.change(_CRASHED, (usd, thinking, usd, thinking, request_id))

    def lost(self, request_id: str, now_ms: int) -> None:
        """Redis has forgotten a request that the ledger has as held."""
        reason = "held in the ledger and unknown to Redis: charged what was held"
        self._journal.add(_LOST, (f"lost_booking-{request_id}", now_ms, request_id, reason, now_ms))

    def followed(self, moved: Sequence[object]) -> None:
        """Bookings of children in their parents, as the scripts tell them: child, parent, window, held, spent, done."""
        for at in range(0, len(moved), 6):
            child, parent, _, held, spent, done = moved[at : at + 6]
            if done:
                self._journal.change(_FOLDED, (_number(spent), str(child), str(parent)))
            else:
                self._journal.change(_FOLLOWED, (_number(held), str(child), str(parent)))

    def _granted(self, reservation: Reservation) -> None:
        self._journal.change(_GRANTED, (reservation.granted.usd, reservation.granted.thinking, reservation.request_id))


def _number(value: object) -> int:
    return int(str(value))
