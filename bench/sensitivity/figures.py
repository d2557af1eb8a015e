"""What a measurement says: one number, how sure it is, and what was wanted."""

from math import sqrt

from msgspec import Struct

Z = 1.959964
"""95 % of a normal distribution lie within so many standard deviations."""


class Figure(Struct, frozen=True, kw_only=True):
    """`low` and `high` bound the true share with 95 % (Wilson); of times there is no such bound."""

    part: str
    name: str
    """What it is of: a kind, an evasion, an input."""
    what: str
    """What is measured: recall, precision, hits, ms …"""
    value: float
    hits: int | None = None
    of: int | None = None
    low: float | None = None
    high: float | None = None
    goal: float | None = None
    at_least: bool = True
    passed: bool | None = None
    """None: nothing was promised."""


def share(
    part: str, name: str, what: str, hits: int, of: int, goal: float | None = None, at_least: bool = True
) -> Figure:
    """Of nothing the share is 0."""
    value = hits / of if of else 0.0
    low, high = wilson(hits, of)
    return _judged(
        Figure(
            part=part,
            name=name,
            what=what,
            value=value,
            hits=hits,
            of=of,
            low=low,
            high=high,
            goal=goal,
            at_least=at_least,
        )
    )


def amount(part: str, name: str, what: str, value: float, goal: float | None = None, at_least: bool = False) -> Figure:
    return _judged(Figure(part=part, name=name, what=what, value=value, goal=goal, at_least=at_least))


def wilson(hits: int, of: int) -> tuple[float, float]:
    """The score interval of a share."""
    if not of:
        return 0.0, 1.0
    part, scale = hits / of, 1 + Z**2 / of
    middle = part + Z**2 / (2 * of)
    wide = Z * sqrt(part * (1 - part) / of + Z**2 / (4 * of**2))
    return (middle - wide) / scale if hits else 0.0, (middle + wide) / scale if hits < of else 1.0


def _judged(figure: Figure) -> Figure:
    if figure.goal is None:
        return figure
    passed = figure.value >= figure.goal if figure.at_least else figure.value <= figure.goal
    return Figure(**{name: getattr(figure, name) for name in figure.__struct_fields__} | {"passed": passed})
