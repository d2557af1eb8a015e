"""What local engines did, by hand: hours, money, energy, their prices, and what an API would have cost instead."""

from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from msgspec import structs

from router.ledger.engines import GATEWAY, keep
from router.ledger.ledger import Ledger
from router.report.report import Report
from router.types.engine import Served
from router.types.metered import EngineHour, EnginePrice
from router.types.price import Cost, CostSource, Price
from router.types.target import Target
from tests.report.asking import below, cells, lines, reported
from tests.report.filled import HOUR_MS, MONDAY_MS, USD, Happened, Tried, at, fill
from tests.stores import Make

HOUR = MONDAY_MS // HOUR_MS
LISTED = Price(input=100_000_000, output=200_000_000, version="assumed")
WORKED = EngineHour(
    engine="qwen",
    hour=HOUR,
    gateway=GATEWAY,
    wall_ms=HOUR_MS,
    busy_ms=HOUR_MS // 4,
    request_ms=HOUR_MS,
    uncached_tokens=900_000,
    cached_tokens=50_000,
    output_tokens=50_000,
    prefill_ms=90_000,
    decode_ms=500_000,
    cost=4 * USD,
    declared_mj=1_800_000_000,
)


def engine(name: str, target: str = "", hourly: int | None = 4 * USD) -> Target:
    made = at(target or name, "", "", hourly=hourly)
    served = Served(name=name, urls=("http://127.0.0.1:9/v1",), hourly=hourly or 0)
    return structs.replace(made, engine=served, model=structs.replace(made.model, price=LISTED))


def price(minutes: int, output: int, counted: str = "marginal") -> EnginePrice:
    """In the second of two hours, of which the engine was idle for half."""
    return EnginePrice(
        version=f"measured qwen 2026-11-02T01:{minutes:02}:00Z",
        engine="qwen",
        gateway=GATEWAY,
        since_ms=MONDAY_MS + HOUR_MS + minutes * 60_000,
        input=output // 2,
        cached=output // 200,
        output=output,
        counted=counted,
        hourly=4 * USD,
        wall_ms=20_000,
        busy_ms=10_000,
        uncached_tokens=1,
        cached_tokens=1,
        output_tokens=1,
    )


QWEN, LORA, FAR = engine("qwen"), engine("qwen", "lora"), at("far", "Big Inc", "US")
PRICES = (price(0, 8 * USD), price(20, 6 * USD))


def paid(target: str, version: str, cost: int, hour: int = 0) -> Happened:
    tried = Tried(target, cost, more={"cost": Cost(cost, CostSource.PRICED, version, cost)})
    return Happened(tried=(tried,), considered=False, at_ms=MONDAY_MS + hour * HOUR_MS)


@pytest.fixture
def filled(ledger: Ledger) -> Ledger:
    """At list price at first, then at a measured one; by two targets, of which one is in no policy any more."""
    happened = [
        paid("qwen", "assumed", USD // 4),
        paid("lora", PRICES[0].version, USD // 4, 1),
        paid("qwen", PRICES[1].version, USD // 2, 1),
        paid("far", "2026", 7 * USD),
    ]
    fill(ledger, happened, targets=(QWEN, LORA, FAR))
    keep(ledger, [WORKED, structs.replace(WORKED, hour=HOUR + 1)], PRICES)
    return ledger


def report(ledger: Ledger, *targets: Target, **question: Any) -> Report:
    return reported(ledger, "engines", targets or (QWEN, FAR), **question)


def test_two_hours_by_hand(filled: Ledger) -> None:
    found = report(filled)
    (qwen,) = lines(found)
    assert qwen == {
        **{"engine": "qwen", "up_s": 7_200, "busy_s": 1_800, "idle_share": 0.75, "concurrency": 4.0},
        **{"busy_usd": Decimal(2), "idle_usd": Decimal(6), "charged_usd": Decimal(1), "charged_share": 0.5},
        **{"input_uncached": 1_800_000, "cache_read": 100_000, "output": 100_000},
        **{"read_per_s": 10_000, "written_per_s": 100, "cache_read_per_m_usd": Decimal("0.03")},
        **{"input_per_m_usd": Decimal(3), "output_per_m_usd": Decimal(6)},
        **{"full_input_per_m_usd": Decimal(6), "full_output_per_m_usd": Decimal(12)},
        **{"list_input_per_m_usd": Decimal("0.1"), "list_output_per_m_usd": Decimal("0.2")},
        **{"energy_j": 3_600_000, "energy_wh_per_m": 500, "energy": "declared"},
    }
    assert below(found, "prices").column("output_per_m_usd") == (Decimal(6), Decimal(8))
    (plot,) = found.plots
    marks = [(mark.series, mark.value, mark.x) for mark in plot.marks]
    assert marks == [("qwen", 8 * USD, 0.0), ("qwen", 6 * USD, pytest.approx(1 / 3))]


def test_where_idle_hours_are_counted_charges_are_to_pay_for_them(filled: Ledger) -> None:
    keep(filled, [], [price(40, 16 * USD, "full")])
    names = ("charged_share", "output_per_m_usd", "full_output_per_m_usd")
    assert cells(report(filled), *names) == [(0.125, 8 * USD, 16 * USD)]


def test_by_day_and_of_a_window_that_takes_whole_hours(filled: Ledger) -> None:
    found = report(filled, by="day,engine", since="2026-11-02T01:01")
    assert cells(found, "day", "engine", "up_s", "charged_usd") == [("2026-11-02", "qwen", 3_600, 750_000_000)]
    before = report(filled, until="2026-11-02T01:00")
    assert "output_per_m_usd" not in lines(before)[0]
    assert before.below == ()


def test_two_gateways_see_two_engines_of_their_own_and_one_that_somebody_else_runs(ledger: Ledger) -> None:
    there = structs.replace(WORKED, gateway="there", wall_ms=HOUR_MS // 2, declared_mj=None, energy_mj=7_000)
    shared = [structs.replace(one, engine="shared", external=1) for one in (WORKED, there)]
    keep(ledger, [WORKED, there, *shared], [])
    own, other = cells(report(ledger), "engine", "up_s", "energy", "energy_j")
    assert own == ("qwen", 5_400, "measured", 7)
    assert other[:3] == ("shared", 3_600, "declared")


def test_what_is_not_known_is_not_zero(ledger: Ledger) -> None:
    assert report(ledger).rows == ()
    keep(ledger, [structs.replace(WORKED, cost=0, declared_mj=None, busy_ms=0, prefill_ms=0, decode_ms=0)], [])
    unknown = ("busy_usd", "idle_usd", "charged_share", "concurrency", "read_per_s", "output_per_m_usd", "energy_j")
    assert cells(report(ledger, engine("qwen", hourly=None)), *unknown, "energy") == [(*[None] * 7, "absent")]


GPU, IDLE, CN = at("gpu", "", "", hourly=2 * USD), at("idle", "", ""), at("cn", "Da Ltd", "CN")
TARGETS = (GPU, IDLE, at("us", "Big Inc", "US"), CN)
CHOICE = {"gpu": (0.8, 10), "us": (0.9, 3_000_000), "cn": (0.8, 1_000_000), "idle": (0.8, 5)}
SERVED = partial(Happened, tried=(Tried("gpu"),), considered=False)
RESTED = Tried("gpu", usage=None, outcome="circuit_open")
WINDOW: dict[str, Any] = {"since": "2026-11-02", "until": "2026-11-02T10:00"}


@pytest.fixture(scope="module")
def versus(new_ledger: Make) -> Ledger:
    happened = (
        *[SERVED(weighed=CHOICE)] * 3,
        SERVED(weighed={"gpu": (0.8, 10)}, at_ms=MONDAY_MS + 5 * HOUR_MS),
        SERVED(tried=(RESTED, Tried("us")), at_ms=MONDAY_MS + 9 * HOUR_MS),
    )
    return fill(new_ledger(), happened)


def test_ten_hours_of_a_machine_against_the_cheapest_of_two_vendors(versus: Ledger) -> None:
    found = reported(versus, "local-vs-api", TARGETS, **WINDOW)
    gpu, idle = lines(found)
    assert gpu == {
        **{"target": "gpu", "requests": 4, "tokens": 480, "hours": 10, "busy_hours": 2},
        **{"tokens_per_busy_hour": 240, "tokens_in_best_hour": 360},
        **{"hourly_usd": Decimal(2), "machine_usd": Decimal(20), "comparable": 3, "api_usd": Decimal("0.003")},
        **{"break_even_requests_per_hour": 2_000, "break_even_tokens_per_hour": 240_000},
        **{"load": 0.00015, "cheaper": "api, for what it could serve"},
    }
    assert idle == {"target": "idle", "hours": 10}
    assert "1 of 4 requests of gpu had no remote candidate" in found.note
    assert "No hourly price is declared for idle: write hourly_usd" in found.note
    marks = [(mark.label, mark.value) for mark in found.plots[0].marks]
    assert marks == [("gpu: machine", 20 * USD), ("gpu: API", 3_000_000)]


def test_a_busy_machine_is_worth_its_hour(versus: Ledger) -> None:
    cheap = (at("gpu", "", "", hourly=1_000_000), *TARGETS[1:])
    found = reported(versus, "local-vs-api", cheap, since="2026-11-02", until="2026-11-02T01:00")
    assert cells(found, "load", "cheaper", "break_even_requests_per_hour")[0] == (3.0, "local", 1)


def test_the_window_ends_now_and_begins_with_the_ledger(versus: Ledger) -> None:
    found = reported(versus, "local-vs-api", TARGETS, now_ms=MONDAY_MS + 12 * HOUR_MS)
    assert found.column("hours")[0] == 12


def test_without_a_local_target_or_a_choice_the_note_says_so(ledger: Ledger) -> None:
    nothing = reported(ledger, "local-vs-api")
    assert nothing.rows == ()
    assert "There is no local target." in nothing.note
    found = reported(fill(ledger, [SERVED()]), "local-vs-api", (GPU,))
    assert "No decision of the window chose gpu first" in found.note
    assert (lines(found)[0]["requests"], "api_usd" in lines(found)[0]) == (1, False)


def test_machine_and_api_go_by_the_hours_in_which_the_engine_was_up(filled: Ledger) -> None:
    """Two of ten; its two targets share them, as their tokens are: two requests to one."""
    found = reported(filled, "local-vs-api", (QWEN, LORA, FAR), **WINDOW)
    assert cells(found, "target", "machine_usd", "idle_usd") == [
        ("qwen", 5_333_333_333, 4 * USD),
        ("lora", 2_666_666_667, 2 * USD),
    ]
