"""The last values of something that is counted, kept sorted: quantiles that forget."""

from array import array
from bisect import bisect_left, insort

SIZE = 128
"""Values remembered: enough for a 99 % quantile, few enough to follow a change within some dozen requests."""


class Window:
    """Whole numbers, 0 ≤ value < 2**63. Adding costs a move of at most 1 KiB, a quantile one look-up."""

    __slots__ = ("_next", "_order", "_sorted", "_sum")

    def __init__(self) -> None:
        self._order, self._sorted = array("q"), array("q")
        self._next, self._sum = 0, 0

    def __len__(self) -> int:
        return len(self._order)

    def add(self, value: int) -> None:
        if len(self._order) < SIZE:
            self._order.append(value)
        else:
            oldest = self._order[self._next]
            del self._sorted[bisect_left(self._sorted, oldest)]
            self._order[self._next] = value
            self._next = (self._next + 1) % SIZE
            self._sum -= oldest
        insort(self._sorted, value)
        self._sum += value

    @property
    def sum(self) -> int:
        return self._sum

    def upper(self, share: float) -> int:
        """A bound that the next value keeps with probability `share`, if it is like these (split conformal).

        The ⌈share·(n + 1)⌉-th smallest, or the largest where so few values say nothing about that share.
        """
        return self._sorted[min(int(share * (len(self._sorted) + 1)), len(self._sorted) - 1)]

    def lower(self, share: float) -> int:
        """The mirror image: a bound that the next value stays above with probability `share`."""
        return self._sorted[max(len(self._sorted) - 1 - int(share * (len(self._sorted) + 1)), 0)]
