"""Cards, accounts, documents, mail and network addresses."""

import ipaddress
from collections.abc import Iterator

import re2
from stdnum.gb import nhs
from stdnum.iso7064 import mod_97_10
from stdnum.us import rtn

from router.classify.detector import Form, Span
from router.classify.sensitivity.context import GAP, NEAR, alone, beside, compact, names_thing, shaped, trimmed, whole

# Payment cards: issuer's range (ISO/IEC 7812), length, Luhn; what is stored on and printed beside them.

_ISSUED = (
    r"4(?:\d{12}|\d{15}|\d{18})"  # Visa
    r"|5[1-5]\d{14}|222[1-9]\d{12}|22[3-9]\d{13}|2[3-6]\d{14}|27[01]\d{13}|2720\d{12}"  # Mastercard
    r"|3[47]\d{13}"  # American Express
    r"|(?:6011|64[4-9]\d|65\d\d)\d{12,15}"  # Discover
    r"|3(?:0[0-59]\d|[689]\d\d)(?:\d{10}|\d{12})"  # Diners Club
    r"|35\d{14,17}|(?:2131|1800)\d{11}"  # JCB
    r"|(?:62|81)\d{14,17}"  # UnionPay
    r"|(?:50[123]\d|5[6-8]\d\d|6304|6390|6759|676[1-3]|0604)\d{8,15}"  # Maestro
    r"|(?:50|6[035])\d{14}"  # RuPay, Elo, Verve
    r"|220[0-4]\d{12,15}|9792\d{12}|8699\d{11}"  # Mir, Troy, Voyager
)
_IS_ISSUED = re2.compile(_ISSUED)
_SHAPES = (
    _ISSUED,
    rf"[2-9]\d{{3}}(?:{GAP}\d{{4}}){{3}}(?:{GAP}\d{{1,3}})?",
    rf"[2-9]\d{{3}}{GAP}\d{{4}}{GAP}\d{{4}}",
    rf"[35-6]\d{{3}}{GAP}\d{{6}}{GAP}\d{{4,5}}",
    rf"\d(?:{GAP}\d){{11,18}}",
)
"""In one piece, in fours, as American Express and Diners print it; digit by digit, where any digit may begin a
candidate, or the automaton would have to remember which of the last ones did."""
_FEWEST = 12
_WEAK = 14
"""Digits of numbers that articles and parcels have as well."""
_DOUBLED = str.maketrans("0123456789", "0246813579")


def luhn(digits: str) -> bool:
    plain, doubled = digits[-1::-2], digits[-2::-2].translate(_DOUBLED)
    total = sum(plain.encode()) + sum(doubled.encode()) - ord("0") * len(digits)
    return total > 0 and total % 10 == 0


def _is_card(digits: str) -> bool:
    return luhn(digits) and _IS_ISSUED.fullmatch(digits) is not None and len(set(digits)) > 1


def _card(text: str, start: int, end: int) -> Iterator[Span]:
    """Groups after the card's may be the text's: "… 1111 123"."""
    start, end = trimmed(text, start, end)
    if not alone(text, start, end) and not _as_float(text, start, end):
        return
    for last in (end, *_shorter(text, start, end)):
        number = compact(text[start:last])
        if _is_card(number) and (len(number) > _WEAK or not names_thing(text, start)):
            yield Span(start, last)
            return


def _as_float(text: str, start: int, end: int) -> bool:
    """Tables with an empty cell write all numbers of its column so: 4111111111111111.0."""
    return text[end : end + 2] == ".0" and not text[end + 2 : end + 3].isalnum() and alone(text[: end + 1], start, end)


def _shorter(text: str, start: int, end: int) -> Iterator[int]:
    """Where the digits before the last groups end, as long as they are enough for a card."""
    digits = sum(map(str.isdigit, text[start:end]))
    for last in range(end - 1, start, -1):
        if digits < _FEWEST:
            return
        if not text[last].isdigit():
            yield last
        else:
            digits -= 1


def _track(number: str) -> bool:
    return luhn(number.lstrip("%Bb;").partition("^")[0].partition("=")[0])


CARDS_FORMS = (
    Form("card", whole("|".join(_SHAPES)), _card),
    Form("card_track", r"%[Bb]\d{12,19}\^[^^\n]{2,26}\^\d{7}|;\d{12,19}=\d{7}", shaped(_track)),
    beside(
        "card_code",
        r"cvv2? | cvc2? | cvn | card (?:security|verification) (?:code|value|number)",
        r"\d{3,4}",
        reach=NEAR,
    ),
)


# Bank accounts: IBAN (ISO 13616), and national ones by the words beside them.

_LENGTHS = {
    length: names.split()
    for length, names in {
        15: "NO",
        16: "BE",
        18: "DK FI FK FO GL NL SD",
        19: "MK SI",
        20: "AT BA EE KZ LT LU MN XK",
        21: "CH CR HN HR LI LV",
        22: "BG BH DE GB GE IE ME RS VA",
        23: "AE GI IL IQ OM SO TL",
        24: "AD CZ DZ ES MD PK RO SA SE SK TN VG",
        25: "AO CV LY MZ PT ST",
        26: "IR IS TR",
        27: "BF BI CF CM DJ FR GR IT MC MG SM",
        28: "AL AZ BJ BY CG CI CY DO GA GT HU KM LB ML NE NI PL SN SV TD TG",
        29: "BR EG PS QA UA",
        30: "JO KW MU YE",
        31: "MT SC",
        33: "RU",
    }.items()
}
"""Characters of an IBAN, by country: SWIFT's IBAN registry, and the countries that use it without being in it."""
_LENGTH = {country: length for length, countries in _LENGTHS.items() for country in countries}
_HEX_GROUPS = re2.compile(r"[0-9a-f]{2,4}(?: [0-9a-f]{1,4})+ [0-9a-f]{1,4}")
_LONGEST = 33 + 12
"""With the gaps between its groups."""
_IBAN = rf"(?i)(?:\b|_|IBAN)(?:{'|'.join(_LENGTH)})\d{{2}}{GAP}?[0-9A-Z]{{4}}{GAP}?[0-9A-Z]{{4}}{GAP}?[0-9A-Z]{{2}}"


def _iban(text: str, start: int, end: int) -> Iterator[Span]:
    start, _ = trimmed(text, start, end)
    start += 4 * (text[start : start + 4].upper() == "IBAN")
    number, last = _characters(text, start, _LENGTH[text[start : start + 2].upper()])
    if (
        number
        and not (_is_dump(text, start, last) or text[last : last + 1].isalnum())
        and mod_97_10.is_valid(number[4:] + number[:4])
    ):
        yield Span(start, last)


def _is_dump(text: str, start: int, last: int) -> bool:
    """Groups of hexadecimal digits, and one more."""
    written = text[start:last]
    return " " in written and _HEX_GROUPS.fullmatch(written + text[last : last + 5]) is not None


def _characters(text: str, start: int, length: int) -> tuple[str, int]:
    """So many letters and digits, and where they end; none, where fewer are there."""
    found: list[str] = []
    for place, character in enumerate(text[start : start + _LONGEST], start):
        if character.isascii() and character.isalnum():
            found.append(character.upper())
            if len(found) == length:
                return "".join(found), place + 1
        elif character.isalnum() or character == "\n":
            break
    return "", start


_NUMBER = r"(?:number|no\.?|num\.?|nr\.?|#)"
FORMS = (
    Form("iban", _IBAN, _iban),
    beside("routing_number", "routing | aba | rtn", r"\d{9}|\d{4}-\d{4}-\d", rtn.is_valid),
    beside(
        "bank_account",
        rf"(?:account|acct\.?|a/c) ?{_NUMBER} | (?:bank|checking|savings|to|from|my|your|his|her|their) account"
        " | kontonummer | konto-?nr | numéro de compte | número de cuenta | numero di conto | rekeningnummer"
        " | número da conta",
        rf"\d(?:{GAP}?\d){{6,16}}",
        reach=NEAR,
    ),
    beside("bank_account", r"sort[ _-]?code", r"\d{2}[ -]?\d{2}[ -]?\d{2}", reach=NEAR),
    beside("bank_account", r"bsb", r"\d{3}[ -]?\d{3}", reach=NEAR),
    beside("bank_account", r"transit", r"\d{5}-\d{3}", reach=NEAR),
    beside("bank_account", r"ifsc", r"[A-Z]{4}0[0-9A-Z]{6}", reach=NEAR),
    beside("bank_account", r"clabe", r"\d{18}", reach=NEAR),
    beside("bic", r"bic | swift", r"[A-Z]{6}[0-9A-Z]{2}(?:[0-9A-Z]{3})?", reach=NEAR),
)


# Passports and driving licences: few states print a checksum, so a word must stand beside the number.

_REACH = 40


def _mostly_digits(number: str) -> bool:
    return sum(map(str.isdigit, number)) * 2 >= len(number)


DOCUMENTS_FORMS = (
    beside(
        "passport",
        "passports? | reisepass | reisepassnummer | passnummer | passeport | pasaporte | passaporto | paspoort"
        " | pass-?nr"
        " | passaporte | 护照 | パスポート | паспорт",
        r"(?i)[A-Z]{1,3} ?\d{6,8}[A-Z]?|\d{8,9}|[CFGHJK][0-9CFGHJKLMNPRTVWXYZ]{8}|\d{2}[A-Z]{2}\d{5}",
        _mostly_digits,
        _REACH,
    ),
    beside(
        "driving_licence",
        "driv(?:er'?s?|er’s|ing) (?:licen[cs]e|permit) | driver_license | licen[cs]e (?:number|no\\.?)"
        " | dl ?(?:number|no\\.?|#)"
        " | führerschein | führerscheinnummer | permis de conduire | permiso de conducir | carnet de conducir"
        " | patente di guida | rijbewijs",
        r"(?i)[A-Z]\d{3}[ -]?\d{3,4}[ -]?\d{2,4}(?:[ -]?\d{1,4})?|[A-Z]{1,2}\d{5,13}|\d{7,12}[A-Z]?"
        r"|[A-Z9]{5}\d{6}[A-Z9]{2}\d?[A-Z]{2}"
        r"|[A-Z]\d{2}[0-9A-Z]{6,8}",
        reach=_REACH,
    ),
)


# Records of patients, insured and prescribers.

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


HEALTH_FORMS = (
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


# E-mail addresses, also quoted, in any script, and written out to hide them.

_OTHER = r"\x{c0}-\x{1fff}\x{3040}-\x{fdff}\x{10000}-\x{3ffff}"
"""Letters of other scripts, roughly: without their punctuation. Unicode's own classes make a large automaton."""
_LETTER = rf"0-9A-Za-z{_OTHER}"
_LOCAL = rf"[{_LETTER}._%+'-]+|\"[^\"@\n]{{1,64}}\""
_TOP = rf"(?:[A-Za-z]{{2,}}|[{_OTHER}]{{2,}}|(?i:xn--)[0-9A-Za-z-]+)"
_DOMAIN = rf"[{_LETTER}-]+(?:\.[{_LETTER}-]+)*\.{_TOP}"
_IN_BRACKETS = r" ?[\[({<] ?(?i:at|@) ?[\])}>] ?"
_DOT = r"(?: ?[\[({<] ?(?i:dot|\.) ?[\])}>] ?| (?i:dot) )"
_SPELT = (
    rf"[{_LETTER}._%+-]+(?:{_IN_BRACKETS}[{_LETTER}-]+(?:(?:\.|{_DOT})[{_LETTER}-]+)*(?:\.|{_DOT})"
    rf"| (?i:at) [{_LETTER}-]+(?:{_DOT}[{_LETTER}-]+)*{_DOT})[A-Za-z]{{2,}}"
)
_BEFORE = 256
_SHARED = ("git", "hg", "svn")
"""Accounts that everybody uses to fetch code over SSH: git@host:path."""


def _email(text: str, start: int, end: int) -> Iterator[Span]:
    while text[start] in ".'%":
        start += 1
    if not (text[start - 1 : start].isalnum() or _in_url(text, start) or _is_code(text, start, end)):
        yield Span(start, end)


def _in_url(text: str, start: int) -> bool:
    """Who logs in at an address: scheme://user:password@host."""
    before = text[max(0, start - _BEFORE) : start]
    word = before[max(before.rfind(" "), before.rfind("\n"), before.rfind('"')) + 1 :]
    return "://" in word and not set(word.partition("://")[2]).intersection("/?#")


def _is_code(text: str, start: int, end: int) -> bool:
    """A product of matrices, and a call: q@k.transpose(0, 1)."""
    return text[end : end + 1] == "(" or text[start:end].partition("@")[0] in _SHARED


MAIL_FORMS = (
    Form("email", rf"(?:{_LOCAL})@{_DOMAIN}", _email),
    Form("email", _SPELT),
)


# Addresses of machines.
#
# An address that names one machine in the world points to whoever uses it. Loopback, private, link-local, multicast
# and reserved ones are the same everywhere, and the number of a version looks like one: neither counts. Those set
# aside for documentation count, since whoever writes them means an address of the other kind.


def _octet(*left_out: int, last: int = 255) -> str:
    return "(?:" + "|".join(str(octet) for octet in range(last + 1) if octet not in left_out) + ")"


_OCTET = _octet()
_FIRST_TWO = rf"(?:{_octet(0, 10, 127, 172, 192, last=223)}\.{_OCTET}|172\.{_octet(*range(16, 32))}|192\.{_octet(168)})"
"""Private and reserved ones are no candidates at all: a log may be full of them."""
_V6 = r"(?i)(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}|[23][0-9a-f]{3}:(?:[0-9a-f]{0,4}:){1,6}[0-9a-f]{0,4}"
_VERSION = re2.compile(
    r"(?i)(?:\b|[_-])(?:(?:v|ver|releases?|build|rev|revision|firmware|fw|software|driver|patch|kernel|oid|section|chapter"
    r"|clause|kapitel|abschnitt|verze|verzió|wersja|versie|versi|sürüm|phiên bản|\w*vers[ií]?[oóã]\w*"
    r"(?: (?:number|string|no\.?|id))?)\b|objectidentifier\()"
    r"[\s:=#(\"'`*|>,.]*(?:is )?[\"']?$"
    r"|(?:верс\pL*|έκδοση|إصدار|版本|バージョン|버전|संस्करण|§)[\s:=：]*$"
    r"|(?:[0-9a-z]-|[a-z]/|[0-9a-z]/[0-9a-z._-]+:|[=~<>!]=|[~^]|@)[\s:]*$"
)
_NETWORK_BEFORE = 32
_BUILT = re2.compile(r"(?i)^(?:[-+._ ]?(?:rc|alpha|beta|dev|snapshot|final)\b|\)? \(?build\b)")
_DECIMAL, _NEXT = re2.compile(r"(?:^|[^0-9.])\d*\.\d+[ ,]$"), re2.compile(r"[ ,-]\.?\d")
"""Around two numbers of a drawing that are written without a gap: "3.51.98.32"."""
_NETWORK_LENGTH = re2.compile(r"/\d{1,3}\b")
_DOCUMENTS = tuple(map(ipaddress.ip_network, ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")))
_HEX = frozenset("0123456789abcdefABCDEF")


def _v4(text: str, start: int, end: int) -> Iterator[Span]:
    start, end = trimmed(text, start, end)
    before, after = text[max(0, start - _NETWORK_BEFORE) : start], text[end : end + _NETWORK_BEFORE]
    drawn = _DECIMAL.search(before) and _NEXT.match(after)
    if _alone(text, start, end) and not (drawn or _VERSION.search(before) or _BUILT.search(after)):
        yield from _names(text, start, end)


def _alone(text: str, start: int, end: int) -> bool:
    """What follows may be a port or a range, but not one more number."""
    return text[start - 1 : start] != "." and not (text[end : end + 1] == "." and text[end + 1 : end + 2].isalnum())


def _v6(text: str, start: int, end: int) -> Iterator[Span]:
    start, end = trimmed(text, start, end)
    before = text[max(0, start - 2) : start]
    if not (before[-1:] == ":" and before[0] in _HEX) and text[end : end + 1] != ":":
        yield from _names(text, start, end)


def _mac(text: str, start: int, end: int) -> Iterator[Span]:
    """Fingerprints of keys go on, byte by byte."""
    start, end = trimmed(text, start, end)
    mark = text[start + 2]
    if not (text[start - 1 : start] == mark or (text[end : end + 1] == mark and text[end + 1 : end + 2] in _HEX)):
        yield Span(start, end)


def _is_network(text: str, start: int, end: int) -> bool:
    """Many machines: no bit is left for one of them."""
    length = _NETWORK_LENGTH.match(text[end : end + 5])
    try:
        network = ipaddress.ip_network(text[start:end] + (length[0] if length else ""))
    except ValueError:
        return False
    return network.num_addresses > 1


def _names(text: str, start: int, end: int) -> Iterator[Span]:
    try:
        address = ipaddress.ip_address(text[start:end])
    except ValueError:
        return
    if address.version == 4:  # the sixth version's local addresses are random, and so as telling as any
        counts = address.is_global or any(address in network for network in _DOCUMENTS)
    else:
        counts = not (address.is_loopback or address.is_link_local or address.is_unspecified)
    if counts and not (address.is_multicast or _is_network(text, start, end)):
        yield Span(start, end)


NETWORK_FORMS = (
    Form("ip", whole(rf"{_FIRST_TWO}(?:\.{_OCTET}){{2}}"), _v4),
    Form("ip", whole(_V6), _v6),
    Form("mac", whole(r"(?i)[0-9a-f]{2}(?:(?::[0-9a-f]{2}){5}|(?:-[0-9a-f]{2}){5})"), _mac),
)
