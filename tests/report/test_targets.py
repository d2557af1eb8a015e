"""What targets did, by hand: failures and times, whose they are, and what machines of one's own cost beside an API."""

from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from msgspec import convert, structs

from router.ledger.engines import GATEWAY, keep
from router.ledger.ledger import Ledger
from router.report.report import Report
from router.report.statistics import wilson
from router.types.decision import Dropped
from router.types.price import Cost, CostSource, EngineHour, EnginePrice, Price
from router.types.target import Queue, ServedEngine, Target
from tests.report.asking import below, cells, lines, reported, totals
from tests.report.filled import HOUR_MS, MONDAY_MS, USD, Happened, Tried, at, fill, policy, target
from tests.stores import Make

# reliability

Was = partial(Happened, overhead_us=200)
X, Y = (partial(Tried, name, total_ms=100, first_ms=None) for name in "xy")
FAILED = (
    Was(tried=(X(outcome="timeout"), X(outcome="timeout"), Y())),
    Was(tried=(X(),), stream=True, overhead_us=300),
    Was(tried=(X(outcome="circuit_open"), Y(total_ms=200)), overhead_us=None),
    Was(tried=(X(outcome="client_gone"),), status=499, error="client_gone"),
    Was(tried=(X(outcome="bad_request"),), status=400, error="bad_request"),
    Was(tried=(X(outcome="outrun"), Y(first_ms=10, more={"role": "hedge"})), stream=True),
    Was(tried=(Y(outcome="server_error"),), status=502, error="server_error"),
    Was(status=402, error="budget_exceeded"),
)
SKIPPED = (
    Was(tried=(Y(),), dropped=(Dropped("x", "circuit_open", "rests"), Dropped("far", "data_class", "no"))),
    Was(tried=(Y(),), dropped=(Dropped("x", "saturated", "full"),), queued=(Queue(target="gpu", spilled=True),)),
    Was(tried=(X(outcome="timeout"), Y()), planned=("x", "dear")),
    Was(planned=("x",), status=402, error="budget_exceeded"),
)


def test_each_target_has_its_failures_its_times_and_those_that_stood_in_for_it() -> None:
    report = reported(FAILED, "reliability")
    x, y = lines(report)
    _, low, high = wilson(2 / 3, 3)
    assert {name: cell for name, cell in x.items() if "ms" not in name and "_us" not in name} == {
        **{"target": "x", "attempts": 6, "answered": 1, "failed": 2},
        **{"error_rate": 2 / 3, "error_low": low, "error_high": high},
        **{"refused": 1, "given_up": 2, "skipped": 1, "retries": 1},
    }
    assert (y["attempts"], y["answered"], y["failed"], y["error_rate"]) == (4, 3, 1, 0.25)
    assert (y["fallbacks"], y["hedge"]) == (3, 1)
    assert totals(report, "attempts", "answered", "failed", "fallbacks") == (10, 4, 3, 3)
    assert below(report, "outcomes").rows[:2] == (("x", "timeout", 2, 2 / 6), ("x", "bad_request", 1, 1 / 6))
    assert ("x", "circuit_open", 1, None) in below(report, "outcomes").rows
    assert [mark.label for mark in report.plots[0].marks] == ["x", "y"]
    # Times are of what was answered; first bytes only of streams.
    assert [x["p50_ms"], x["overhead_p99_us"]] == pytest.approx([100, 300], rel=0.12)
    assert [y["p99_ms"], y["first_p50_ms"], y["overhead_p50_us"]] == pytest.approx([200, 10, 200], rel=0.12)
    assert "first_p50_ms" not in x
    assert reported(FAILED, "reliability", where=("target=y",)).column("target") == ("y",)
    later = reported(FAILED, "reliability", since="2026-11-02T00:00:01")
    assert (later.rows, later.totals, later.below, later.plots) == ((), None, (), ())


def test_what_a_budget_a_circuit_or_a_queue_passed_by_is_counted() -> None:
    names = ("target", "because", "requests")
    assert cells(below(reported(SKIPPED, "reliability"), "skipped"), *names) == [
        *(("dear", "budget", 1), ("gpu", "queue", 1), ("x", "budget", 1), ("x", "circuit", 1), ("x", "queue", 1))
    ]
    answer = reported(SKIPPED, "reliability", where=("target=dear",), targets=[target("dear")])
    assert cells(below(answer, "skipped"), *names) == [("dear", "budget", 1)]


# vendors

HOME, US, ALSO_US = at("home", "", ""), at("us", "Big Inc", "US"), at("us-2", "Big Inc", "US")
CN = at("cn", "Da Ltd", "CN")
POLICY = policy(HOME, US, ALSO_US, CN)
OFFERS = {"us": (0.9, 300), "cn": (0.6, 100)}
Sold = partial(Happened, considered=False, policy=POLICY.hash)
SOLD = (
    Sold(tried=(Tried("us", 300),), weighed=OFFERS),
    Sold(tried=(Tried("us", 100, None, outcome="timeout"), Tried("cn", 100))),
    Sold(tried=(Tried("us-2", 400),)),
    Sold(tried=(Tried("home"),), weighed={"home": (0.5, 0), **OFFERS}),
    Sold(tried=(Tried("us", 100),), weighed={"us": (0.9, 100)}),
    Sold(status=403, error="no_eligible_target"),
)


@pytest.fixture(scope="module")
def sold(new_ledger: Make) -> Ledger:
    return fill(new_ledger(), SOLD, [POLICY], (HOME, US, CN))


def test_shares_are_by_legal_entity_and_add_up_with_what_was_spent(sold: Ledger) -> None:
    report = reported(sold, "vendors")
    shares = ("share_of_spend", "share_of_requests", "share_of_tokens")
    names = ("entity", "jurisdiction", "requests", "attempts", "tokens", "cost_usd", *shares)
    rows = {row[0]: row[1:] for row in cells(report, *names)}
    assert rows["Big Inc"] == ("US", 3, 4, 360, 900, 0.9, 0.5, 0.6)
    assert (rows["Da Ltd"][1], rows["Da Ltd"][4]) == (1, 100)
    assert rows["by-home"][:2] == ("local", 1)
    assert next(line for line in lines(report) if "entity" not in line) == {"requests": 1, "share_of_requests": 1 / 6}
    assert totals(report, "requests", "cost_usd") == totals(reported(sold, "spend"), "requests", "cost_usd")
    assert [mark.label for mark in report.plots[0].marks] == ["Big Inc", "Da Ltd", "by-home"]
    # Concentration is told by entity and by law.
    laws = cells(below(report, "jurisdictions"), "jurisdiction", "entities", "requests", "share_of_spend")
    assert ("US", 1, 3, 0.9) in laws
    assert [requests for law, _, requests, _ in laws if law is None] == [1]
    concentration = cells(below(report, "concentration"), "by", "of", "largest", "its_share", "hhi")
    assert ("entity", "spend", "Big Inc", 0.9, 8_200) in concentration
    assert next(row[4] for row in concentration if row[:2] == ("jurisdiction", "requests")) == 60**2 + 20**2 + 20**2


WITHOUT = (
    *("entity", "requests", "nobody_else_at_least", "nobody_else_at_most"),
    *("expected_usd", "instead_usd", "change_usd", "pass_rate", "pass_rate_instead"),
)


def without(ledger: Ledger, *targets: Target) -> dict[str, tuple[Any, ...]]:
    return {row[0]: row for row in cells(below(reported(ledger, "vendors", targets), "without"), *WITHOUT)}


def test_without_one_the_others_serve_what_they_could(sold: Ledger) -> None:
    """Of two requests that chose us, cn could have served one; today's policy has no home."""
    rows = without(sold, HOME, US, ALSO_US, CN)
    assert rows["Big Inc"] == ("Big Inc", 2, 1, 1, 200, 100, -100, 0.9, 0.6)
    home = rows["by-home"]
    assert (home[1], home[3], home[5], home[8]) == (1, 0, 100, 0.6)
    # A target that is not in today's policy stands in for none.
    assert {name: (row[2], row[5]) for name, row in without(sold, US, HOME).items()} == {
        "Big Inc": (2, None),
        "by-home": (0, 300),
    }


def test_where_others_differ_in_what_they_could_serve_it_is_bounds(ledger: Ledger) -> None:
    """Of three, one other could serve two, another one: whether the same one is not known."""
    by_home = Sold(tried=(Tried("us"),), weighed={"us": (0.9, 300), "home": (0.5, 50)})
    fill(ledger, [*[Sold(tried=(Tried("us"),), weighed=OFFERS)] * 2, by_home])
    (row,) = without(ledger, HOME, US, ALSO_US, CN).values()
    assert row[2:6] == (0, 1, 600, 150)


def test_without_policies_a_vendor_is_who_the_target_says_today() -> None:
    happened = [Sold(tried=(Tried("us", 3),))]
    assert reported(happened, "vendors").column("entity") == ("us",)
    assert reported(happened, "vendors", [US]).column("entity") == ("Big Inc",)


# engines

HOUR = MONDAY_MS // HOUR_MS
LISTED = Price(input=100_000_000, output=200_000_000, version="assumed")
WORKED = convert(
    {
        **{"engine": "qwen", "hour": HOUR, "gateway": GATEWAY, "wall_ms": HOUR_MS, "busy_ms": HOUR_MS // 4},
        **{"request_ms": HOUR_MS, "uncached_tokens": 900_000, "cached_tokens": 50_000, "output_tokens": 50_000},
        **{"prefill_ms": 90_000, "decode_ms": 500_000, "cost": 4 * USD, "declared_mj": 1_800_000_000},
    },
    EngineHour,
)


def engine(name: str, target: str = "", hourly: int | None = 4 * USD) -> Target:
    made = at(target or name, "", "", hourly=hourly)
    served = ServedEngine(name=name, urls=("http://127.0.0.1:9/v1",), hourly=hourly or 0)
    return structs.replace(made, engine=served, model=structs.replace(made.model, price=LISTED))


def price(minutes: int, output: int, counted: str = "marginal") -> EnginePrice:
    """In the second of two hours, of which the engine was idle for half."""
    fields = {
        **{"version": f"measured qwen 2026-11-02T01:{minutes:02}:00Z", "engine": "qwen", "gateway": GATEWAY},
        **{"since_ms": MONDAY_MS + HOUR_MS + minutes * 60_000, "counted": counted, "hourly": 4 * USD},
        **{"input": output // 2, "cached": output // 200, "output": output, "wall_ms": 20_000, "busy_ms": 10_000},
        **{"uncached_tokens": 1, "cached_tokens": 1, "output_tokens": 1},
    }
    return convert(fields, EnginePrice)


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


def engines(ledger: Ledger, *targets: Target, **question: Any) -> Report:
    return reported(ledger, "engines", targets or (QWEN, FAR), **question)


def test_two_hours_of_an_engine_by_hand(filled: Ledger) -> None:
    answer = engines(filled)
    assert lines(answer) == [
        {
            **{"engine": "qwen", "up_s": 7_200, "busy_s": 1_800, "idle_share": 0.75, "concurrency": 4.0},
            **{"busy_usd": Decimal(2), "idle_usd": Decimal(6), "charged_usd": Decimal(1), "charged_share": 0.5},
            **{"input_uncached": 1_800_000, "cache_read": 100_000, "output": 100_000},
            **{"read_per_s": 10_000, "written_per_s": 100, "cache_read_per_m_usd": Decimal("0.03")},
            **{"input_per_m_usd": Decimal(3), "output_per_m_usd": Decimal(6)},
            **{"full_input_per_m_usd": Decimal(6), "full_output_per_m_usd": Decimal(12)},
            **{"list_input_per_m_usd": Decimal("0.1"), "list_output_per_m_usd": Decimal("0.2")},
            **{"energy_j": 3_600_000, "energy_wh_per_m": 500, "energy": "declared"},
        }
    ]
    assert below(answer, "prices").column("output_per_m_usd") == (Decimal(6), Decimal(8))
    marks = [(mark.series, mark.value, mark.x) for mark in answer.plots[0].marks]
    assert marks == [("qwen", 8 * USD, 0.0), ("qwen", 6 * USD, pytest.approx(1 / 3))]
    # A window takes whole hours.
    by_day = engines(filled, by="day,engine", since="2026-11-02T01:01")
    assert cells(by_day, "day", "engine", "up_s", "charged_usd") == [("2026-11-02", "qwen", 3_600, 750_000_000)]
    before = engines(filled, until="2026-11-02T01:00")
    assert "output_per_m_usd" not in lines(before)[0]
    assert before.below == ()
    # Where idle hours are counted, charges are to pay for them.
    keep(filled, [], [price(40, 16 * USD, "full")])
    names = ("charged_share", "output_per_m_usd", "full_output_per_m_usd")
    assert cells(engines(filled), *names) == [(0.125, 8 * USD, 16 * USD)]


def test_two_gateways_see_two_engines_of_their_own_and_one_that_somebody_else_runs(ledger: Ledger) -> None:
    there = structs.replace(WORKED, gateway="there", wall_ms=HOUR_MS // 2, declared_mj=None, energy_mj=7_000)
    shared = [structs.replace(hour, engine="shared", external=1) for hour in (WORKED, there)]
    keep(ledger, [WORKED, there, *shared], [])
    own, other = cells(engines(ledger), "engine", "up_s", "energy", "energy_j")
    assert own == ("qwen", 5_400, "measured", 7)
    assert other[:3] == ("shared", 3_600, "declared")


def test_what_is_not_known_of_an_engine_is_not_zero(ledger: Ledger) -> None:
    keep(ledger, [structs.replace(WORKED, cost=0, declared_mj=None, busy_ms=0, prefill_ms=0, decode_ms=0)], [])
    unknown = ("busy_usd", "idle_usd", "charged_share", "concurrency", "read_per_s", "output_per_m_usd", "energy_j")
    assert cells(engines(ledger, engine("qwen", hourly=None)), *unknown, "energy") == [(*[None] * 7, "absent")]


# local-vs-api

GPU = at("gpu", "", "", hourly=2 * USD)
TARGETS = (GPU, at("idle", "", ""), US, CN)
CHOICE = {"gpu": (0.8, 10), "us": (0.9, 3_000_000), "cn": (0.8, 1_000_000), "idle": (0.8, 5)}
OnGpu = partial(Happened, tried=(Tried("gpu"),), considered=False)
RESTED = Tried("gpu", usage=None, outcome="circuit_open")
WINDOW: dict[str, Any] = {"since": "2026-11-02", "until": "2026-11-02T10:00"}
VERSUS = (
    *[OnGpu(weighed=CHOICE)] * 3,
    OnGpu(weighed={"gpu": (0.8, 10)}, at_ms=MONDAY_MS + 5 * HOUR_MS),
    OnGpu(tried=(RESTED, Tried("us")), at_ms=MONDAY_MS + 9 * HOUR_MS),
)
versus = partial(reported, VERSUS, "local-vs-api", TARGETS)


def test_ten_hours_of_a_machine_against_the_cheapest_of_two_vendors() -> None:
    answer = versus(**WINDOW)
    assert lines(answer) == [
        {
            **{"target": "gpu", "requests": 4, "tokens": 480, "hours": 10, "busy_hours": 2},
            **{"tokens_per_busy_hour": 240, "tokens_in_best_hour": 360},
            **{"hourly_usd": Decimal(2), "machine_usd": Decimal(20), "comparable": 3, "api_usd": Decimal("0.003")},
            **{"break_even_requests_per_hour": 2_000, "break_even_tokens_per_hour": 240_000},
            **{"load": 0.00015, "cheaper": "api, for what it could serve"},
        },
        {"target": "idle", "hours": 10},
    ]
    assert "1 of 4 requests of gpu had no remote candidate" in answer.note
    assert "No hourly price is declared for idle: write hourly_usd" in answer.note
    marks = [(mark.label, mark.value) for mark in answer.plots[0].marks]
    assert marks == [("gpu: machine", 20 * USD), ("gpu: API", 3_000_000)]
    # The window ends now and begins with the ledger.
    assert versus(now_ms=MONDAY_MS + 12 * HOUR_MS).column("hours")[0] == 12


def test_a_busy_machine_is_worth_its_hour() -> None:
    cheap = (at("gpu", "", "", hourly=1_000_000), *TARGETS[1:])
    answer = reported(VERSUS, "local-vs-api", cheap, since="2026-11-02", until="2026-11-02T01:00")
    assert cells(answer, "load", "cheaper", "break_even_requests_per_hour")[0] == (3.0, "local", 1)


def test_without_a_local_target_or_a_choice_the_note_says_so() -> None:
    assert "There is no local target." in reported((), "local-vs-api").note
    answer = reported([OnGpu()], "local-vs-api", (GPU,))
    assert "No decision of the window chose gpu first" in answer.note
    assert (lines(answer)[0]["requests"], "api_usd" in lines(answer)[0]) == (1, False)


def test_machine_and_api_go_by_the_hours_in_which_the_engine_was_up(filled: Ledger) -> None:
    """Two of ten; its two targets share them, as their tokens are: two requests to one."""
    answer = reported(filled, "local-vs-api", (QWEN, LORA, FAR), **WINDOW)
    assert cells(answer, "target", "machine_usd", "idle_usd") == [
        ("qwen", 5_333_333_333, 4 * USD),
        ("lora", 2_666_666_667, 2 * USD),
    ]
