"""One run of the reports' bench, part by part."""

import os
import platform
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from msgspec import structs

from bench.budgets.report import Machine
from bench.children import cores
from bench.cpu import model
from bench.load import LoadError
from bench.reports.build import build
from bench.reports.pages import ad_hoc, pages
from bench.reports.replays import replays
from bench.reports.report import Report, Size, render
from bench.reports.writes import writes

__all__ = ["PARTS", "LoadError", "measure", "render"]

PARTS = ("size", "pages", "ad-hoc", "replay", "writes")
REQUESTS, QUICK = 1_000_000, 100_000
_WRITTEN = 40_000
_LARGE = {"size", "pages", "ad-hoc", "replay"}


def measure(only: Collection[str], requests: int, folder: Path | None = None) -> Report:
    """`folder`: where such a ledger is, or is to be built and left; else it is built for this run. Raises LoadError."""
    began, before = time.monotonic(), os.getloadavg()[0]
    report = Report(date=f"{datetime.now(UTC):%Y-%m-%d}", machine=_machine(before), requests=0)
    if _LARGE & set(only):
        with _large(requests, folder) as place:
            report = _measured(report, only, place)
    if "writes" in only:
        with tempfile.TemporaryDirectory(prefix="lowpass-bench-") as name:
            report = structs.replace(report, writes=writes(Path(name), _WRITTEN))
    return structs.replace(report, machine=_machine(before), seconds=round(time.monotonic() - began, 1))


def _measured(report: Report, only: Collection[str], place: Path) -> Report:
    size = Size.of(place)
    return structs.replace(
        report,
        requests=size.requests,
        size=size if "size" in only else None,
        pages=pages(place) if "pages" in only else (),
        ad_hoc=ad_hoc(place) if "ad-hoc" in only else (),
        replay=replays(place, size.requests) if "replay" in only else None,
    )


@contextmanager
def _large(requests: int, folder: Path | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="lowpass-bench-") as name:
        place = folder or Path(name)
        place.mkdir(parents=True, exist_ok=True)
        if not (place / "lowpass.db").exists():
            build(place, requests)
        yield place


def _machine(before: float) -> Machine:
    return Machine(model(), len(cores().all), platform.python_version(), (before, os.getloadavg()[0]))
