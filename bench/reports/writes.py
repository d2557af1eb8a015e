"""How fast one process writes its ledger, and how long a commit takes, alone and while older rows move to the past."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from msgspec import Struct

from bench.children import cores
from bench.load import Quantiles, quantiles
from bench.reports.made import kept
from router.ledger.journal import SqliteJournal
from router.ledger.rows import Line, RequestRecord
from router.types.account import Row

TOGETHER = 32
"""Requests that settle in one turn of the event loop."""
ROWS = 5
"""A request, its decision, its attempt, and a booking in each of two budgets."""
_FIRST_MS = 1_790_000_000_000
_LATER = ("target", "model", "status", "error", "cost", "thinking", "total_ms", "first_ms", "overhead_us")
"""What is known of a request once it is settled, beside its state."""
_SETTLE = f"UPDATE live_requests SET state = 'settled', {', '.join(f'{name} = ?' for name in _LATER)} WHERE id = ?"  # noqa: S608


class Writes(Struct, frozen=True):
    """Of the one process that writes. `rows` of all tables; a change of a row is none."""

    requests: int
    rows: int
    rows_per_cpu_second: int
    commit_ms: Quantiles
    """Until what was queued is on disk for every other process."""
    commit_ms_while_moving: Quantiles
    moved_meanwhile: int
    """Requests."""


def writes(folder: Path, requests: int) -> Writes:
    """On one core; a second time while another process, on the other core, moves what was written before."""
    path = folder / "lowpass.db"
    os.sched_setaffinity(0, cores().gateway)
    cpu_s, alone = _write(path, list(kept(requests, _FIRST_MS, 0.2, seed=1)))
    later = list(kept(requests, _FIRST_MS + requests, 0.2, seed=2))
    with _upkeep(folder):
        _, beside = _write(path, later)
    with closing(sqlite3.connect(path)) as connection:
        moved = connection.execute("SELECT COUNT(*) FROM past_requests").fetchone()[0]
    os.sched_setaffinity(0, cores().all)
    return Writes(requests, requests * ROWS, round(requests * ROWS / cpu_s), alone, beside, moved)


def _write(path: Path, rows: Sequence[RequestRecord]) -> tuple[float, Quantiles]:
    """CPU seconds of it all, and how long each commit took."""

    async def run() -> tuple[float, Quantiles]:
        journal, waits, began = SqliteJournal(path), list[float](), time.process_time()
        for first in range(0, len(rows), TOGETHER):
            some = rows[first : first + TOGETHER]
            for step in (_born, _settled):
                for one in some:
                    step(journal, one)
                asked = time.perf_counter()
                await journal.committed()
                waits.append(time.perf_counter() - asked)
        spent = time.process_time() - began
        journal.close()
        return spent, quantiles(waits)

    return asyncio.run(run())


def _born(journal: SqliteJournal, one: RequestRecord) -> None:
    journal.add(*_insert("live_requests", {name: one.request[name] for name in one.request if name not in _LATER}))
    assert one.decision is not None
    journal.add(*_insert("live_decisions", one.decision))
    for booking in one.bookings:
        journal.add(*_insert("bookings", booking))


def _settled(journal: SqliteJournal, one: RequestRecord) -> None:
    journal.change(_SETTLE, (*(one.request[name] for name in _LATER), one.id))
    for attempt in one.attempts:
        journal.add(*_insert("live_attempts", attempt))


_inserts: dict[tuple[str, int], str] = {}


def _insert(table: str, line: Line) -> tuple[str, Row]:
    key = (table, len(line))
    if key not in _inserts:
        places = ", ".join("?" * len(line))
        _inserts[key] = f"INSERT INTO {table} ({', '.join(line)}) VALUES ({places})"  # noqa: S608 - names of columns
    return _inserts[key], tuple(line.values())


@contextmanager
def _upkeep(folder: Path) -> Iterator[None]:
    argv = [sys.executable, "-m", "router.cli", "ledger", "upkeep"]
    child = subprocess.Popen(argv, env=os.environ | {"LOWPASS_HOME": str(folder)})
    os.sched_setaffinity(child.pid, cores().load)
    try:
        yield
    finally:
        child.wait(600)
