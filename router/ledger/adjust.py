"""Corrections of charges. Rows are never edited: a correction is a separate row, like that of a request that cost the
difference, and is booked in the accounts that the request was charged to. So everything that sums rows (budgets,
reports, exports, `ledger verify`) includes it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from router.ledger import rows
from router.ledger.keys import note
from router.ledger.ledger import Ledger
from router.ledger.past import CAME_BACK_MS, EXPIRED, hours, lock, progress, seal
from router.ledger.rows import Connection, Line, RequestRecord, insert, transaction
from router.ledger.write import BUCKETS
from router.types.account import GRANTED, INCIDENT, RATE_ACCOUNTS, Account, Hold, Journal, Unit
from router.types.clock import least_id, new_id, now_ms
from router.types.price import CostSource, usd_text
from router.types.tables import patterns, table

_SQL: dict[str, str] = patterns("ledger/data/sql.yaml")["adjust"]

ADJUSTMENT = "adjustment"
"""Value of `endpoint` in rows that are corrections."""
ADJUSTED = CostSource.ADJUSTED.value
_ROWS: Mapping[str, Mapping[str, Any]] = table("ledger/data/adjustment.yaml")
PRICE = "price of "
"""Prefix, in the table `billing`, of the ids of models whose prices statements corrected; other names are targets."""


class NotAdjustable(ValueError):
    """The request is unknown, or its charge may still change by itself."""


class Booking(Struct, frozen=True):
    """The part of a correction in one account and window; `charged`: nano-USD added."""

    account: str
    window_start_ms: int
    charged: int


class Correction(Struct, frozen=True, kw_only=True):
    """The actor, source, cause and reason of a correction. `source`: origin of the true amount, such as `operator`."""

    actor: str
    source: str
    cause: str
    reason: str


class Adjusted(Struct, frozen=True):
    """A written correction: the charge before it and the amount it adds, in nano-USD."""

    id: str
    before: int
    added: int
    bookings: tuple[Booking, ...]


def charged(connection: Connection, request_id: str) -> tuple[RequestRecord, int]:
    """Returns a request and its current charge in nano-USD, corrections included. Raises `NotAdjustable`."""
    record = rows.one(connection, request_id)
    if record is None:
        raise NotAdjustable(f"the ledger holds no request '{request_id}': its id is in x-request-id of the answer")
    request = record.request
    if request["endpoint"] == ADJUSTMENT:
        raise NotAdjustable(f"'{request_id}' is a correction itself: adjust the request that it corrects")
    if request["state"] == "held":
        raise NotAdjustable(f"'{request_id}' is in progress: it is charged when it ends")
    if request["state"] == "recovered" and request["lease_until_ms"] + CAME_BACK_MS > now_ms():
        raise NotAdjustable(f"'{request_id}' was charged at its hold, and may still be settled: try again later")
    return record, (request["cost"] or 0) + connection.execute(_SQL["given"], (request_id,)).fetchone()[0]


def adjust(
    connection: Connection,
    books: Connection,
    request_id: str,
    cost: Callable[[int], int],
    correction: Correction,
    units: Mapping[str, Unit],
) -> Adjusted:
    """Corrects a request's charge to `cost` of its current charge, both in nano-USD; the ledger is locked meanwhile.

    `books`: connection to the ledger with the bookings, which may be another. `units`: budget id → unit, for budgets in
    force; the unit of other accounts is inferred from their charges. Raises `NotAdjustable`.
    """
    with transaction(connection):
        lock(connection)
        record, before = charged(connection, request_id)
        added = cost(before) - before
        if not added:
            raise NotAdjustable(f"'{request_id}' is charged ${usd_text(before)} already")
        attempt = _corrected(connection, record)
        bookings = [
            Booking(line["account"], line["window_start_ms"], added)
            for line in rows.booked(books, request_id, request_id).get(request_id, ())
            if counts(line, record, attempt["target"], units)
        ]
        return write(connection, books, record.request, attempt, added, bookings, correction, request_id, before)


def write(
    connection: Connection,
    books: Connection,
    request: Line,
    attempt: Line,
    added: int,
    bookings: Sequence[Booking],
    correction: Correction,
    request_id: str = "",
    before: int = 0,
) -> Adjusted:
    """Writes a correction that takes key, tags, route, target and model from the rows `request` and `attempt`. Call it
    inside a transaction of `connection`."""
    identifier = new_id()
    request_row = {**request, **_ROWS["request"], "id": identifier, "cost": added, "target": attempt["target"]}
    request_row["model"] = attempt["model"]
    attempt_row = {**attempt, **dict.fromkeys(BUCKETS), **_ROWS["attempt"], "request_id": identifier}
    attempt_row["cost"] = added
    changes = {"before_nano": before, "added_nano": added, "source": correction.source, "reason": correction.reason}
    if books is connection:  # for `verify`
        changes |= {"correction": identifier, "bookings": len(bookings)}
    adjustment = (identifier, request_id, now_ms(), *msgspec.structs.astuple(correction), added)
    lines = [(identifier, line.account, line.window_start_ms, 0, line.charged, "settled") for line in bookings]
    note(connection, correction.actor, "charge corrected", request_id or attempt["model"], changes)
    columns = ("id", "request_id", "given_ms", "actor", "source", "cause", "reason", "cost")
    insert(connection, "adjustments", columns, [adjustment])
    seal(connection, "adjustments")
    insert(connection, "live_attempts", tuple(attempt_row), [tuple(attempt_row.values())])
    _insert(connection, request_row, lines if books is connection else ())
    if books is not connection:
        with transaction(books):
            _insert(books, request_row, lines)
    return Adjusted(identifier, before, added, tuple(bookings))


def _insert(connection: Connection, request: Line, bookings: Sequence[Sequence[Any]]) -> None:
    insert(connection, "live_requests", tuple(request), [tuple(request.values())])
    insert(connection, "bookings", ("request_id", "account", "window_start_ms", "held", "charged", "state"), bookings)


def _corrected(connection: Connection, record: RequestRecord) -> Line:
    """Returns the attempt that a correction belongs to: the last with a cost, or the last. A recovered request has no
    attempts; then one is made up for the target chosen in its decision. Raises `NotAdjustable`."""
    if record.attempts:
        return ([attempt for attempt in record.attempts if attempt["cost"]] or record.attempts)[-1]
    document = {} if record.decision is None else msgspec.json.decode(record.decision["document"])
    target = str(document.get("chosen") or "")
    if not target:
        raise NotAdjustable(f"nothing was sent for '{record.id}'")
    model, provider = connection.execute(_SQL["model"], (target,)).fetchone() or ("", "")
    return {"target": target, "model": model, "provider": provider, "started_ms": record.started_ms}


def counts(line: Line, record: RequestRecord, target: str, units: Mapping[str, Unit]) -> bool:
    """Whether the account of a booking counts money, and includes charges of `target`."""
    account, charge = line["account"], line["charged"] or 0
    budget, _, value = account.partition("|")
    if account.startswith(RATE_ACCOUNTS) or units.get(budget) is Unit.THINKING:
        return False
    total_cost = record.request["cost"] or 0
    target_cost = sum(attempt["cost"] for attempt in record.attempts if attempt["target"] == target)
    if budget not in units and charge == record.request["thinking"] and charge != total_cost:
        return False
    return bool(value == target or charge == total_cost or (charge == target_cost != 0))


# If rows and budgets are in different stores, a process that dies between its two commits leaves them unequal: one
# store has the held amount and the other the true cost, or nothing yet.

COMPARED_MS = 43_200_000
"""Age in ms up to which rows and bookings are compared: half the time for which Redis remembers recovered holds."""


class Unequal(Struct, frozen=True):
    """A request that one of the stores charged at its hold or lacks, and how to correct that."""

    request_id: str
    says: str
    cost: tuple[int, int] | None = None
    """Correct cost for its row, in nano-USD and thinking tokens."""
    row: Line | None = None
    holds: tuple[Hold, ...] = ()
    charges: tuple[int, ...] = ()


AccountOf = Callable[[str], Account | None]
"""Returns the account with an id, or None if its unit is unknown."""


def unequal(ledger: Ledger, books: Ledger, account: AccountOf, since_ms: int, until_ms: int) -> list[Unequal]:
    """Returns the unequal requests of the last `COMPARED_MS`, and those of the window (Unix ms) that ended in `books`
    without a row in the ledger. `books`: the ledger with the bookings, which may be the same. Blocks; raises
    `LedgerUnavailable`."""
    since = (least_id(now_ms() - COMPARED_MS),)
    with ledger.reading() as there, books.reading() as here:
        at_hold = there.execute(_SQL["at_hold"], since).fetchall()
        found = [_row_at_hold(here, account, identifier, known) for identifier, *known in at_hold]
        booked_at_hold = here.execute(_SQL["booked_at_hold"], since).fetchall()
        found += [_booked_at_hold(there, here, account, identifier) for (identifier,) in booked_at_hold]
        if books is not ledger:
            first = least_id(max(since_ms, progress(there, EXPIRED), progress(here, EXPIRED)))
            for span in hours(first, least_id(until_ms)):
                written = {identifier for (identifier,) in there.execute(_SQL["born"], span)}
                ended = here.execute(_SQL["ended_beside"], span).fetchall()
                found += [_unwritten(here, identifier) for (identifier,) in ended if identifier not in written]
    return [row for row in found if row is not None]


def _unwritten(books: Connection, identifier: str) -> Unequal | None:
    record = rows.one(books, identifier)
    if record is None:
        return None
    request = record.request
    if request["state"] == "settled":  # its attempts were lost
        request = {**request, "held": request["cost"], "held_thinking": request["thinking"]}
        request |= {"state": "recovered", "error": "crashed"}
    return Unequal(identifier, "the ledger has no row of it", row=request)


def _row_at_hold(books: Connection, account: AccountOf, identifier: str, known: Sequence[int]) -> Unequal | None:
    """Compares a row charged at its hold, `known` in nano-USD and thinking tokens, with its bookings and own row."""
    own, held = rows.one(books, identifier), known
    if own is not None and own.request["state"] == "recovered":
        held = [own.request[name] or 0 for name in ("cost", "thinking")]
    lines = _counted(books, identifier, account, "settled")
    charges = [(at.unit, line["charged"]) for line, at in lines]
    # The highest charge counts: accounts for some targets are charged less than the others.
    pairs = zip(GRANTED, held, strict=True)
    usd, thinking = (max((each for unit, each in charges if unit is kind), default=at) for kind, at in pairs)
    if [usd, thinking] == [*known]:
        return None
    return Unequal(identifier, "its row does not say what its bookings do", cost=(usd, thinking))


def _booked_at_hold(ledger: Connection, books: Connection, account: AccountOf, identifier: str) -> Unequal | None:
    record = rows.one(ledger, identifier)
    lines = _counted(books, identifier, account, "recovered")
    if record is None or record.request["state"] not in ("settled", "released") or not lines:
        return None
    holds = tuple(at.hold(line["held"]) for line, at in lines)
    charges = tuple(charge_of(record, hold) for hold in holds)
    return Unequal(identifier, "its bookings say what it held, and its row what it cost", holds=holds, charges=charges)


def _counted(books: Connection, identifier: str, account: AccountOf, state: str) -> list[tuple[Line, Account]]:
    """Returns a request's bookings in `state`, each with its account in the window of the booking."""
    lines = rows.booked(books, identifier, identifier).get(identifier, ())
    pairs = [(line, account(line["account"])) for line in lines if line["state"] == state]
    return [
        (line, structs.replace(at, window_start_ms=line["window_start_ms"])) for line, at in pairs if at is not None
    ]


def charge_of(record: RequestRecord, hold: Hold | Account) -> int:
    """Returns the charge of an ended request in an account, computed from its row and attempts."""
    usd = hold.unit is Unit.USD
    if not hold.targets:
        return int(record.request["cost" if usd else "thinking"] or 0)
    column = "cost" if usd else "output_reasoning"
    return sum(line[column] or 0 for line in record.attempts if line["target"] in hold.targets)


def make_equal(journal: Journal, row: Unequal) -> None:
    """Corrects or adds the row, and records an incident. The caller settles the charges in the budget store."""
    if row.cost is not None:
        usd, thinking = row.cost
        journal.change(_SQL["cost"], (usd, usd, thinking, thinking, row.request_id))
    if row.row is not None:
        columns, values = ", ".join(row.row), tuple(row.row.values())
        into = f"INSERT INTO live_requests ({columns}) VALUES ({rows.sql_placeholders(values)})"  # noqa: S608 - columns
        journal.add(f"{into} ON CONFLICT DO NOTHING", values)
    now, name, kind = now_ms(), row.request_id, "lost_booking"
    journal.add(INCIDENT, (f"{kind}-{name}", now, kind, "request", name, row.says, now))


def billing(connection: Connection) -> dict[str, float]:
    """Returns billing factors: by target, billed ÷ estimated cost of attempts without usage; by `PRICE` and model id,
    billed cost ÷ cost by the model's price."""
    return dict(connection.execute("SELECT target, factor FROM billing").fetchall())


def bounded(factor: float) -> float:
    """Limits a factor learned from statements to 0.1 … 10."""
    return max(0.1, min(10.0, factor))


def learn_billing(
    connection: Connection,
    factors: Mapping[str, float],
    ratios: Mapping[str, tuple[float, str]],
    source: str,
    actor: str,
) -> None:
    """Multiplies the stored factors by new ones, since the estimates and prices compared included the stored factors.

    `factors`: by target. `ratios`: by model, the factor of its price and the evidence.
    """
    before = billing(connection)
    all_factors = {name: (factor, "") for name, factor in factors.items()}
    all_factors |= {f"{PRICE}{model}": ratio for model, ratio in ratios.items()}
    with transaction(connection):
        for name, (factor, evidence) in all_factors.items():
            product = bounded(factor * before.get(name, 1.0))
            text = f"{source}: {evidence}" if evidence else source
            connection.execute(_SQL["learned"], (name, product, now_ms(), text))
            if evidence:
                note(
                    connection, actor, "price corrected", name.removeprefix(PRICE), {"factor": product, "source": text}
                )


def corrected_ratios(connection: Connection) -> list[tuple[str, float, int, str]]:
    """Returns corrected prices: model, factor, when it was learned (Unix ms), and the evidence."""
    rows = connection.execute("SELECT target, factor, at_ms, source FROM billing ORDER BY target").fetchall()
    return [(name.removeprefix(PRICE), *rest) for name, *rest in rows if name.startswith(PRICE)]


def revoke_price(connection: Connection, model: str, actor: str) -> None:
    """Deletes a model's price correction, so that the policy's or catalog's price applies. Raises LookupError."""
    with transaction(connection):
        if not connection.execute("DELETE FROM billing WHERE target = ?", (f"{PRICE}{model}",)).rowcount:
            raise LookupError(f"no statement has corrected the price of '{model}': `lowpass ledger prices` lists them")
        note(connection, actor, "price correction revoked", model, {})
