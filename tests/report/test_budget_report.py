"""What is left of budgets and how long it lasts, what was refused for the lack of it, and what held too much."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from router.budget.budget import Budget, Rolling
from router.ledger.incident import EXHAUSTED
from router.ledger.ledger import Ledger
from router.report.budgets import REPORT, Pots
from router.report.report import Report
from router.report.standing import Pot, Standing
from router.types.account import Balance
from tests.report.asking import below, lines, made
from tests.report.filled import DAY_MS, MONDAY_MS
from tests.report.happenings import Asked, Was, write

HOUR_MS = 3_600_000
NOW_MS = MONDAY_MS + 10 * DAY_MS
"""The twelfth of a November."""
EVERY_HOUR = [
    Was(
        id=f"h{number:03}",
        asked=(Asked(target="x" if number % 2 else "y", cost=1_000_000_000),),
        key="web" if number % 3 else "ci",
        tags=("red", "big") if number % 4 == 0 else ("blue",),
        at_ms=MONDAY_MS + number * HOUR_MS,
        thinking=10,
    )
    for number in range(240)
]


def standing(budget: Budget, spent: int = 0, value: str = "") -> Standing:
    pot = budget.pot(value, NOW_MS) if value else budget.full(NOW_MS)
    return Standing(Pot(account=pot, budget=budget), Balance(spent, 0))


def budgets(ledger: Ledger, *standings: Standing, **asked: Any) -> Report:
    pots = Pots(name="budgets", title="", columns=(), rows=_rows(standings), standings=standings)
    return made(ledger, REPORT, pots=pots, now_ms=NOW_MS, **asked)


def _rows(standings: Sequence[Standing]) -> tuple[tuple[Any, ...], ...]:
    """Only what the tests look at."""
    return tuple((one.pot.account.id, *(None for _ in range(13))) for one in standings)


def ahead(report: Report) -> list[dict[str, Any]]:
    names = ("id", "forecast", "forecast_low", "forecast_high", "lasts_until", "refused_since")
    return [{name: line[name] for name in names if name in line} for line in lines(report)]


USD = 1_000_000_000
MONTHLY = Budget(id="monthly", limit_usd=Decimal(500))
LEFT_OF_NOVEMBER = 19 * 24


def test_a_month_is_forecast_from_what_its_budget_was_charged(ledger: Ledger) -> None:
    write(ledger, EVERY_HOUR)
    (line,) = ahead(budgets(ledger, standing(MONTHLY, 240 * USD)))
    assert line == {
        "id": "monthly",
        "forecast": Decimal(240 + LEFT_OF_NOVEMBER),
        "forecast_low": Decimal(240 + LEFT_OF_NOVEMBER),
        "forecast_high": Decimal(240 + LEFT_OF_NOVEMBER),
        "lasts_until": NOW_MS + 260 * HOUR_MS,
    }
    (plenty,) = ahead(budgets(ledger, standing(Budget(id="b", limit_usd=Decimal(5_000)), 240 * USD)))
    assert "lasts_until" not in plenty


def test_each_pot_has_its_own_forecast_by_its_budget_s_filters(ledger: Ledger) -> None:
    write(ledger, EVERY_HOUR)
    per_key = Budget(id="k", limit_usd=Decimal(9), scope="key", window="day")
    per_tag = Budget(id="t", limit_usd=Decimal(9), scope="tag", tags=("red", "blue"), window="day")
    per_target = Budget(id="x", limit_usd=Decimal(9), targets=("x",), keys=("web",), window="day")
    thoughts = Budget(id="thoughts", limit_thinking_tokens=10_000, routes=("auto",), window="day")
    nobody = Budget(id="nobody", limit_usd=Decimal(9), keys=("other",), window="day")
    found = ahead(
        budgets(
            ledger,
            *(standing(per_key, value=value) for value in ("web", "ci")),
            *(standing(per_tag, value=value) for value in ("red", "blue")),
            *(standing(one) for one in (per_target, thoughts, nobody)),
        )
    )
    assert [line.get("forecast") for line in found] == [16, 8, 6, 18, 8, 240, None]


def test_what_has_no_end_lasts_until_it_is_spent_and_what_rolls_has_no_forecast(ledger: Ledger) -> None:
    write(ledger, EVERY_HOUR)
    life = Budget(id="life", limit_usd=Decimal(1_000), window="lifetime")
    rolling = Budget(id="rolling", limit_usd=Decimal(10), window=Rolling(rolling="24h"))
    session = Budget(id="session", limit_usd=Decimal(10), scope="session")
    found = ahead(budgets(ledger, standing(life, 240 * USD), standing(rolling, USD), standing(session, USD, "s")))
    assert found == [
        {"id": "life", "lasts_until": NOW_MS + 760 * HOUR_MS},
        {"id": "rolling"},
        {"id": "session|s"},
    ]


def test_without_a_past_or_without_a_store_nothing_is_foretold(ledger: Ledger) -> None:
    (line,) = ahead(budgets(ledger, standing(MONTHLY)))
    assert line == {"id": "monthly"}
    silent = made(ledger, REPORT)
    assert silent.rows == ()
    assert "does not answer" in silent.note
    assert [one.name for one in silent.below] == ["refused", "loops"]


REFUSED = (
    Was(id="a", asked=(Asked(target="x", cost=2_000),), held=10_000),
    Was(id="b", asked=(Asked(target="x", cost=3_000),), held=2_000, overrun=True, lowered=("output",)),
    Was(id="c", asked=(Asked(target="x", cost=5_000),), held=8_000, error="budget_exceeded"),
    Was(id="d", status=402, error="budget_exceeded", held=4_000),
    Was(id="e", status=402, error="budget_exceeded", held=4_000, route="bulk"),
)


def test_what_was_refused_stopped_or_held_for_nothing(ledger: Ledger) -> None:
    write(ledger, REFUSED)
    report = below(budgets(ledger), "refused")
    auto, bulk = lines(report)
    assert auto == {
        "route": "auto",
        "requests": 4,
        "refused": 1,
        "stopped": 1,
        "lowered": 1,
        "overruns": 1,
        "held_usd": Decimal("0.00002"),
        "cost_usd": Decimal("0.00001"),
        "over_reservation": 2.0,
    }
    assert bulk == {"route": "bulk", "requests": 1, "refused": 1}
    assert [report.total(name) for name in ("requests", "refused", "over_reservation")] == [5, 2, 2.0]


_INCIDENT = "INSERT INTO incidents VALUES (?, ?, ?, ?, ?, ?, ?)"


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
            connection.execute(_INCIDENT, row)
    monthly = Budget(id="yearly", limit_usd=Decimal(500), scope="key")
    report = budgets(ledger, standing(MONTHLY), standing(monthly, value="a"))
    assert ahead(report) == [{"id": "monthly", "refused_since": NOW_MS - 5}, {"id": "yearly|a"}]
    assert below(report, "loops").rows == (("repeats", "session", 2, MONDAY_MS, NOW_MS),)
    later = budgets(ledger, since_ms=NOW_MS)
    assert below(later, "loops").column("trips") == (1,)
