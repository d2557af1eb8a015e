"""Persons and accounts: e-mail, payment card (Luhn), IBAN (ISO 13616 mod 97), US social security number."""

import string
from collections.abc import Iterator, Sequence
from typing import Literal

import re2
from pydantic import BaseModel, ConfigDict, Field

from router.classify.detector import Form, Span
from router.types.classification import Finding

_EMAIL = r"[0-9A-Za-z._%+-]+@[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*\.[A-Za-z]{2,}"
_SSN = r"\b[0-8]\d{2}-\d{2}-\d{4}\b"
_IBAN = r"\b[A-Z]{2}\d{2}(?: ?[0-9A-Z]{4}){2,7}(?: ?[0-9A-Z]{1,3})?\b"
_DIGITS = r"\b\d(?:[ -]?\d){11,}\b"
_FIND_IBAN, _FIND_GROUP = re2.compile(_IBAN), re2.compile(r"\d+")
_IBAN_REACH = 44
"""Characters that decide whether an IBAN starts here: the longest match of its form, and one more for its end."""
_SHORTEST_IBAN = 15
_CARD_DIGITS = range(12, 20)
"""ISO/IEC 7812: at most 19."""
_CARD_SHAPES = ((4, 4, 4, 4), (4, 4, 4, 4, 3), (4, 6, 5), (4, 6, 4))
"""How cards are printed."""
_FIRST_PRINTED = 4
_NO_SEPARATORS = str.maketrans("", "", " -")
_DOUBLED = str.maketrans("0123456789", "0246813579")
_LETTER_VALUES = {character: str(int(character, 36)) for character in string.digits + string.ascii_uppercase}


class Identifiers(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
    kind: Literal["identifiers"]
    data_class: str = Field(alias="class")

    @property
    def forms(self) -> tuple[Form, ...]:
        return (
            Form("email", _EMAIL),
            Form("ssn", _SSN, _ssn),
            Form("iban", r"\b[A-Z]{2}\d{2}", _iban),
            Form("card", _DIGITS, _card),
        )

    def conclude(self, own: Sequence[Finding], found: Sequence[Finding]) -> Sequence[Finding]:
        return own


def _ssn(text: str, start: int, end: int) -> Iterator[Span]:
    area, group, serial = text[start:end].split("-")
    if area not in ("000", "666") and group != "00" and serial != "0000":
        yield Span(start, end)


def _iban(text: str, start: int, end: int) -> Iterator[Span]:
    match = _FIND_IBAN.match(text[start : start + _IBAN_REACH])
    parts = match.group().split(" ") if match else []
    while sum(map(len, parts)) >= _SHORTEST_IBAN:
        if _mod_97("".join(parts)):
            yield Span(start, start + len(" ".join(parts)))
            return
        parts.pop()  # the last word may be the text's, not the account's


def _card(text: str, start: int, end: int) -> Iterator[Span]:
    run = text[start:end]
    groups = [group.span() for group in _FIND_GROUP.finditer(run)]
    sizes = tuple(last - first for first, last in groups)
    if sum(sizes) in _CARD_DIGITS and _luhn(run):
        yield Span(start, end)
        return
    for first, last in _printed(sizes):
        begin, until = groups[first][0], groups[last][1]
        if _luhn(run[begin:until]):
            yield Span(start + begin, start + until)


def _printed(sizes: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """First and last of the groups of digits that are grouped as on a card, among others."""
    for first, size in enumerate(sizes):
        if size in _CARD_DIGITS:
            yield first, first
        elif size == _FIRST_PRINTED:
            for shape in _CARD_SHAPES:
                if sizes[first : first + len(shape)] == shape:
                    yield first, first + len(shape) - 1


def _luhn(card: str) -> bool:
    digits = card.translate(_NO_SEPARATORS)
    plain, doubled = digits[-1::-2], digits[-2::-2].translate(_DOUBLED)
    total = sum(plain.encode()) + sum(doubled.encode()) - ord("0") * len(digits)
    return total > 0 and total % 10 == 0


def _mod_97(iban: str) -> bool:
    return int("".join(map(_LETTER_VALUES.__getitem__, iban[4:] + iban[:4]))) % 97 == 1
