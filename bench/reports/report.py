"""What a run of the reports' bench found: one document, its goals, and the tables that it prints."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Self

from msgspec import Struct

from bench.budgets.report import Machine
from bench.reports.pages import Page
from bench.reports.replays import Replays
from bench.reports.writes import Writes

MOST_BYTES = 450
MOST_PAGE_S = 1.0
MOST_AD_HOC_S = 10.0
LEAST_ROWS = 5_000
"""Written a second, by one core."""
LEAST_REPLAYED = 1_000_000 / 60
"""A second."""


_PARTS = """
    SELECT CASE WHEN name LIKE '%decisions' THEN 'decisions' WHEN name LIKE 'past%' OR name LIKE '%_past_%' THEN 'rows'
        WHEN name LIKE 'hourly%' OR name LIKE '%sum_groups%' THEN 'sums' ELSE 'others' END, SUM(pgsize)
    FROM dbstat GROUP BY 1
"""


class Size(Struct, frozen=True):
    """Of all files of the ledger."""

    requests: int
    bytes: int
    bytes_per_request: float
    parts: dict[str, float]
    """Bytes a request, by kind of table."""

    @classmethod
    def of(cls, folder: Path) -> Self:
        with closing(sqlite3.connect(folder / "lowpass.db")) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            requests = connection.execute("SELECT COUNT(*) FROM requests").fetchone()[0]
            parts = connection.execute(_PARTS).fetchall()
        size = sum(file.stat().st_size for file in folder.glob("lowpass.db*"))
        each = {str(part): round(total / requests, 1) for part, total in parts}
        return cls(requests, size, round(size / requests, 1), each)


class Report(Struct, frozen=True):
    """A part that was not asked for is empty."""

    date: str
    machine: Machine
    requests: int
    """In the ledger."""
    seconds: float = 0
    size: Size | None = None
    pages: tuple[Page, ...] = ()
    ad_hoc: tuple[Page, ...] = ()
    replay: Replays | None = None
    writes: Writes | None = None

    @property
    def missed(self) -> tuple[str, ...]:
        """Goals."""
        size, replay, writes = self.size, self.replay, self.writes
        found = [
            *([f"{size.bytes_per_request} bytes a request"] if size and size.bytes_per_request > MOST_BYTES else []),
            *(f"{one.path}: {one.again_s} s" for one in self.pages if one.again_s > MOST_PAGE_S),
            *(f"{one.path}: {one.again_s} s" for one in self.ad_hoc if one.again_s > MOST_AD_HOC_S),
            *([f"{replay.requests_per_second} replayed a second"] if replay and _slow(replay) else []),
            *([f"{writes.rows_per_cpu_second} rows a second"] if writes and _few(writes) else []),
        ]
        return tuple(found)


def _slow(replay: Replays) -> bool:
    return replay.requests_per_second < LEAST_REPLAYED


def _few(writes: Writes) -> bool:
    return writes.rows_per_cpu_second < LEAST_ROWS


def render(report: Report) -> str:
    machine = report.machine
    lines = [f"{report.requests:,} requests; {machine.processor}, {machine.cores} cores, load {machine.load}"]
    if report.size:
        parts = ", ".join(f"{name} {each}" for name, each in report.size.parts.items())
        lines.append(f"size: {report.size.bytes_per_request} bytes a request ({parts}), goal {MOST_BYTES}")
    for title, goal, found in (("page", MOST_PAGE_S, report.pages), ("ad hoc", MOST_AD_HOC_S, report.ad_hoc)):
        lines += [
            f"{title}: {one.again_s:7.3f} s ({one.first_s:.3f} s first) {one.path}, goal {goal:g}" for one in found
        ]
    if report.replay:
        again = report.replay
        lines.append(f"replay: {again.seconds} s, {again.requests_per_second:,} a second, goal {LEAST_REPLAYED:,.0f}")
    if report.writes:
        lines.append(_writes(report.writes))
    lines += [f"missed: {one}" for one in report.missed]
    return "\n".join(lines) + "\n"


def _writes(found: Writes) -> str:
    alone, beside = found.commit_ms, found.commit_ms_while_moving
    return (
        f"writes: {found.rows_per_cpu_second:,} rows a CPU second, goal {LEAST_ROWS:,}; a commit takes"
        f" {alone.p50} ms ({alone.p99} at p99), while {found.moved_meanwhile:,} requests move to the past"
        f" {beside.p50} ms ({beside.p99})"
    )
