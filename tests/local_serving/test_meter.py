"""What replicas say of themselves becomes times, tokens and prices that add up to the money of their hours."""

import sys
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert, structs

from local_serving.meter import EngineWork, Metered, TokenRates, WorkWindow, work_between
from local_serving.spec import EngineCost, EngineSpec, External, Llamacpp, Parallelism, Vllm
from router.types.price import EngineHour, EnginePrice
from router.types.target import BilledHours, Load
from tests.tables import each_row

HOUR_MS = 3_600_000
USD = 1_000_000_000
WORK = {"uncached": 9_000, "cached": 1_000, "output": 3_000, "prefill_ms": 10_000, "decode_ms": 40_000}
MINUTE = EngineWork(wall_ms=60_000, busy_ms=30_000, request_ms=60_000, **WORK)
ENGINE = Llamacpp(name="e", model="m", file="f", context=1)
SPANS = st.builds(
    EngineWork,
    wall_ms=st.integers(60_000, 600_000),
    busy_ms=st.integers(20_000, 60_000),
    request_ms=st.integers(20_000, 10**7),
    **dict.fromkeys(WORK, st.integers(0, 10**7)),
)


def loads(*pages: dict[str, Any]) -> EngineWork:
    spent = EngineWork()
    for before, after in pairwise(Load(at_ms=1_000 * second, **page) for second, page in enumerate(pages)):
        spent = spent.plus(work_between(before, after) or EngineWork())
    return spent


def filled(*spans: EngineWork, replicas: int = 1) -> WorkWindow:
    window = WorkWindow(replicas)
    for span in spans:
        window.add(span)
    return window


def rates(*spans: EngineWork, hourly: int = USD, counted: BilledHours = BilledHours.MARGINAL) -> TokenRates:
    priced = filled(*spans).rates(hourly, counted)
    assert priced is not None
    return priced


def minute(counted: BilledHours = BilledHours.MARGINAL, **changes: Any) -> TokenRates:
    """Of a minute that costs a USD a second."""
    return rates(structs.replace(MINUTE, **changes), hourly=3_600 * USD, counted=counted)


def test_gauges_are_the_mean_of_both_ends_counters_their_difference_and_those_that_went_back_began_anew() -> None:
    spent = loads(
        {"prompt": 100, "cached": 10, "output": 5, "prefill_s": 1.0, "rejected": 1},
        {"running": 3, "prompt": 150, "cached": 20, "output": 9, "prefill_s": 1.5, "decode_s": 0.25, "rejected": 1},
        {"running": 1, "prompt": 150, "cached": 20, "output": 29, "prefill_s": 1.5, "decode_s": 2.25, "rejected": 4},
    )
    work = {"uncached": 40, "cached": 10, "output": 24, "prefill_ms": 500, "decode_ms": 2_250}
    assert spent == EngineWork(wall_ms=2_000, busy_ms=1_500, request_ms=3_500, rejected=3, **work)
    before, after = {"prompt": 1_000, "output": 500}, {"prompt": 30, "cached": 10, "output": 4}
    spent = loads(before, after, {"prompt": 40, "output": 4})
    assert (spent.uncached, spent.cached, spent.output, spent.restarts) == (30, 10, 4, 1)


@each_row("until_ms, wall_ms", [(30_000, 30_000), (30_001, 0), (0, 0), (-5_000, 0)])
def test_time_in_which_no_look_was_taken_is_not_charged(until_ms: int, wall_ms: int) -> None:
    """Neither for a gap, nor for a clock that was set back; and the next look begins there."""
    metered, charged = Metered(ENGINE, 0, "here"), []
    for at_ms, output in ((0, 1), (None, 0), (until_ms, 1_000), (until_ms + 1_000, 1_001)):
        metered.read(0, None if at_ms is None else Load(at_ms=at_ms, output=output))
        hour = metered.hour(0)
        charged.append(hour and (hour.wall_ms, hour.output_tokens))
    assert charged == [None, None, (wall_ms, 999) if wall_ms else None, (1_000, 1)]


@given(spans=st.lists(SPANS, min_size=1, max_size=5), hourly=st.integers(1, 10**12), replicas=st.integers(1, 8))
def test_tokens_at_their_rates_are_the_money_of_the_work(spans: list[EngineWork], hourly: int, replicas: int) -> None:
    """To half a nano-USD in a million tokens of each kind: what the rounding of three rates makes."""
    for counted in BilledHours:
        window = filled(*spans, replicas=replicas)
        work, priced = window.work, window.rates(hourly, counted)
        if priced is None:
            assert work.uncached + work.output < 500
            continue
        paid = work.uncached * priced.input + work.cached * priced.cached + work.output * priced.output
        money = work.busy_ms * hourly / replicas / HOUR_MS * 1_000_000
        due = money * (window.wall_ms / window.busy_ms if counted is BilledHours.FULL else 1)
        assert paid == pytest.approx(due, rel=1e-9, abs=(work.uncached + work.cached + work.output) / 2)
        assert min(priced) >= 0


def test_a_minute_by_hand() -> None:
    """One USD a second, 30 s. Two requests at a time wrote for 40 s: a share of 1 to 2 of reading to writing."""
    priced = minute()
    assert priced.input == pytest.approx(10 * USD * 1_000_000 / 9_010)
    assert priced.cached == pytest.approx(priced.input / 100, abs=1)
    assert priced.output == pytest.approx(20 * USD * 1_000_000 / 3_000)
    assert minute(BilledHours.FULL).output == pytest.approx(2 * priced.output)


def test_what_an_engine_does_not_tell_is_split_by_weights_or_as_dear_as_the_rest_and_too_little_is_no_price() -> None:
    priced = minute(prefill_ms=0, decode_ms=0, cached=0)
    assert priced.output == pytest.approx(3 * priced.input)
    for only in ("uncached", "output"):
        work: dict[str, Any] = dict.fromkeys(WORK, 0) | {"prefill_ms": 5, "decode_ms": 5, only: 3_000}
        priced = minute(**work)
        assert priced.input == priced.output == 10_000_000_000_000
    for less in (structs.replace(MINUTE, busy_ms=19_999), structs.replace(MINUTE, uncached=400, output=99)):
        assert filled(less).rates(USD, BilledHours.MARGINAL) is None


def test_recent_work_counts_more_idle_time_changes_nothing_and_a_quiet_night_makes_no_dear_morning() -> None:
    before, idle = [MINUTE] * 20, EngineWork(wall_ms=100 * HOUR_MS)
    slow = rates(*before)
    assert rates(*before, idle) == slow
    quick = structs.replace(MINUTE, uncached=18_000, cached=2_000, output=6_000)
    assert slow.output / 2 < rates(*before, idle, *[quick] * 20).output < slow.output * 0.7
    day, night = [MINUTE] * 16 * 60, [EngineWork(wall_ms=60_000)] * 8 * 60
    evening, morning = (rates(*spans, counted=BilledHours.FULL) for spans in (day, day + night))
    assert evening.output < morning.output < 2 * evening.output


def metered(last: EnginePrice | None = None, *, hourly: int = 2 * USD, spec: EngineSpec = ENGINE) -> Metered:
    return Metered(spec, hourly, "here", last)


def meter(engine: Metered, minutes: int, *, tokens: int = 100) -> None:
    """A look a second, always one request running."""
    for second in range(minutes * 60 + 1):
        engine.read(0, Load(at_ms=second * 1_000, running=1, prompt=tokens * second, output=tokens * second))


def priced(engine: Metered, at_ms: int) -> EnginePrice:
    price = engine.price(at_ms)
    assert price is not None
    return price


def test_a_new_price_when_it_moved_and_once_a_minute_at_most() -> None:
    engine = metered()
    assert engine.price(0) is None
    meter(engine, 1)
    first = priced(engine, 60_000)
    assert first.version == "measured e 1970-01-01T00:01:00Z"
    assert (first.gateway, first.counted, first.hourly) == ("here", "marginal", 2 * USD)
    assert engine.price(500_000) is None, "it did not move"
    engine = metered(first)
    meter(engine, 2, tokens=200)
    assert engine.price(first.since_ms + 59_999) is None
    later = priced(engine, first.since_ms + 60_000)
    assert later.output == pytest.approx(first.output / 2 * 0.75, rel=0.01), "what was taken too much goes back"


def test_what_prices_took_too_much_while_the_load_changed_is_given_back() -> None:
    """Every other three minutes the same work makes four times the tokens, most at a price made when they were dear."""
    engine, price, tokens, paid, due = metered(), None, 0, 0, 0.0
    for second in range(3_600):
        at = Load(at_ms=second * 1_000, running=1, prompt=tokens, output=tokens)
        engine.read(0, at)
        price = engine.price(at.at_ms) or price if second % 10 == 0 else price
        more = 40 if second // 180 % 2 else 10
        if price is not None:
            paid += more * (price.input + price.output)
            due += 2 * USD / 3_600 * 1_000_000
        tokens += more
    assert paid == pytest.approx(due, rel=0.03)


def test_the_price_of_before_a_start_holds_until_there_is_another() -> None:
    engine = metered()
    meter(engine, 1)
    first = priced(engine, 60_000)
    assert metered(first).price(70_000) is None
    for hourly, times in ((4 * USD, 2), (USD, 0.5)):
        dearer = priced(metered(first, hourly=hourly), 70_000)
        assert dearer.output == pytest.approx(first.output * times, abs=1)
    free = metered(first, hourly=0)
    meter(free, 1)
    assert free.price(200_000) is None


def test_idle_hours_are_counted_from_the_start_after_they_were_asked_for() -> None:
    rates = {"input": 100, "cached": 1, "output": 300, "counted": "marginal", "hourly": 2 * USD}
    tokens = {"wall_ms": 20_000, "busy_ms": 10_000, "uncached_tokens": 1, "cached_tokens": 1, "output_tokens": 1}
    kept = {"version": "measured e", "engine": "e", "gateway": "here", "since_ms": 0, **rates, **tokens}
    half = convert(kept, EnginePrice)
    spec = ENGINE.model_copy(update={"cost": EngineCost(counted=BilledHours.FULL)})
    full = priced(metered(half, spec=spec), 1_000)
    assert (full.input, full.cached, full.output, full.counted) == (200, 2, 600, "full")
    back = priced(metered(full), 2_000)
    assert (back.input, back.output, back.counted) == (100, 300, "marginal")


def hour(spec: EngineSpec) -> EngineHour:
    engine = metered(spec=spec)
    meter(engine, 1)
    found = engine.hour(HOUR_MS + 5)
    assert found is not None
    assert engine.hour(HOUR_MS + 6) is None, "it was told"
    return found


COST = EngineCost(watts=500, pue=1.2)
ON_GPUS = Vllm(name="e", model="m", path="p", context=1, gpu="h100", cost=COST)
SPREAD = ON_GPUS.model_copy(update={"replicas": 2, "parallelism": Parallelism(tensor=2)})
THEIRS = External(name="e", model="m", urls=("http://a/v1", "http://b/v1"), gpus=8, cost=COST)


@each_row(
    "spec, watts, replicas",
    [(ENGINE, 0, 1), (ENGINE.model_copy(update={"cost": COST}), 500, 1), (SPREAD, 1_000, 2), (THEIRS, 4_000, 2)],
)
def test_an_hour_has_its_money_and_the_energy_that_is_declared(spec: EngineSpec, watts: int, replicas: int) -> None:
    found = hour(spec)
    assert (found.engine, found.hour, found.gateway, found.external) == ("e", 1, "here", spec is THEIRS)
    assert (found.wall_ms, found.busy_ms, found.output_tokens) == (60_000, 60_000, 6_000)
    assert found.cost == round(2 * USD / 60 / replicas), "one replica was up for a minute"
    assert found.declared_mj == (watts * 60_000 * 1.2 or None), "busy time, and what the site adds"
    assert found.energy_mj is None


class _Nvml(ModuleType):
    """Stands for the driver's library at its border: two GPUs, of which each look finds 1 and 10 J more."""

    NVMLError = type("NVMLError", (Exception,), {})
    looks, gone = 0, False

    def nvmlInit(self) -> None:  # noqa: N802
        if self.gone:
            raise self.NVMLError

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:  # noqa: N802
        if number > 1:
            raise self.NVMLError
        return number

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:  # noqa: N802
        self.nvmlInit()
        self.looks += 1
        return 5_000_000 + self.looks * (1_000, 10_000)[handle]


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> _Nvml:
    found = _Nvml("pynvml")
    monkeypatch.setitem(sys.modules, "pynvml", found)
    return found


ONE = ON_GPUS.model_copy(update={"gpus": (1,)})


@each_row(
    "spec, energy_mj",
    [(ONE, 12_000), (ON_GPUS.model_copy(update={"replicas": 2}), 26_400), (ENGINE, None), (SPREAD, None)],
)
def test_its_gpus_meters_are_believed_if_all_are_there(nvml: _Nvml, spec: EngineSpec, energy_mj: int | None) -> None:
    assert hour(spec).energy_mj == energy_mj


def test_without_the_library_or_its_driver_there_is_no_energy(nvml: _Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = metered(spec=ONE)
    meter(engine, 1)
    nvml.gone = True
    found = engine.hour(5)
    assert found is not None
    assert (found.energy_mj, found.wall_ms) == (None, 60_000), "the driver went away"
    assert hour(ONE).energy_mj is None
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert hour(ONE).energy_mj is None
