"""Records of patients, insured and prescribers."""

from stdnum.gb import nhs

from router.classify.detector import Form
from router.classify.sensitivity.identifiers.cards import luhn
from router.classify.sensitivity.identifiers.surroundings import GAP, NEAR, beside, shaped, whole

_MBI = (
    r"[1-9][AC-HJKMNP-RT-Y][0-9AC-HJKMNP-RT-Y]\d-?[AC-HJKMNP-RT-Y][0-9AC-HJKMNP-RT-Y]\d-?"
    r"[AC-HJKMNP-RT-Y]{2}\d{2}"
)
"""CMS' format of a Medicare Beneficiary Identifier: no S, L, O, I, B, Z."""
_NPI_PREFIX = "80840"
"""ISO 7812 prefix of health applications in the United States, which the check digit covers."""
_MEDICARE_WEIGHTS = (1, 3, 7, 9, 1, 3, 7, 9)


def _npi(digits: str) -> bool:
    return luhn(_NPI_PREFIX + digits)


def _dea(number: str) -> bool:
    """Sum of the odd places and twice the even ones ends in the seventh."""
    digits = [int(digit) for digit in number[2:]]
    return (sum(digits[0:6:2]) + 2 * sum(digits[1:6:2])) % 10 == digits[6]


def _medicare(digits: str) -> bool:
    """Services Australia: weighted sum of eight digits ends in the ninth."""
    total = sum(weight * int(digit) for weight, digit in zip(_MEDICARE_WEIGHTS, digits, strict=False))
    return digits[0] in "23456" and total % 10 == int(digits[8])


def _kvnr(number: str) -> bool:
    """Letter as two digits, then nine digits, alternating weights 1 and 2, cross sums, modulus 10."""
    digits = f"{ord(number[0].upper()) - 64:02}{number[1:]}"
    total = sum(sum(divmod(int(digit) * (1 + place % 2), 10)) for place, digit in enumerate(digits[:-1]))
    return total % 10 == int(digits[-1])


def _some_digits(number: str) -> bool:
    return sum(map(str.isdigit, number)) >= 4


FORMS = (
    Form("mbi", whole(_MBI), shaped()),
    beside("npi", "npi | national provider", r"[12]\d{9}", _npi),
    beside("dea", "dea", r"[A-Za-z][0-9A-Za-z]\d{7}", _dea),
    beside("nhs", "nhs | n\\.h\\.s | national health", rf"\d{{3}}{GAP}?\d{{3}}{GAP}?\d{{4}}", nhs.is_valid),
    Form("medicare", whole(r"[2-6]\d{3} \d{5} \d(?:[ /-]\d)?"), shaped(_medicare)),
    beside("medicare", "medicare", r"[2-6]\d{3}[ -]?\d{5}[ -]?\d(?:[ /-]?\d)?", _medicare),
    beside(
        "kvnr", "kvnr | krankenversicherten\\w* | versichertennummer | krankenkasse\\w* | egk", r"[A-Za-z]\d{9}", _kvnr
    ),
    beside(
        "health_record",
        "mrn | medical record(?: ?(?:number|no\\.?|#))? | patient (?:id|number|no\\.?)"
        " | patienten-?(?:nr\\.?|nummer|id)"
        " | chart (?:number|no\\.?) | hospital number | numéro de dossier",
        r"[0-9A-Za-z]{1,4}-?\d{4,12}|\d{3,4}(?:-\d{2,4}){1,3}",
        _some_digits,
        NEAR,
    ),
    beside(
        "insurance",
        "member (?:id|number|no\\.?) | subscriber (?:id|number) | (?:insurance )?policy (?:id|number|no\\.?|#)"
        " | insurance (?:id|number|no\\.?)"
        " | group (?:number|no\\.?) | medicaid(?: (?:id|number|no\\.?))? | health plan"
        " | numéro d'assuré | número de póliza"
        " | versicherungsschein\\w*",
        r"[0-9A-Za-z]{1,5}(?:-?[0-9A-Za-z]{2,6}){0,3}-?\d{3,12}",
        _some_digits,
        NEAR,
    ),
)
