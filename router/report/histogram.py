"""Percentiles of what is only known in buckets."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence


def percentile(counts: Mapping[int, int], edges: Sequence[int], share: float) -> int | None:
    """Of whole numbers, counted by the lower edges of their buckets (0 below the first of `edges`). None without any.

    Inside a bucket values are taken to lie evenly on a logarithmic scale, each in the middle of its part: it is off by
    less than a bucket is wide, for a single value by half of that. Beyond the last edge: that edge.
    """
    total, below = sum(counts.values()), 0
    rank = share * (total - 1) + 0.5
    for edge in sorted(counts):
        if counts[edge] and below + counts[edge] >= rank:
            return _within(edge, edges, (rank - below) / counts[edge])
        below += counts[edge]
    return None


def _within(edge: int, edges: Sequence[int], share: float) -> int:
    upper = bisect_right(edges, edge)
    if edge == 0 or upper == len(edges):
        return edge
    ratio: float = edges[upper] / edge
    return round(edge * float(ratio**share))
