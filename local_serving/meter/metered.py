"""One engine, metered: its replicas' loads in, parts of hours and prices out."""

from msgspec import Struct

from local_serving.meter.account import Meter, Spent
from local_serving.meter.energy import Power, gpu_power
from local_serving.meter.rates import HOUR_MS, Rates, Window, per_ms
from local_serving.served import gpus
from local_serving.spec import EngineSpec, External, Vllm
from router.types.engine import Counted, Load
from router.types.metered import EngineHour, EnginePrice, version_of

MOVED = 0.02
"""A rate that moved by no more than this stays as it is …"""
LEAST_APART_MS = 60_000
"""… and a new price follows an earlier one after so long at the earliest."""
MOST_RETURNED = 0.25
"""Of a price: what those before it, which came late, took too much or too little."""


class Machine(Struct, frozen=True, kw_only=True):
    """What an engine runs on, all replicas together. `hourly` in nano-USD; 0: nobody said."""

    engine: str
    replicas: int = 1
    hourly: int = 0
    counted: Counted = Counted.MARGINAL
    external: bool = False
    gpus: tuple[int, ...] = ()
    """Those of this machine whose meters can be read."""
    watts: int = 0
    """Under load, as its spec declares; 0: nobody said."""
    pue: float = 1.0


def machine(spec: EngineSpec, hourly: int) -> Machine:
    """`hourly`: nano-USD for all replicas, as the policy or the spec says."""
    replicas, external = (len(spec.urls), True) if isinstance(spec, External) else (spec.replicas, False)
    each = gpus(spec)
    return Machine(
        engine=spec.name,
        replicas=replicas,
        hourly=hourly,
        counted=spec.cost.counted,
        external=external,
        gpus=(spec.gpus or tuple(range(replicas * each))) if isinstance(spec, Vllm) else (),
        watts=spec.cost.watts * replicas * max(1, each),
        pue=spec.cost.pue,
    )


class Metered:
    """Of one gateway. `last`: the price in force when it starts."""

    def __init__(self, machine: Machine, gateway: str, last: EnginePrice | None = None) -> None:
        self._machine, self._gateway, self._last = machine, gateway, last
        wall_ms, busy_ms = (last.wall_ms, last.busy_ms) if last else (0, 0)
        self._window = Window(machine.replicas, wall_ms, busy_ms)
        self._meters: dict[int, Meter] = {}
        self._power: Power | None = gpu_power(machine.gpus)
        self._spent, self._over = Spent(), 0.0
        """`_over`: what prices have taken so far beyond what the work cost; nano-USD × a million."""

    def read(self, replica: int, load: Load | None) -> None:
        spent = self._meters.setdefault(replica, Meter()).read(load)
        if spent is not None:
            self._window.add(spent)
            self._spent = self._spent.plus(spent)
            self._over += self._taken(spent) - self._due(spent.busy_ms) if self._last else 0.0

    def hour(self, now_ms: int) -> EngineHour | None:
        """What it did since this was last asked; None: it was not up."""
        spent, self._spent, drawn = self._spent, Spent(), self._power() if self._power else None
        if not spent.wall_ms:
            return None
        machine = self._machine
        declared = spent.busy_ms * machine.watts / machine.replicas * machine.pue if machine.watts else None
        return EngineHour(
            engine=machine.engine,
            hour=now_ms // HOUR_MS,
            gateway=self._gateway,
            external=int(machine.external),
            wall_ms=round(spent.wall_ms),
            busy_ms=round(spent.busy_ms),
            request_ms=round(spent.request_ms),
            uncached_tokens=spent.uncached,
            cached_tokens=spent.cached,
            output_tokens=spent.output,
            prefill_ms=round(spent.prefill_ms),
            decode_ms=round(spent.decode_ms),
            finished=spent.finished,
            rejected=spent.rejected,
            preempted=spent.preempted,
            restarts=spent.restarts,
            cost=round(spent.wall_ms * machine.hourly / machine.replicas / HOUR_MS),
            energy_mj=None if drawn is None else round(drawn * machine.pue),
            declared_mj=None if declared is None else round(declared),
        )

    def price(self, now_ms: int) -> EnginePrice | None:
        """The one that is in force from now on; None: that of before is, or nothing is measured yet."""
        told = self._told(now_ms)
        if told is not None:
            self._last = told
        return told

    def _told(self, now_ms: int) -> EnginePrice | None:
        machine, last = self._machine, self._last
        if not machine.hourly:
            return None
        if last is not None and (last.hourly, last.counted) != (machine.hourly, machine.counted):
            return self._priced(_rescaled(last, machine, self._window.idle(machine.counted)), now_ms)
        rates = self._window.rates(machine.hourly, machine.counted)
        if rates is None or (last is not None and now_ms - last.since_ms < LEAST_APART_MS):
            return None
        rates = self._balanced(rates)
        return self._priced(rates, now_ms) if last is None or _moved(last, rates) else None

    def _taken(self, spent: Spent) -> int:
        last = self._last
        assert last is not None  # noqa: S101
        return spent.uncached * last.input + spent.cached * last.cached + spent.output * last.output

    def _due(self, busy_ms: float) -> float:
        machine = self._machine
        return busy_ms * per_ms(machine.hourly, machine.replicas) * self._window.idle(machine.counted)

    def _balanced(self, rates: Rates) -> Rates:
        """Less, where prices have taken too much: a load that gets quicker has many tokens at the price of the slow
        time. It is given back over as much work as the window has."""
        over = self._over / self._due(self._window.work_ms)
        times = 1 - min(MOST_RETURNED, max(-MOST_RETURNED, over))
        return Rates(*(round(rate * times) for rate in rates))

    def _priced(self, rates: Rates, now_ms: int) -> EnginePrice:
        machine, window = self._machine, self._window
        return EnginePrice(
            version=version_of(machine.engine, now_ms),
            engine=machine.engine,
            gateway=self._gateway,
            since_ms=now_ms,
            input=rates.input,
            cached=rates.cached,
            output=rates.output,
            counted=machine.counted,
            hourly=machine.hourly,
            wall_ms=round(window.wall_ms),
            busy_ms=round(window.busy_ms),
            uncached_tokens=round(window.uncached),
            cached_tokens=round(window.cached),
            output_tokens=round(window.output),
        )


def _moved(last: EnginePrice, rates: Rates) -> bool:
    pairs = ((last.input, rates.input), (last.output, rates.output))
    return any(abs(new - old) > MOVED * old for old, new in pairs)


def _rescaled(last: EnginePrice, machine: Machine, factor: float) -> Rates:
    """The same measurement, at another price of the hour. `factor`: what idle hours make of it now."""
    before = last.wall_ms / last.busy_ms if last.counted == Counted.FULL and last.busy_ms else 1.0
    times = machine.hourly / last.hourly * factor / before
    return Rates(*(round(rate * times) for rate in (last.input, last.cached, last.output)))
