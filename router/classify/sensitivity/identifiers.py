"""The detector of identifiers: what a state, a bank, an insurer, a network or an address gives to one of them."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Literal

from router.classify.detector import Confirm, DetectorModel, Form
from router.classify.sensitivity.checksums import CHECKS
from router.classify.sensitivity.context_rules import FAR, NEAR, Valid, always, beside, shaped, whole
from router.classify.sensitivity.numbers import CONFIRMS, NUMBERS, no_hash
from router.classify.sensitivity.phones import PHONES_FORMS
from router.types.request import Finding, Path

FormName = Literal[
    # payment
    "card", "card_code", "card_track", "iban", "bic", "routing_number", "bank_account",
    # reaching a person
    "email", "phone", "address", "birth_date",
    # network
    "ip", "mac",
    # health
    "dea", "health_record", "insurance", "kvnr", "mbi", "medicare", "nhs", "npi",
    # documents
    "driving_licence", "passport",
    # national numbers of the Americas
    "cpf", "cuit", "curp", "itin", "rut", "sin", "ssn",
    # of Europe
    "ahv", "be_national", "bsn", "cnp", "codice_fiscale", "cpr", "de_social_security", "de_tax_id", "dni",
    "egn", "fodselsnummer", "hetu", "isikukood", "nie", "nif", "nino", "nir", "oib", "personnummer", "pesel",
    "pps", "rodne_cislo", "svnr",
    # of Asia, Australia and Africa
    "aadhaar", "my_number", "nric", "pan", "resident_id", "rrn", "tckn", "teudat_zehut", "tfn", "za_id",
]  # fmt: skip


def _form(row: dict[str, Any]) -> Form:
    """`row`: of `forms` in data/identifiers.yaml, where its fields are explained."""
    name, check = row["form"], row.get("check", "")
    valid: Valid = always
    if check:
        valid = import_module(check).is_valid if check.startswith("stdnum.") else CHECKS[check]
    if "words" in row:
        reach = row.get("reach", FAR)
        return beside(name, row["words"], row["number"], valid, NEAR if reach == "near" else reach)
    confirm: Confirm | None = CONFIRMS.get(row.get("confirm", ""))
    if confirm is None and (check or "whole" in row):
        confirm = shaped(valid, name if row.get("own") else "")
        confirm = no_hash(confirm) if row.get("no_hash") else confirm
    return Form(name, whole(row["whole"]) if "whole" in row else row["pattern"], confirm)


IDENTIFIERS_FORMS: tuple[Form, ...] = (
    *map(_form, NUMBERS["forms"]),
    *PHONES_FORMS,
    *map(_form, NUMBERS["forms_of_places_and_days"]),
)
"""Where one value has several names, the first of them counts."""
_ORDER = {f"identifiers.{form.name}": place for place, form in reversed(tuple(enumerate(IDENTIFIERS_FORMS)))}


class Identifiers(DetectorModel):
    """`only` those, or all but those `without`."""

    kind: Literal["identifiers"]
    only: tuple[FormName, ...] = ()
    without: tuple[FormName, ...] = ()

    @property
    def forms(self) -> tuple[Form, ...]:
        return tuple(
            form
            for form in IDENTIFIERS_FORMS
            if form.name in (self.only or (form.name,)) and form.name not in self.without
        )

    def conclude(self, own: Sequence[Finding], findings: Sequence[Finding]) -> Sequence[Finding]:
        """One value is one finding: what lies within a longer one is left out, unless only it can be replaced."""
        reached: dict[tuple[Path, bool], int] = {}
        kept = []
        for finding in sorted(own, key=lambda each: (each.start, -each.end, not each.exact, _ORDER[each.detector])):
            around = {True, finding.exact}
            if all(finding.end > reached.get((finding.path, exact), -1) for exact in around):
                reached[finding.path, finding.exact] = finding.end
                kept.append(finding)
        return kept
