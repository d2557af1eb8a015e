"""What is left of every pot as reservations leave it, how long it lasts, what was refused, and what held too much."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from rich.console import Console

from router.budget.budget import Budget, RollingWindow
from router.budget.sqlite import SqliteBudgets
from router.ledger.journal import SqliteJournal
from router.ledger.ledger import Ledger
from router.ledger.write import EXHAUSTED
from router.report.budgets import BudgetAccount, BudgetStanding, all_standings
from router.report.render import table
from router.report.report import Report
from router.report.statistics import ProfileInterval
from router.types.account import LEASE_MS, Amount, Balance, Child, HoldRequest, Refused, Unit
from tests.report.asking import below, cells, reported, totals
from tests.report.filled import DAY_MS, HOUR_MS, MONDAY_MS, USD, Happened, Tried
from tests.tables import each_row

DAILY = Budget(id="daily", limit_usd=Decimal("0.01"), window="day")
FOREVER = partial(Budget, window="lifetime", soft=True)
TEAM = FOREVER(id="team", limit_usd=Decimal(2), routes=("auto",), keys=("web", "batch"), tags=("red",))
THOUGHTS = Budget(id="thoughts", limit_thinking_tokens=12_000, scope="key")
Work = Callable[[SqliteBudgets], Awaitable[None]]
AMOUNTS = ("limit", "spent", "held", "remaining")
AHEAD = ("forecast", "forecast_low", "forecast_high", "lasts_until")


def left(tmp_path: Path, *works: Work, now_ms: int = MONDAY_MS) -> Report:
    async def run() -> Sequence[BudgetStanding]:
        journal = SqliteJournal(tmp_path / "l.db")
        store = SqliteBudgets(journal, LEASE_MS)
        for work in works:
            await work(store)
        await store.settled()
        standings = await all_standings(store, (DAILY, TEAM, THOUGHTS), now_ms)
        await journal.end()
        return standings

    return reported((), "budgets", standings=asyncio.run(run()), now_ms=now_ms)


def using(budget: Budget, held: int, charged: int | None, value: str = "") -> Work:
    async def work(store: SqliteBudgets) -> None:
        amount = Amount(held, held)
        ask = HoldRequest(least=amount, tight=amount, whole=amount)
        granted = await store.reserve(f"r-{value}", [budget.account_of(value, MONDAY_MS)], ask, MONDAY_MS)
        assert not isinstance(granted, Refused)
        if charged is not None:
            store.settle(granted, [charged])

    return work


def row(report: Report, identifier: str) -> dict[str, Any]:
    names = [column.name for column in report.columns]
    return next(dict(zip(names, line, strict=True)) for line in report.rows if line[0] == identifier)


def amounts(report: Report, identifier: str) -> list[Any]:
    return [row(report, identifier)[name] for name in AMOUNTS]


def test_a_hold_is_shown_until_it_is_spent_and_the_next_window_starts_full(tmp_path: Path) -> None:
    result = left(tmp_path, using(DAILY, 4_000_000, None))
    assert row(result, "daily") == {
        **{"id": "daily", "parent": None, "scope": "all", "value": None, "binds": "everything", "window": "day"},
        **{"unit": "usd", "limit": Decimal("0.01"), "policy_limit": None, "spent": Decimal(0)},
        **{"held": Decimal("0.004"), "remaining": Decimal("0.006")},
        **{"soft": None, "resets_at": MONDAY_MS + DAY_MS, "expires_at": None, "refused_since": None},
        **dict.fromkeys(AHEAD),
    }
    team = row(result, "team")
    assert (team["binds"], team["window"]) == ("key web or batch; route auto; tag red", "lifetime")
    assert (team["soft"], team["resets_at"]) == ("soft", None)
    tomorrow = left(tmp_path, now_ms=MONDAY_MS + DAY_MS)
    assert amounts(tomorrow, "daily") == [Decimal("0.01"), 0, 0, Decimal("0.01")]
    assert row(tomorrow, "daily")["resets_at"] == MONDAY_MS + 2 * DAY_MS


def test_a_cost_above_its_hold_leaves_less_than_nothing(tmp_path: Path) -> None:
    spent = left(tmp_path, using(DAILY, 4_000_000, 12_000_000))
    assert amounts(spent, "daily") == [Decimal("0.01"), Decimal("0.012"), 0, Decimal("-0.002")]


def test_each_pot_has_a_row_in_its_own_unit(tmp_path: Path) -> None:
    result = left(tmp_path, using(THOUGHTS, 5_000, 4_321, "web"), using(THOUGHTS, 100, None, "batch"))
    assert result.column("id") == ("daily", "team", "thoughts|batch", "thoughts|web")
    assert amounts(result, "thoughts|web") == [12_000, 4_321, 0, 7_679]
    assert row(result, "thoughts|web")["value"] == "web"
    console = Console(width=250)
    with console.capture() as capture:
        console.print(table(result))
    assert {"12 k", "7.68 k", "$0.01", "$2.00"} <= {cell.strip() for cell in capture.get().split("│")}


def test_a_budget_that_was_split_off_is_held_in_its_parent_and_has_a_row(tmp_path: Path) -> None:
    pot, expires_ms = DAILY.account_of("", MONDAY_MS), MONDAY_MS + 60_000
    of_daily = partial(Child, parent="daily", parent_window_ms=pot.window_start_ms, replaces=("daily",), key="")
    child = of_daily(id="child", unit=Unit.USD, limit=3_000_000, created_ms=MONDAY_MS, expires_at_ms=expires_ms)

    async def work(store: SqliteBudgets) -> None:
        assert await store.split(pot, child, MONDAY_MS) == child

    result = left(tmp_path, work)
    assert amounts(result, "daily") == [Decimal("0.01"), 0, Decimal("0.003"), Decimal("0.007")]
    assert amounts(result, "child") == [Decimal("0.003"), 0, 0, Decimal("0.003")]
    assert [row(result, "child")[name] for name in ("parent", "scope", "expires_at")] == ["daily", "split", expires_ms]


NOW_MS = MONDAY_MS + 10 * DAY_MS
MONTHLY = Budget(id="monthly", limit_usd=Decimal(500))
ALL_OF_NOVEMBER = (240 + 19 * 24) * USD
EVERY_HOUR = [
    Happened(
        tried=(Tried("x" if number % 2 else "y", USD),),
        key="web" if number % 3 else "ci",
        tags=("blue",) if number % 4 else ("red", "big"),
        at_ms=MONDAY_MS + number * HOUR_MS,
        thinking=10,
    )
    for number in range(240)
]
"""Ten days of a request of one dollar every hour."""


def standing(budget: Budget, spent: int = 0, value: str = "") -> BudgetStanding:
    pot = budget.account_of(value, NOW_MS) if value else budget.full(NOW_MS)
    return BudgetStanding(BudgetAccount(account=pot, budget=budget), Balance(spent, 0))


def ahead(past: Ledger | Sequence[Happened], *standings: BudgetStanding, **question: Any) -> Report:
    return reported(past, "budgets", standings=standings, now_ms=NOW_MS, **question)


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
        (standing(Budget(id="b", limit_usd=Decimal(10), window=RollingWindow(rolling="24h")), USD), (None,) * 4),
        (standing(Budget(id="b", limit_usd=Decimal(10), scope="session"), USD, "s"), (None,) * 4),
    ],
    ids=lambda pot: pot.pot.account.id,
)
def test_a_budget_is_forecast_from_what_it_was_charged(pot: BudgetStanding, expected: tuple[object, ...]) -> None:
    assert cells(ahead(EVERY_HOUR, pot), *AHEAD) == [expected]


def test_each_pot_has_its_own_forecast_by_its_budget_s_filters() -> None:
    day = partial(Budget, window="day")
    in_usd = partial(day, limit_usd=Decimal(9))
    per_tag = in_usd(id="t", scope="tag", tags=("red", "blue"))
    result = ahead(
        EVERY_HOUR,
        *(standing(in_usd(id="k", scope="key"), value=value) for value in ("web", "ci")),
        *(standing(per_tag, value=value) for value in ("red", "blue")),
        standing(in_usd(id="x", targets=("x",), keys=("web",))),
        standing(day(id="thoughts", limit_thinking_tokens=10_000, routes=("auto",))),
        standing(in_usd(id="other", keys=("other",))),
    )
    assert result.column("forecast") == (16, 8, 6, 18, 8, 240, None)


def test_without_a_past_or_without_a_store_nothing_is_foretold() -> None:
    assert cells(ahead((), standing(MONTHLY)), *AHEAD, "refused_since") == [(None,) * 5]
    silent = reported((), "budgets")
    assert "does not answer" in silent.note
    assert [part.name for part in silent.below] == ["refused", "loops"]


def test_what_was_refused_stopped_or_held_for_nothing() -> None:
    happened = (
        Happened(tried=(Tried("x", 2_000),), held=10_000),
        Happened(tried=(Tried("x", 3_000),), held=2_000, overrun=True, lowered=("output",)),
        Happened(tried=(Tried("x", 5_000),), held=8_000, error="budget_exceeded"),
        *(Happened(status=402, error="budget_exceeded", held=4_000, route=route) for route in ("auto", "bulk")),
    )
    report = below(ahead(happened), "refused")
    counts = ("requests", "refused", "stopped", "lowered", "overruns")
    assert cells(report, "route", *counts, "held_usd", "cost_usd", "over_reservation") == [
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
    assert cells(report, *AHEAD, "refused_since") == [(*[None] * 4, NOW_MS - 5), (None,) * 5]
    assert below(report, "loops").rows == (("repeats", "session", 2, MONDAY_MS, NOW_MS),)
    assert below(ahead(ledger, since="2026-11-12"), "loops").column("trips") == (1,)


# The forecast itself: against numbers by hand, and against simulated weeks.
DAY = 24
AFTER_MS = MONDAY_MS + 28 * DAY * HOUR_MS
AFTER = AFTER_MS // HOUR_MS


def test_with_a_few_hours_every_hour_is_alike() -> None:
    profile = ProfileInterval({AFTER - 4: 30, AFTER - 1: 10}, AFTER_MS + HOUR_MS // 2, UTC)
    result = profile.until(AFTER_MS + 2 * HOUR_MS)
    assert result.value == pytest.approx(15)
    assert result.low is result.high is None
    assert profile.reaches(5, AFTER_MS + 9 * HOUR_MS) == AFTER_MS + HOUR_MS
    assert profile.reaches(15, AFTER_MS + 2 * HOUR_MS) == AFTER_MS + 2 * HOUR_MS
    assert profile.reaches(16, AFTER_MS + 2 * HOUR_MS) is None
    assert profile.reaches(0, AFTER_MS) == AFTER_MS + HOUR_MS // 2


def test_after_two_days_an_hour_is_like_that_of_other_days_and_after_two_weeks_weekends_are_weekends() -> None:
    """Half of each day's 240 comes at noon UTC, which is 13:00 in Berlin."""
    spent = {AFTER - day * DAY + hour: 120 for day in (1, 2, 3) for hour in (0, 12)}
    profile = ProfileInterval(spent, AFTER_MS, ZoneInfo("Europe/Berlin"))
    result = profile.until(AFTER_MS + 13 * HOUR_MS)
    assert (result.value, result.low, result.high) == (240, 240, 240)
    assert profile.until(AFTER_MS + HOUR_MS // 4).value == 30
    assert profile.reaches(180, AFTER_MS + DAY * HOUR_MS) == AFTER_MS + 12 * HOUR_MS + HOUR_MS // 2

    working = {hour: 10 for hour in range(AFTER - 21 * DAY, AFTER) if (hour - AFTER) // DAY % 7 < 5}
    weekly = ProfileInterval(working, AFTER_MS, UTC)
    assert weekly.until(AFTER_MS + 7 * DAY_MS).value == 5 * DAY * 10
    assert weekly.reaches(5 * DAY * 10 + 1, AFTER_MS + 14 * DAY_MS) == AFTER_MS + 7 * DAY_MS + HOUR_MS // 10


def test_four_of_five_weeks_end_within_the_interval() -> None:
    """Days that differ by chance, with a weekly pattern: three weeks are known, one is foretold."""
    inside = 0
    for seed in range(300):
        chance = random.Random(seed)  # noqa: S311 - a sample
        days = [max(0.0, chance.gauss(2_400 if day % 7 < 5 else 600, 300)) for day in range(28)]
        spent = {AFTER - 21 * DAY + hour: round(days[hour // DAY] / DAY) for hour in range(21 * DAY)}
        result = ProfileInterval(spent, AFTER_MS, UTC).until(AFTER_MS + 7 * DAY_MS)
        assert result.low is not None
        assert result.high is not None
        inside += result.low <= sum(days[21:]) <= result.high
    assert 0.74 < inside / 300 < 0.92


@given(st.dictionaries(st.integers(AFTER - 700, AFTER - 1), st.integers(1, 10**12), min_size=1), st.integers(0, 216))
def test_a_forecast_is_never_below_nothing_and_contains_itself(spent: dict[int, int], hours: int) -> None:
    assume(max(spent) >= AFTER - 28 * DAY)
    result = ProfileInterval(spent, AFTER_MS, UTC).until(AFTER_MS + hours * HOUR_MS)
    assert result.value >= 0
    if result.low is not None and result.high is not None:
        assert 0 <= result.low <= result.value <= result.high
