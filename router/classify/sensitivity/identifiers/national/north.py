"""Sweden, Norway, Denmark, Finland, Iceland, Estonia, Lithuania."""

from stdnum.dk import cpr
from stdnum.ee import ik
from stdnum.fi import hetu
from stdnum.no import fodselsnummer
from stdnum.se import personnummer

from router.classify.detector import Form
from router.classify.sensitivity.identifiers.surroundings import beside, shaped, whole

_DAY = r"(?:0[1-9]|[12]\d|3[01])"
_MONTH = r"(?:0[1-9]|1[0-2])"


def _old_cpr(number: str) -> bool:
    """Numbers given since 2007 need not have a checksum: they are known by a word beside them."""
    return cpr.is_valid(number) and cpr.checksum(number) == 0


def _hetu(number: str) -> bool:
    """Its hyphen is a century, and not a gap."""
    return hetu.is_valid(number if len(number) == len("DDMMYY-NNNC") else f"{number[:6]}-{number[6:]}")


FORMS = (
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
