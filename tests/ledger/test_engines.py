"""What local engines did and cost, in either kind of ledger: it adds up, it stays, all go by the same."""

import asyncio
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from local_serving.spec import EngineCost, EngineSpec, Llamacpp
from router.estimate.latency import Measured
from router.estimate.price import charge
from router.ledger.backup import backup, restore
from router.ledger.engines import GATEWAY, history, hours, in_force, keep, newest, prices, versions
from router.ledger.ledger import Ledger, SqliteLedger
from router.ledger.verify import verify
from router.recorder import learned_from
from router.report.recompute import recompute, repriced
from router.types.account import LedgerUnavailable
from router.types.attempt import Usage
from router.types.price import ANY_MODEL, EngineHour, EnginePrice
from router.types.target import BilledHours, EngineState, Load, ServedEngine, Status, Target
from router.workers.background import MeasuredPrices, Metering
from tests.ledger.plain import attempt, put, request
from tests.report.filled import target
from tests.stores import Make

USD = 1_000_000_000
LARGE = 2**40
NOW_MS = 1_793_581_234_000
HOUR = EngineHour(engine="e", hour=500_000, gateway="here", wall_ms=10_000, busy_ms=4_000, output_tokens=LARGE, cost=7)
RATES = {"input": 2_000_000, "cached": 20_000, "output": 6_000_000, "counted": "marginal", "hourly": 2 * USD}
COUNTS = {"wall_ms": 20_000, "busy_ms": 10_000, "uncached_tokens": 1, "cached_tokens": 1, "output_tokens": 1}
VERSION = {"version": "measured e 2026-11-02T00:00:00Z", "engine": "e", "gateway": GATEWAY, "since_ms": 1_000_000}
PRICE = EnginePrice(**VERSION, **RATES, **COUNTS)  # type: ignore[arg-type]
SPEC = Llamacpp(name="e", model="m", file="f", context=1, cost=EngineCost(watts=100))


def later(seconds: int, **changes: Any) -> EnginePrice:
    version = f"measured {changes.get('engine', 'e')} 2026-11-02T00:{seconds // 60:02}:{seconds % 60:02}Z"
    return structs.replace(PRICE, version=version, since_ms=PRICE.since_ms + seconds * 1_000, **changes)


def prices_in(ledger: Ledger) -> list[EnginePrice]:
    with ledger.reading() as connection:
        return newest(connection)


def hours_in(ledger: Ledger) -> list[EngineHour]:
    with ledger.reading() as connection:
        return hours(connection, 0, 2**40)


def test_parts_of_an_hour_add_up_and_what_is_not_known_stays_unknown(ledger: Ledger) -> None:
    keep(ledger, [HOUR], [])
    keep(ledger, [HOUR, structs.replace(HOUR, gateway="there"), structs.replace(HOUR, declared_mj=5)], [])
    keep(ledger, [structs.replace(HOUR, declared_mj=6, energy_mj=0)], [])
    here, there = hours_in(ledger)
    assert (here.wall_ms, here.busy_ms, here.output_tokens, here.cost) == (40_000, 16_000, 4 * LARGE, 28)
    assert (here.declared_mj, here.energy_mj) == (11, 0)
    assert (there.gateway, there.wall_ms, there.declared_mj, there.energy_mj) == ("there", 10_000, None, None)


def test_all_of_a_write_or_nothing(ledger: Ledger) -> None:
    with pytest.raises(Exception, match=r"(?i)null"):
        keep(ledger, [HOUR, structs.replace(HOUR, engine=None)], [PRICE])
    assert (hours_in(ledger), prices_in(ledger)) == ([], [])


def test_the_first_price_of_a_name_holds_and_nothing_is_lost_of_the_history(ledger: Ledger) -> None:
    keep(ledger, [], [PRICE])
    keep(ledger, [], [structs.replace(PRICE, output=1), later(60, output=5)])
    assert [price.output for price in prices_in(ledger)] == [5]
    with ledger.reading() as connection:
        assert [price.output for price in history(connection, 0, 2**40, 10)] == [5, PRICE.output]
        assert history(connection, 0, PRICE.since_ms + 1, 10) == [PRICE]
        outputs = {name: price.output for name, price in versions(connection).items()}
    assert outputs == {PRICE.version: PRICE.output, later(60).version: 5}
    # A machine goes by its own measurement, and else by the newest.
    keep(ledger, [], [later(90, gateway="there", output=7), later(80, gateway="over there", output=4)])
    assert in_force(prices_in(ledger)) == {"e": later(60, output=5)}
    assert in_force(price for price in prices_in(ledger) if price.gateway != GATEWAY)["e"].output == 7


def test_every_process_goes_by_what_is_new_in_the_ledger(new_sqlite: SqliteLedger) -> None:
    """Also by what a slow transaction brings late; and a restart knows it at once."""
    first, second = Measured(), Measured()
    processes = MeasuredPrices(new_sqlite, first), MeasuredPrices(new_sqlite, second)
    for price in (PRICE, later(120, engine="f", output=9), later(60, output=8)):
        keep(new_sqlite, [], [price])
        for process in processes:
            process.read()
    for measured in (first, second, learned_from(new_sqlite, {})[0].measured):
        assert [rate(priced) for priced in measured.priced((local("e"), local("f")))] == [8, 9]
    assert prices(new_sqlite)["e"].version == later(60).version


def local(engine: str, hourly: int | None = 2 * USD) -> Target:
    served = ServedEngine(name=engine, urls=("http://127.0.0.1:9/v1",), hourly=hourly or 0)
    return structs.replace(target(engine), engine=served, hourly=hourly)


def rate(priced: Target) -> int:
    assert priced.model.price is not None
    return priced.model.price.output


def test_targets_stay_the_same_until_their_price_changes() -> None:
    measured, asked = Measured(), (local("e"), local("f"), local("e", hourly=None), target("far"))
    assert measured.priced(asked) is asked
    measured.publish({"e": PRICE.price, "f": later(0, engine="f").price})
    before = measured.priced(asked)
    assert measured.priced(asked) is before
    assert before[2:] == asked[2:], "neither what has no price per hour nor what is elsewhere"
    measured.publish({"e": later(60, output=5).price, "f": later(0, engine="f").price})
    after = measured.priced(asked)
    assert after[1] is before[1]
    rates = [rate(target) for target in (*before[:2], after[0])]
    assert rates == [PRICE.output, PRICE.output, 5], "a request that was decided keeps its price"


class _Engine:
    """A replica that says once a look what it would say ten seconds later; never slower than that."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> list[EngineState]:
        second, self.looks = 10 * self.looks, self.looks + 1
        read, spent = 200 * second, {"prefill_s": second, "decode_s": second}
        load = Load(at_ms=second * 1_000, running=2, prompt=read, output=read // 2, **spent)
        return [EngineState(name="e", model="m", status=Status.READY, load=load)]


@pytest.fixture(autouse=True)
def _within_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.workers.background.now_ms", lambda: NOW_MS)


States = Callable[[], list[EngineState]]


def metered(
    ledger: Ledger, until: Callable[[], object], states: States, spec: EngineSpec = SPEC, hourly: int = 2 * USD
) -> None:
    async def work() -> None:
        metering = Metering(ledger, [(spec, hourly)], states, read_s=0.001, write_s=0.02)
        metering.launch()
        while not until():  # noqa: ASYNC110 - it is the ledger that is waited for
            await asyncio.sleep(0.01)
        await metering.stop()

    asyncio.run(work())


def test_what_is_measured_reaches_the_ledger_and_money_adds_up(new_sqlite: SqliteLedger) -> None:
    metered(new_sqlite, lambda: prices_in(new_sqlite), _Engine())
    (hour,), (price,) = hours_in(new_sqlite), prices_in(new_sqlite)
    assert (price.engine, price.gateway, price.counted, price.hourly) == ("e", GATEWAY, "marginal", 2 * USD)
    assert (hour.busy_ms, hour.request_ms) == (hour.wall_ms, 2 * hour.busy_ms)
    paid = hour.uncached_tokens * price.input + hour.output_tokens * price.output
    assert paid / 1_000_000 == pytest.approx(hour.cost, rel=1e-3)
    assert hour.cost == pytest.approx(hour.wall_ms * 2 * USD / 3_600_000, rel=1e-3)
    assert hour.declared_mj == hour.busy_ms * 100


def test_another_price_per_hour_is_another_price_at_the_next_start(new_sqlite: SqliteLedger) -> None:
    """Before anything is measured anew."""
    keep(new_sqlite, [], [PRICE])
    spec = SPEC.model_copy(update={"cost": EngineCost(counted=BilledHours.FULL)})
    metered(new_sqlite, lambda: prices_in(new_sqlite) != [PRICE], list, spec, 4 * USD)
    (price,) = prices_in(new_sqlite)
    assert (price.output, price.counted, price.hourly) == (4 * PRICE.output, "full", 4 * USD)


def test_a_ledger_that_is_gone_for_a_while_loses_nothing(
    new_sqlite: SqliteLedger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, refused, engine = new_sqlite.writing, count(), _Engine()

    def down() -> Any:
        if next(refused) < 3:
            raise LedgerUnavailable("the disk is full")
        return real()

    monkeypatch.setattr(new_sqlite, "writing", down)
    metered(new_sqlite, lambda: hours_in(new_sqlite), engine)
    assert sum(hour.wall_ms for hour in hours_in(new_sqlite)) == 10_000 * (engine.looks - 1)
    assert "could not be written (the disk is full), trying again" in caplog.text


def test_a_mistake_of_ours_ends_the_measurement_and_nothing_else(
    new_sqlite: SqliteLedger, caplog: pytest.LogCaptureFixture
) -> None:
    def states() -> list[EngineState]:
        raise ZeroDivisionError

    metered(new_sqlite, lambda: "not metered any more" in caplog.text, states)
    assert hours_in(new_sqlite) == []


def charged(ledger: Ledger, identifier: str, price: EnginePrice) -> None:
    counts: dict[str, Any] = {"input_uncached": 300, "cache_read": 1_000, "output_visible": 40}
    cost = charge(price.price, Usage(**counts)).nano
    named = {"usage_source": "reported", "reasoning_source": "unknown", "price_version": price.version}
    put(ledger, "requests", **request(identifier, cost=cost, input_tokens=1_300, output_tokens=40))
    put(ledger, "attempts", **attempt(identifier, cost=cost, own_cost=cost, **counts, **named))


def test_charges_are_priced_again_by_the_history(ledger: Ledger) -> None:
    dearer = later(60, output=9_000_000)
    keep(ledger, [], [PRICE, dearer, later(120, output=5)])
    charged(ledger, "r1", PRICE)
    charged(ledger, "r2", dearer)
    with ledger.reading() as connection:
        known = {ANY_MODEL: versions(connection)}
    assert verify(ledger, also=repriced(known), own_budgets=False).sound
    again = recompute(ledger, known)
    assert (again.attempts, again.elsewhere, again.changed) == (2, 0, ())
    with ledger.writing() as connection:
        connection.execute("UPDATE live_attempts SET cost = 6, own_cost = 6 WHERE request_id = 'r1'")
        connection.execute("UPDATE live_requests SET cost = 6 WHERE id = 'r1'")
    (wrong,) = verify(ledger, also=repriced(known), own_budgets=False).findings
    assert str(wrong) == "attempts r1 attempt 1: it cost 6 nano-USD at its price, which makes 860 of its usage now"


def test_a_backup_has_hours_and_prices(ledger: Ledger, new_ledger: Make, tmp_path: Path) -> None:
    keep(ledger, [structs.replace(HOUR, declared_mj=5)], [PRICE])
    backup(ledger, tmp_path / "copy")
    other = new_ledger()
    keep(other, [HOUR], [])  # as a gateway does that was started once
    restore(other, tmp_path / "copy")
    assert (hours_in(other), prices_in(other)) == (hours_in(ledger), [PRICE])
