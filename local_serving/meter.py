"""What local engines cost."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

from msgspec import Struct

from local_serving.spec import EngineSpec, External, Vllm, gpus
from router.types.price import ADDITIVE, UNITS_PER_RATE, EngineHour, EnginePrice, version_of
from router.types.target import BilledHours, Load

# What a replica did: its loads, one after the other, become times and tokens that add up.

MOST_GAP_MS = 30_000
"""Between two loads. What a replica did in a longer one nobody knows, and nobody pays for."""


class EngineWork(Struct, frozen=True, kw_only=True):
    """Times in ms, tokens and counts; as floats, where they fade. Adds up, over times and over replicas."""

    wall_ms: float = 0.0
    busy_ms: float = 0.0
    """At least one request was running."""
    request_ms: float = 0.0
    """∫ requests running dt: two at a time for a second are two seconds."""
    uncached: float = 0
    """Tokens: read, and not in the prefix cache …"""
    cached: float = 0
    """… or in it; …"""
    output: float = 0
    """… and written."""
    prefill_ms: float = 0.0
    """As the engine sums them over its requests …"""
    decode_ms: float = 0.0
    """… when each ends; both 0 where it does not say."""
    finished: float = 0
    rejected: float = 0
    preempted: float = 0
    restarts: float = 0

    def plus(self, other: "EngineWork", share: float = 1) -> "EngineWork":
        """`share`: of the former, what is left."""
        return EngineWork(
            **{name: getattr(self, name) * share + getattr(other, name) for name in self.__struct_fields__}
        )


def work_between(before: Load, load: Load) -> EngineWork | None:
    """What a replica did from one load to the next; None: nothing new, or too long ago to know."""
    wall_ms = load.at_ms - before.at_ms
    if not 0 < wall_ms <= MOST_GAP_MS:
        return None
    # Gauges are taken as the mean of both ends; counters that went back began anew, at 0.
    totals = [row.prompt + row.output + row.finished for row in (before, load)]
    since = Load(at_ms=0) if totals[1] < totals[0] else before
    names = ("prompt", "cached", "output", "prefill_s", "decode_s", "finished", "rejected", "preempted")
    grown = {name: max(0, getattr(load, name) - getattr(since, name)) for name in names}
    return EngineWork(
        wall_ms=wall_ms,
        busy_ms=wall_ms * ((before.running > 0) + (load.running > 0)) / 2,
        request_ms=wall_ms * (before.running + load.running) / 2,
        uncached=max(0, grown.pop("prompt") - grown["cached"]),
        prefill_ms=grown.pop("prefill_s") * 1000,
        decode_ms=grown.pop("decode_s") * 1000,
        restarts=int(since is not before),
        **grown,
    )


# What GPUs drew, by their own meters (NVML: the package nvidia-ml-py); nothing, where there are none.

Power = Callable[[], int | None]
"""Millijoule since the last call, of the GPUs alone; None: nobody knows."""


def gpu_power(gpus: Sequence[int]) -> Power | None:
    """Of the GPUs with these numbers, in the driver's order. None: this machine has no such meters, or no GPU."""
    if not gpus:
        return None
    try:
        pynvml = import_module("pynvml")
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in gpus]
        # A counter since the driver was loaded, of Volta and newer.
        before = _energy_total(pynvml, handles)
    except pynvml.NVMLError:
        return None

    def drawn() -> int | None:
        nonlocal before
        with suppress(pynvml.NVMLError):
            last, before = before, _energy_total(pynvml, handles)
            return before - last if before >= last else None  # else the driver was loaded anew
        return None

    return drawn


def _energy_total(nvml: Any, handles: Sequence[Any]) -> int:
    return sum(int(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)) for handle in handles)


# What a token costs: the hours of the machine, split over the tokens that were read and written in them.

HOUR_MS = 3_600_000
HALF_WORK_MS = 5 * 60_000
"""Work that was done so long of work ago counts half: the price follows the load within minutes …"""
HALF_DAY_MS = 24 * HOUR_MS
"""… and what idle hours add to it follows days: one quiet night must not make the next morning dear."""
LEAST_BUSY_MS, LEAST_TOKENS = 20_000, 500
"""With less than this nothing is measured yet."""
CACHED_WEIGHT = 0.01
"""Of a token that the prefix cache had, beside one that it had not. llama.cpp on a CPU: 0.005 (0.02 against 4 ms)."""
WRITTEN_WEIGHT = 3.0
"""Of a token that is written, beside one that is read, where the engine does not tell the times of its phases.
llama.cpp on a CPU: 2.4 alone (10 against 4.1 ms), about 3 in the mean of mixed loads."""


class TokenRates(NamedTuple):
    """nano-USD per million tokens."""

    input: int
    cached: int
    output: int

    def times(self, factor: float) -> "TokenRates":
        return TokenRates(*(round(rate * factor) for rate in self))


def per_ms(hourly: int, replicas: int) -> float:
    """Of one replica: nano-USD a millisecond, × a million, as tokens × rates are."""
    return hourly / replicas / HOUR_MS * UNITS_PER_RATE


class WorkWindow:
    """Of one engine with so many replicas, all together. What is older counts for less."""

    def __init__(self, replicas: int = 1, wall_ms: float = 0.0, busy_ms: float = 0.0) -> None:
        """`wall_ms` and `busy_ms`: what was remembered when it was last up."""
        self._replicas = replicas
        self.wall_ms, self.busy_ms = wall_ms, busy_ms
        """Of all hours."""
        self.work = EngineWork()
        """Of the last minutes of work."""

    def add(self, spent: EngineWork) -> None:
        day = 0.5 ** (spent.wall_ms / self._replicas / HALF_DAY_MS)
        self.wall_ms = self.wall_ms * day + spent.wall_ms
        self.busy_ms = self.busy_ms * day + spent.busy_ms
        self.work = self.work.plus(spent, 0.5 ** (spent.busy_ms / self._replicas / HALF_WORK_MS))

    def rates(self, hourly: int, counted: BilledHours) -> TokenRates | None:
        """`hourly`: nano-USD of all replicas. Σ tokens × rates = work × price (× all hours ÷ busy ones, where all are
        counted), but for the rounding of rates: less than 1 nano-USD in a million tokens. None: too little was seen."""
        work, share = self.work, self.prefill_share
        if work.busy_ms < LEAST_BUSY_MS or work.uncached + work.output < LEAST_TOKENS:
            return None
        cost = work.busy_ms * per_ms(hourly, self._replicas) * self.idle(counted)
        read = work.uncached + work.cached * CACHED_WEIGHT
        # Where one of both was never seen it is as dear as the other.
        into = share * cost / read if share else cost / work.output
        out = (1 - share) * cost / work.output if share < 1 else into
        return TokenRates(round(into), round(into * CACHED_WEIGHT), round(out))

    def idle(self, counted: BilledHours) -> float:
        """What idle hours make of a price: a factor, at least 1."""
        return max(1.0, self.wall_ms / self.busy_ms) if counted is BilledHours.FULL and self.busy_ms else 1.0

    @property
    def prefill_share(self) -> float:
        """Of the work, what reading prompts took. Requests that are written together share the machine, while a prompt
        that is read has it almost to itself: so the time of writing is divided by how many requests run.

        Two mixed loads of llama.cpp: so told, the CPU seconds of the next minute were 12 and 27 % off, by the plain
        times 25 and 28 %, by a regression on the tokens of both, which needs a load that changes, 12 and 29 %.
        """
        work = self.work
        read, written = work.uncached + work.cached * CACHED_WEIGHT, work.output
        if not (read and written):
            return float(read > 0)
        if not (work.prefill_ms and work.decode_ms):
            return read / (read + written * WRITTEN_WEIGHT)
        return work.prefill_ms / (work.prefill_ms + work.decode_ms / max(1.0, work.request_ms / work.busy_ms))


# One engine, metered: its replicas' loads in, parts of hours and prices out.

MOVED = 0.02
"""A rate that moved by no more than this stays as it is …"""
LEAST_APART_MS = 60_000
"""… and a new price follows an earlier one after so long at the earliest."""
MOST_RETURNED = 0.25
"""Of a price: what those before it, which came late, took too much or too little."""


class Metered:
    """What a gateway knows of an engine, all replicas together."""

    def __init__(self, spec: EngineSpec, hourly: int, gateway: str, last: EnginePrice | None = None) -> None:
        """`hourly`: nano-USD for all replicas, as the policy or the spec says; 0: neither does. `last`: the price in
        force when it starts."""
        self._spec, self._hourly, self._gateway, self._last = spec, hourly, gateway, last
        self._replicas, each = len(spec.urls) if isinstance(spec, External) else spec.replicas, gpus(spec)
        self._watts = spec.cost.watts * max(1, each)
        """Of a replica under load, as the spec declares."""
        wall_ms, busy_ms = (last.wall_ms, last.busy_ms) if last else (0, 0)
        self._window = WorkWindow(self._replicas, wall_ms, busy_ms)
        self._loads: dict[int, Load] = {}
        """The last of each replica."""
        ours = (spec.gpus or range(self._replicas * each)) if isinstance(spec, Vllm) else ()
        self._power: Power | None = gpu_power(ours)
        self._spent, self._over = EngineWork(), 0.0
        """`_over`: what prices have taken so far beyond what the work cost; nano-USD × a million."""

    def read(self, replica: int, load: Load | None) -> None:
        """`load`: None where the replica says nothing for a while."""
        before = self._loads.get(replica)
        if load is not None:
            self._loads[replica] = load
        if before is not None and load is not None and (spent := work_between(before, load)) is not None:
            self._window.add(spent)
            self._spent = self._spent.plus(spent)
            if (last := self._last) is not None:
                taken = spent.uncached * last.input + spent.cached * last.cached + spent.output * last.output
                self._over += taken - self._due(spent.busy_ms)

    def hour(self, now_ms: int) -> EngineHour | None:
        """What it did since this was last asked; None: it was not up."""
        spent, self._spent, drawn = self._spent, EngineWork(), self._power() if self._power else None
        if not spent.wall_ms:
            return None
        cost = self._spec.cost
        declared = spent.busy_ms * self._watts * cost.pue if self._watts else None
        return EngineHour(
            engine=self._spec.name,
            hour=now_ms // HOUR_MS,
            gateway=self._gateway,
            external=int(isinstance(self._spec, External)),
            **{name: round(getattr(spent, name)) for name in ADDITIVE if hasattr(spent, name)},
            uncached_tokens=round(spent.uncached),
            cached_tokens=round(spent.cached),
            output_tokens=round(spent.output),
            cost=round(spent.wall_ms * self._hourly / self._replicas / HOUR_MS),
            energy_mj=None if drawn is None else round(drawn * cost.pue),
            declared_mj=None if declared is None else round(declared),
        )

    def price(self, now_ms: int) -> EnginePrice | None:
        """The one that is in force from now on; None: that of before is, or nothing is measured yet."""
        hourly, counted, last = self._hourly, self._spec.cost.counted, self._last
        if not hourly:
            return None
        if last is not None and (last.hourly, last.counted) != (hourly, counted):
            # The same measurement, at another price of the hour.
            before = last.wall_ms / last.busy_ms if last.counted == BilledHours.FULL and last.busy_ms else 1.0
            times = hourly / last.hourly * self._window.idle(counted) / before
            rates = TokenRates(last.input, last.cached, last.output).times(times)
        else:
            measured = self._window.rates(hourly, counted)
            if measured is None or (last is not None and now_ms - last.since_ms < LEAST_APART_MS):
                return None
            # Less, where prices have taken too much: a load that gets quicker has many tokens at the price of the slow
            # time. It is given back over as much work as the window has.
            over = self._over / self._due(self._window.work.busy_ms)
            rates = measured.times(1 - min(MOST_RETURNED, max(-MOST_RETURNED, over)))
            pairs = ((last.input, rates.input), (last.output, rates.output)) if last else ()
            if last is not None and not any(abs(new - old) > MOVED * old for old, new in pairs):
                return None
        work = self._window.work
        self._last = EnginePrice(
            version=version_of(self._spec.name, now_ms),
            engine=self._spec.name,
            gateway=self._gateway,
            since_ms=now_ms,
            **rates._asdict(),
            counted=counted,
            hourly=hourly,
            wall_ms=round(self._window.wall_ms),
            busy_ms=round(self._window.busy_ms),
            uncached_tokens=round(work.uncached),
            cached_tokens=round(work.cached),
            output_tokens=round(work.output),
        )
        return self._last

    def _due(self, busy_ms: float) -> float:
        return busy_ms * per_ms(self._hourly, self._replicas) * self._window.idle(self._spec.cost.counted)
