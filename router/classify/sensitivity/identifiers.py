"""The detector of identifiers: every form, street addresses and dates of birth among them."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import re2
from pydantic import BaseModel, ConfigDict, Field

from router.classify.detector import Confirm, Form, Span
from router.classify.sensitivity import national, numbers, phones
from router.classify.sensitivity.context import NEAR, beside
from router.types.request import Finding, Path

# Street addresses with a postcode (US, GB, DE, FR), and days of birth.

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


# Persons and accounts: what a state, a bank, an insurer, a network or an address gives to one of them.

FormName = Literal[
    # payment
    "card",
    "card_code",
    "card_track",
    "iban",
    "bic",
    "routing_number",
    "bank_account",
    # reaching a person
    "email",
    "phone",
    "address",
    "birth_date",
    # network
    "ip",
    "mac",
    # health
    "dea",
    "health_record",
    "insurance",
    "kvnr",
    "mbi",
    "medicare",
    "nhs",
    "npi",
    # documents
    "driving_licence",
    "passport",
    # national numbers of the Americas
    "cpf",
    "cuit",
    "curp",
    "itin",
    "rut",
    "sin",
    "ssn",
    # of Europe
    "ahv",
    "be_national",
    "bsn",
    "cnp",
    "codice_fiscale",
    "cpr",
    "de_social_security",
    "de_tax_id",
    "dni",
    "egn",
    "fodselsnummer",
    "hetu",
    "isikukood",
    "nie",
    "nif",
    "nino",
    "nir",
    "oib",
    "personnummer",
    "pesel",
    "pps",
    "rodne_cislo",
    "svnr",
    # of Asia, Australia and Africa
    "aadhaar",
    "my_number",
    "nric",
    "pan",
    "resident_id",
    "rrn",
    "tckn",
    "teudat_zehut",
    "tfn",
    "za_id",
]
IDENTIFIERS_FORMS: tuple[Form, ...] = (
    *national.FORMS,
    *numbers.CARDS_FORMS,
    *numbers.FORMS,
    *national.NORTH_FORMS,
    *national.EUROPE_MIDDLE_FORMS,
    *national.EUROPE_WEST_FORMS,
    *national.AMERICAS_FORMS,
    *numbers.HEALTH_FORMS,
    *numbers.DOCUMENTS_FORMS,
    *numbers.NETWORK_FORMS,
    *numbers.MAIL_FORMS,
    *phones.PHONES_FORMS,
    *FORMS,
)
"""Several forms may share a name: a number as it is printed, and the same beside a word.
Where one value has several names, the first of them counts."""
_ORDER = {f"identifiers.{form.name}": place for place, form in reversed(tuple(enumerate(IDENTIFIERS_FORMS)))}


class Identifiers(BaseModel):
    """`only` those, or all but those `without`."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
    kind: Literal["identifiers"]
    data_class: str = Field(alias="class")
    only: tuple[FormName, ...] = ()
    without: tuple[FormName, ...] = ()

    @property
    def forms(self) -> tuple[Form, ...]:
        return tuple(
            form
            for form in IDENTIFIERS_FORMS
            if form.name in (self.only or (form.name,)) and form.name not in self.without
        )

    def conclude(self, own: Sequence[Finding], found: Sequence[Finding]) -> Sequence[Finding]:
        """One value is one finding: what lies within a longer one is left out, unless only it can be replaced."""
        reached: dict[tuple[Path, bool], int] = {}
        kept = []
        for finding in sorted(own, key=_outermost_first):
            around = {True, finding.exact}
            if all(finding.end > reached.get((finding.path, exact), -1) for exact in around):
                reached[finding.path, finding.exact] = finding.end
                kept.append(finding)
        return kept


def _outermost_first(finding: Finding) -> tuple[int, int, bool, int]:
    return finding.start, -finding.end, not finding.exact, _ORDER[finding.detector]
