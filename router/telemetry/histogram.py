"""Values in buckets."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping

from router.telemetry.shapes import SHAPES, SUM, edge_names


class Histogram:
    """How many values of each label lie in which bucket, and what they add up to."""

    __slots__ = ("_counts", "_edges", "_sums")

    def __init__(self, name: str) -> None:
        self._edges = SHAPES[name].edges
        self._counts: defaultdict[tuple[str, ...], list[int]] = defaultdict(lambda: [0] * (len(self._edges) + 1))
        self._sums: defaultdict[tuple[str, ...], float] = defaultdict(float)

    def add(self, labels: tuple[str, ...], value: float) -> None:
        self._counts[labels][bisect_left(self._edges, value)] += 1
        self._sums[labels] += value

    @property
    def values(self) -> Mapping[tuple[str, ...], float]:
        """Labels and a bucket's upper edge → count; and labels and `SUM`."""
        names = edge_names(self._edges)
        counts = {
            (*labels, edge): count
            for labels, row in self._counts.items()
            for edge, count in zip(names, row, strict=True)
        }
        return counts | {(*labels, SUM): total for labels, total in self._sums.items()}
