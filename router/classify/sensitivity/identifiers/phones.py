"""Telephone numbers: international, as nations print them, or beside a word.

Numbering plans are not asked: many numbers that people write are in none.
"""

from collections.abc import Iterator

import re2
from stdnum import isbn

from router.classify.detector import POSSIBLE, Form, Span
from router.classify.sensitivity.identifiers.cards import luhn
from router.classify.sensitivity.identifiers.surroundings import FAR, HEX, THINGS, any_of, compact, named, near

_DASH = r"\x{2010}-\x{2013}-"
_SPACE = r"\x{a0}\x{202f} "
_GAP = rf"[{_SPACE}{_DASH}.]"
_EXTENSION = rf"(?:[{_SPACE},;]{{0,2}}(?i:x|ext\.?|extension|#)[{_SPACE}]?\d{{1,6}})?"
_INTERNATIONAL = rf"\+[{_SPACE}]?\(?[1-9](?:[{_SPACE}{_DASH}./()]{{0,3}}\d){{6,16}}{_EXTENSION}"
_DIALLED = rf"\b00[1-9]\d{{0,2}}(?:{_GAP}\(?\d{{1,6}}\)?){{2,5}}{_EXTENSION}"
_AMERICAN = (
    rf"(?:\b1{_GAP}?)?(?:\(\d{{3}}\)[{_SPACE}{_DASH}]?\d{{3}}{_GAP}?|\b\d{{3}}[{_DASH}]\d{{3}}[{_DASH}]"
    rf"|\b[1-9]\d{{2}}[{_SPACE}]\d{{3}}[{_SPACE}{_DASH}]|\b[1-9]\d{{2}}\.\d{{3}}[.{_DASH}])\d{{4}}{_EXTENSION}"
)
_TRUNK = (
    rf"\b0[1-9]\d{{0,4}}(?:[{_SPACE}{_DASH}/]\d{{5,8}}|[{_SPACE}{_DASH}/]\d{{3,4}}(?:[{_SPACE}{_DASH}]\d{{2,4}}){{1,3}}"
    rf"|(?:[{_SPACE}{_DASH}/]\d\d){{3,4}}|(?:\.\d{{2,4}}){{2,4}}){_EXTENSION}"
)
_BRACKETED = (
    rf"\(0\d{{1,5}}\)[{_SPACE}{_DASH}./]{{0,2}}\d{{2,8}}(?:{_GAP}\d{{2,6}}){{0,4}}{_EXTENSION}"
    rf"|(?:\(\d{{2}}\)[{_SPACE}]?|\b[1-9]\d )9?\d{{4}}[{_DASH}]\d{{4}}"
)
_PLAIN = r"\b0[1-9]\d{8,9}\b"
_NUMBER = rf"\(?\d(?:[{_SPACE}{_DASH}./()]{{0,2}}\d){{6,14}}{_EXTENSION}"
_DATE = re2.compile(r"^(?:[0-3]?\d[./-][01]?\d[./-](?:19|20)?\d\d|(?:19|20)\d\d[./-][01]?\d[./-][0-3]?\d)(?:\D|$)")
_named_otherwise = named(f"{THINGS}|id|reference|ref|case|ssn|sin|date|see|pin|replaces|account|acct|card|zip|policy")
_OTHER_SHAPES = ((3, 2, 4), (3, 3, 3), (3, 4, 2))
"""Of other numbers of nine digits, and of parts."""
_ONE_GAP = {ord(gap): " " for gap in " \u00a0\u202f\u2010\u2011\u2012\u2013-./()+,;"} | {ord("e"): "x", ord("#"): "x"}
_FEWEST_WITHOUT_WORD = 9
_BINDS = ("_", "-", ".", "/")
_JOINS = (" ", "-", ".", "/")
_USUAL = range(8, 12)


def _international(text: str, start: int, end: int) -> Iterator[Span]:
    number = text[start:end]
    if sum(_groups(number)) >= _FEWEST_WITHOUT_WORD and not (_inside(text, start, end) or _is_decimal(number)):
        yield Span(start, end)


def _printed(text: str, start: int, end: int) -> Iterator[Span]:
    """As a nation prints its numbers."""
    number = text[start:end]
    groups = _groups(number)
    fewest = _FEWEST_WITHOUT_WORD - ("-" in number and " " in number)
    if sum(groups) < fewest or groups in _OTHER_SHAPES:
        return
    if not (_inside(text, start, end) or _is_decimal(number) or _is_date(number)):
        yield Span(start, end)


def _trunk(text: str, start: int, end: int) -> Iterator[Span]:
    """A zero and some digits may be many things: only possibly it where a word before them says another."""
    found = _printed(text, start, end)
    yield from (span._replace(score=POSSIBLE) for span in found) if _named_otherwise(text, start) else found


def _plain(text: str, start: int, end: int) -> Iterator[Span]:
    if not isbn.is_valid(text[start:end]):
        yield from _trunk(text, start, end)


def _said(text: str, start: int, end: int) -> bool:
    """Beside a word."""
    number = text[start:end]
    digits = compact(number)
    card = len(digits) in (15, 16) and luhn(digits)
    return not (card or _is_date(number) or _named_otherwise(text, start))


def _said_weakly(text: str, start: int, end: int) -> bool:
    """Words like "call" stand beside many numbers: this one has a telephone's length, and is not round."""
    number = text[start:end]
    return sum(_groups(number)) in _USUAL and not number.endswith("000") and _said(text, start, end)


def _groups(number: str) -> tuple[int, ...]:
    """Of digits, without the extension."""
    return tuple(map(len, number.lower().translate(_ONE_GAP).partition("x")[0].split()))


def _is_decimal(number: str) -> bool:
    whole, point, rest = number.lstrip("+").partition(".")
    return bool(point) and whole.isdigit() and rest.isdigit()


def _is_date(number: str) -> bool:
    return _DATE.search(number) is not None


def _inside(text: str, start: int, end: int) -> bool:
    """Digits go on, with or without a gap."""
    before, after = text[max(0, start - 3) : start], text[end : end + 6]
    return _ends_in_number(before) or after[:1].isalnum() or (after[:1] in _JOINS and _begins_number(after[1:]))


def _ends_in_number(before: str) -> bool:
    """Or in a byte of a dump."""
    if before[-1:] != " ":
        return before[-1:].isalnum() or before[-1:] in _BINDS
    return before[-2:-1].isdigit() or (HEX.issuperset(before[:2]) and before[:1].isdigit())


def _begins_number(after: str) -> bool:
    """Or two bytes of a dump."""
    first, gap, second = after[:2], after[2:3], after[3:5]
    return after[:1].isdigit() or (gap == " " and len(second) == 2 and HEX.issuperset(first + second))


_WORDS = (
    "(?:tele)?phones? | tel\\.? | mobile | cell ?phone | cell number | my cell | fax | contact number | hotline | pager"
    " | voicemail | whatsapp | telefone? | telefono | teléfono | téléphone | telefoon | telefon | telefonnummer"
    " | rufnummer | handy | handynummer | mobil | móvil | celular | cellulare | portable | mobiel | tlf\\.? | 電話"
    " | 电话 | 手机 | 전화 | телефон"
)
_CALL = (
    "(?:call(?:ing|ed)?|reach(?:ed|able)?|contact(?:ed)?|ring|text(?:ed)?|dial(?:l?ed)?|sms)"
    "(?: (?:me|us|him|her|them))?"
)
_CALL_AT = rf"{_CALL}(?: [\pL'-]+){{0,4}}? (?:at|on|via|under)"
_TIGHT, _LOOSE = 3, 20
"""Characters between such a word and its number."""

FORMS = (
    Form("phone", _INTERNATIONAL, _international),
    Form("phone", _DIALLED, _printed),
    Form("phone", _AMERICAN, _printed),
    Form("phone", _TRUNK, _trunk),
    Form("phone", _BRACKETED, _printed),
    Form("phone", _PLAIN, _plain),
    Form("phone", any_of(_WORDS), near(_NUMBER, _said, FAR)),
    Form("phone", any_of(_CALL), near(_NUMBER, _said_weakly, _TIGHT, before=0)),
    Form("phone", any_of(_CALL_AT), near(_NUMBER, _said_weakly, _LOOSE, before=0)),
    Form("phone", any_of("office | (?:my|his|her|new|their|our|your) number"), near(_NUMBER, _said_weakly, _LOOSE)),
)
