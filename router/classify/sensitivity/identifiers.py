"""Persons and accounts: e-mail, payment card (Luhn), IBAN (ISO 13616 mod 97), US social security number."""

from collections.abc import Iterator
from typing import Literal

import re2
from pydantic import BaseModel, ConfigDict, Field

from router.types.classification import Finding

_IDENTIFIER = re2.compile(
    r"(?P<email>[0-9A-Za-z._%+-]+@[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*\.[A-Za-z]{2,})"
    r"|\b(?P<ssn>[0-8]\d{2}-\d{2}-\d{4})\b"
    r"|\b(?P<iban>[A-Z]{2}\d{2}(?: ?[0-9A-Z]{4}){2,7}(?: ?[0-9A-Z]{1,3})?)\b"
    r"|\b(?P<card>\d(?:[ -]?\d){11,18})\b"
)


class Identifiers(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
    kind: Literal["identifiers"]
    data_class: str = Field(alias="class")

    @property
    def pattern(self) -> str:
        return str(_IDENTIFIER.pattern)

    def scan(self, text: str) -> Iterator[Finding]:
        for match in _IDENTIFIER.finditer(text):
            if _confirmed(match.lastgroup, match.group()):
                yield Finding(f"{self.kind}.{match.lastgroup}", self.data_class, *match.span())


def _confirmed(kind: str, value: str) -> bool:
    if kind == "card":
        return _luhn([int(digit) for digit in value if digit.isdigit()])
    if kind == "iban":
        return _mod_97(value.replace(" ", ""))
    return kind != "ssn" or (value[:3] not in ("000", "666") and value[4:6] != "00" and value[7:] != "0000")


def _luhn(digits: list[int]) -> bool:
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return any(digits) and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _mod_97(iban: str) -> bool:
    return int("".join(str(int(character, 36)) for character in iban[4:] + iban[:4])) % 97 == 1
