"""Payment cards of seven networks."""

from random import Random

from bench.sensitivity.values import Value
from bench.sensitivity.values.draw import digits, grouped, mask

_NETWORKS = (
    ("visa", "4", 16, (4,)),
    ("visa", "4", 16, (4,)),
    ("mastercard", "5[12345]", 16, (4,)),
    ("mastercard", "2[3456]", 16, (4,)),
    ("amex", "3[47]", 15, (4, 6, 5)),
    ("discover", "6011", 16, (4,)),
    ("discover", "65", 16, (4,)),
    ("diners", "3[68]", 14, (4, 6, 4)),
    ("jcb", "35[345678]", 16, (4,)),
    ("unionpay", "62", 16, (4,)),
)
"""Name, first digits, length, groups on the card (ISO/IEC 7812 and the networks' own pages)."""
_MARKS = (("plain", ""), ("plain", ""), ("spaces", " "), ("spaces", " "), ("dashes", "-"))


def luhn(payload: str) -> str:
    """The check digit of ISO/IEC 7812-1."""
    total = sum(sum(divmod(int(one) * (2 - place % 2), 10)) for place, one in enumerate(reversed(payload)))
    return str(-total % 10)


def card(draw: Random) -> Value:
    name, first, length, sizes = draw.choice(_NETWORKS)
    start = mask(draw, first)
    payload = start + digits(draw, length - len(start) - 1)
    how, mark = draw.choice(_MARKS)
    return Value(grouped(payload + luhn(payload), sizes, mark), f"{name}, {how}")
