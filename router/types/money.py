"""Exact money: integer nano-USD, rates in nano-USD per million units, `Decimal` at the edges, never float."""

from decimal import ROUND_HALF_UP, Decimal

NANO_PER_USD = 1_000_000_000
UNITS_PER_RATE = 1_000_000


def nano_from_usd(amount: Decimal) -> int:
    """USD → nano-USD, half up."""
    return int((amount * NANO_PER_USD).to_integral_value(ROUND_HALF_UP))


def usd_from_nano(nano: int) -> Decimal:
    """nano-USD → USD, exact, without trailing zeros or an exponent (also valid as a JSON number)."""
    whole, fraction = divmod(abs(nano), NANO_PER_USD)
    text = f"{whole}.{fraction:09d}".rstrip("0").rstrip(".")
    return Decimal("-" + text if nano < 0 else text)


def usd_json(nano: int) -> bytes:
    """A JSON number in USD without an exponent: 1 → b"0.000000001"."""
    return format(usd_from_nano(nano), "f").encode()
