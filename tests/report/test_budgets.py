"""What is left of every pot, as the reservations themselves leave it."""

import asyncio
from collections.abc import Awaitable, Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

from rich.console import Console

from router.budget.budget import Budget
from router.budget.sqlite import SqliteBudgets
from router.ledger.journal import SqliteJournal
from router.ledger.write import LEASE_MS
from router.report.budgets import budgets
from router.report.report import Report
from router.report.table import table
from router.types.account import Amount, Ask, Child, Refused, Unit
from tests.report.filled import DAY_MS, MONDAY_MS

DAILY = Budget(id="daily", limit_usd=Decimal("0.01"), window="day")
TEAM = Budget(
    id="team",
    limit_usd=Decimal(2),
    window="lifetime",
    routes=("auto",),
    keys=("web", "batch"),
    tags=("red",),
    soft=True,
)
THOUGHTS = Budget(id="thoughts", limit_thinking_tokens=12_000, scope="key")
Work = Callable[[SqliteBudgets], Awaitable[None]]


def reported(tmp_path: Path, work: Work, now_ms: int = MONDAY_MS) -> Report:
    async def run() -> Report:
        journal = SqliteJournal(tmp_path / "l.db")
        store = SqliteBudgets(journal, LEASE_MS)
        await work(store)
        await store.settled()
        found = await budgets(store, (DAILY, TEAM, THOUGHTS), now_ms)
        await journal.end()
        return found

    return asyncio.run(run())


def using(budget: Budget, held: int, charged: int | None, value: str = "") -> Work:
    async def work(store: SqliteBudgets) -> None:
        amount = Amount(held, held)
        ask = Ask(least=amount, tight=amount, whole=amount)
        granted = await store.reserve(f"r-{value}", [budget.pot(value, MONDAY_MS)], ask, MONDAY_MS)
        assert not isinstance(granted, Refused)
        if charged is not None:
            store.settle(granted, [charged])

    return work


def row(report: Report, identifier: str) -> dict[str, Any]:
    names = [column.name for column in report.columns]
    return next(dict(zip(names, line, strict=True)) for line in report.rows if line[0] == identifier)


def amounts(report: Report, identifier: str) -> list[Any]:
    return [row(report, identifier)[name] for name in ("limit", "spent", "held", "remaining")]


def test_a_hold_is_shown_until_it_is_spent(tmp_path: Path) -> None:
    held = reported(tmp_path, using(DAILY, 4_000_000, None))
    assert row(held, "daily") == {
        "id": "daily",
        "parent": None,
        "scope": "all",
        "value": None,
        "binds": "everything",
        "window": "day",
        "unit": "usd",
        "limit": Decimal("0.01"),
        "spent": Decimal(0),
        "held": Decimal("0.004"),
        "remaining": Decimal("0.006"),
        "soft": None,
        "resets_at": MONDAY_MS + DAY_MS,
        "expires_at": None,
    }


def test_a_cost_above_its_hold_leaves_less_than_nothing(tmp_path: Path) -> None:
    spent = reported(tmp_path, using(DAILY, 4_000_000, 12_000_000))
    assert amounts(spent, "daily") == [Decimal("0.01"), Decimal("0.012"), 0, Decimal("-0.002")]


def test_the_next_window_starts_full(tmp_path: Path) -> None:
    tomorrow = reported(tmp_path, using(DAILY, 4_000_000, 4_000_000), MONDAY_MS + DAY_MS)
    assert amounts(tomorrow, "daily") == [Decimal("0.01"), 0, 0, Decimal("0.01")]
    assert row(tomorrow, "daily")["resets_at"] == MONDAY_MS + 2 * DAY_MS


def test_an_unused_lifetime_budget_says_whom_it_binds_and_never_resets(tmp_path: Path) -> None:
    team = row(reported(tmp_path, using(DAILY, 1, None)), "team")
    assert (team["binds"], team["window"], team["soft"]) == (
        "key web or batch; route auto; tag red",
        "lifetime",
        "soft",
    )
    assert team["resets_at"] is None


def test_each_pot_has_a_row_in_its_own_unit(tmp_path: Path) -> None:
    async def work(store: SqliteBudgets) -> None:
        await using(THOUGHTS, 5_000, 4_321, "web")(store)
        await using(THOUGHTS, 100, None, "batch")(store)

    found = reported(tmp_path, work)
    assert found.column("id") == ("daily", "team", "thoughts|batch", "thoughts|web")
    assert amounts(found, "thoughts|web") == [12_000, 4_321, 0, 7_679]
    assert row(found, "thoughts|web")["value"] == "web"


def test_a_budget_that_was_split_off_is_held_in_its_parent_and_has_a_row(tmp_path: Path) -> None:
    child = Child(
        id="child",
        parent="daily",
        parent_window_ms=DAILY.pot("", MONDAY_MS).window_start_ms,
        replaces=("daily",),
        unit=Unit.USD,
        limit=3_000_000,
        created_ms=MONDAY_MS,
        expires_at_ms=MONDAY_MS + 60_000,
        key="",
    )

    async def work(store: SqliteBudgets) -> None:
        assert await store.split(DAILY.pot("", MONDAY_MS), child, MONDAY_MS) == child

    found = reported(tmp_path, work)
    assert amounts(found, "daily") == [Decimal("0.01"), 0, Decimal("0.003"), Decimal("0.007")]
    assert amounts(found, "child") == [Decimal("0.003"), 0, 0, Decimal("0.003")]
    split = row(found, "child")
    assert (split["parent"], split["scope"], split["expires_at"]) == ("daily", "split", MONDAY_MS + 60_000)


def test_money_has_its_decimals_and_tokens_have_none(tmp_path: Path) -> None:
    console = Console(width=250)
    with console.capture() as capture:
        console.print(table(reported(tmp_path, using(THOUGHTS, 5_000, 4_321, "web"))))
    assert {"12,000", "7,679", "0.01", "2.00"} <= set(capture.get().replace("│", " ").split())
