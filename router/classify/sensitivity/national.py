"""National ids, by country."""

from collections.abc import Iterator
from datetime import date

import re2
from stdnum.ar import cuit
from stdnum.at import vnr
from stdnum.au import tfn
from stdnum.be import nn
from stdnum.bg import egn
from stdnum.br import cpf
from stdnum.ca import sin
from stdnum.ch import ssn
from stdnum.cl import rut
from stdnum.cz import rc
from stdnum.de import idnr as de_idnr
from stdnum.dk import cpr
from stdnum.ee import ik
from stdnum.es import dni, nie
from stdnum.fi import hetu
from stdnum.fr import nir
from stdnum.hr import oib
from stdnum.ie import pps
from stdnum.il import idnr as teudat_zehut
from stdnum.in_ import aadhaar, pan
from stdnum.iso7064 import mod_11_2
from stdnum.it import codicefiscale
from stdnum.mx import curp
from stdnum.nl import bsn
from stdnum.no import fodselsnummer
from stdnum.pl import pesel
from stdnum.pt import nif
from stdnum.ro import cnp
from stdnum.se import personnummer
from stdnum.tr import tckimlik
from stdnum.za import idnr

from router.classify.detector import POSSIBLE, Confirm, Form, Span
from router.classify.sensitivity.context import BSN, GAP, NATIONAL, NEAR, SIN, SSN, beside, named, shaped, whole

# United States, Canada, Mexico, Brazil, Argentina, Chile.

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
AMERICAS_FORMS = (
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


# Asia, Australia, Africa, Turkey, Israel.

_DAY = r"(?:0[1-9]|[12]\d|3[01])"
_MONTH = r"(?:0[1-9]|1[0-2])"
_NRIC_WEIGHTS = (2, 7, 6, 5, 4, 3, 2)
_NRIC_LETTERS = {"S": "JZIHGFEDCBA", "T": "GFEDCBAJZIH", "F": "XWUTRQPNMLK", "G": "RQPNMLKXWUT", "M": "XWUTRQPNJLK"}
"""Check letters by the first letter, in the order of the remainder."""
_MY_NUMBER_WEIGHTS = (6, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2)


def _resident(number: str) -> bool:
    """GB 11643: ISO 7064 mod 11-2 over 18 characters; the day of birth is in it."""
    return mod_11_2.is_valid(number.upper()) and _is_day(number[6:14])


def _is_day(digits: str) -> bool:
    try:
        date(int(digits[:4]), int(digits[4:6]), int(digits[6:]))
    except ValueError:
        return False
    return True


def _rrn(number: str) -> bool:
    """Since October 2020 the last digits are random: only the date and the sex are checked."""
    century = {"9": "18", "0": "18", "1": "19", "2": "19", "5": "19", "6": "19"}.get(number[6], "20")
    return _is_day(century + number[:6])


def _nric(number: str) -> bool:
    total = sum(weight * int(digit) for weight, digit in zip(_NRIC_WEIGHTS, number[1:8], strict=True))
    first = number[0].upper()
    return number[8].upper() == _NRIC_LETTERS[first][(total + 3 * (first == "M")) % 11]


def _my_number(digits: str) -> bool:
    """Ordinance 85 of 2014: modulus 11 over twelve digits."""
    remainder = sum(weight * int(digit) for weight, digit in zip(_MY_NUMBER_WEIGHTS, digits, strict=False)) % 11
    return int(digits[11]) == (0 if remainder <= 1 else 11 - remainder)


FORMS = (
    Form("aadhaar", whole(r"[2-9]\d{3}(?: \d{4} |-\d{4}-)\d{4}"), shaped(aadhaar.is_valid)),
    beside(
        "aadhaar",
        f"aadha+r | aadhar | adha+r | uidai | uid | आधार | {NATIONAL}",
        rf"[2-9]\d{{3}}{GAP}?\d{{4}}{GAP}?\d{{4}}",
        aadhaar.is_valid,
    ),
    Form("pan", whole(r"[A-Z]{3}[ABCFGHJLPT][A-Z]\d{4}[A-Z]"), shaped(pan.is_valid, weak=True)),
    Form("resident_id", whole(rf"[1-8]\d{{5}}(?:19|20)\d\d{_MONTH}{_DAY}\d{{3}}[\dXx]"), shaped(_resident)),
    Form("rrn", whole(rf"\d\d{_MONTH}{_DAY}-[0-9]\d{{6}}"), shaped(_rrn)),
    beside("rrn", "rrn | 주민등록번호 | resident registration", rf"\d\d{_MONTH}{_DAY}[- ]?\d{{7}}", _rrn),
    beside("my_number", "my ?number | マイナンバー | 個人番号", rf"\d{{4}}{GAP}?\d{{4}}{GAP}?\d{{4}}", _my_number),
    Form("nric", whole(r"(?i)[STFGM]\d{7}[A-Z]"), shaped(_nric, weak=True)),
    beside("tfn", "tfn | tax file", rf"\d{{2,3}}{GAP}?\d{{3}}{GAP}?\d{{3}}", tfn.is_valid),
    Form("za_id", whole(rf"\d\d{_MONTH}{_DAY} ?\d{{4}} ?[01][89]\d"), shaped(idnr.is_valid, weak=True)),
    beside(
        "tckn", f"tckn | t\\.?c\\.? kimlik | kimlik | turkish id | {NATIONAL}", r"[1-9]\d{9}[02468]", tckimlik.is_valid
    ),
    beside("teudat_zehut", "teudat zehut | תעודת זהות | israeli id", r"\d{9}", teudat_zehut.is_valid),
)


# Germany, Austria, Switzerland, Poland, Czechia, Slovakia, Romania, Croatia, Bulgaria.

EUROPE_MIDDLE_FORMS = (
    Form(
        "de_tax_id",
        whole(rf"[1-9]\d{GAP}?\d{{3}}{GAP}?\d{{3}}{GAP}?\d{{3}}"),
        shaped(de_idnr.is_valid, weak=True, own="de_tax_id"),
    ),
    Form("svnr", whole(rf"[1-9]\d{{3}} {_DAY}{_MONTH}\d\d"), shaped(vnr.is_valid)),
    beside("svnr", "svnr | sv-nr | sozialversicherungs(?:nummer|nr) | vsnr", r"[1-9]\d{3}[ /-]?\d{6}", vnr.is_valid),
    beside(
        "de_social_security",
        "rvnr | rentenversicherungsnummer | sozialversicherungsnummer | versicherungsnummer",
        rf"(?i)\d{{2}} ?{_DAY}{_MONTH}\d\d ?[A-Z] ?\d{{3}}",
    ),
    Form("ahv", whole(r"756[. ]?\d{4}[. ]?\d{4}[. ]?\d{2}"), shaped(ssn.is_valid)),
    Form(
        "pesel",
        whole(rf"\d\d(?:[02468][1-9]|[13579][0-2]){_DAY}\d{{5}}"),
        shaped(pesel.is_valid, weak=True, own="pesel"),
    ),
    Form("rodne_cislo", whole(r"\d\d[0-8]\d[0-3]\d/\d{3,4}"), shaped(rc.is_valid)),
    beside("rodne_cislo", "rodné číslo | rodne cislo", r"\d{6}/?\d{3,4}", rc.is_valid),
    beside("cnp", "cnp | cod numeric personal", r"[1-9]\d{12}", cnp.is_valid),
    beside("oib", "oib", r"\d{11}", oib.is_valid),
    beside("egn", "egn | егн", r"\d{10}", egn.is_valid),
)


# Britain, Ireland, France, Belgium, the Netherlands, Spain, Portugal, Italy.

_NINO = rf"\d{{2}}{GAP}?\d{{2}}{GAP}?\d{{2}}{GAP}?"

_named = named("dni|nif|documento|identidad|ppsn?")


def _no_hash(confirm: Confirm) -> Confirm:
    """Digits and one small letter are the beginning of a hash, but where a word says otherwise."""

    def confirmed(text: str, start: int, end: int) -> Iterator[Span]:
        for span in confirm(text, start, end):
            if text[span.end - 1] not in "abcdef" or _named(text, span.start):
                yield span

    return confirmed


EUROPE_WEST_FORMS = (
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


# Sweden, Norway, Denmark, Finland, Iceland, Estonia, Lithuania.


def _old_cpr(number: str) -> bool:
    """Numbers given since 2007 need not have a checksum: they are known by a word beside them."""
    return cpr.is_valid(number) and cpr.checksum(number) == 0


def _hetu(number: str) -> bool:
    """Its hyphen is a century, and not a gap."""
    return hetu.is_valid(number if len(number) == len("DDMMYY-NNNC") else f"{number[:6]}-{number[6:]}")


NORTH_FORMS = (
    Form("personnummer", whole(rf"(?:19|20)?\d\d{_MONTH}{_DAY}[+-]\d{{4}}"), shaped(personnummer.is_valid)),
    beside(
        "personnummer",
        "personnummer | personnr | pnr",
        rf"(?:19|20)?\d\d{_MONTH}{_DAY}[+-]?\d{{4}}",
        personnummer.is_valid,
    ),
    Form(
        "fodselsnummer",
        whole(r"(?:0[1-9]|[12]\d|3[01]|4[1-9]|[56]\d|7[01])(?:0[1-9]|1[0-2]|4[1-9]|5[0-2])\d\d[ -]?\d{5}"),
        shaped(fodselsnummer.is_valid, weak=True, own="fodselsnummer"),
    ),
    Form("cpr", whole(rf"{_DAY}{_MONTH}\d\d-\d{{4}}"), shaped(_old_cpr)),
    beside("cpr", "cpr(?:-?(?:nr|nummer|number))? | personnummer", rf"{_DAY}{_MONTH}\d\d-?\d{{4}}", cpr.is_valid),
    Form("hetu", whole(rf"{_DAY}{_MONTH}\d\d[-+A-FU-Y]\d{{3}}[0-9A-Y]"), shaped(_hetu)),
    beside("isikukood", "isikukood | asmens kodas | personal code", r"[1-8]\d{10}", ik.is_valid),
)
