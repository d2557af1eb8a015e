"""Telephone numbers: international, in a national format, or beside a word.

Numbering plans are not checked: many numbers that people write are in none.
"""

from collections.abc import Iterator

import re2
from stdnum import isbn

from router.classify.detector import UNCERTAIN_SCORE, Form, Span
from router.classify.sensitivity.checksums import luhn
from router.classify.sensitivity.context_rules import (
    FAR,
    HEX,
    NUMBER_NAMES,
    any_word,
    is_listed,
    names_other,
    near_word,
    preceded_by,
    stands_alone,
    trimmed,
    whole,
    without_gaps,
)
from router.types.tables import patterns

_PATTERNS = patterns("classify/data/phones.yaml")
_DATE = re2.compile(_PATTERNS["date"])
_named_otherwise = preceded_by(
    f"{NUMBER_NAMES['things']}|commit|merge|id|reference|ref|case|ssn|sin|date|see|pin|replaces|account|acct|card|zip|policy"
)
_OTHER_GROUPS = ((3, 2, 4), (3, 3, 3), (3, 4, 2))
"""Digit groups of other numbers with nine digits, and of part numbers."""
_PLACE_GROUPS = ((4, 5), (6, 7))
"""Digit groups of a place in degrees and minutes (ISO 6709): +1703-06148."""
_ONE_GAP = {ord(gap): " " for gap in " \u00a0\u202f\u2010\u2011\u2012\u2013-./()+,;"} | {ord("e"): "x", ord("#"): "x"}
_FEWEST_WITHOUT_WORD = 9
_BINDS = ("_", "-", ".", "/")
_JOINS = (" ", "-", ".", "/")
_USUAL_DIGITS = range(8, 12)
_LINE_REACH = 40
_REACH_BEFORE = 24
"""Number of characters before a word in which its number may begin."""


def _confirm_international(text: str, start: int, end: int) -> Iterator[Span]:
    """Confirms an international number; not a term, as in "31 * x + 123456789"."""
    number = text[start:end]
    groups = _group_lengths(number)
    is_term = len(groups) == 1 and not number[1].isdigit()
    if sum(groups) < _FEWEST_WITHOUT_WORD or groups in _PLACE_GROUPS or is_term:
        return
    if not (_is_part(text, start, end) or _is_decimal(number)):
        yield Span(start, end)


def _confirm_national(text: str, start: int, end: int) -> Iterator[Span]:
    """Confirms a number in a national format."""
    number = text[start:end]
    groups = _group_lengths(number)
    fewest = _FEWEST_WITHOUT_WORD - ("-" in number and " " in number)
    if sum(groups) < fewest or groups in _OTHER_GROUPS:
        return
    if not (_is_part(text, start, end) or _is_decimal(number) or _is_date(number)):
        yield Span(start, end)


def _confirm_trunk(text: str, start: int, end: int) -> Iterator[Span]:
    """Confirms a number that begins with a zero; as uncertain if a word before it names something else."""
    spans = _confirm_national(text, start, end)
    yield from (span._replace(score=UNCERTAIN_SCORE) for span in spans) if _named_otherwise(text, start) else spans


def _confirm_paired(text: str, start: int, end: int) -> Iterator[Span]:
    """Confirms a number unless it is a row of a table: alone in its line, with only digits in a line beside it."""
    before, after = text[max(0, start - _LINE_REACH) : start].split("\n"), text[end : end + _LINE_REACH].split("\n")
    own_line, nearby_lines = before[-1] + after[0], before[-2:-1] + after[1:2]
    if own_line.strip() or not any(line[:1].isdigit() and line.replace(" ", "").isdigit() for line in nearby_lines):
        yield from _confirm_trunk(text, start, end)


def _confirm_plain(text: str, start: int, end: int) -> Iterator[Span]:
    if not isbn.is_valid(text[start:end]) and not is_listed(
        text, start, end, lambda digits: digits[0] == "0" != digits[1]
    ):
        yield from _confirm_trunk(text, start, end)


def _is_phone(text: str, start: int, end: int) -> bool:
    """Returns whether a number beside a word for telephones is one."""
    number = text[start:end]
    digits = without_gaps(number)
    is_card = len(digits) in (15, 16) and luhn(digits)
    return not (is_card or _is_date(number) or _named_otherwise(text, start) or names_other(text, start, "phone"))


def _likely_phone(text: str, start: int, end: int) -> bool:
    """Returns whether a number beside a weak word ("call") is a phone's: of usual length, not round, no decimal."""
    number = text[start:end]
    if sum(_group_lengths(number)) not in _USUAL_DIGITS or number.endswith("000") or _is_decimal(number):
        return False
    return _is_phone(text, start, end)


def _group_lengths(number: str) -> tuple[int, ...]:
    """Returns the lengths of the groups of digits, without the extension."""
    return tuple(map(len, number.lower().translate(_ONE_GAP).partition("x")[0].split()))


def _is_decimal(number: str) -> bool:
    whole, point, rest = number.lstrip("+ ").partition(".")
    return bool(point) and whole.isdigit() and rest.isdigit()


def _is_date(number: str) -> bool:
    return _DATE.search(number) is not None


def _is_part(text: str, start: int, end: int) -> bool:
    """Returns whether the number goes on before or after the span, with or without a gap."""
    before, after = text[max(0, start - 3) : start], text[end : end + 6]
    if _ends_in_number(before) or after[:1] not in _JOINS:
        return _ends_in_number(before) or (after[:1].isascii() and after[:1].isalnum())
    first, gap, second = after[1:3], after[3:4], after[4:6]  # two bytes of a dump
    return first[:1].isdigit() or (gap == " " and len(second) == 2 and HEX.issuperset(first + second))


def _ends_in_number(before: str) -> bool:
    """Returns whether the text ends in a number, a word or a byte of a dump."""
    last = before[-1:]
    if last != " ":
        return (last.isascii() and last.isalnum()) or last in _BINDS
    return before[-2:-1].isdigit() or (HEX.issuperset(before[:2]) and before[:1].isdigit())


_WHOLE_NUMBER = re2.compile(whole(_PATTERNS["number"]))
_LONGEST_NUMBER = 40


def _confirm_after_word(text: str, start: int, end: int) -> Iterator[Span]:
    """Confirms a match that ends in the first digit of a number."""
    first = end - 1 - (text[end - 2] == "(")
    number = _WHOLE_NUMBER.match(text[first : first + _LONGEST_NUMBER])
    if number and stands_alone(text, first, first + number.end()) and _likely_phone(text, first, first + number.end()):
        yield Span(*trimmed(text, first, first + number.end()))


def _confirm_before_word(text: str, start: int, end: int) -> Iterator[Span]:
    """Confirms a match that begins with the last digit of a number."""
    first = max(0, start + 1 - _LONGEST_NUMBER)
    for number in _WHOLE_NUMBER.finditer(text[first : start + 1]):
        begin, stop = trimmed(text, first + number.start(), first + number.end())
        if stop == start + 1 and stands_alone(text, begin, stop) and _likely_phone(text, begin, stop):
            yield Span(begin, stop)


PHONES_FORMS = tuple(
    Form("phone", pattern, confirm, family=family, gate=NUMBER_NAMES["gates"].get(family, ""))
    for family, pattern, confirm in (
        ("number", _PATTERNS["international"], _confirm_international),
        ("number", _PATTERNS["dialled"], _confirm_national),
        ("number", _PATTERNS["american"], _confirm_national),
        ("number", _PATTERNS["trunk"], _confirm_trunk),
        ("number", f"{_PATTERNS['bracketed']}|{_PATTERNS['chinese']}", _confirm_national),
        ("number", _PATTERNS["paired"], _confirm_paired),
        ("number", _PATTERNS["plain"], _confirm_plain),
        ("", any_word(_PATTERNS["words"]), near_word(_PATTERNS["number"], _is_phone, FAR, before=_REACH_BEFORE)),
        ("place", any_word(_PATTERNS["call"]) + _PATTERNS["tight"], _confirm_after_word),
        ("place", f"{any_word(_PATTERNS['call_at'])}{_PATTERNS['loose']}|{_PATTERNS['signed']}", _confirm_after_word),
        ("", _PATTERNS["at_office"], _confirm_before_word),
    )
)
