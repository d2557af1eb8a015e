"""IBANs of sixteen countries, with the national check digits where the country has some."""

import string
from random import Random

from bench.sensitivity.values import Value
from bench.sensitivity.values.draw import digits, grouped, mask

_PLAIN = {
    "DE": "xxxxxxxxxxxxxxxxxx",
    "GB": "AAAAxxxxxxxxxxxxxx",
    "NL": "[AIR][BNA][NGB][ALO]xxxxxxxxxx",
    "AT": "xxxxxxxxxxxxxxxx",
    "CH": "xxxxxxxxxxxxxxxxx",
    "IE": "AAAAxxxxxxxxxxxxxx",
    "LU": "xxxxxxxxxxxxxxxx",
    "DK": "xxxxxxxxxxxxxx",
    "SE": "xxxxxxxxxxxxxxxxxxxx",
    "PL": "xxxxxxxxxxxxxxxxxxxxxxxx",
    "AE": "xxxxxxxxxxxxxxxxxxx",
    "SA": "xxxxxxxxxxxxxxxxxxxx",
}
"""Country → its account number (SWIFT's IBAN registry)."""
_NOTATIONS = ("groups", "groups", "groups", "plain", "plain", "plain", "dashes", "lower")
_CIN_ODD = (1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23)
"""Weights of odd places in Italian check letters; digits weigh as the letters A to J."""


def iban(draw: Random) -> Value:
    country = draw.choice((*_PLAIN, "BE", "ES", "FR", "IT"))
    number = mask(draw, _PLAIN[country]) if country in _PLAIN else _NATIONAL[country](draw)
    text = country + _check(country, number) + number
    how = draw.choice(_NOTATIONS)
    marks = {"groups": " ", "dashes": "-"}
    written = grouped(text, (4,), marks[how]) if how in marks else text
    return Value(written.lower() if how == "lower" else written, f"{country}, {how}")


def italian_letter(text: str) -> str:
    """The check letter of an Italian tax code or account number."""
    total = sum(_CIN_ODD[_place(one)] if at % 2 == 0 else _place(one) for at, one in enumerate(text))
    return string.ascii_uppercase[total % 26]


def _place(one: str) -> int:
    return int(one) if one.isdigit() else ord(one) - 65


def _check(country: str, number: str) -> str:
    """ISO 7064 MOD 97-10."""
    return f"{98 - int(''.join(str(int(one, 36)) for one in number + country + '00')) % 97:02}"


def _belgian(draw: Random) -> str:
    number = draw.choice(("001", "035", "310", "363", "733", "979")) + digits(draw, 7)
    return f"{number}{int(number) % 97 or 97:02}"


def _spanish(draw: Random) -> str:
    bank, account = digits(draw, 8), digits(draw, 10)
    return f"{bank}{_eleven('00' + bank)}{_eleven(account)}{account}"


def _eleven(number: str) -> int:
    left: int = 11 - sum(int(one) * pow(2, place) for place, one in enumerate(number)) % 11
    return {10: 1, 11: 0}.get(left, left)


def _french(draw: Random) -> str:
    bank, branch, account = digits(draw, 5), digits(draw, 5), digits(draw, 11)
    key = 97 - (89 * int(bank) + 15 * int(branch) + 3 * int(account)) % 97
    return f"{bank}{branch}{account}{key:02}"


def _italian(draw: Random) -> str:
    account = digits(draw, 22)
    return italian_letter(account) + account


_NATIONAL = {"BE": _belgian, "ES": _spanish, "FR": _french, "IT": _italian}
