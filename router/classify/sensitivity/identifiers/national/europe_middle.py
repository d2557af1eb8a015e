"""Germany, Austria, Switzerland, Poland, Czechia, Slovakia, Romania, Croatia, Bulgaria."""

from stdnum.at import vnr
from stdnum.bg import egn
from stdnum.ch import ssn
from stdnum.cz import rc
from stdnum.de import idnr
from stdnum.hr import oib
from stdnum.pl import pesel
from stdnum.ro import cnp

from router.classify.detector import Form
from router.classify.sensitivity.identifiers.surroundings import GAP, beside, shaped, whole

_DAY = r"(?:0[1-9]|[12]\d|3[01])"
_MONTH = r"(?:0[1-9]|1[0-2])"

FORMS = (
    Form(
        "de_tax_id",
        whole(rf"[1-9]\d{GAP}?\d{{3}}{GAP}?\d{{3}}{GAP}?\d{{3}}"),
        shaped(idnr.is_valid, weak=True, own="de_tax_id"),
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
