"""One run of the bench of local engines, part by part."""

import importlib
import os
import platform
import time
from collections.abc import Collection
from datetime import UTC, datetime

from msgspec import structs

from bench.budgets.report import Machine
from bench.children import cores
from bench.cpu import model
from bench.load import LoadError
from bench.local.part import Found, Unmeasured
from bench.local.report import Report, render

__all__ = ["PARTS", "LoadError", "measure", "render"]

_MODULES = {"overhead": "overhead", "plan": "memory", "spill": "spill", "affinity": "affinity", "cost": "cost"}
PARTS = tuple(_MODULES)


def measure(only: Collection[str], quick: bool) -> Report:
    """Raises LoadError if something that is needed does not start."""
    began, before = time.monotonic(), os.getloadavg()[0]
    report = Report(date=f"{datetime.now(UTC):%Y-%m-%d}", machine=_machine(before), quick=quick)
    for name in PARTS:
        if name in only:
            try:
                report = report.plus(name, _part(name, quick))
            except Unmeasured as reason:
                report = structs.replace(report, absent=(*report.absent, f"{name}: {reason}"))
    return structs.replace(report, machine=_machine(before), seconds=round(time.monotonic() - began, 1))


def _part(name: str, quick: bool) -> Found:
    """Imported when it is asked for: each brings what it needs."""
    found: Found = importlib.import_module(f"bench.local.{_MODULES[name]}").measure(quick)
    return found


def _machine(before: float) -> Machine:
    return Machine(model(), len(cores().all), platform.python_version(), (before, os.getloadavg()[0]))
