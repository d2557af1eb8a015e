"""Queries for requests with their decisions."""

from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain, pairwise
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, structs

from router.ledger import outcomes
from router.ledger.ledger import Ledger
from router.ledger.rows import EVER_MS, Connection, Documents, among, sql_placeholders
from router.types.clock import least_id, now_ms
from router.types.decision import RequestProfile
from router.types.request import DAY_MS
from router.types.tables import patterns

_SQL: dict[str, str] = patterns("ledger/data/sql.yaml")["query"]

# Requests with their decisions and nothing else, in stretches that several processes can share: quicker than whole
# rows, for those who look at all of them.

LENGTH = 16_384
"""Requests in a stretch."""


class PositionRange(NamedTuple):
    """Of positions: `first` is not included, `last` is; 0: open, so that what is not of the past yet belongs to it."""

    first: int = 0
    last: int = 0


class RequestRow(NamedTuple):
    """Columns of `requests`; how many attempts it has; its decision's document, None where there is none."""

    id: str
    started_ms: int
    state: str
    endpoint: str
    requested: str
    route: str
    stream: int
    key_id: str
    session: str
    tags: str
    data_class: str
    status: int | None
    cost: int | None
    lowered: str
    task: str
    attempts: int
    document: str | None


def stretches(connection: Connection, since_ms: int | None = None, until_ms: int | None = None) -> list[PositionRange]:
    """All that may have requests of the window. What moves to the past meanwhile stays in its stretch, the last one."""
    window = (since_ms or 0, EVER_MS if until_ms is None else until_ms)
    first, last = connection.execute(_SQL["positions"], window).fetchone()
    edges = range(first - 1, last, LENGTH) if first else ()
    return [PositionRange(*pair) for pair in pairwise((*edges, last or 0))] + [PositionRange(last or 0)]


def decided(
    connection: Connection, stretch: PositionRange, since_ms: int | None = None, until_ms: int | None = None
) -> Iterator[RequestRow]:
    """Requests of the stretch that began in the window, whose end is not included. Read inside one transaction."""
    documents = Documents(connection)
    past = _paged(connection, _SQL["decided_past"], stretch.first, stretch.last, stretch.last)
    live = () if stretch.last else _paged(connection, _SQL["decided_live"], "")
    for _, *values, dictionary, document in chain(past, live):
        row = RequestRow._make((*values, document if dictionary is None else documents.restored(dictionary, document)))
        if (since_ms is None or row.started_ms >= since_ms) and (until_ms is None or row.started_ms < until_ms):
            yield row


def _paged(connection: Connection, statement: str, beyond: int | str, *values: int) -> Iterator[Sequence[Any]]:
    """Rows of a statement that gives some of those whose first column is `beyond` a value, in its order."""
    while rows := connection.execute(statement, (beyond, *values)).fetchall():
        yield from rows
        beyond = rows[-1][0]


# Single look-ups by id. Each opens its own connection, so that it can run on any thread.

Spent = tuple[str, int, int]
"""Account, start of its window (Unix ms), what was charged there."""
Held = tuple[str, str, int, int]
"""Request, account, start of its window, what is held and not charged yet."""

LONGEST_WINDOW_MS = 400 * 86_400_000
"""A year and more; what counts for ever is booked at 0."""
LATE_MS = 10_000
"""A request may show in the ledger so long after its id was made: clocks of hosts differ, commits wait."""
LOOKS = 3
"""At a settled request before it is told of: by then its own process has read the text (`OutcomeRecorder.tick`)."""
MOST_ATTEMPTS = 64
"""Of a request, that are read at once."""
LATEST_READ = 1_024


class FinishedAttempt(Struct, frozen=True):
    """An attempt that told what it used, or that ran past its cap. Tokens over all choices, `input` without media."""

    target: str
    thinking: str
    task: str
    template: str
    outcome: str
    finish_reason: str
    input: int | None
    visible: int
    reasoning: int | None
    audio: int
    first_ms: int | None
    """Of a stream."""
    total_ms: int
    started_ms: int
    request_id: str
    model_served: str
    reported: bool
    past_cap: bool
    overrun: bool
    cap: int = 0
    shape: RequestProfile = RequestProfile()
    unread: bool = False
    traits: bytes = b""
    """Of the newest: a choice's cap, the request's shape, whether it was decided unread, and what was read, packed."""


def loops(ledger: Ledger, since_ms: int) -> list[tuple[str, str]]:
    """What the loop breakers of all processes wrote down since then: id, document."""
    with ledger.reading() as connection:
        return connection.execute(_SQL["loops"], (since_ms,)).fetchall()


def booked(ledger: Ledger, ended_ms: int = EVER_MS) -> tuple[list[Spent], list[Held], list[tuple[Any, ...]]]:
    """What accounts were charged in windows that may still count, what they hold, and what requests that began since
    `ended_ms` were charged (`LedgerTotals.ended`), as of one moment."""
    with ledger.reading() as connection:
        spent = connection.execute(_SQL["spent"], (now_ms() - LONGEST_WINDOW_MS,)).fetchall()
        ended = connection.execute(_SQL["ended"], {"first": least_id(ended_ms)}).fetchall()
        return spent, connection.execute(_SQL["held"]).fetchall(), ended


def booked_elsewhere(ledger: Ledger, budget: str, start_ms: int) -> list[tuple[str, int, int]]:
    """What requests since the start of a budget's window were charged in other windows of it: account, amount less what
    was carried over, and all of it. There are some where the budget had another window."""
    low, high = f"{budget}|", f"{budget}}}"  # "}" follows "|"
    with ledger.reading() as connection:
        newest, used = connection.execute(_SQL["windows"], (start_ms, budget, low, high)).fetchone()
        # Of a day it is quick to look; a window that is used again may lack what was spent in the meantime.
        if newest is None or (used and newest <= start_ms < now_ms() - DAY_MS):
            return []
        values = {"first": least_id(start_ms), "budget": budget, "low": low, "high": high, "start": start_ms}
        strays = connection.execute(_SQL["elsewhere"], values).fetchall()
        opened = dict(connection.execute(_SQL["opened"], (start_ms,)).fetchall())
        amounts = [(account, int(amount) - opened.get(account, 0), int(amount)) for account, amount in strays]
        return [row for row in amounts if row[1] > 0]


def held_long(ledger: Ledger, before_ms: int) -> list[Held]:
    """Bookings that are held of requests that began before then and that no process holds a lease of."""
    with ledger.reading() as connection:
        return connection.execute(_SQL["held_long"], (before_ms, before_ms)).fetchall()


def taints(ledger: Ledger) -> list[tuple[str, str, int]]:
    """What sessions have seen: session, class, and whether it is firm."""
    with ledger.reading() as connection:
        return connection.execute("SELECT session, data_class, firm FROM taints").fetchall()


def finished(ledger: Ledger, most: int) -> list[FinishedAttempt]:
    """The latest attempts, the oldest of them first; of requests of the past the last 100,000 are looked at."""
    with ledger.reading() as connection:
        rows = connection.execute(_SQL["latest_live"], (most,)).fetchall()
        if len(rows) < most:
            rows += connection.execute(_SQL["latest_past"], (most - len(rows),)).fetchall()
        return _with_traits(connection, rows)


def _with_traits(connection: Connection, rows: Sequence[Sequence[Any]]) -> list[FinishedAttempt]:
    """Attempts, the latest first in `rows` and last in the answer; what the latest were asked is read with them."""
    attempts = [FinishedAttempt(*row) for row in rows]
    for at, attempt in enumerate(attempts[:LATEST_READ]):
        with suppress(msgspec.DecodeError, ValueError):
            known = outcomes.decided.decode(document(connection, attempt.request_id) or b"{}")
            cap = next((row.max_output for row in known.considered if row.target == attempt.target), 0)
            traits = b64decode(known.classification.traits)
            unread = known.read_late or not (traits or attempt.task == "embedding")
            attempts[at] = structs.replace(attempt, traits=traits, shape=known.shape, cap=cap, unread=unread)
    return attempts[::-1]


class OtherProcesses:
    """Attempts of other processes on the same ledger: each of them is told once, soon after its request was settled."""

    def __init__(self, ledger: Ledger, owner: str, told: set[str]) -> None:
        self._ledger, self._owner, self._told = ledger, owner, told
        self._waiting: set[str] = set()
        """Requests that are held, or whose texts may not have been read yet."""
        self._looks: dict[str, int] = {}
        """By a settled request's id: how often it was seen so."""
        self._since = least_id(now_ms())

    def new(self, most: int) -> list[FinishedAttempt]:
        """The oldest first, of the latest `most` requests; blocks. Raises what the ledger raises."""
        since, self._since = self._since, least_id(now_ms() - LATE_MS)
        with self._ledger.reading() as connection:
            rows = connection.execute(_SQL["others_since"], (since, self._owner)).fetchall()
            if waiting := sorted(self._waiting):
                rows += among(connection, _SQL["others_among"], waiting).fetchall()
            ended = {identifier for identifier, is_held in rows if not is_held} - self._told
            self._looks = {identifier: self._looks.get(identifier, 0) + 1 for identifier in ended}
            ready = {identifier for identifier, looks in self._looks.items() if looks >= LOOKS}
            new = sorted(ready, reverse=True)[:most]
            self._waiting = set(sorted({identifier for identifier, _ in rows} - self._told - ready)[-most:])
            self._told = {identifier for identifier in self._told | ready if identifier >= self._since}
            if not new:
                return []
            latest = _SQL["latest_of"].format(sql_placeholders(new))
            return _with_traits(connection, connection.execute(latest, (*new, len(new) * MOST_ATTEMPTS)).fetchall())


def decision(ledger: Ledger, identifier: str) -> tuple[bytes | None, str | None]:
    """See `document`; and the id of the key that sent the request: None where it has no row, as a decision without
    one."""
    with ledger.reading() as connection:
        row = connection.execute("SELECT key_id FROM requests WHERE id = ?", (identifier,)).fetchone()
        return document(connection, identifier), row[0] if row else None


def document(connection: Connection, identifier: str) -> bytes | None:
    """The JSON document of one decision; None where there is none, or its rows expired. Inside a transaction."""
    row = connection.execute("SELECT document FROM live_decisions WHERE id = ?", (identifier,)).fetchone()
    if row is not None:
        return str(row[0]).encode()
    row = connection.execute("SELECT dictionary, document FROM past_decisions WHERE id = ?", (identifier,)).fetchone()
    return None if row is None else Documents(connection).restored(*row).encode()
