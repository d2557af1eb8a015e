"""Checks of identifiers that python-stdnum doesn't have: check digits, dates, ranges."""

from datetime import date

from stdnum.dk import cpr as danish
from stdnum.fi import hetu as finnish
from stdnum.iso7064 import mod_11_2

_DOUBLED = str.maketrans("0123456789", "0246813579")
_NRIC_WEIGHTS = (2, 7, 6, 5, 4, 3, 2)
_NRIC_LETTERS = {"S": "JZIHGFEDCBA", "T": "GFEDCBAJZIH", "F": "XWUTRQPNMLK", "G": "RQPNMLKXWUT", "M": "XWUTRQPNJLK"}
"""Check letters by the first letter, in the order of the remainder."""
_MY_NUMBER_WEIGHTS = (6, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2)
_NPI_PREFIX = "80840"
"""ISO 7812 prefix of health applications in the United States, which the check digit covers."""
_MEDICARE_WEIGHTS = (1, 3, 7, 9, 1, 3, 7, 9)


def luhn(digits: str) -> bool:
    plain, doubled = digits[-1::-2], digits[-2::-2].translate(_DOUBLED)
    total = sum(plain.encode()) + sum(doubled.encode()) - ord("0") * len(digits)
    return total > 0 and total % 10 == 0


def track(number: str) -> bool:
    """Checks the card number in the data of a card's magnetic stripe."""
    return luhn(number.lstrip("%Bb;").partition("^")[0].partition("=")[0])


def ssn(digits: str) -> bool:
    """Checks area, group and serial number as the Social Security Administration assigns them."""
    return digits[:3] not in ("000", "666") and digits[3:5] != "00" and digits[5:] != "0000"


def resident(number: str) -> bool:
    """Checks a Chinese resident number (GB 11643): ISO 7064 mod 11-2 over 18 characters, and its date of birth."""
    return mod_11_2.is_valid(number.upper()) and _is_day(number[6:14])


def rrn(number: str) -> bool:
    """Checks the date of birth in a Korean resident number: since October 2020 the last digits are random."""
    century = {"9": "18", "0": "18", "1": "19", "2": "19", "5": "19", "6": "19"}.get(number[6], "20")
    return _is_day(century + number[:6])


def _is_day(digits: str) -> bool:
    try:
        date(int(digits[:4]), int(digits[4:6]), int(digits[6:]))
    except ValueError:
        return False
    return True


def nric(number: str) -> bool:
    total = sum(weight * int(digit) for weight, digit in zip(_NRIC_WEIGHTS, number[1:8], strict=True))
    first = number[0].upper()
    return number[8].upper() == _NRIC_LETTERS[first][(total + 3 * (first == "M")) % 11]


def my_number(digits: str) -> bool:
    """Checks a Japanese individual number: modulus 11 over twelve digits (ordinance 85 of 2014)."""
    remainder = sum(weight * int(digit) for weight, digit in zip(_MY_NUMBER_WEIGHTS, digits, strict=False)) % 11
    return int(digits[11]) == (0 if remainder <= 1 else 11 - remainder)


def old_cpr(number: str) -> bool:
    """Checks the checksum of a Danish CPR number. Those given since 2007 may lack it: a word must name them."""
    return danish.is_valid(number) and danish.checksum(number) == 0


def hetu(number: str) -> bool:
    """Checks a Finnish personal identity code. Restores its hyphen, a mark of the century, if removed as a gap."""
    return finnish.is_valid(number if len(number) == len("DDMMYY-NNNC") else f"{number[:6]}-{number[6:]}")


def npi(digits: str) -> bool:
    return luhn(_NPI_PREFIX + digits)


def dea(number: str) -> bool:
    """Checks a DEA number: the sum of the odd digits and twice the even ones ends in the seventh."""
    digits = [int(digit) for digit in number[2:]]
    return (sum(digits[0:6:2]) + 2 * sum(digits[1:6:2])) % 10 == digits[6]


def medicare(digits: str) -> bool:
    """Checks an Australian Medicare number (Services Australia): a weighted sum of eight digits ends in the ninth."""
    total = sum(weight * int(digit) for weight, digit in zip(_MEDICARE_WEIGHTS, digits, strict=False))
    return digits[0] in "23456" and total % 10 == int(digits[8])


def kvnr(number: str) -> bool:
    """Checks a German health insurance number: letter as two digits, weights 1 and 2, cross sums, modulus 10."""
    digits = f"{ord(number[0].upper()) - 64:02}{number[1:]}"
    total = sum(sum(divmod(int(digit) * (1 + place % 2), 10)) for place, digit in enumerate(digits[:-1]))
    return total % 10 == int(digits[-1])


def some_digits(number: str) -> bool:
    return sum(map(str.isdigit, number)) >= 4


def mostly_digits(number: str) -> bool:
    return sum(map(str.isdigit, number)) * 2 >= len(number)
