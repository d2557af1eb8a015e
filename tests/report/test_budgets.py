"""What is left of a budget, as the reservations themselves leave it."""

import asyncio
from decimal import Decimal
from pathlib import Path

from router.budget.budget import Budget
from router.budget.embedded import EmbeddedBudgets
from router.ledger.journal import SqliteJournal
from router.ledger.ledger import SqliteLedger
from router.report.budgets import budgets
from router.report.report import Report
from router.types.reservation import Reservation
from tests.report.filled import DAY_MS, MONDAY_MS

DAILY = Budget(id="daily", limit_usd=Decimal("0.01"), window="day")
TEAM = Budget(
    id="team", limit_usd=Decimal(2), window="lifetime", routes=("auto",), keys=("web", "batch"), tags=("red",)
)


async def _use(path: Path, wanted: int, cost: int | None) -> None:
    journal = SqliteJournal(path)
    store = EmbeddedBudgets(journal)
    granted = await store.reserve("r", (DAILY,), wanted, 1, MONDAY_MS)
    assert isinstance(granted, Reservation)
    if cost is not None:
        store.settle(granted, cost)
    await journal.committed()
    journal.close()


def used(tmp_path: Path, wanted: int, cost: int | None, now_ms: int = MONDAY_MS) -> Report:
    path = tmp_path / "l.db"
    asyncio.run(_use(path, wanted, cost))
    with SqliteLedger(path).reading() as connection:
        return budgets(connection, (DAILY, TEAM), now_ms)


def test_a_hold_is_shown_until_it_is_spent(tmp_path: Path) -> None:
    held = used(tmp_path, 4_000_000, None)
    assert held.rows[0] == (
        "daily",
        "everything",
        "day",
        Decimal("0.01"),
        Decimal(0),
        Decimal("0.004"),
        Decimal("0.006"),
        MONDAY_MS + DAY_MS,
    )


def test_a_cost_above_its_hold_leaves_less_than_nothing(tmp_path: Path) -> None:
    spent = used(tmp_path, 4_000_000, 12_000_000)
    assert spent.column("spent_usd")[0] == Decimal("0.012")
    assert spent.column("held_usd")[0] == 0
    assert spent.column("remaining_usd")[0] == Decimal("-0.002")


def test_the_next_window_starts_full(tmp_path: Path) -> None:
    tomorrow = used(tmp_path, 4_000_000, 4_000_000, MONDAY_MS + DAY_MS)
    assert tomorrow.column("remaining_usd")[0] == Decimal("0.01")
    assert tomorrow.column("resets_at")[0] == MONDAY_MS + 2 * DAY_MS


def test_an_unused_lifetime_budget_says_whom_it_binds_and_never_resets(tmp_path: Path) -> None:
    row = used(tmp_path, 1, None).rows[1]
    assert row[:3] == ("team", "route auto; key web or batch; tag red", "lifetime")
    assert row[-1] is None
