"""Exact money: integer nano-USD, rates in nano-USD per million units, `Decimal` at the edges, never float."""

from decimal import ROUND_HALF_UP, Decimal

NANO_PER_USD = 1_000_000_000
UNITS_PER_RATE = 1_000_000


def nano_from_usd(amount: Decimal) -> int:
    """USD → nano-USD, half up."""
    return int((amount * NANO_PER_USD).to_integral_value(ROUND_HALF_UP))


def usd_from_nano(nano: int) -> Decimal:
    """nano-USD → USD, exact."""
    return Decimal(nano).scaleb(-9)


def usd_json(nano: int) -> bytes:
    """A JSON number in USD, exact, without an exponent: 1 → b"0.000000001"."""
    whole, fraction = divmod(abs(nano), NANO_PER_USD)
    digits = b"%d.%09d" % (whole, fraction)
    return (b"-" if nano < 0 else b"") + digits.rstrip(b"0").rstrip(b".")


def usd_text(nano: int) -> str:
    """For people: "0.0042"."""
    return usd_json(nano).decode()


def usd_about(nano: int, digits: int = 3) -> str:
    """For people, to so many digits that count."""
    unit: int = 10 ** max(0, len(str(abs(nano))) - digits)
    return usd_text(round(nano / unit) * unit)
