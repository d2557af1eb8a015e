"""Street addresses with a postcode (US, GB, DE, FR), and days of birth."""

from collections.abc import Iterator
from typing import Any

import re2

from router.classify.detector import Confirm, Form, Span
from router.classify.sensitivity.identifiers.surroundings import NEAR, beside

_WORD = r"[0-9A-Za-z\x{a1}-\x{10ffff}'.-]+"
_ENGLISH_STREET = (
    rf"\b\d{{1,6}}(?:-\d{{1,4}}|[A-Z])? {_WORD}(?: {_WORD}){{0,4}} "
    r"(?:Street|St|Avenue|Ave|Road|Rd|Boulevard|Blvd|Lane|Ln|Drive|Dr"
    r"|Court|Ct|Place|Pl|Square|Sq|Terrace|Way|Circle|Cir|Highway|Hwy|Parkway|Pkwy|Trail|Alley|Close|Crescent|Mews"
    r"|Gardens|Row|Hill)\b"
)
_GERMAN_STREET = (
    r"(?i)\b[a-z\x{a1}-\x{10ffff}-]*(?:stra(?:ß|ss)e|str\.|weg|platz|allee|gasse|ring|damm|ufer) \d{1,4}(?: ?[a-z])?\b"
)
_FRENCH_STREET = (
    r"(?i)\b\d{1,4}(?: ?(?:bis|ter))?,? (?:rue|avenue|av\.|boulevard|bd|place|chemin|allée|impasse|quai|cours|route) "
)
_US_POSTCODE = re2.compile(r"\b(?:[A-Z]{2}|[A-Z][a-z]+),? \d{5}(?:-\d{4})?\b")
_GB_POSTCODE = re2.compile(r"\b[A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2}\b")
_GERMAN_POSTCODE = re2.compile(r"\b(?:D-)?\d{5} \p{Lu}\pL+")
_FRENCH_POSTCODE = re2.compile(r"\b(?:F-)?\d{5} \p{Lu}\pL+")
_ORGANISATION = re2.compile(r"(?:\bInc\.?|\bLLC|\bLtd\.?|\bFoundation),\s(?:[#*%.;/-]*\s)*$")
_NAME = 24
_REACH = 70
"""Characters after a street in which its postcode is written."""
_MONTHS = (
    r"(?:jan|feb|mar|apr|may|mai|mei|jun|jul|aug|sep|oct|okt|nov|dec|dez|ene|abr|ago|dic|gen|mag|giu|lug|set|ott|janv|févr|avr"
    r"|juin|juil|août|déc|mär)\pL{0,7}\.?"
)
_DAY = (
    rf"(?i)\d{{1,2}}[./-]\d{{1,2}}[./-](?:19|20)?\d\d|(?:19|20)\d\d[./-]\d{{1,2}}[./-]\d{{1,2}}"
    rf"|\d{{1,2}}(?:st|nd|rd|th|\.|er|º)?(?: of| de)? {_MONTHS},?(?: de| del)? \d{{4}}"
    rf"|{_MONTHS} \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}"
)


def _with(*postcodes: Any) -> Confirm:
    """A street is an address when a postcode of the country follows; a company's is nobody's."""

    def confirm(text: str, start: int, end: int) -> Iterator[Span]:
        after = text[end : end + _REACH]
        if _ORGANISATION.search(text[max(0, start - _NAME) : start]):
            return
        ends = [match.end() for match in (postcode.search(after) for postcode in postcodes) if match]
        if ends:
            yield Span(start, end + min(ends))

    return confirm


FORMS = (
    Form("address", _ENGLISH_STREET, _with(_US_POSTCODE, _GB_POSTCODE)),
    Form("address", _GERMAN_STREET, _with(_GERMAN_POSTCODE)),
    Form("address", _FRENCH_STREET, _with(_FRENCH_POSTCODE)),
    beside(
        "birth_date",
        "dob | d\\.o\\.b\\.? | date of birth | birth ?date | birth_date | birthday | born | geboren | geb\\.?"
        " | geburtsdatum | geburtstag | né le | née le | date de naissance | fecha de nacimiento | nacid[oa]"
        " | nat[oa] il | data di nascita | geboortedatum"
        " | data de nascimento | data urodzenia | född | født | 出生日期 | 生年月日",
        _DAY,
        reach=NEAR,
    ),
)
