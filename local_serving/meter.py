"""Metering of local engines: their work, energy and cost."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

from msgspec import Struct

from local_serving.spec import EngineSpec, External, Vllm, gpus
from router.types.price import ADDITIVE, UNITS_PER_RATE, EngineHour, EnginePrice, version_of
from router.types.target import BilledHours, Load

# The work of a replica: differences of consecutive loads, as times and tokens that can be added up.

MAX_GAP_MS = 30_000
"""Maximum time in ms between two loads; the work in a longer gap is unknown, and not charged."""


class EngineWork(Struct, frozen=True, kw_only=True):
    """Work of an engine: times in ms, tokens and counts. Can be summed over times and replicas; floats allow decay."""

    wall_ms: float = 0.0
    busy_ms: float = 0.0
    """Time with at least one running request."""
    request_ms: float = 0.0
    """Integral of the number of running requests: two requests for one second are two seconds."""
    uncached: float = 0
    """Input tokens that were not in the prefix cache."""
    cached: float = 0
    """Input tokens from the prefix cache."""
    output: float = 0
    prefill_ms: float = 0.0
    """Prefill time of requests, summed by the engine as each ends; 0 if it does not report it."""
    decode_ms: float = 0.0
    """Decode time of requests, summed like `prefill_ms`."""
    finished: float = 0
    rejected: float = 0
    preempted: float = 0
    restarts: float = 0

    def plus(self, other: "EngineWork", share: float = 1) -> "EngineWork":
        """Returns the sum with `other`, after scaling this work by `share`."""
        return EngineWork(
            **{name: getattr(self, name) * share + getattr(other, name) for name in self.__struct_fields__}
        )


def work_between(before: Load, load: Load) -> EngineWork | None:
    """Returns a replica's work between two loads; None if the second is not newer, or after too long a gap."""
    wall_ms = load.at_ms - before.at_ms
    if not 0 < wall_ms <= MAX_GAP_MS:
        return None
    # Gauges are averaged over both ends; counters that decreased have restarted at 0.
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


# Energy of GPUs by their own meters (NVML, from the package nvidia-ml-py), if there are any.

Power = Callable[[], int | None]
"""Returns the millijoules that the GPUs used since the last call; None if unknown."""


def gpu_power(gpus: Sequence[int]) -> Power | None:
    """Returns a meter for GPUs by the driver's numbers; None if this machine has no such meters or no GPU."""
    if not gpus:
        return None
    try:
        pynvml = import_module("pynvml")
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in gpus]
        # The counter starts when the driver is loaded; Volta and newer have one.
        before = _energy_total(pynvml, handles)
    except pynvml.NVMLError:
        return None

    def drawn() -> int | None:
        nonlocal before
        with suppress(pynvml.NVMLError):
            last, before = before, _energy_total(pynvml, handles)
            return before - last if before >= last else None  # the driver was loaded again
        return None

    return drawn


def _energy_total(nvml: Any, handles: Sequence[Any]) -> int:
    return sum(int(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)) for handle in handles)


# The price of a token: the cost of machine hours, divided among the tokens read and written in them.

HOUR_MS = 3_600_000
WORK_HALF_LIFE_MS = 5 * 60_000
"""Half-life, in ms of work, of earlier work in a measurement: prices follow the load within minutes."""
IDLE_HALF_LIFE_MS = 24 * HOUR_MS
"""Half-life in ms of idle time: a matter of days, so that a quiet night does not raise the prices of the morning."""
MIN_BUSY_MS, MIN_TOKENS = 20_000, 500
"""Minimum busy time in ms and number of tokens for a measurement."""
CACHED_WEIGHT = 0.01
"""Cost of a cached input token relative to an uncached one. llama.cpp on a CPU: 0.005 (0.02 against 4 ms)."""
WRITTEN_WEIGHT = 3.0
"""Cost of an output token relative to an input token, if the engine does not report the times of its phases. llama.cpp
on a CPU: 2.4 alone (10 against 4.1 ms), about 3 on average of mixed loads."""


class TokenRates(NamedTuple):
    """Rates in nano-USD per million tokens."""

    input: int
    cached: int
    output: int

    def times(self, factor: float) -> "TokenRates":
        return TokenRates(*(round(rate * factor) for rate in self))


def per_ms(hourly: int, replicas: int) -> float:
    """Returns the cost of one replica in nano-USD per ms, times a million, like tokens × rates."""
    return hourly / replicas / HOUR_MS * UNITS_PER_RATE


class WorkWindow:
    """Decaying sums of the work of an engine's replicas, taken together."""

    def __init__(self, replicas: int = 1, wall_ms: float = 0.0, busy_ms: float = 0.0) -> None:
        """`wall_ms` and `busy_ms` are the values that were stored when the engine last ran."""
        self._replicas = replicas
        self.wall_ms, self.busy_ms = wall_ms, busy_ms
        self.work = EngineWork()
        """Work of the last minutes with load."""

    def add(self, spent: EngineWork) -> None:
        decay = 0.5 ** (spent.wall_ms / self._replicas / IDLE_HALF_LIFE_MS)
        self.wall_ms = self.wall_ms * decay + spent.wall_ms
        self.busy_ms = self.busy_ms * decay + spent.busy_ms
        self.work = self.work.plus(spent, 0.5 ** (spent.busy_ms / self._replicas / WORK_HALF_LIFE_MS))

    def rates(self, hourly: int, counted: BilledHours) -> TokenRates | None:
        """Returns rates such that tokens × rates = work × price (× wall ÷ busy time, if all hours are billed), but for
        rounding. `hourly` is the nano-USD of all replicas. None if there was too little work."""
        work, share = self.work, self.prefill_share
        if work.busy_ms < MIN_BUSY_MS or work.uncached + work.output < MIN_TOKENS:
            return None
        cost = work.busy_ms * per_ms(hourly, self._replicas) * self.idle(counted)
        read = work.uncached + work.cached * CACHED_WEIGHT
        # If there was only one kind of token, the other kind has the same rate.
        into = share * cost / read if share else cost / work.output
        out = (1 - share) * cost / work.output if share < 1 else into
        return TokenRates(round(into), round(into * CACHED_WEIGHT), round(out))

    def idle(self, counted: BilledHours) -> float:
        """Returns the factor of at least 1 by which idle hours raise a price."""
        return max(1.0, self.wall_ms / self.busy_ms) if counted is BilledHours.FULL and self.busy_ms else 1.0

    @property
    def prefill_share(self) -> float:
        """Share of the work that was spent on reading prompts. Requests that are decoded together share the machine,
        while a prefill has it almost to itself, so the decode time is divided by the number of running requests.

        With two mixed loads of llama.cpp, this predicted the CPU seconds of the next minute with errors of 12 and 27 %;
        plain times had 25 and 28 %, and a regression on both kinds of tokens, which needs a varying load, 12 and 29 %.
        """
        work = self.work
        read, written = work.uncached + work.cached * CACHED_WEIGHT, work.output
        if not (read and written):
            return float(read > 0)
        if not (work.prefill_ms and work.decode_ms):
            return read / (read + written * WRITTEN_WEIGHT)
        return work.prefill_ms / (work.prefill_ms + work.decode_ms / max(1.0, work.request_ms / work.busy_ms))


# Metering of one engine: from loads of its replicas to hourly records and prices.

MIN_RATE_CHANGE = 0.02
"""Relative change of a rate up to which a price is kept."""
MIN_PRICE_AGE_MS = 60_000
"""Minimum time in ms between two prices."""
MAX_COMPENSATION = 0.25
"""Maximum share of a price by which it compensates for what earlier prices took too much or too little."""


class Metered:
    """The meter of an engine, over all replicas."""

    def __init__(self, spec: EngineSpec, hourly: int, gateway: str, last: EnginePrice | None = None) -> None:
        """`hourly`: nano-USD of all replicas, from the policy or the spec; 0 if neither states it. `last`: the price in
        force at the start."""
        self._spec, self._hourly, self._gateway, self._last = spec, hourly, gateway, last
        self._replicas, each = len(spec.urls) if isinstance(spec, External) else spec.replicas, gpus(spec)
        self._watts = spec.cost.watts * max(1, each)
        """Declared power of a replica under load, in watts."""
        wall_ms, busy_ms = (last.wall_ms, last.busy_ms) if last else (0, 0)
        self._window = WorkWindow(self._replicas, wall_ms, busy_ms)
        self._loads: dict[int, Load] = {}
        """Last load of each replica."""
        ours = (spec.gpus or range(self._replicas * each)) if isinstance(spec, Vllm) else ()
        self._power: Power | None = gpu_power(ours)
        self._spent, self._overcharged = EngineWork(), 0.0
        """`_overcharged`: what prices have charged beyond the cost of the work so far, in nano-USD × a million."""

    def read(self, replica: int, load: Load | None) -> None:
        """Adds a replica's load; None if it has not reported one."""
        before = self._loads.get(replica)
        if load is not None:
            self._loads[replica] = load
        if before is not None and load is not None and (spent := work_between(before, load)) is not None:
            self._window.add(spent)
            self._spent = self._spent.plus(spent)
            if (last := self._last) is not None:
                charged = spent.uncached * last.input + spent.cached * last.cached + spent.output * last.output
                self._overcharged += charged - self._due(spent.busy_ms)

    def hour(self, now_ms: int) -> EngineHour | None:
        """Returns the work since the last call; None if the engine was not up."""
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
        """Returns a price that is new from now on; None if the last one stays or nothing is measured yet."""
        hourly, counted, last = self._hourly, self._spec.cost.counted, self._last
        if not hourly:
            return None
        if last is not None and (last.hourly, last.counted) != (hourly, counted):
            # The same measurement with another hourly price.
            before = last.wall_ms / last.busy_ms if last.counted == BilledHours.FULL and last.busy_ms else 1.0
            times = hourly / last.hourly * self._window.idle(counted) / before
            rates = TokenRates(last.input, last.cached, last.output).times(times)
        else:
            measured = self._window.rates(hourly, counted)
            if measured is None or (last is not None and now_ms - last.since_ms < MIN_PRICE_AGE_MS):
                return None
            # Lowered if prices have charged too much: a load that gets faster has many tokens at the earlier, slow
            # price. The excess is returned over as much work as the window holds.
            over = self._overcharged / self._due(self._window.work.busy_ms)
            rates = measured.times(1 - min(MAX_COMPENSATION, max(-MAX_COMPENSATION, over)))
            pairs = ((last.input, rates.input), (last.output, rates.output)) if last else ()
            if last is not None and not any(abs(new - old) > MIN_RATE_CHANGE * old for old, new in pairs):
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
