"""A ledger of any size, packed as it would be in use: by the packer's own function, on all cores."""

import hashlib
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path

from bench.reports.made import KEYS, TEAMS, kept
from router.ledger.connection import Connection
from router.ledger.kept import Kept
from router.ledger.ledger import SqliteLedger
from router.ledger.packed.segment import REQUESTS, Segment, packed
from router.types.clock import now_ms

SPAN_MS = 90 * 86_400_000
"""Over which the requests are spread; the last began a day ago."""
_DAY_MS = 86_400_000
_KEY = (
    "INSERT INTO keys (id, hash, name, created_ms, routes, targets, tags, scopes, budget, team, organisation)"
    " VALUES (?, ?, ?, 0, '[]', '[]', '[]', '[]', '', ?, 'acme')"
)
_SEGMENT = "INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?, ?, 1, NULL)"
_OUTCOME = (
    "INSERT INTO outcomes (request_id, attempt, target, source, revision, score, weight, was_weight, decides, task,"
    " difficulty, traits, expected, given_ms, told_key) VALUES (?, 1, ?, 'client', 0, ?, 1, 0, 1, ?, ?, '', 0.7, ?, '')"
)
_JUDGED = 100
"""Of so many requests, somebody says of one whether its answer was right."""
_Outcome = tuple[str, str, float, str, float, int]


def build(folder: Path, requests: int) -> SqliteLedger:
    """Rounded up to whole segments."""
    ledger = SqliteLedger(folder / "lowpass.db")
    ledger.migrate()
    with ledger.writing() as connection:
        for key, team in zip(KEYS, TEAMS, strict=True):
            connection.execute(_KEY, (key, hashlib.sha256(key.encode()).hexdigest(), f"key-{key[:6]}", team))
        for number, (segment, outcomes) in enumerate(_segments(requests), 1):
            _write(connection, number, segment, outcomes)
    return ledger


def _segments(requests: int) -> Iterator[tuple[Segment, list[_Outcome]]]:
    count = -(-requests // REQUESTS)
    first_ms, step_ms = now_ms() - _DAY_MS - SPAN_MS, SPAN_MS / (count * REQUESTS)
    jobs = [(first_ms + int(number * REQUESTS * step_ms), step_ms, number) for number in range(count)]
    with multiprocessing.get_context("spawn").Pool(len(os.sched_getaffinity(0))) as pool:
        yield from pool.imap(_segment, jobs)


def _segment(job: tuple[int, float, int]) -> tuple[Segment, list[_Outcome]]:
    first_ms, step_ms, number = job
    keys = [(key, f"key-{key[:6]}", team, "acme") for key, team in zip(KEYS, TEAMS, strict=True)]
    rows = list(kept(REQUESTS, first_ms, step_ms, seed=number))
    return packed(rows, keys), [_outcome(row) for row in rows[::_JUDGED] if row.request["status"] == 200]


def _outcome(row: Kept) -> _Outcome:
    request = row.request
    right = float(request["total_ms"] % 10 < 8)  # type: ignore[operator]
    about = (request["task"], request["difficulty"], row.started_ms + 60_000)
    return row.id, str(request["target"]), right, *about  # type: ignore[return-value]


def _write(connection: Connection, number: int, segment: Segment, outcomes: list[_Outcome]) -> None:
    connection.execute("BEGIN")
    for name, data in segment.parts.items():
        connection.execute("INSERT INTO segment_parts VALUES (?, ?, ?)", (number, name, data))
    about = (segment.first_id, segment.last_id, segment.first_ms, segment.last_ms, segment.requests)
    connection.execute(_SEGMENT, (number, number - 1, *about))
    for outcome in outcomes:
        connection.execute(_OUTCOME, outcome)
    connection.execute("COMMIT")
