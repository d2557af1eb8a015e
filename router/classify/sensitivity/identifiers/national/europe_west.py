"""Britain, Ireland, France, Belgium, the Netherlands, Spain, Portugal, Italy."""

from collections.abc import Iterator

from stdnum.be import nn
from stdnum.es import dni, nie
from stdnum.fr import nir
from stdnum.ie import pps
from stdnum.it import codicefiscale
from stdnum.nl import bsn
from stdnum.pt import nif

from router.classify.detector import Confirm, Form, Span
from router.classify.sensitivity.identifiers.names import BSN, NATIONAL
from router.classify.sensitivity.identifiers.surroundings import GAP, beside, named, shaped, whole

_DAY = r"(?:0[1-9]|[12]\d|3[01])"
_NINO = rf"\d{{2}}{GAP}?\d{{2}}{GAP}?\d{{2}}{GAP}?"

_named = named("dni|nif|documento|identidad|ppsn?")


def _no_hash(confirm: Confirm) -> Confirm:
    """Digits and one small letter are the beginning of a hash, but where a word says otherwise."""

    def confirmed(text: str, start: int, end: int) -> Iterator[Span]:
        for span in confirm(text, start, end):
            if text[span.end - 1] not in "abcdef" or _named(text, span.start):
                yield span

    return confirmed


FORMS = (
    Form("nino", whole(rf"(?i)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z]{GAP}?{_NINO}[A-D]"), shaped(weak=True)),
    beside("nino", "nino | national insurance | ni (?:number|no)", rf"(?i)[A-Z]{{2}}{GAP}?{_NINO}[A-Z]"),
    Form("pps", whole(r"\d{7}[A-Wa-w][A-IWa-iw]?"), _no_hash(shaped(pps.is_valid, weak=True))),
    Form(
        "nir",
        whole(rf"[1-478]{GAP}?\d{{2}}{GAP}?\d{{2}}{GAP}?(?:\d{{2}}|2[ABab]){GAP}?\d{{3}}{GAP}?\d{{3}}{GAP}?\d{{2}}"),
        shaped(nir.is_valid),
    ),
    Form(
        "be_national",
        whole(rf"\d\d[. ]?(?:[024][1-9]|[135][0-2])[. ]?{_DAY}[- ]?\d{{3}}[. ]?\d{{2}}"),
        shaped(nn.is_valid, weak=True, own="be_national"),
    ),
    beside(
        "bsn",
        f"{BSN} | {NATIONAL}",
        rf"\d(?:{GAP}?\d){{7,8}}",
        bsn.is_valid,
    ),
    Form(
        "dni",
        whole(r"(?i)\d{8}[ -]?[A-HJ-NP-TV-Z]|\d{2}\.\d{3}\.\d{3}-?[A-HJ-NP-TV-Z]"),
        _no_hash(shaped(dni.is_valid, weak=True)),
    ),
    Form("nie", whole(r"(?i)[XYZ][ -]?\d{7}[ -]?[A-HJ-NP-TV-Z]"), shaped(nie.is_valid, weak=True)),
    beside("nif", "nif | contribuinte | identificação fiscal", rf"\d{{3}}{GAP}?\d{{3}}{GAP}?\d{{3}}", nif.is_valid),
    Form(
        "codice_fiscale",
        whole(r"(?i)[A-Z]{3} ?[A-Z]{3} ?[0-9L-NP-V]{2}[A-EHLMPR-T][0-9L-NP-V]{2} ?[A-Z][0-9L-NP-V]{3} ?[A-Z]"),
        shaped(codicefiscale.is_valid),
    ),
)
