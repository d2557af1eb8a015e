"""Persons and accounts: what a state, a bank, an insurer, a network or an address gives to one of them."""

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from router.classify.detector import Form
from router.classify.sensitivity.identifiers import (
    accounts,
    cards,
    documents,
    health,
    mail,
    network,
    phones,
    places,
)
from router.classify.sensitivity.identifiers.national import (
    americas,
    elsewhere,
    europe_middle,
    europe_west,
    north,
)
from router.types.classification import Finding
from router.types.request import Path

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
FORMS: tuple[Form, ...] = (
    *elsewhere.FORMS,
    *cards.FORMS,
    *accounts.FORMS,
    *north.FORMS,
    *europe_middle.FORMS,
    *europe_west.FORMS,
    *americas.FORMS,
    *health.FORMS,
    *documents.FORMS,
    *network.FORMS,
    *mail.FORMS,
    *phones.FORMS,
    *places.FORMS,
)
"""Several forms may share a name: a number as it is printed, and the same beside a word.
Where one value has several names, the first of them counts."""
_ORDER = {f"identifiers.{form.name}": place for place, form in reversed(tuple(enumerate(FORMS)))}


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
            form for form in FORMS if form.name in (self.only or (form.name,)) and form.name not in self.without
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
