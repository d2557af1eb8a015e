"""Bar charts as geometry: numbers in, coordinates and labels out; a template draws them. The baseline is always 0."""

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Context

from msgspec import Struct

from router.types.money import NANO_PER_USD, usd_from_nano, usd_text

Point = tuple[str, int]
"""A label, and an amount in nano-USD of at least 0."""

WIDTH = 460
"""Units of every chart; text of 12 units stays readable from a phone's width to twice that."""
_HEIGHT, _TOP, _FOOT = 220, 18, 24
_LETTER = 9
"""Widest digit of a tick's text."""
_MOST_TICKS = 4
_ROW, _BAR = 40, 12
_DIGITS = 3
"""Significant digits of a shortened amount below one dollar."""


class Tick(Struct, frozen=True):
    y: float
    text: str


class Bar(Struct, frozen=True):
    """`text` is the amount in short, `exact` the amount to the last digit."""

    x: float
    y: float
    width: float
    height: float
    label: str
    text: str
    exact: str


class Chart(Struct, frozen=True):
    """`left` and `baseline` are where the axes cross."""

    height: float
    left: float
    baseline: float
    bars: tuple[Bar, ...]
    ticks: tuple[Tick, ...] = ()


def columns(points: Sequence[Point]) -> Chart:
    """Upright bars in the given order, for days."""
    step, top = _scale(max((nano for _, nano in points), default=0))
    baseline = _HEIGHT - _FOOT
    amounts = {nano: brief(nano) for nano in range(0, top + 1, step)}
    left = _LETTER * (1 + max(map(len, amounts.values())))
    room, slot = baseline - _TOP, (WIDTH - left) / max(1, len(points))
    bars = tuple(
        _bar(left + slot * (place + 0.15), baseline - room * nano / top, slot * 0.7, room * nano / top, label, nano)
        for place, (label, nano) in enumerate(points)
    )
    ticks = tuple(Tick(baseline - room * nano / top, text) for nano, text in amounts.items())
    return Chart(_HEIGHT, left, baseline, bars, ticks)


def lines(points: Sequence[Point]) -> Chart:
    """Lying bars, each below its label, for names."""
    largest = max((nano for _, nano in points), default=0) or 1
    bars = tuple(
        _bar(0, place * _ROW + _ROW - _BAR - 4, WIDTH * nano / largest, _BAR, label, nano)
        for place, (label, nano) in enumerate(points)
    )
    return Chart(_ROW * len(points), 0, _ROW * len(points), bars)


def brief(nano: int) -> str:
    """An amount to be read at a glance: $1,234.50, $0.0123, $0."""
    amount, sign = usd_from_nano(abs(nano)), "-" if nano < 0 else ""
    if nano == 0 or abs(nano) >= NANO_PER_USD:
        return f"{sign}${amount:,.2f}" if nano else "$0"
    short = Context(prec=_DIGITS, rounding=ROUND_HALF_EVEN).plus(amount)
    digits = f"{short:f}".rstrip("0")
    return f"{sign}${digits.ljust(len('0.00'), '0')}"


def _bar(x: float, y: float, width: float, height: float, label: str, nano: int) -> Bar:
    return Bar(
        x=round(x, 2),
        y=round(y, 2),
        width=round(width, 2),
        height=round(height, 2),
        label=label,
        text=brief(nano),
        exact=f"${usd_text(nano)}",
    )


def _scale(largest: int) -> tuple[int, int]:
    """A round step (1, 2 or 5 × a power of ten) and the least multiple of it that holds `largest`; nano-USD."""
    step = 1
    while largest > step * _MOST_TICKS:
        step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    return step, max(step, -(-largest // step) * step)
