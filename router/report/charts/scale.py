"""Scales with round ticks. A linear one always holds 0, so that lengths are in proportion."""

import math
from collections.abc import Iterable

from msgspec import Struct

from router.report.report import Kind

_MOST_TICKS = 6
_ROUND = (1, 2, 5, 10)
_LEAST: dict[Kind, float] = {Kind.COUNT: 1, Kind.USD: 1, Kind.AMOUNT: 1, Kind.MS: 1}
"""There is nothing between two ticks this far apart; money is in nano-USD."""
SPREAD = 50
"""From this ratio of the largest to the smallest number on, only a logarithmic scale tells the small ones apart."""


class Scale(Struct, frozen=True):
    """From `low` to `high`, the first and the last of `ticks`."""

    ticks: tuple[float, ...]
    logarithmic: bool = False

    @property
    def low(self) -> float:
        return self.ticks[0]

    @property
    def high(self) -> float:
        return self.ticks[-1]

    def share(self, value: float) -> float:
        """Where a value stands between the ends: 0 … 1."""
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = math.log(low), math.log(high), math.log(max(value, low))
        return min(1.0, max(0.0, (value - low) / (high - low)))


def linear(values: Iterable[float], kind: Kind) -> Scale:
    """A pass rate's scale ends at 1 at the latest, others where the largest value needs it."""
    found = [0.0, *values]
    low, high = min(found), max(found)
    step = _step((high - low) / (_MOST_TICKS - 1), _LEAST.get(kind, 0))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return Scale(tuple(number * step for number in range(first, max(last, first + 1) + 1)))


def spread(values: Iterable[float], kind: Kind) -> Scale:
    """Logarithmic where the values are all above 0 and too far apart for a linear one."""
    found = list(values)
    if not found or min(found) <= 0 or max(found) < SPREAD * min(found):
        return linear(found, kind)
    first, last = math.floor(math.log10(min(found)) + 1e-9), math.ceil(math.log10(max(found)) - 1e-9)
    return Scale(tuple(10.0**power for power in range(first, max(last, first + 1) + 1)), logarithmic=True)


def _step(least: float, unit: float) -> float:
    """The least of 1, 2, 5 × a power of ten that is not below `least`; 1 where there is nothing to tell."""
    if least <= 0:
        return max(unit, 1.0)
    power = math.floor(math.log10(least) + 1e-9)
    step = next(digit * 10.0**power for digit in _ROUND if digit * 10.0**power >= least * (1 - 1e-9))
    return max(step, unit)
