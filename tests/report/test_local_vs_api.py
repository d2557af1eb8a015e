"""A machine of one's own against the cheapest API, by hand."""

from decimal import Decimal
from typing import Any

import pytest

from router.ledger.ledger import Ledger
from router.report.local_vs_api import REPORT
from tests.report.asking import lines, made
from tests.report.filled import MONDAY_MS
from tests.report.happenings import Asked, Was, write
from tests.report.towns import at

HOUR_MS = 3_600_000
GPU = at("gpu", "", "", hourly=2_000_000_000)
IDLE = at("idle", "", "")
TARGETS = (GPU, IDLE, at("us", "Big Inc", "US"), at("cn", "Da Ltd", "CN"))
CHOICE = {"gpu": (0.8, 10), "us": (0.9, 3_000_000), "cn": (0.8, 1_000_000), "idle": (0.8, 5)}
SERVED = Asked(target="gpu")
HAPPENED = (
    *(Was(id=f"a{number}", asked=(SERVED,), weighed=CHOICE) for number in range(3)),
    Was(id="b", asked=(SERVED,), weighed={"gpu": (0.8, 10)}, at_ms=MONDAY_MS + 5 * HOUR_MS),
    Was(id="c", asked=(Asked(target="gpu", outcome="circuit_open"), Asked(target="us")), at_ms=MONDAY_MS + 9 * HOUR_MS),
)
WINDOW: dict[str, Any] = {"since_ms": MONDAY_MS, "until_ms": MONDAY_MS + 10 * HOUR_MS}


@pytest.fixture
def filled(ledger: Ledger) -> Ledger:
    return write(ledger, HAPPENED)


def test_ten_hours_of_a_machine_against_the_cheapest_of_two_vendors(filled: Ledger) -> None:
    report = made(filled, REPORT, TARGETS, **WINDOW)
    gpu, idle = lines(report)
    assert gpu == {
        "target": "gpu",
        "requests": 4,
        "tokens": 480,
        "hours": 10,
        "busy_hours": 2,
        "tokens_per_busy_hour": 240,
        "tokens_in_best_hour": 360,
        "hourly_usd": Decimal(2),
        "machine_usd": Decimal(20),
        "comparable": 3,
        "api_usd": Decimal("0.003"),
        "break_even_requests_per_hour": 2_000,
        "break_even_tokens_per_hour": 240_000,
        "load": 0.00015,
        "cheaper": "api, for what it could serve",
    }
    assert idle == {"target": "idle", "hours": 10}
    assert "1 of 4 requests of gpu had no remote candidate" in report.note
    assert "No hourly price is declared for idle: write hourly_usd" in report.note
    assert [(mark.label, mark.value) for mark in report.plots[0].marks] == [
        ("gpu: machine", 20_000_000_000),
        ("gpu: API", 3_000_000),
    ]


def test_a_busy_machine_is_worth_its_hour(filled: Ledger) -> None:
    cheap = at("gpu", "", "", hourly=1_000_000)
    (gpu, *_) = lines(made(filled, REPORT, (cheap, *TARGETS[1:]), since_ms=MONDAY_MS, until_ms=MONDAY_MS + HOUR_MS))
    assert (gpu["load"], gpu["cheaper"], gpu["break_even_requests_per_hour"]) == (3.0, "local", 1)


def test_the_window_ends_now_and_begins_with_the_ledger(filled: Ledger) -> None:
    (gpu, *_) = lines(made(filled, REPORT, TARGETS, now_ms=MONDAY_MS + 12 * HOUR_MS))
    assert gpu["hours"] == 12


def test_what_is_not_known_is_said(ledger: Ledger) -> None:
    nothing = made(ledger, REPORT)
    assert nothing.rows == ()
    assert "There is no local target." in nothing.note
    write(ledger, [Was(id="a", asked=(SERVED,))])
    report = made(ledger, REPORT, (GPU,))
    assert "No decision of the window chose gpu first" in report.note
    assert (lines(report)[0]["requests"], "api_usd" in lines(report)[0]) == (1, False)
