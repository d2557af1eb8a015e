"""One gateway for all tests that only read; its ledger is in SQLite."""

from collections.abc import Iterator

import pytest

from router.ledger.ledger import Ledger
from router.report import catalog
from router.types.target import Task
from tests.dashboard.serving import HOSTILE, NOW_MS, TURNING, serving
from tests.report.conftest import ledger, new_ledger
from tests.report.filled import DAY_MS, Happened, Tried, fill, thinking
from tests.stores import Make, postgres

__all__ = ["gateway", "ledger", "new_ledger", "postgres"]

HAPPENED = (
    Happened(
        id="0" * 31 + "a",
        tried=(Tried("mini", 0, None, HOSTILE), Tried("local", 250_000_001, thinking(30, 10))),
        at_ms=NOW_MS,
        tags=(HOSTILE,),
        key=TURNING,
        data_class="pii",
        task=Task.CODE,
    ),
    Happened(id="0" * 31 + "b", tried=(Tried("local", 1_000_000_000, thinking(None)),), at_ms=NOW_MS - 3 * DAY_MS),
    Happened(id="0" * 31 + "c", ends="held", held=40_000, at_ms=NOW_MS),
    Happened(id="0" * 31 + "d", tried=(Tried("local", 1),), at_ms=NOW_MS - 40 * DAY_MS),
)


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports have the same now as the dashboard."""
    monkeypatch.setattr(catalog, "now_ms", lambda: NOW_MS)


@pytest.fixture(scope="session")
def filled(new_ledger: Make) -> Ledger:
    return fill(new_ledger(), HAPPENED)


@pytest.fixture(scope="session")
def gateway(filled: Ledger) -> Iterator[str]:
    with serving(filled) as url:
        yield url
