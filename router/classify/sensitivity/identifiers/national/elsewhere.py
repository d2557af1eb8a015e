"""Asia, Australia, Africa, Turkey, Israel."""

from datetime import date

from stdnum.au import tfn
from stdnum.il import idnr as teudat_zehut
from stdnum.in_ import aadhaar, pan
from stdnum.iso7064 import mod_11_2
from stdnum.tr import tckimlik
from stdnum.za import idnr

from router.classify.detector import Form
from router.classify.sensitivity.identifiers.names import NATIONAL
from router.classify.sensitivity.identifiers.surroundings import GAP, beside, shaped, whole

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
