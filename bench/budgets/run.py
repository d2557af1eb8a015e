"""One run of the budgets' bench, part by part."""

import importlib.util
import os
import platform
import tempfile
import time
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from bench import holds
from bench.budgets.cost import costs
from bench.budgets.crowds import Crowd, Crowds
from bench.budgets.kills import Kills, campaign
from bench.budgets.policy import policy
from bench.budgets.report import Machine, Report, render
from bench.budgets.site import STORES, site
from bench.children import cores, upstream
from bench.cpu import model
from bench.load import LoadError

__all__ = ["PARTS", "LoadError", "measure", "render"]

PARTS = ("overshoot", "crowds", "kills", "holds", "cost")
UPSTREAM = "bench.budgets.upstream"
SEED = 20_261_121


class Size(Struct, frozen=True):
    """How much of everything."""

    requests: int
    processes: tuple[int, ...]
    fan_out: int
    few: int
    """Requests with retries, and streams that are cut."""
    kills: int
    """In each store."""
    shuffles: int
    cost_requests: int


WHOLE = Size(500, (1, 2, 4), 10, 100, 50, 5, 4_000)
QUICK = Size(200, (2,), 5, 40, 5, 1, 1_000)


def measure(only: Collection[str], quick: bool) -> Report:
    """Raises LoadError if something that is needed does not start."""
    size, began, before = QUICK if quick else WHOLE, time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="lowpass-bench-") as name, upstream(cores().all, UPSTREAM) as port:
        place, rules = Path(name), policy(port)
        overshoot = tuple(_overshoot(place, rules, size)) if "overshoot" in only else ()
        crowds = tuple(_crowds(place, rules, size)) if "crowds" in only else ()
        kills = tuple(_kills(place, rules, size, quick)) if "kills" in only else ()
        cost = costs(place / "cost", size.cost_requests) if "cost" in only else ()
    report = Report(
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        machine=Machine(model(), len(cores().all), platform.python_version(), (before, os.getloadavg()[0])),
        quick=quick,
        seconds=0,
        max_overshoot=max(
            (*(one.overshoot for one in (*overshoot, *crowds)), *(one.overshoot for one in kills)), default=0
        ),
        false_refusals=sum(one.false_refusals for one in (*overshoot, *crowds)),
        overshoot=overshoot,
        crowds=crowds,
        kills=kills,
        cost=cost,
    )
    report = _with_holds(report, size.shuffles) if "holds" in only else report
    return structs.replace(report, seconds=round(time.monotonic() - began, 1))


def _overshoot(place: Path, rules: dict[str, Any], size: Size) -> Iterator[Crowd]:
    for store in STORES:
        for processes in size.processes:
            with site(store, processes, place / f"overshoot-{store}-{processes}", rules) as found:
                crowds = Crowds(found, store, processes)
                for warm in (False, True):
                    for kind in ("plain", "streamed"):
                        yield crowds.overshoot(kind, warm, size.requests)


def _crowds(place: Path, rules: dict[str, Any], size: Size) -> Iterator[Crowd]:
    for store in STORES:
        with site(store, 2, place / f"crowds-{store}", rules, one_ledger=True) as found:
            crowds = Crowds(found, store, 2)
            yield crowds.new_key(size.requests)
            yield crowds.fan_out(size.fan_out)
            yield crowds.retries(size.few)
            yield crowds.cut(size.few)


def _kills(place: Path, rules: dict[str, Any], size: Size, quick: bool) -> Iterator[Kills]:
    for number, store in enumerate(STORES):
        with site(store, 2, place / f"kills-{store}", rules, one_ledger=True) as found:
            yield campaign(found, store, 2, size.kills, SEED + number, quick)


def _with_holds(report: Report, shuffles: int) -> Report:
    place = holds.folder()
    if place is None:
        return structs.replace(report, holds_skipped=f"no {holds.DATA}: set LOWPASS_DATA to the folder that has it")
    if importlib.util.find_spec("pyarrow") is None:
        return structs.replace(report, holds_skipped="the data is in parquet files: install pyarrow to read them")
    return structs.replace(report, holds=holds.report(holds.rows(place, 1), shuffles))
