"""A ledger of any size, with rows of the past and their sums, as it would be in use: by the ledger's own functions."""

import hashlib
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path

from bench.reports.made import KEYS, TEAMS, kept
from router.ledger.ledger import SqliteLedger
from router.ledger.past import BOOKING, NameTable, add, add_bookings, book_sums
from router.ledger.rollups import roll_up
from router.ledger.rows import Connection, Documents, RequestRecord, insert, transaction
from router.types.clock import now_ms

TOGETHER = 4_096
"""Requests that are drawn, and written in one transaction."""
SPAN_MS = 90 * 86_400_000
"""Over which the requests are spread; the last began a day ago."""
_DAY_MS = 86_400_000
_KEY = (
    "INSERT INTO keys (id, hash, name, created_ms, routes, targets, tags, scopes, budget, team, organisation)"
    " VALUES (?, ?, ?, 0, '[]', '[]', '[]', '[]', '', ?, 'acme')"
)
_OUTCOME = (
    *("request_id", "attempt", "target", "source", "revision", "score", "weight", "was_weight", "decides", "task"),
    *("difficulty", "traits", "expected", "given_ms", "told_key"),
)
_JUDGED = 100
"""Of so many requests, somebody says of one whether its answer was right."""


def build(folder: Path, requests: int) -> SqliteLedger:
    """Rounded up to whole transactions."""
    ledger = SqliteLedger(folder / "lowpass.db")
    ledger.migrate()
    with ledger.writing() as connection:
        connection.execute("PRAGMA synchronous = OFF")
        for key, team in zip(KEYS, TEAMS, strict=True):
            connection.execute(_KEY, (key, hashlib.sha256(key.encode()).hexdigest(), f"key-{key[:6]}", team))
        for rows in _drawn(requests):
            _write(connection, rows)
    while roll_up(ledger):
        pass
    return ledger


def _drawn(requests: int) -> Iterator[list[RequestRecord]]:
    count = -(-requests // TOGETHER)
    first_ms, step_ms = now_ms() - _DAY_MS - SPAN_MS, SPAN_MS / (count * TOGETHER)
    jobs = [(first_ms + int(number * TOGETHER * step_ms), step_ms, number) for number in range(count)]
    with multiprocessing.get_context("spawn").Pool(max(1, len(os.sched_getaffinity(0)) - 1)) as pool:
        yield from pool.imap(_some, jobs)


def _some(job: tuple[int, float, int]) -> list[RequestRecord]:
    first_ms, step_ms, number = job
    return list(kept(TOGETHER, first_ms, step_ms, seed=number))


def _write(connection: Connection, rows: list[RequestRecord]) -> None:
    with transaction(connection):
        names = NameTable(connection)
        decisions = Documents(connection).compressed([one.decision for one in rows if one.decision is not None])
        add(connection, names, rows, decisions)
        bookings = [[line[name] for name in BOOKING] for one in rows for line in one.bookings]
        names.learn(str(account) for _, account, *_ in bookings)
        add_bookings(connection, names, bookings)
        book_sums(connection, bookings)
        insert(
            connection, "outcomes", _OUTCOME, [_outcome(one) for one in rows[::_JUDGED] if one.request["status"] == 200]
        )


def _outcome(row: RequestRecord) -> tuple[str | int | float, ...]:
    request = row.request
    right = float(int(str(request["total_ms"])) % 10 < 8)
    about = (str(request["task"]), float(str(request["difficulty"])), "", 0.7, row.started_ms + 60_000, "")
    return (row.id, 1, str(request["target"]), "client", 0, right, 1, 0, 1, *about)
