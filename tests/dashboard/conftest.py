"""One server for all tests of a folder: they only read."""

from collections.abc import Iterator

import pytest

from router.types.task import Task
from tests.dashboard.serving import HOSTILE, NOW_MS, TURNING, serving
from tests.report.filled import DAY_MS, Happened, Tried, fill, thinking
from tests.stores import Make, new_ledger, postgres

__all__ = ["gateway", "new_gateway", "new_ledger", "postgres"]

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


@pytest.fixture(scope="session")
def gateway(new_ledger: Make) -> Iterator[str]:
    with serving(fill(new_ledger(), HAPPENED)) as url:
        yield url


@pytest.fixture(scope="session")
def new_gateway(new_ledger: Make) -> Iterator[str]:
    """Nobody has asked it anything yet."""
    with serving(fill(new_ledger(), [])) as url:
        yield url
