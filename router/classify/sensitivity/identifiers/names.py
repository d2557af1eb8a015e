"""Which word names a number: of several kinds with as many digits, the nearest name counts."""

import re2

NATIONAL = (
    "national id(?:entity|entification)? | (?:personal|citizen|identity|government) (?:id|number|no)"
    " | personal identification | persoonsnummer | persoonlijke? nummer | numéro national"
)
"""What people call their state's number, whatever its name is."""
SIN = "sin | s\\.i\\.n | soc(?:ial|\\.)? ins(?:urance)? | nas | n\\.a\\.s | assurance[ -]sociale | ass\\. sociale"
SSN = (
    "ssn | ssns | ssa | s\\.s\\.n | social security | soc(?:ial|\\.)? sec(?:urity|\\.)? | ss ?# | ss ?(?:no|number|num)"
    " | seguro social"
)
BSN = (
    "bsn | b\\.s\\.n | burger ?service ?(?:nummer|nr|no)? | burgerservicenr | so-?fi-?(?:nummer|nr)? | citizen service"
    " | (?:dutch|netherlands)(?: [a-z]+){0,2} (?:id|number|no) | social security number \\(netherlands | nlminbiza"
    " | dutch social security | fiscaal ?nummer | elfproef"
)
_NAMES = {
    "bsn": BSN,
    "sin": f"{SIN} | canadian social security",
    "nir": "nir | sécurité sociale | sécu | french social security",
    "ssn": f"{SSN} | social",
    "nhs": "n\\.?h\\.?s | national health",
    "aadhaar": "aadha+r | aadhar | adha+r | uidai",
    "pesel": "pesel",
    "cpf": "c\\.?p\\.?f",
    "fodselsnummer": "f[øo]dselsnummer | fnr",
    "personnummer": "personnummer",
    "cpr": "cpr",
    "tckn": "tckn | kimlik",
    "isikukood": "isikukood | asmens kodas",
    "oib": "oib",
    "egn": "egn",
    "de_tax_id": "steuer[\\pL-]* | idnr | german tax",
    "be_national": "rijksregister[a-z]* | registre national | niss | insz",
    "cuit": "cui[tl]",
    "tfn": "tfn | tax file",
    "phone": "(?:tele|smart)?phones? | t[eé]l[eéè]?f?[\\pL]* | mobile?[\\pL]* | m[oó]vil | celular | cellulare"
    " | portable | cell | fax | handy[a-z]*",
    "bank_account": "account (?:number|no) | acct | routing | aba | konto[a-z]*",
    "passport": "passports? | reisepass | passeport | pasaporte",
}
"""Forms, and the words that name no other. Of two that begin at the same place the first counts."""
_REACH = 60
"""Characters before a number in which a name is looked for."""
SUFFIX = r"(?:[ _-]?(?:card|kaart))?(?:[ _-]?(?:numbers?|nummer|numero|num|nbr|nr|no|id|code|value))?"
"""What follows a name in headings and keys."""


def spread(words: str) -> str:
    """Of " | " between words: a pattern, which is blind to case, in which a key's marks may stand for the spaces."""
    return "|".join(word.replace(" ", "[ _-]?") if "[" not in word else word for word in words.split(" | "))


def camel(words: str) -> str:
    """The words as parts of a key: patientBsn, spouseSSN. Empty, where none is letters only."""
    plain = [word.split(" ") for word in words.split(" | ") if word.replace(" ", "").isascii()]
    letters = [parts for parts in plain if all(part.isalpha() for part in parts)]
    cased = {"".join(map(str.capitalize, parts)) for parts in letters} | {"".join(parts).upper() for parts in letters}
    return "|".join(sorted(cased))


_NAMED = re2.compile(
    r"(?i)(?:\b|_)(?:"
    + "|".join(f"(?P<{form}>{spread(words)})" for form, words in _NAMES.items())
    + rf"){SUFFIX}(?:\b|_)"
)
_BRACKET = re2.compile(r"[0-9 .-]+\(([^()\n]+)")
NAMED = frozenset(_NAMES)
"""Forms of which one may pass as another."""


def names_other(text: str, start: int, own: str) -> bool:
    """Whether the nearest name before a place, in its line, is of another form; or one in brackets after it."""
    before = tuple(_NAMED.finditer(text[max(0, start - _REACH) : start].rpartition("\n")[2]))
    if before:
        return bool(before[-1].lastgroup != own)
    bracket = _BRACKET.match(text[start : start + _REACH])
    after = _NAMED.match(bracket[1]) if bracket else None
    return after is not None and after.lastgroup != own
