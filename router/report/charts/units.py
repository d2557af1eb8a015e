"""Numbers as a chart says them: in short, with their unit."""

from decimal import ROUND_HALF_EVEN, Context

from router.report.report import Kind
from router.types.money import NANO_PER_USD, usd_from_nano, usd_text

_DIGITS = 3
"""Significant digits of a shortened number below one."""
_SHORT = ((1e9, "G"), (1e6, "M"), (1e4, "k"))
"""From this on a count is shortened; "k" from ten thousand."""


def said(value: float, kind: Kind) -> str:
    """To be read at a glance: $1,234.50, $0.0123, 12.5 %, 1.2 s, 1.40 ×, 12.3k. Money comes in nano-USD."""
    if kind in (Kind.USD, Kind.AMOUNT):
        return dollars(round(value))
    if kind is Kind.SHARE:
        return f"{100 * value:.1f} %"
    if kind is Kind.RATE:
        return f"{value:.3f}".rstrip("0").rstrip(".")
    if kind is Kind.FACTOR:
        return f"{value:,.2f} ×"
    return _time(value) if kind is Kind.MS else counted(value)


def exact(value: float, kind: Kind) -> str:
    """To the last digit that a chart was given."""
    if kind in (Kind.USD, Kind.AMOUNT):
        return f"{'-' if value < 0 else ''}${usd_text(abs(round(value)))}"
    return f"{value:,.0f}" if kind is Kind.COUNT else said(value, kind)


def dollars(nano: int) -> str:
    amount, sign = usd_from_nano(abs(nano)), "-" if nano < 0 else ""
    if nano == 0 or abs(nano) >= NANO_PER_USD:
        return f"{sign}${amount:,.2f}" if nano else "$0"
    short = Context(prec=_DIGITS, rounding=ROUND_HALF_EVEN).plus(amount)
    digits = f"{short:f}".rstrip("0")
    return f"{sign}${digits.ljust(len('0.00'), '0')}"


def counted(value: float) -> str:
    for size, letter in _SHORT:
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):.3g}{letter}"
    return f"{value:,.3g}" if value % 1 else f"{value:,.0f}"


def _time(ms: float) -> str:
    return f"{ms / 1000:,.3g} s" if abs(ms) >= 1000 else f"{ms:,.3g} ms"
