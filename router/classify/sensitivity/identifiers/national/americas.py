"""United States, Canada, Mexico, Brazil, Argentina, Chile."""

from collections.abc import Iterator

import re2
from stdnum.ar import cuit
from stdnum.br import cpf
from stdnum.ca import sin
from stdnum.cl import rut
from stdnum.mx import curp

from router.classify.detector import POSSIBLE, Form, Span
from router.classify.sensitivity.identifiers.names import NATIONAL, SIN, SSN
from router.classify.sensitivity.identifiers.surroundings import GAP, NEAR, beside, shaped, whole

_DASH = r"[\x{2010}-\x{2013}-]"


def _ssn(digits: str) -> bool:
    """Area, group and serial number as the Social Security Administration gives them."""
    return digits[:3] not in ("000", "666") and digits[3:5] != "00" and digits[5:] != "0000"


def _printed_ssn(text: str, start: int, end: int) -> Iterator[Span]:
    """Without the dashes it may be any three numbers."""
    for span in _valid_ssn(text, start, end):
        yield span._replace(score=POSSIBLE) if " " in text[span.start : span.end] else span


def _sin(text: str, start: int, end: int) -> Iterator[Span]:
    """Thousands are printed as it is, and are followed by what they count; so are colours."""
    for span in _valid_sin(text, start, end):
        counted = " " in text[start:end] and _COUNTED.match(text[span.end : span.end + 2])
        if not (counted or _is_colour(text[span.start : span.end])):
            yield span


def _is_colour(number: str) -> bool:
    return all(part.isdigit() and int(part) < 256 for part in number.split(" "))


_valid_ssn = shaped(_ssn)
_valid_sin = shaped(sin.is_valid, weak=True, own="sin")
_COUNTED = re2.compile(r" ?[a-z%$€£]")
FORMS = (
    Form("ssn", whole(rf"[0-8]\d{{2}}(?:{_DASH}\d{{2}}{_DASH}| \d{{2}} )\d{{4}}"), _printed_ssn),
    beside("ssn", SSN, rf"[0-8]\d{{2}}{GAP}?\d{{2}}{GAP}?\d{{4}}", _ssn),
    beside("ssn", "social", r"[0-8]\d{8}|[0-8]\d{2} \d{2} \d{4}", _ssn, NEAR),
    Form("itin", whole(rf"9\d{{2}}{_DASH}[5-9]\d{_DASH}\d{{4}}"), shaped()),
    beside("itin", "itin | taxpayer id(?:entification)?", rf"9\d{{2}}{GAP}?[5-9]\d{GAP}?\d{{4}}"),
    Form("sin", whole(r"[1-79]\d{2}(?:-\d{3}-| \d{3} )\d{3}"), _sin),
    beside(
        "sin",
        f"{SIN} | social security | {NATIONAL}",
        rf"\d{{3}}{GAP}?\d{{3}}{GAP}?\d{{3}}",
        sin.is_valid,
    ),
    Form("curp", whole(r"(?i)[A-Z]{4}\d{6}[HMX][A-Z]{5}[0-9A-Z]\d"), shaped(curp.is_valid)),
    Form("cpf", whole(r"\d{3}\.\d{3}\.\d{3}[-/.]\d{2}|\d{9}-?\d{2}"), shaped(cpf.is_valid, weak=True, own="cpf")),
    Form("cuit", whole(r"[23]\d-\d{8}-\d"), shaped(cuit.is_valid)),
    Form("rut", whole(r"\d{1,2}\.\d{3}\.\d{3}-[\dKk]"), shaped(rut.is_valid)),
    beside("rut", "rut", r"\d{7,8}-?[\dKk]", rut.is_valid),
)
