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
from bench.budgets import turns
from bench.budgets.cells import Outcome, cells, run
from bench.budgets.cells import policy as cells_policy
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

PARTS = ("overshoot", "turns", "crowds", "kills", "holds", "cost")
UPSTREAM = "bench.budgets.upstream"
SEED = 20_261_121


class Size(Struct, frozen=True):
    """How much of everything."""

    requests: int
    cells: tuple[tuple[str, int, int], ...]
    """Store, processes, and every how many-th cell."""
    fan_out: int
    few: int
    """Requests with retries, and streams that are cut."""
    kills: int
    """In each store."""
    shuffles: int
    cost_requests: int
    turns: int
    """Every how many-th cell is spent one request after another."""


WHOLE = Size(500, (("sqlite", 1, 1), ("sqlite", 4, 5), ("redis", 1, 5), ("redis", 4, 5)), 10, 100, 50, 5, 4_000, 1)
QUICK = Size(200, (("sqlite", 2, 24), ("redis", 2, 24)), 5, 40, 5, 1, 1_000, 8)


def measure(only: Collection[str], quick: bool) -> Report:
    """Raises LoadError if something that is needed does not start."""
    size, began, before = QUICK if quick else WHOLE, time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="lowpass-bench-") as name, upstream(cores().all, UPSTREAM) as port:
        place, rules = Path(name), policy(port)
        overshoot = tuple(_overshoot(place, port, size)) if "overshoot" in only else ()
        spent = tuple(_turns(place, port, size)) if "turns" in only else ()
        crowds = tuple(_crowds(place, rules, size)) if "crowds" in only else ()
        kills = tuple(_kills(place, rules, size, quick)) if "kills" in only else ()
        cost = costs(place / "cost", size.cost_requests) if "cost" in only else ()
    report = Report(
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        machine=Machine(model(), len(cores().all), platform.python_version(), (before, os.getloadavg()[0])),
        quick=quick,
        seconds=0,
        max_overshoot=max(
            (
                *(cell.overspent for cell in overshoot),
                *(budget.overspent for budget in spent),
                *(crowd.overshoot for crowd in crowds),
                *(campaign.overshoot for campaign in kills),
            ),
            default=0,
        ),
        false_refusals=sum(crowd.false_refusals for crowd in crowds),
        overshoot=overshoot,
        turns=spent,
        crowds=crowds,
        kills=kills,
        cost=cost,
    )
    report = _with_holds(report, size.shuffles) if "holds" in only else report
    return structs.replace(report, seconds=round(time.monotonic() - began, 1))


def _overshoot(place: Path, port: int, size: Size) -> Iterator[Outcome]:
    for store, processes, step in size.cells:
        # Another offset than the others' step: all kinds of cells come up.
        chosen = cells()[processes % step :: step]
        rules = cells_policy(port, chosen)
        with site(store, processes, place / f"overshoot-{store}-{processes}", rules, one_ledger=True) as gateways:
            yield from run(gateways, store, processes, chosen, size.requests, port)


def _turns(place: Path, port: int, size: Size) -> Iterator[turns.Spent]:
    for store in STORES:
        chosen = turns.cells()[:: size.turns]
        with site(store, 1, place / f"turns-{store}", turns.policy(port, chosen)) as gateways:
            yield from turns.run(gateways, store, chosen, port)


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
