"""What local engines did, by hand: hours, money, energy, and the history of their prices."""

from decimal import Decimal
from typing import Any

import pytest
from msgspec import structs

from router.ledger.engines import GATEWAY, keep
from router.ledger.ledger import Ledger
from router.report.engines import REPORT
from router.report.local_vs_api import REPORT as LOCAL_VS_API
from router.report.report import Report
from router.types.engine import Served
from router.types.metered import EngineHour, EnginePrice
from router.types.price import Cost, CostSource, Price
from router.types.target import Target
from tests.report.asking import below, lines, made
from tests.report.filled import MONDAY_MS
from tests.report.happenings import Asked, Was, write
from tests.report.towns import at

HOUR_MS = 3_600_000
HOUR = MONDAY_MS // HOUR_MS
USD = 1_000_000_000
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
    found = at(target or name, "", "", hourly=hourly)
    served = Served(name=name, urls=("http://127.0.0.1:9/v1",), hourly=hourly or 0)
    return structs.replace(found, engine=served, model=structs.replace(found.model, price=LISTED))


def price(minutes: int, output: int, **changes: Any) -> EnginePrice:
    """In the second of two hours, of which the engine was idle for half."""
    return structs.replace(
        EnginePrice(
            version=f"measured qwen 2026-11-02T01:{minutes:02}:00Z",
            engine="qwen",
            gateway=GATEWAY,
            since_ms=MONDAY_MS + HOUR_MS + minutes * 60_000,
            input=output // 2,
            cached=output // 200,
            output=output,
            counted="marginal",
            hourly=4 * USD,
            wall_ms=20_000,
            busy_ms=10_000,
            uncached_tokens=1,
            cached_tokens=1,
            output_tokens=1,
        ),
        **changes,
    )


PRICES = (price(0, 8 * USD), price(20, 6 * USD))


def paid(identifier: str, target: str, version: str, cost: int, hour: int = 0) -> Was:
    more = {"cost": Cost(cost, CostSource.PRICED, version, cost)}
    asked = Asked(target=target, cost=cost, more=more)
    return Was(id=identifier, asked=(asked,), at_ms=MONDAY_MS + hour * HOUR_MS)


@pytest.fixture
def filled(ledger: Ledger) -> Ledger:
    """At list price at first, then at a measured one; by two targets, of which one is in no policy any more."""
    write(
        ledger,
        [
            paid("a", "qwen", "assumed", USD // 4),
            paid("b", "lora", PRICES[0].version, USD // 4, 1),
            paid("c", "qwen", PRICES[1].version, USD // 2, 1),
            paid("d", "far", "2026", 7 * USD),
        ],
        qwen=engine("qwen"),
        lora=engine("qwen", "lora"),
        far=at("far", "Big Inc", "US"),
    )
    keep(ledger, [WORKED, structs.replace(WORKED, hour=HOUR + 1)], PRICES)
    return ledger


def report(ledger: Ledger, *targets: Target, **asked: Any) -> Report:
    return made(ledger, REPORT, targets or (engine("qwen"), at("far", "Big Inc", "US")), **asked)


def test_two_hours_by_hand(filled: Ledger) -> None:
    found = report(filled)
    (qwen,) = lines(found)
    assert qwen == {
        "engine": "qwen",
        "up_s": 7_200,
        "busy_s": 1_800,
        "idle_share": 0.75,
        "busy_usd": Decimal(2),
        "idle_usd": Decimal(6),
        "charged_usd": Decimal(1),
        "charged_share": 0.5,
        "input_uncached": 1_800_000,
        "cache_read": 100_000,
        "output": 100_000,
        "concurrency": 4.0,
        "read_per_s": 10_000,
        "written_per_s": 100,
        "input_per_m_usd": Decimal(3),
        "cache_read_per_m_usd": Decimal("0.03"),
        "output_per_m_usd": Decimal(6),
        "full_input_per_m_usd": Decimal(6),
        "full_output_per_m_usd": Decimal(12),
        "list_input_per_m_usd": Decimal("0.1"),
        "list_output_per_m_usd": Decimal("0.2"),
        "energy_j": 3_600_000,
        "energy_wh_per_m": 500,
        "energy": "declared",
    }
    assert below(found, "prices").column("output_per_m_usd") == (Decimal(6), Decimal(8))
    (plot,) = found.plots
    assert [(mark.series, mark.value, mark.x) for mark in plot.marks] == [
        ("qwen", 8 * USD, 0.0),
        ("qwen", 6 * USD, pytest.approx(1 / 3)),
    ]


def test_where_idle_hours_are_counted_charges_are_to_pay_for_them(filled: Ledger) -> None:
    keep(filled, [], [price(40, 16 * USD, counted="full")])
    (qwen,) = lines(report(filled))
    assert qwen["charged_share"] == 0.125
    assert (qwen["output_per_m_usd"], qwen["full_output_per_m_usd"]) == (Decimal(8), Decimal(16))


def test_by_day_and_of_a_window_that_takes_whole_hours(filled: Ledger) -> None:
    (qwen,) = lines(report(filled, by=("day", "engine"), since_ms=MONDAY_MS + HOUR_MS + 60_000))
    assert (qwen["day"], qwen["engine"], qwen["up_s"]) == ("2026-11-02", "qwen", 3_600)
    assert qwen["charged_usd"] == Decimal("0.75")
    before = report(filled, until_ms=MONDAY_MS + HOUR_MS)
    assert "output_per_m_usd" not in lines(before)[0]
    assert before.below == ()


def test_two_gateways_see_two_engines_of_their_own_and_one_that_somebody_else_runs(ledger: Ledger) -> None:
    there = structs.replace(WORKED, gateway="there", wall_ms=HOUR_MS // 2, declared_mj=None, energy_mj=7_000)
    shared = [structs.replace(one, engine="shared", external=1) for one in (WORKED, there)]
    keep(ledger, [WORKED, there, *shared], [])
    own, other = lines(report(ledger))
    assert (own["engine"], own["up_s"], own["energy"], own["energy_j"]) == ("qwen", 5_400, "measured", 7)
    assert (other["engine"], other["up_s"], other["energy"]) == ("shared", 3_600, "declared")


def test_what_nobody_knows_is_not_zero(ledger: Ledger) -> None:
    keep(ledger, [structs.replace(WORKED, cost=0, declared_mj=None, busy_ms=0, prefill_ms=0, decode_ms=0)], [])
    found = report(ledger, engine("qwen", hourly=None))
    names = [column.name for column in found.columns]
    row = dict(zip(names, found.rows[0], strict=True))
    unknown = ("busy_usd", "idle_usd", "charged_share", "concurrency", "read_per_s", "output_per_m_usd", "energy_j")
    assert {name: row[name] for name in unknown} == dict.fromkeys(unknown)
    assert row["energy"] == "absent"


def test_a_ledger_without_engines_has_nothing_to_tell(ledger: Ledger) -> None:
    assert report(ledger).rows == ()


def test_machine_and_api_go_by_the_hours_in_which_the_engine_was_up(filled: Ledger) -> None:
    """Two of ten; its two targets share them, as their tokens are: two requests to one."""
    targets = (engine("qwen"), engine("qwen", "lora"), at("far", "Big Inc", "US"))
    window: dict[str, Any] = {"since_ms": MONDAY_MS, "until_ms": MONDAY_MS + 10 * HOUR_MS}
    qwen, lora = lines(made(filled, LOCAL_VS_API, targets, **window))
    assert (qwen["target"], qwen["machine_usd"], qwen["idle_usd"]) == ("qwen", Decimal("5.333333333"), Decimal(4))
    assert (lora["target"], lora["machine_usd"], lora["idle_usd"]) == ("lora", Decimal("2.666666667"), Decimal(2))
