"""What is left of every pot as reservations leave it, how long it lasts, what was refused, and what held too much."""

import asyncio
from collections.abc import Awaitable, Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from router.budget.budget import Budget, Rolling
from router.budget.sqlite import SqliteBudgets
from router.ledger.incident import EXHAUSTED
from router.ledger.journal import SqliteJournal
from router.ledger.ledger import Ledger
from router.report.budgets import Pots, budgets
from router.report.report import Report
from router.report.standing import Pot, Standing
from router.report.table import table
from router.types.account import Amount, Ask, Balance, Child, Refused, Unit
from router.types.lease import LEASE_MS
from tests.report.asking import below, cells, lines, reported, totals
from tests.report.filled import DAY_MS, HOUR_MS, MONDAY_MS, USD, Happened, Tried, fill
from tests.stores import Make
from tests.tables import each_row

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


def left(tmp_path: Path, *works: Work, now_ms: int = MONDAY_MS) -> Report:
    """After these reservations."""

    async def run() -> Report:
        journal = SqliteJournal(tmp_path / "l.db")
        store = SqliteBudgets(journal, LEASE_MS)
        for work in works:
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
    assert row(left(tmp_path, using(DAILY, 4_000_000, None)), "daily") == {
        **{"id": "daily", "parent": None, "scope": "all", "value": None, "binds": "everything", "window": "day"},
        **{"unit": "usd", "limit": Decimal("0.01"), "policy_limit": None, "spent": Decimal(0)},
        **{"held": Decimal("0.004"), "remaining": Decimal("0.006")},
        **{"soft": None, "resets_at": MONDAY_MS + DAY_MS, "expires_at": None},
    }


def test_a_cost_above_its_hold_leaves_less_than_nothing(tmp_path: Path) -> None:
    spent = left(tmp_path, using(DAILY, 4_000_000, 12_000_000))
    assert amounts(spent, "daily") == [Decimal("0.01"), Decimal("0.012"), 0, Decimal("-0.002")]


def test_the_next_window_starts_full(tmp_path: Path) -> None:
    tomorrow = left(tmp_path, using(DAILY, 4_000_000, 4_000_000), now_ms=MONDAY_MS + DAY_MS)
    assert amounts(tomorrow, "daily") == [Decimal("0.01"), 0, 0, Decimal("0.01")]
    assert row(tomorrow, "daily")["resets_at"] == MONDAY_MS + 2 * DAY_MS


def test_an_unused_lifetime_budget_says_whom_it_binds_and_never_resets(tmp_path: Path) -> None:
    team = row(left(tmp_path, using(DAILY, 1, None)), "team")
    assert (team["binds"], team["window"], team["soft"], team["resets_at"]) == (
        *("key web or batch; route auto; tag red", "lifetime"),
        *("soft", None),
    )


def test_each_pot_has_a_row_in_its_own_unit(tmp_path: Path) -> None:
    found = left(tmp_path, using(THOUGHTS, 5_000, 4_321, "web"), using(THOUGHTS, 100, None, "batch"))
    assert found.column("id") == ("daily", "team", "thoughts|batch", "thoughts|web")
    assert amounts(found, "thoughts|web") == [12_000, 4_321, 0, 7_679]
    assert row(found, "thoughts|web")["value"] == "web"
    console = Console(width=250)
    with console.capture() as capture:
        console.print(table(found))
    assert {"12,000", "7,679", "0.01", "2.00"} <= set(capture.get().replace("│", " ").split())


def test_a_budget_that_was_split_off_is_held_in_its_parent_and_has_a_row(tmp_path: Path) -> None:
    pot, expires_ms = DAILY.pot("", MONDAY_MS), MONDAY_MS + 60_000
    child = Child(
        id="child",
        parent="daily",
        parent_window_ms=pot.window_start_ms,
        replaces=("daily",),
        unit=Unit.USD,
        limit=3_000_000,
        created_ms=MONDAY_MS,
        expires_at_ms=expires_ms,
        key="",
    )

    async def work(store: SqliteBudgets) -> None:
        assert await store.split(pot, child, MONDAY_MS) == child

    found = left(tmp_path, work)
    assert amounts(found, "daily") == [Decimal("0.01"), 0, Decimal("0.003"), Decimal("0.007")]
    assert amounts(found, "child") == [Decimal("0.003"), 0, 0, Decimal("0.003")]
    split = row(found, "child")
    assert (split["parent"], split["scope"], split["expires_at"]) == ("daily", "split", expires_ms)


NOW_MS = MONDAY_MS + 10 * DAY_MS
"""The twelfth of a November."""
MONTHLY = Budget(id="monthly", limit_usd=Decimal(500))
ALL_OF_NOVEMBER = (240 + 19 * 24) * USD


@pytest.fixture(scope="module")
def every_hour(new_ledger: Make) -> Ledger:
    """Ten days of a request of one dollar every hour."""
    happened = [
        Happened(
            tried=(Tried("x" if number % 2 else "y", USD),),
            key="web" if number % 3 else "ci",
            tags=("blue",) if number % 4 else ("red", "big"),
            at_ms=MONDAY_MS + number * HOUR_MS,
            thinking=10,
        )
        for number in range(240)
    ]
    return fill(new_ledger(), happened)


def standing(budget: Budget, spent: int = 0, value: str = "") -> Standing:
    pot = budget.pot(value, NOW_MS) if value else budget.full(NOW_MS)
    return Standing(Pot(account=pot, budget=budget), Balance(spent, 0))


def ahead(ledger: Ledger, *standings: Standing, **question: Any) -> Report:
    """The report; of its pots only the ids are there."""
    rows = tuple((one.pot.account.id, *[None] * 14) for one in standings)
    pots = Pots(name="budgets", title="", columns=(), rows=rows, standings=standings)
    return reported(ledger, "budgets", pots=pots, now_ms=NOW_MS, **question)


def forecast(ledger: Ledger, *standings: Standing) -> list[tuple[Any, ...]]:
    """The amounts foretold, and until when it lasts."""
    return cells(ahead(ledger, *standings), "forecast", "forecast_low", "forecast_high", "lasts_until")


@each_row(
    "pot, expected",
    [
        (standing(MONTHLY, 240 * USD), (*[ALL_OF_NOVEMBER] * 3, NOW_MS + 260 * HOUR_MS)),
        (standing(Budget(id="plenty", limit_usd=Decimal(5_000)), 240 * USD), (*[ALL_OF_NOVEMBER] * 3, None)),
        # What has no end lasts until it is spent, and what rolls has no forecast.
        (
            standing(Budget(id="life", limit_usd=Decimal(1_000), window="lifetime"), 240 * USD),
            (None, None, None, NOW_MS + 760 * HOUR_MS),
        ),
        (standing(Budget(id="b", limit_usd=Decimal(10), window=Rolling(rolling="24h")), USD), (None,) * 4),
        (standing(Budget(id="b", limit_usd=Decimal(10), scope="session"), USD, "s"), (None,) * 4),
    ],
    ids=lambda pot: pot.pot.account.id,
)
def test_a_budget_is_forecast_from_what_it_was_charged(
    every_hour: Ledger, pot: Standing, expected: tuple[object, ...]
) -> None:
    assert forecast(every_hour, pot) == [expected]


def test_each_pot_has_its_own_forecast_by_its_budget_s_filters(every_hour: Ledger) -> None:
    day = partial(Budget, window="day")
    in_usd = partial(day, limit_usd=Decimal(9))
    per_tag = in_usd(id="t", scope="tag", tags=("red", "blue"))
    found = ahead(
        every_hour,
        *(standing(in_usd(id="k", scope="key"), value=value) for value in ("web", "ci")),
        *(standing(per_tag, value=value) for value in ("red", "blue")),
        standing(in_usd(id="x", targets=("x",), keys=("web",))),
        standing(day(id="thoughts", limit_thinking_tokens=10_000, routes=("auto",))),
        standing(in_usd(id="other", keys=("other",))),
    )
    assert found.column("forecast") == (16, 8, 6, 18, 8, 240, None)


def test_without_a_past_or_without_a_store_nothing_is_foretold(ledger: Ledger) -> None:
    assert lines(ahead(ledger, standing(MONTHLY))) == [{"id": "monthly"}]
    silent = reported(ledger, "budgets")
    assert silent.rows == ()
    assert "does not answer" in silent.note
    assert [one.name for one in silent.below] == ["refused", "loops"]


def test_what_was_refused_stopped_or_held_for_nothing(ledger: Ledger) -> None:
    happened = (
        Happened(tried=(Tried("x", 2_000),), held=10_000),
        Happened(tried=(Tried("x", 3_000),), held=2_000, overrun=True, lowered=("output",)),
        Happened(tried=(Tried("x", 5_000),), held=8_000, error="budget_exceeded"),
        *(Happened(status=402, error="budget_exceeded", held=4_000, route=route) for route in ("auto", "bulk")),
    )
    report = below(ahead(fill(ledger, happened)), "refused")
    names = (
        *("route", "requests", "refused", "stopped", "lowered", "overruns"),
        *("held_usd", "cost_usd", "over_reservation"),
    )
    assert cells(report, *names) == [
        ("auto", 4, 1, 1, 1, 1, 20_000, 10_000, 2.0),
        ("bulk", 1, 1, 0, 0, 0, 0, 0, None),
    ]
    assert totals(report, "requests", "refused", "over_reservation") == (5, 2, 2.0)


def test_refusals_and_loops_are_told_from_incidents(ledger: Ledger) -> None:
    rows = (
        ("1", NOW_MS - 5, EXHAUSTED, "budget", "monthly", "1 USD needed, 0 USD left", NOW_MS),
        ("2", MONDAY_MS - 40 * DAY_MS, EXHAUSTED, "budget", "yearly|a", "", NOW_MS),
        ("3", MONDAY_MS, "repeats", "session", "s", "", NOW_MS),
        ("4", NOW_MS, "repeats", "session", "t", "", NOW_MS),
        ("5", NOW_MS, "drift", "target", "x", "", NOW_MS),
    )
    with ledger.writing() as connection:
        for row in rows:
            connection.execute("INSERT INTO incidents VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    per_key = Budget(id="yearly", limit_usd=Decimal(500), scope="key")
    report = ahead(ledger, standing(MONTHLY), standing(per_key, value="a"))
    assert lines(report) == [{"id": "monthly", "refused_since": NOW_MS - 5}, {"id": "yearly|a"}]
    assert below(report, "loops").rows == (("repeats", "session", 2, MONDAY_MS, NOW_MS),)
    assert below(ahead(ledger, since="2026-11-12"), "loops").column("trips") == (1,)
