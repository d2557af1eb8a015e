"""National ids: checksums worked out here, not by the library that detectors may use."""

import string
from collections import Counter
from datetime import date, timedelta
from random import Random

from bench.sensitivity.values import Value
from bench.sensitivity.values.bank import italian_letter
from bench.sensitivity.values.cards import luhn
from bench.sensitivity.values.draw import digits, grouped, mask, until


def _weighed(number: str, weights: tuple[int, ...]) -> int:
    return sum(int(one) * weight for one, weight in zip(number, weights, strict=False))


def _written(draw: Random, number: str, *ways: tuple[str, tuple[int, ...], str]) -> Value:
    """In one of several ways: name, groups, mark between them."""
    how, sizes, mark = draw.choice(ways)
    return Value(grouped(number, sizes, mark), how)


def _birthday(draw: Random) -> date:
    return date(1935, 1, 1) + timedelta(days=draw.randrange(72 * 365))


def ssn(draw: Random) -> Value:
    """Areas 000, 666 and from 900 are never given out, nor group 00 and serial 0000."""
    area = until(lambda: f"{draw.randrange(1, 900):03}", lambda one: one != "666")
    number = f"{area}{draw.randrange(1, 100):02}{draw.randrange(1, 10_000):04}"
    ways = (("dashes", (3, 2, 4), "-"), ("dashes", (3, 2, 4), "-"), ("spaces", (3, 2, 4), " "), ("plain", (9,), ""))
    return _written(draw, number, *ways)


def uk_nhs(draw: Random) -> Value:
    """Modulus 11 over nine digits; 10 is no check digit."""
    nine = until(lambda: "[479]"[draw.randrange(1, 4)] + digits(draw, 8), lambda one: _nhs_check(one) != 10)
    ways = (("spaces", (3, 3, 4), " "), ("spaces", (3, 3, 4), " "), ("plain", (10,), ""), ("dashes", (3, 3, 4), "-"))
    return _written(draw, nine + str(_nhs_check(nine)), *ways)


def _nhs_check(nine: str) -> int:
    return -_weighed(nine, tuple(range(10, 1, -1))) % 11


def uk_nino(draw: Random) -> Value:
    """Without D F I Q U V first, without O second, without the prefixes that are never given out."""
    prefix = until(lambda: mask(draw, "[ABCEGHJKLMNOPRSTWXYZ][ABCEGHJKLMNPRSTWXYZ]"), lambda one: one not in _NO_NINO)
    number = prefix + digits(draw, 6) + draw.choice("ABCD")
    return _written(draw, number, ("spaces", (2,), " "), ("spaces", (2,), " "), ("plain", (9,), ""))


_NO_NINO = ("BG", "GB", "KN", "NK", "NT", "TN", "ZZ")


def de_tax(draw: Random) -> Value:
    """Ten digits of which one stands there twice or thrice, and ISO 7064 MOD 11,10."""
    ten = until(lambda: draw.choice("123456789") + digits(draw, 9), _german)
    left = 10
    for one in ten:
        left = ((int(one) + left) % 10 or 10) * 2 % 11
    ways = (("spaces", (2, 3), " "), ("plain", (11,), ""), ("plain", (11,), ""))
    return _written(draw, ten + str((11 - left) % 10), *ways)


def _german(ten: str) -> bool:
    """Since 2016 a digit may also stand there thrice, but not in a row."""
    counts = sorted(Counter(ten).values())
    return counts[-1] in (2, 3) and counts[-2] == 1 and not any(one * 3 in ten for one in string.digits)


def fr_nir(draw: Random) -> Value:
    """Sex, year, month, place, order; the key is 97 less the rest by 97."""
    born = _birthday(draw)
    place = f"{draw.randrange(1, 96):02}".replace("20", "75") + f"{draw.randrange(1, 600):03}"
    number = f"{draw.choice('12')}{born:%y%m}{place}{draw.randrange(1, 999):03}"
    whole = f"{number}{97 - int(number) % 97:02}"
    return _written(draw, whole, ("spaces", (1, 2, 2, 2, 3, 3, 2), " "), ("plain", (15,), ""), ("key", (13, 2), " "))


def es_id(draw: Random) -> Value:
    """DNI of citizens, NIE of foreigners: a letter by the rest by 23."""
    if draw.random() < 0.6:
        number, how = digits(draw, 8), "DNI"
        letter = _spanish(int(number))
        dotted = f"{number[:2]}.{number[2:5]}.{number[5:]}-{letter}"
        written = draw.choice((number + letter, number + letter, f"{number}-{letter}", dotted))
    else:
        first, number, how = draw.choice("XYZ"), digits(draw, 7), "NIE"
        letter = _spanish(int(f"{'XYZ'.index(first)}{number}"))
        written = draw.choice((f"{first}{number}{letter}", f"{first}-{number}-{letter}"))
    return Value(written, f"{how}{', dots' if '.' in written else ', dashes' if '-' in written else ', plain'}")


def _spanish(number: int) -> str:
    return "TRWAGMYFPDXBNJZSQVHLCKE"[number % 23]


def it_cf(draw: Random) -> Value:
    """Consonants of the name, birth (women's day plus 40), place, check letter."""
    born, name = _birthday(draw), "".join(mask(draw, "[BCDFGLMNPRSTVZ]") for _ in range(6))
    day = born.day + draw.choice((0, 40))
    start = f"{name}{born:%y}{'ABCDEHLMPRST'[born.month - 1]}{day:02}{draw.choice('ABCDEFGHIL')}{digits(draw, 3)}"
    number = start + italian_letter(start)
    spaced = grouped(number, (3, 3, 5, 4, 1), " ")
    how, text = draw.choice(
        (("plain", number), ("plain", number), ("plain", number), ("spaces", spaced), ("lower", number.lower()))
    )
    return Value(text, how)


def in_aadhaar(draw: Random) -> Value:
    """Eleven digits, the first from 2, and Verhoeff's check digit."""
    eleven = draw.choice("23456789") + digits(draw, 10)
    check = next(one for one in string.digits if _verhoeff(eleven + one) == 0)
    return _written(
        draw, eleven + check, ("spaces", (4,), " "), ("spaces", (4,), " "), ("plain", (12,), ""), ("dashes", (4,), "-")
    )


def _dihedral(one: int, two: int) -> int:
    """Multiplication in the group of the pentagon's symmetries."""
    if one < 5:
        return (one + two) % 5 + 5 * (two >= 5)
    return (one - two) % 5 + 5 * (two < 5)


def _verhoeff(number: str) -> int:
    turns = [list(range(10)), [1, 5, 7, 6, 2, 8, 3, 0, 9, 4]]
    for _ in range(6):
        turns.append([turns[-1][one] for one in turns[1]])
    left = 0
    for place, one in enumerate(reversed(number)):
        left = _dihedral(left, turns[place % 8][int(one)])
    return left


def nl_bsn(draw: Random) -> Value:
    """Weights 9 to 2 and -1, by 11."""
    weights = (9, 8, 7, 6, 5, 4, 3, 2, -1)
    number = until(lambda: draw.choice("123456789") + digits(draw, 8), lambda one: _weighed(one, weights) % 11 == 0)
    return _written(
        draw, number, ("plain", (9,), ""), ("plain", (9,), ""), ("dots", (4, 2, 3), "."), ("spaces", (3,), " ")
    )


def ca_sin(draw: Random) -> Value:
    """Luhn; 0 and 8 are never given out as first digits."""
    eight = draw.choice("1234567") + digits(draw, 7)
    return _written(
        draw,
        eight + luhn(eight),
        ("spaces", (3,), " "),
        ("spaces", (3,), " "),
        ("dashes", (3,), "-"),
        ("plain", (9,), ""),
    )


def pl_pesel(draw: Random) -> Value:
    """Birth, with 20 more months from 2000; weights 1 3 7 9."""
    born = _birthday(draw)
    ten = f"{born:%y}{born.month + (20 if born.year >= 2000 else 0):02}{born.day:02}{digits(draw, 4)}"
    return Value(ten + str(-_weighed(ten, (1, 3, 7, 9) * 3) % 10), "plain")


def br_cpf(draw: Random) -> Value:
    """Two check digits by 11."""
    nine = until(lambda: digits(draw, 9), lambda one: len(set(one)) > 1)
    ten = nine + str(_cpf_check(nine))
    number = ten + str(_cpf_check(ten))
    dotted = f"{number[:3]}.{number[3:6]}.{number[6:9]}-{number[9:]}"
    how, text = draw.choice((("dots", dotted), ("dots", dotted), ("plain", number)))
    return Value(text, how)


def _cpf_check(number: str) -> int:
    left = 11 - _weighed(number, tuple(range(len(number) + 1, 1, -1))) % 11
    return 0 if left > 9 else left
