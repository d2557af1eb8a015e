"""Which findings count as which kind: by the last word of a detector's id, "identifiers.iban"."""

import re

from router.types.request import Finding

_PLACE = r"location|place|gpe|loc|address"
_FORMS = {
    "card": r"card|credit_card|pan|payment_card",
    "iban": r"iban",
    "email": r"e?mail|email_address",
    "phone": r"phone|phone_number|telephone|mobile",
    "ip": r"ip|ipv?4|ipv?6|ip_address",
    "us_ssn": r"(us_)?ssn",
    "uk_nhs": r"((uk|gb)_)?nhs(_number)?",
    "uk_nino": r"((uk|gb)_)?nino",
    "de_tax": r"de_(tax|idnr|steuer)\w*|steuer_?id|idnr",
    "fr_nir": r"(fr_)?nir|fr_(insee|ssn)\w*",
    "es_id": r"(es_)?(dni|nie|nif|id|dni_nie)",
    "it_cf": r"(it_)?(cf|codice_?fiscale|fiscal_code)",
    "in_aadhaar": r"(in_)?aadhaar",
    "nl_bsn": r"(nl_)?bsn",
    "ca_sin": r"(ca_)?sin",
    "pl_pesel": r"(pl_)?pesel",
    "br_cpf": r"(br_)?cpf",
    "person": r"person|name|names",
    "location": _PLACE,
    "address": _PLACE,
    "organisation": r"organi[sz]ation|org|company",
}
_SECRETS = "secrets."
_OTHERS = ("secrets", "keywords", "patterns", "markings", "source_code", "health", "names")
"""Detectors whose findings are no identifiers."""


def is_kind(finding: Finding, kind: str) -> bool:
    """Whether it says that it found this kind. Of secrets, which one does not matter."""
    if kind.startswith("secret:"):
        return finding.detector.startswith(_SECRETS)
    return _NAMED[kind].fullmatch(finding.detector.rpartition(".")[2]) is not None


def is_identifier(finding: Finding) -> bool:
    """Of any kind, those included that the sets have no values of."""
    return finding.detector.partition(".")[0] not in _OTHERS


_NAMED = {kind: re.compile(pattern) for kind, pattern in _FORMS.items()}
NAME_KINDS = ("person", "location", "address", "organisation")
"""An address is a place that few models know as one: it is counted apart."""
IDENTIFIER_KINDS = tuple(kind for kind in _FORMS if kind not in NAME_KINDS)
