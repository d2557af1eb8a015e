"""The steps of the embedded store that decide what a request gets. They share a transaction, so none may raise."""

import sqlite3
from collections.abc import Container, Iterable, Mapping, Sequence

from msgspec import structs

from router.budget.sqlite.standing import Standing, shut, standing
from router.types.account import AMPLE, Account, Amount, Ask, Hold, Refused, Reservation, Unit

_NO_LIMIT = 2**100
_KNOWN = "SELECT 1 FROM bookings WHERE request_id = ? LIMIT 1"
_HOLD = "INSERT INTO bookings VALUES (?, ?, ?, ?, NULL, 'held')"
_GRANTED = "UPDATE live_requests SET held = ?, held_thinking = ? WHERE id = ?"
_OPEN = "SELECT 1 FROM bookings WHERE request_id = ? AND state = 'held' LIMIT 1"
_EXTEND = "UPDATE bookings SET held = held + ? WHERE request_id = ? AND account = ?"
_GRANTED_MORE = "UPDATE live_requests SET held = held + ?, held_thinking = held_thinking + ? WHERE id = ?"


def reserve(
    connection: sqlite3.Connection, request_id: str, accounts: Sequence[Account], ask: Ask, now_ms: int
) -> Reservation | Refused | None:
    """None: something was booked for this request before."""
    if connection.execute(_KNOWN, (request_id,)).fetchone() is not None:
        return None
    found = []
    for account in accounts:
        at = standing(connection, account, account.window_start_ms)
        if shut(connection, account, now_ms) or (not account.targets and at.short_of(ask.least)):
            return at.refusal(ask.least.of(account.unit))
        found.append(at)
    usd, thinking = _left(found)
    granted = Amount(
        _grant(usd, ask.tight.usd, ask.whole.usd), _grant(thinking, ask.tight.thinking, ask.whole.thinking)
    )
    holds = tuple(_hold(at, granted) for at in found if not at.short_of(ask.least))
    for hold in holds:
        connection.execute(_HOLD, (request_id, hold.account, hold.window_start_ms, hold.amount))
    if granted != (ask.born or ask.whole):
        connection.execute(_GRANTED, (granted.usd, granted.thinking, request_id))
    return Reservation(request_id, granted, holds, Amount(_rest(usd, granted.usd), _rest(thinking, granted.thinking)))


def _left(found: Iterable[Standing]) -> tuple[int, int]:
    """What the accounts that bind every target have left: nano-USD, thinking tokens."""
    usd = thinking = _NO_LIMIT
    for at in found:
        if at.account.targets or not at.account.hard:
            continue
        if at.account.unit is Unit.USD:
            usd = min(usd, at.left)
        else:
            thinking = min(thinking, at.left)
    return usd, thinking


def _grant(left: int, tight: int, whole: int) -> int:
    """See `Ask`; it was made sure that what is left is enough."""
    return whole if left >= AMPLE * whole else max(0, min(tight, left))


def _rest(left: int, granted: int) -> int:
    return max(0, left - granted) if left < _NO_LIMIT else 0


def _hold(at: Standing, granted: Amount) -> Hold:
    account, amount = at.account, granted.of(at.account.unit)
    if account.targets and account.hard:
        amount = max(0, min(amount, at.left))
    return Hold(account.id, account.window_start_ms, account.unit, amount, account.targets)


def extend(
    connection: sqlite3.Connection,
    reservation: Reservation,
    accounts: Mapping[str, Account],
    more: Amount,
    now_ms: int,
) -> Reservation:
    """`accounts`, by id: those whose holds grow. A request recovered or settled in the meantime gets nothing."""
    if connection.execute(_OPEN, (reservation.request_id,)).fetchone() is None:
        return reservation
    holds = [hold for hold in reservation.holds if hold.account in accounts]
    lefts = [(hold.unit, _room(connection, accounts[hold.account], hold, now_ms)) for hold in holds]
    extra = Amount(*(_extra(more.of(unit), [left for kind, left in lefts if kind is unit]) for unit in Unit))
    for hold in holds:
        connection.execute(_EXTEND, (extra.of(hold.unit), reservation.request_id, hold.account))
    connection.execute(_GRANTED_MORE, (extra.usd, extra.thinking, reservation.request_id))
    return grown(reservation, extra, accounts)


def _room(connection: sqlite3.Connection, account: Account, hold: Hold, now_ms: int) -> int | None:
    """None: a soft account does not limit anything."""
    if not account.hard:
        return None
    return 0 if shut(connection, account, now_ms) else standing(connection, account, hold.window_start_ms).left


def _extra(more: int, lefts: Sequence[int | None]) -> int:
    return max(0, min([more, *(left for left in lefts if left is not None)]))


def grown(reservation: Reservation, extra: Amount, accounts: Container[str]) -> Reservation:
    """With so much more granted, and held in these accounts."""
    granted = Amount(reservation.granted.usd + extra.usd, reservation.granted.thinking + extra.thinking)
    holds = tuple(
        structs.replace(hold, amount=hold.amount + extra.of(hold.unit)) if hold.account in accounts else hold
        for hold in reservation.holds
    )
    return structs.replace(reservation, granted=granted, holds=holds)
