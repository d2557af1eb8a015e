"""What a token costs: the hours of the machine, split over the tokens that were read and written in them."""

from typing import NamedTuple

from local_serving.meter.account import Spent
from router.types.engine import Counted
from router.types.money import UNITS_PER_RATE

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


class Rates(NamedTuple):
    """nano-USD per million tokens."""

    input: int
    cached: int
    output: int


def per_ms(hourly: int, replicas: int) -> float:
    """Of one replica: nano-USD a millisecond, × a million, as tokens × rates are."""
    return hourly / replicas / HOUR_MS * UNITS_PER_RATE


class Window:
    """Of one engine with so many replicas, all together. What is older counts for less."""

    def __init__(self, replicas: int = 1, wall_ms: float = 0.0, busy_ms: float = 0.0) -> None:
        """`wall_ms` and `busy_ms`: what was remembered when it was last up."""
        self._replicas = replicas
        self.wall_ms, self.busy_ms = wall_ms, busy_ms
        """Of all hours."""
        self.work_ms = self.request_ms = self.prefill_ms = self.decode_ms = 0.0
        """Of the last minutes of work, as are: """
        self.uncached = self.cached = self.output = 0.0

    def add(self, spent: Spent) -> None:
        day = 0.5 ** (spent.wall_ms / self._replicas / HALF_DAY_MS)
        self.wall_ms = self.wall_ms * day + spent.wall_ms
        self.busy_ms = self.busy_ms * day + spent.busy_ms
        work = 0.5 ** (spent.busy_ms / self._replicas / HALF_WORK_MS)
        self.work_ms = self.work_ms * work + spent.busy_ms
        self.request_ms = self.request_ms * work + spent.request_ms
        self.prefill_ms = self.prefill_ms * work + spent.prefill_ms
        self.decode_ms = self.decode_ms * work + spent.decode_ms
        self.uncached = self.uncached * work + spent.uncached
        self.cached = self.cached * work + spent.cached
        self.output = self.output * work + spent.output

    def rates(self, hourly: int, counted: Counted) -> Rates | None:
        """`hourly`: nano-USD of all replicas. Σ tokens × rates = work × price (× all hours ÷ busy ones, where all are
        counted), but for the rounding of rates: less than 1 nano-USD in a million tokens. None: too little was seen."""
        if self.work_ms < LEAST_BUSY_MS or self.uncached + self.output < LEAST_TOKENS:
            return None
        cost = self.work_ms * per_ms(hourly, self._replicas) * self.idle(counted)
        read = self.uncached + self.cached * CACHED_WEIGHT
        share = self.prefill_share
        # Where one of both was never seen it is as dear as the other.
        into = share * cost / read if share else cost / self.output
        out = (1 - share) * cost / self.output if share < 1 else into
        return Rates(round(into), round(into * CACHED_WEIGHT), round(out))

    def idle(self, counted: Counted) -> float:
        """What idle hours make of a price: a factor, at least 1."""
        return max(1.0, self.wall_ms / self.busy_ms) if counted is Counted.FULL and self.busy_ms else 1.0

    @property
    def prefill_share(self) -> float:
        """Of the work, what reading prompts took. Requests that are written together share the machine, while a prompt
        that is read has it almost to itself: so the time of writing is divided by how many requests run.

        Two mixed loads of llama.cpp: so told, the CPU seconds of the next minute were 12 and 27 % off, by the plain
        times 25 and 28 %, by a regression on the tokens of both, which needs a load that changes, 12 and 29 %.
        """
        read, written = self.uncached + self.cached * CACHED_WEIGHT, self.output
        if not (self.prefill_ms and self.decode_ms):
            return read / (read + written * WRITTEN_WEIGHT)
        if not (read and written):
            return float(read > 0)
        together = max(1.0, self.request_ms / self.work_ms)
        return self.prefill_ms / (self.prefill_ms + self.decode_ms / together)
