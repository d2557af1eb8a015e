"""Payment cards: issuer's range (ISO/IEC 7812), length, Luhn; what is stored on and printed beside them."""

from collections.abc import Iterator

import re2

from router.classify.detector import Form, Span
from router.classify.sensitivity.identifiers.surroundings import (
    GAP,
    NEAR,
    alone,
    beside,
    compact,
    names_thing,
    shaped,
    trimmed,
    whole,
)

_ISSUED = (
    r"4(?:\d{12}|\d{15}|\d{18})"  # Visa
    r"|5[1-5]\d{14}|222[1-9]\d{12}|22[3-9]\d{13}|2[3-6]\d{14}|27[01]\d{13}|2720\d{12}"  # Mastercard
    r"|3[47]\d{13}"  # American Express
    r"|(?:6011|64[4-9]\d|65\d\d)\d{12,15}"  # Discover
    r"|3(?:0[0-59]\d|[689]\d\d)(?:\d{10}|\d{12})"  # Diners Club
    r"|35\d{14,17}|(?:2131|1800)\d{11}"  # JCB
    r"|(?:62|81)\d{14,17}"  # UnionPay
    r"|(?:50[123]\d|5[6-8]\d\d|6304|6390|6759|676[1-3]|0604)\d{8,15}"  # Maestro
    r"|(?:50|6[035])\d{14}"  # RuPay, Elo, Verve
    r"|220[0-4]\d{12,15}|9792\d{12}|8699\d{11}"  # Mir, Troy, Voyager
)
_IS_ISSUED = re2.compile(_ISSUED)
_SHAPES = (
    _ISSUED,
    rf"[2-9]\d{{3}}(?:{GAP}\d{{4}}){{3}}(?:{GAP}\d{{1,3}})?",
    rf"[2-9]\d{{3}}{GAP}\d{{4}}{GAP}\d{{4}}",
    rf"[35-6]\d{{3}}{GAP}\d{{6}}{GAP}\d{{4,5}}",
    rf"\d(?:{GAP}\d){{11,18}}",
)
"""In one piece, in fours, as American Express and Diners print it; digit by digit, where any digit may begin a
candidate, or the automaton would have to remember which of the last ones did."""
_FEWEST = 12
_WEAK = 14
"""Digits of numbers that articles and parcels have as well."""
_DOUBLED = str.maketrans("0123456789", "0246813579")


def luhn(digits: str) -> bool:
    plain, doubled = digits[-1::-2], digits[-2::-2].translate(_DOUBLED)
    total = sum(plain.encode()) + sum(doubled.encode()) - ord("0") * len(digits)
    return total > 0 and total % 10 == 0


def _is_card(digits: str) -> bool:
    return luhn(digits) and _IS_ISSUED.fullmatch(digits) is not None and len(set(digits)) > 1


def _card(text: str, start: int, end: int) -> Iterator[Span]:
    """Groups after the card's may be the text's: "… 1111 123"."""
    start, end = trimmed(text, start, end)
    if not alone(text, start, end) and not _as_float(text, start, end):
        return
    for last in (end, *_shorter(text, start, end)):
        number = compact(text[start:last])
        if _is_card(number) and (len(number) > _WEAK or not names_thing(text, start)):
            yield Span(start, last)
            return


def _as_float(text: str, start: int, end: int) -> bool:
    """Tables with an empty cell write all numbers of its column so: 4111111111111111.0."""
    return text[end : end + 2] == ".0" and not text[end + 2 : end + 3].isalnum() and alone(text[: end + 1], start, end)


def _shorter(text: str, start: int, end: int) -> Iterator[int]:
    """Where the digits before the last groups end, as long as they are enough for a card."""
    digits = sum(map(str.isdigit, text[start:end]))
    for last in range(end - 1, start, -1):
        if digits < _FEWEST:
            return
        if not text[last].isdigit():
            yield last
        else:
            digits -= 1


def _track(number: str) -> bool:
    return luhn(number.lstrip("%Bb;").partition("^")[0].partition("=")[0])


FORMS = (
    Form("card", whole("|".join(_SHAPES)), _card),
    Form("card_track", r"%[Bb]\d{12,19}\^[^^\n]{2,26}\^\d{7}|;\d{12,19}=\d{7}", shaped(_track)),
    beside(
        "card_code",
        r"cvv2? | cvc2? | cvn | card (?:security|verification) (?:code|value|number)",
        r"\d{3,4}",
        reach=NEAR,
    ),
)
