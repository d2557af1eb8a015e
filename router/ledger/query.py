"""Queries of the ledger: requests with their decisions, bookings, and attempts to learn from."""

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

# Requests with their decisions only, in ranges of positions that several processes can share: faster than whole
# records for reading all requests.

LENGTH = 16_384
"""Number of positions in a range."""


class PositionRange(NamedTuple):
    """Positions after `first` up to and including `last`; with `last` 0, all later ones and live requests too."""

    first: int = 0
    last: int = 0


class RequestRow(NamedTuple):
    """Columns of `requests`, the number of attempts, and the decision's document (None if there is none)."""

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


def ranges(connection: Connection, since_ms: int | None = None, until_ms: int | None = None) -> list[PositionRange]:
    """Returns the ranges that may have requests of the window. Requests that move meanwhile stay in the last range."""
    window = (since_ms or 0, EVER_MS if until_ms is None else until_ms)
    first, last = connection.execute(_SQL["positions"], window).fetchone()
    edges = range(first - 1, last, LENGTH) if first else ()
    return [PositionRange(*pair) for pair in pairwise((*edges, last or 0))] + [PositionRange(last or 0)]


def decided(
    connection: Connection, positions: PositionRange, since_ms: int | None = None, until_ms: int | None = None
) -> Iterator[RequestRow]:
    """Yields the requests of a range that began in the window (end excluded). Call it inside one transaction."""
    documents = Documents(connection)
    past = _paged(connection, _SQL["decided_past"], positions.first, positions.last, positions.last)
    live = () if positions.last else _paged(connection, _SQL["decided_live"], "")
    for _, *values, dictionary, document in chain(past, live):
        row = RequestRow._make((*values, document if dictionary is None else documents.restored(dictionary, document)))
        if (since_ms is None or row.started_ms >= since_ms) and (until_ms is None or row.started_ms < until_ms):
            yield row


def _paged(connection: Connection, statement: str, beyond: int | str, *values: int) -> Iterator[Sequence[Any]]:
    """Yields all rows of a statement that returns pages of rows ordered by their first column, each after `beyond`."""
    while rows := connection.execute(statement, (beyond, *values)).fetchall():
        yield from rows
        beyond = rows[-1][0]


# Look-ups. Most open their own connection, so that they can run on any thread.

Spent = tuple[str, int, int]
"""Account, start of its window (Unix ms), sum of charges."""
Held = tuple[str, str, int, int]
"""Request, account, start of its window (Unix ms), amount held and not charged yet."""

LONGEST_WINDOW_MS = 400 * 86_400_000
"""Age in ms up to which windows can count: a year and more. Lifetime windows start at 0."""
LATE_MS = 10_000
"""Maximum delay in ms between a request's id and its row in the ledger, by clock differences and waiting commits."""
TIMES_SEEN = 3
"""Number of times a settled request is seen before it is reported; by then its process has classified its text."""
MOST_ATTEMPTS = 64
"""Maximum number of attempts read per request."""
LATEST_READ = 1_024


class FinishedAttempt(Struct, frozen=True):
    """An attempt with reported usage, or that exceeded its cap. Tokens are over all choices, `input` without media."""

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
    """Time to the first body byte in ms; None if not streamed."""
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
    """`cap`, `shape`, `unread` and `traits` (packed bytes) are set for the newest attempts only; `cap`: per choice;
    `unread`: whether the decision was made before the text was classified."""


def loops(ledger: Ledger, since_ms: int) -> list[tuple[str, str]]:
    """Returns the rows of the loop breakers of all processes changed since `since_ms` (Unix ms): id, document."""
    with ledger.reading() as connection:
        return connection.execute(_SQL["loops"], (since_ms,)).fetchall()


def booked(ledger: Ledger, ended_ms: int = EVER_MS) -> tuple[list[Spent], list[Held], list[tuple[Any, ...]]]:
    """Returns a snapshot of the accounts' charges in windows that may still count, their holds, and the charges of
    requests that began since `ended_ms` (`LedgerTotals.ended`)."""
    with ledger.reading() as connection:
        spent = connection.execute(_SQL["spent"], (now_ms() - LONGEST_WINDOW_MS,)).fetchall()
        ended = connection.execute(_SQL["ended"], {"first": least_id(ended_ms)}).fetchall()
        return spent, connection.execute(_SQL["held"]).fetchall(), ended


def booked_elsewhere(ledger: Ledger, budget: str, start_ms: int) -> list[tuple[str, int, int]]:
    """Returns charges that belong to a budget's window from `start_ms` but were booked in other windows, as happens if
    the policy had another window: account, amount not carried over yet, whole amount; in nano-USD or tokens."""
    low, high = f"{budget}|", f"{budget}}}"  # "}" follows "|"
    with ledger.reading() as connection:
        newest, used = connection.execute(_SQL["windows"], (start_ms, budget, low, high)).fetchone()
        # Nothing to carry over if this window has the newest bookings. Within its first day the look-up is fast.
        if newest is None or (used and newest <= start_ms < now_ms() - DAY_MS):
            return []
        values = {"first": least_id(start_ms), "budget": budget, "low": low, "high": high, "start": start_ms}
        strays = connection.execute(_SQL["elsewhere"], values).fetchall()
        opened = dict(connection.execute(_SQL["opened"], (start_ms,)).fetchall())
        amounts = [(account, int(amount) - opened.get(account, 0), int(amount)) for account, amount in strays]
        return [row for row in amounts if row[1] > 0]


def held_long(ledger: Ledger, before_ms: int) -> list[Held]:
    """Returns held bookings of requests that began before `before_ms` and have no valid lease."""
    with ledger.reading() as connection:
        return connection.execute(_SQL["held_long"], (before_ms, before_ms)).fetchall()


def taints(ledger: Ledger) -> list[tuple[str, str, int]]:
    """Returns the sensitivity classes that sessions have seen: session, class, and whether it is firm."""
    with ledger.reading() as connection:
        return connection.execute("SELECT session, data_class, firm FROM taints").fetchall()


def latest_attempts(ledger: Ledger, limit: int) -> list[FinishedAttempt]:
    """Returns the latest `limit` attempts, oldest first; of past requests, only the last 100,000 are searched."""
    with ledger.reading() as connection:
        rows = connection.execute(_SQL["latest_live"], (limit,)).fetchall()
        if len(rows) < limit:
            rows += connection.execute(_SQL["latest_past"], (limit - len(rows),)).fetchall()
        return _with_traits(connection, rows)


def _with_traits(connection: Connection, rows: Sequence[Sequence[Any]]) -> list[FinishedAttempt]:
    """Returns the attempts of `rows` (latest first) in reverse order; the latest with data of their decisions."""
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
    """Reads attempts of other processes on the same ledger, each once, soon after its request was settled."""

    def __init__(self, ledger: Ledger, owner: str, known: set[str]) -> None:
        self._ledger, self._owner, self._told = ledger, owner, known
        self._waiting: set[str] = set()
        """Ids of requests that are held, or whose texts may not have been classified yet."""
        self._times_seen: dict[str, int] = {}
        """Id of a settled request → how many times it was seen settled."""
        self._since = least_id(now_ms())

    def new(self, limit: int) -> list[FinishedAttempt]:
        """Returns new attempts of the latest `limit` requests, oldest first; blocks. Raises what the ledger raises."""
        since, self._since = self._since, least_id(now_ms() - LATE_MS)
        with self._ledger.reading() as connection:
            rows = connection.execute(_SQL["others_since"], (since, self._owner)).fetchall()
            if waiting := sorted(self._waiting):
                rows += among(connection, _SQL["others_among"], waiting).fetchall()
            ended = {identifier for identifier, is_held in rows if not is_held} - self._told
            self._times_seen = {identifier: self._times_seen.get(identifier, 0) + 1 for identifier in ended}
            ready = {identifier for identifier, seen in self._times_seen.items() if seen >= TIMES_SEEN}
            new = sorted(ready, reverse=True)[:limit]
            self._waiting = set(sorted({identifier for identifier, _ in rows} - self._told - ready)[-limit:])
            self._told = {identifier for identifier in self._told | ready if identifier >= self._since}
            if not new:
                return []
            latest = _SQL["latest_of"].format(sql_placeholders(new))
            return _with_traits(connection, connection.execute(latest, (*new, len(new) * MOST_ATTEMPTS)).fetchall())


def decision(ledger: Ledger, identifier: str) -> tuple[bytes | None, str | None]:
    """Returns `document`, and the id of the key that sent the request (None if the decision has no request row)."""
    with ledger.reading() as connection:
        row = connection.execute("SELECT key_id FROM requests WHERE id = ?", (identifier,)).fetchone()
        return document(connection, identifier), row[0] if row else None


def document(connection: Connection, identifier: str) -> bytes | None:
    """Returns a decision's JSON document; None if there is none or it has expired. Call it inside a transaction."""
    row = connection.execute("SELECT document FROM live_decisions WHERE id = ?", (identifier,)).fetchone()
    if row is not None:
        return str(row[0]).encode()
    row = connection.execute("SELECT dictionary, document FROM past_decisions WHERE id = ?", (identifier,)).fetchone()
    return None if row is None else Documents(connection).restored(*row).encode()
