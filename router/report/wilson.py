"""How far a share may be from what was seen."""

from math import sqrt

Z_95 = 1.959964
"""The normal distribution's 97.5 % quantile."""


def wilson(hits: float, trials: float) -> tuple[float, float] | None:
    """The interval in which the true share lies with 95 %; None without a trial. Trials may be weighed.

    Wilson (1927), Probable inference, the law of succession, and statistical inference, JASA 22(158).
    """
    if trials <= 0:
        return None
    share, weight = hits / trials, Z_95**2 / trials
    middle = share + weight / 2
    half = Z_95 * sqrt(share * (1 - share) / trials + weight / (4 * trials))
    return max(0.0, (middle - half) / (1 + weight)), min(1.0, (middle + half) / (1 + weight))
