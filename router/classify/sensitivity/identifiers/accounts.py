"""Bank accounts: IBAN (ISO 13616), and national ones by the words beside them."""

from collections.abc import Iterator

import re2
from stdnum.iso7064 import mod_97_10
from stdnum.us import rtn

from router.classify.detector import Form, Span
from router.classify.sensitivity.identifiers.surroundings import GAP, NEAR, beside, trimmed

_LENGTHS = {
    length: names.split()
    for length, names in {
        15: "NO",
        16: "BE",
        18: "DK FI FK FO GL NL SD",
        19: "MK SI",
        20: "AT BA EE KZ LT LU MN XK",
        21: "CH CR HN HR LI LV",
        22: "BG BH DE GB GE IE ME RS VA",
        23: "AE GI IL IQ OM SO TL",
        24: "AD CZ DZ ES MD PK RO SA SE SK TN VG",
        25: "AO CV LY MZ PT ST",
        26: "IR IS TR",
        27: "BF BI CF CM DJ FR GR IT MC MG SM",
        28: "AL AZ BJ BY CG CI CY DO GA GT HU KM LB ML NE NI PL SN SV TD TG",
        29: "BR EG PS QA UA",
        30: "JO KW MU YE",
        31: "MT SC",
        33: "RU",
    }.items()
}
"""Characters of an IBAN, by country: SWIFT's IBAN registry, and the countries that use it without being in it."""
_LENGTH = {country: length for length, countries in _LENGTHS.items() for country in countries}
_HEX_GROUPS = re2.compile(r"[0-9a-f]{2,4}(?: [0-9a-f]{1,4})+ [0-9a-f]{1,4}")
_LONGEST = 33 + 12
"""With the gaps between its groups."""
_IBAN = rf"(?i)(?:\b|_|IBAN)(?:{'|'.join(_LENGTH)})\d{{2}}{GAP}?[0-9A-Z]{{4}}{GAP}?[0-9A-Z]{{4}}{GAP}?[0-9A-Z]{{2}}"


def _iban(text: str, start: int, end: int) -> Iterator[Span]:
    start, _ = trimmed(text, start, end)
    start += 4 * (text[start : start + 4].upper() == "IBAN")
    number, last = _characters(text, start, _LENGTH[text[start : start + 2].upper()])
    if (
        number
        and not (_is_dump(text, start, last) or text[last : last + 1].isalnum())
        and mod_97_10.is_valid(number[4:] + number[:4])
    ):
        yield Span(start, last)


def _is_dump(text: str, start: int, last: int) -> bool:
    """Groups of hexadecimal digits, and one more."""
    written = text[start:last]
    return " " in written and _HEX_GROUPS.fullmatch(written + text[last : last + 5]) is not None


def _characters(text: str, start: int, length: int) -> tuple[str, int]:
    """So many letters and digits, and where they end; none, where fewer are there."""
    found: list[str] = []
    for place, character in enumerate(text[start : start + _LONGEST], start):
        if character.isascii() and character.isalnum():
            found.append(character.upper())
            if len(found) == length:
                return "".join(found), place + 1
        elif character.isalnum() or character == "\n":
            break
    return "", start


_NUMBER = r"(?:number|no\.?|num\.?|nr\.?|#)"
FORMS = (
    Form("iban", _IBAN, _iban),
    beside("routing_number", "routing | aba | rtn", r"\d{9}|\d{4}-\d{4}-\d", rtn.is_valid),
    beside(
        "bank_account",
        rf"(?:account|acct\.?|a/c) ?{_NUMBER} | (?:bank|checking|savings|to|from|my|your|his|her|their) account"
        " | kontonummer | konto-?nr | numéro de compte | número de cuenta | numero di conto | rekeningnummer"
        " | número da conta",
        rf"\d(?:{GAP}?\d){{6,16}}",
        reach=NEAR,
    ),
    beside("bank_account", r"sort[ _-]?code", r"\d{2}[ -]?\d{2}[ -]?\d{2}", reach=NEAR),
    beside("bank_account", r"bsb", r"\d{3}[ -]?\d{3}", reach=NEAR),
    beside("bank_account", r"transit", r"\d{5}-\d{3}", reach=NEAR),
    beside("bank_account", r"ifsc", r"[A-Z]{4}0[0-9A-Z]{6}", reach=NEAR),
    beside("bank_account", r"clabe", r"\d{18}", reach=NEAR),
    beside("bic", r"bic | swift", r"[A-Z]{6}[0-9A-Z]{2}(?:[0-9A-Z]{3})?", reach=NEAR),
)
