"""A real gateway over a large ledger: how long its dashboard's pages take, and questions that no roll-up answers."""

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from bench.budgets.site import Gateway
from bench.load import LoadError
from bench.reports.policy import NAME, policy
from router.ledger import keys
from router.ledger.ledger import SqliteLedger
from router.report.catalog import REPORTS
from router.types.clock import new_id
from router.types.request import KeyTerms

ROUNDS = 3
AD_HOC = (
    "spend?by=session",
    "spend?by=key,model&where=class%3Dpersonal",
    "spend?by=task&where=team%3Dteam-3",
    "spend?by=day&zone=Asia/Kathmandu",
)
"""Each needs columns that the sums by hour don't tell apart."""
_LIMIT_S = 600


class Page(Struct, frozen=True):
    """Seconds until it is there: the first time, and the quickest after that."""

    path: str
    first_s: float
    again_s: float
    bytes: int


class _Door(NamedTuple):
    port: int
    key: str


def pages(folder: Path) -> tuple[Page, ...]:
    """All of the dashboard."""
    names = [name for name, report in REPORTS.items() if not report.needs_subject]
    paths = ["/dashboard", "/dashboard/policy", *(f"/dashboard/reports/{name}" for name in names)]
    with _gateway(folder) as door:
        return tuple(_timed(door, path) for path in paths)


def ad_hoc(folder: Path) -> tuple[Page, ...]:
    """Over all requests."""
    with _gateway(folder) as door:
        return tuple(_timed(door, f"/v1/reports/{query}", rounds=1) for query in AD_HOC)


@contextmanager
def _gateway(folder: Path) -> Iterator[_Door]:
    file = folder / NAME
    file.write_text(json.dumps(policy()))
    with SqliteLedger(folder / "lowpass.db").writing() as connection:
        _, secret = keys.create(connection, KeyTerms(name=f"bench-{new_id()}", scopes=("reports",)), "bench")
    gateway = Gateway(folder, file, 1, {}, folder / "gateway.log")
    gateway.launch()
    try:
        gateway.wait()
        yield _Door(gateway.port, secret)
    finally:
        gateway.stop()


def _timed(door: _Door, path: str, rounds: int = ROUNDS) -> Page:
    took, size = zip(*(_get(door, path) for _ in range(rounds)), strict=True)
    return Page(path, round(took[0], 3), round(min(took[1:] or took), 3), size[0])


def _get(door: _Door, path: str) -> tuple[float, int]:
    began = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", door.port, timeout=_LIMIT_S)
    try:
        connection.request("GET", path, headers={"authorization": f"Bearer {door.key}"})
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    if response.status != 200:
        raise LoadError(f"{path}: status {response.status}: {body[:300].decode(errors='replace')}")
    return time.perf_counter() - began, len(body)
