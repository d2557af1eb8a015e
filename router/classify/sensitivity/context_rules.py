"""Rules on the text around a candidate that confirm or reject it."""

import re  # for a few characters each: RE2's wrapper costs more than the match
import string
from collections.abc import Callable, Iterator
from itertools import islice
from types import SimpleNamespace

import re2

from router.classify.detector import UNCERTAIN_SCORE, Confirm, Form, Span
from router.types.tables import patterns

# Words that name a number: if several kinds have as many digits, the nearest name counts.

NUMBER_NAMES = patterns("classify/data/number_names.yaml")
_NAME_REACH = 60
"""Number of characters before a number in which a name is looked for."""


def word_pattern(words: str) -> str:
    """Returns a pattern for words separated by " | ", in which "_" or "-", as in keys, may stand for the spaces."""
    return "|".join(word.replace(" ", "[ _-]?") if "[" not in word else word for word in words.split(" | "))


def camel_case(words: str) -> str:
    """Returns a pattern for the words as parts of a key: patientBsn, spouseSSN. Empty if none is only letters."""
    ascii_words = [word.split(" ") for word in words.split(" | ") if word.replace(" ", "").isascii()]
    letters = [parts for parts in ascii_words if all(part.isalpha() for part in parts)]
    cased = {"".join(map(str.capitalize, parts)) for parts in letters} | {"".join(parts).upper() for parts in letters}
    return "|".join(sorted(cased))


_FORM_NAMES = re2.compile(
    r"(?i)(?:\b|_)(?:"
    + "|".join(f"(?P<{form}>{word_pattern(words)})" for form, words in NUMBER_NAMES["names"].items())
    + rf"){NUMBER_NAMES['suffix']}(?:\b|_)"
)
_IS = SimpleNamespace(**{name: re2.compile(pattern) for name, pattern in NUMBER_NAMES["shapes"].items()})
_RUN = SimpleNamespace(**{name: re.compile(pattern) for name, pattern in NUMBER_NAMES["runs"].items()})
NAMED_FORMS = frozenset(NUMBER_NAMES["names"])
"""Forms that can be mistaken for one another."""


def names_other(text: str, start: int, own_form: str) -> bool:
    """Returns whether the nearest name before a number in its line, or in brackets after it, is another form's."""
    before = tuple(_FORM_NAMES.finditer(text[max(0, start - _NAME_REACH) : start].rpartition("\n")[2]))
    if before:
        return bool(before[-1].lastgroup != own_form)
    bracket = _IS.bracket.match(text[start : start + _NAME_REACH])
    after = _FORM_NAMES.match(bracket[1]) if bracket else None
    return after is not None and after.lastgroup != own_form


# The text around a number: whether it stands alone, and which words are near it.

EDGE = r"(?:\b|_)"
"""RE2's word boundary, or an underscore, which RE2 counts as a letter."""
_GAPS = " \u00a0\u2007\u202f\u2010\u2011\u2012\u2013-./()_"
_WITHOUT_GAPS = str.maketrans("", "", _GAPS)
HEX = frozenset(string.hexdigits)
_DIGIT_SET = frozenset(string.digits)
_ALNUM = frozenset(string.ascii_letters + string.digits)
_LONGEST_NUMBER = 40
"""Maximum length in characters of a number that begins within reach."""
_REACH_BEFORE = 24
"""Number of characters before a word in which its number may begin: "123456789 (SSN)"."""
NEAR, FAR = 24, 60
"""Number of characters after a word in which its number may begin: without a checksum, with one."""
_FAR_BEFORE = 40
"""`_REACH_BEFORE` for a number with a checksum: "123456789 is not accepted as SIN"."""

_CELLS = ("\t", ",", ";", "|")
_TERM_ENDS = frozenset("×÷^≈*<>+=d")
_TERM_AFTER = re.compile(
    r"\s*(?:[×÷^≈%]| \* |[+=]\s*\d|(?:mod|bytes?|[kmgt]i?b|[mnµu]s|rows?|items?|tokens?|eur|usd)\b)", re.IGNORECASE
)
"""What follows a term of arithmetic, or a unit that follows a quantity."""
_LIST_REACH = 100
"""Number of characters on either side of a number in which a list is looked for."""
_HEADING = 2_048
"""Number of characters before a number in which a heading, or a sentence, may name it."""
_MOST_NUMBERS = 4
"""Maximum number of numbers after one word."""

Valid = Callable[[str], bool]
"""Whether a number, without its gaps, is valid."""


def whole(pattern: str) -> str:
    return f"{EDGE}(?:{pattern}){EDGE}"


def always(number: str) -> bool:
    return True


def without_gaps(number: str) -> str:
    return number.translate(_WITHOUT_GAPS)


def trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Returns a span without the underscores that `EDGE` matched."""
    return start + (text[start] == "_"), end - (text[end - 1] == "_")


def stands_alone(text: str, start: int, end: int) -> bool:
    """Returns whether a number is not a part of a longer word or number: a decimal, a UUID, a version."""
    before, farther, after = text[start - 1 : start], text[max(0, start - 5) : max(0, start - 1)], text[end : end + 1]
    if after in _ALNUM or (after in (".", "-") and text[end + 1 : end + 2].isdigit()):
        return False
    if before == "-":
        return not (farther[-1:].isdigit() or (len(farther) == 4 and HEX.issuperset(farther)))
    if before in (
        ".",
        ")",
    ):  # a number that a dot continues, or a range of revisions: not the dots that lead to a number
        return not (farther[-1:].isdigit() or (farther[-1:] == "." and farther[-2:-1].isalnum()))
    return before not in _ALNUM and before != "+"


def preceded_by(names: str) -> Callable[[str, int], bool]:
    """Returns a function that tells whether one of these words stands right before a place in a text."""
    pattern = re2.compile(
        rf"(?i)(?:^|\b|_|\s|[^\x00-\x7f])(?:{names})(?:[ _-]?(?:number|no\.?|nr\.?|id|code))?"
        rf"[\s:#=.\"'-]*(?:is|was)?[\s:#=.\"']*$"
    )
    return lambda text, start: pattern.search(text[max(0, start - _REACH_BEFORE) : start]) is not None


is_named_thing = preceded_by(NUMBER_NAMES["things"])
"""Whether a number is called one of the other things that have numbers."""


def shaped(valid: Valid = always, own: str = "") -> Confirm:
    """Returns a check that confirms a valid number that is not a part of something longer; as uncertain if a word
    before it names something else.

    `own`: the form, if others look the same. Then a number is rejected if another form's name is nearest, and digits
    without gaps are uncertain unless something names them, as one in ten has the check digit.
    """
    words = f"{NUMBER_NAMES['names'].get(own)} | {NUMBER_NAMES['people']}"
    named_before = re2.compile(rf"(?i)(?:\b|_)(?:{word_pattern(words)})")

    def confirm(text: str, start: int, end: int) -> Iterator[Span]:
        start, end = trimmed(text, start, end)
        if (
            not stands_alone(text, start, end)
            or _in_row(text, start, end)
            or is_quantity(text, start, end)
            or is_number_cell(text, start, end)
            or not valid(without_gaps(text[start:end]))
            or (own and names_other(text, start, own))
        ):
            return
        is_bare = text[start:end].isdigit()
        if not own and is_bare and is_listed(text, start, end, valid):
            return
        is_unnamed = own and is_bare and not named_before.search(text[max(0, start - _HEADING) : end + _FAR_BEFORE])
        yield Span(start, end, UNCERTAIN_SCORE if is_unnamed or is_named_thing(text, start) else 1.0)

    return confirm


def _in_row(text: str, start: int, end: int) -> bool:
    """Returns whether groups of digits stand among more such groups, as in a card's number or a dump."""
    if " " not in text[start:end]:
        return False
    if text[start - 1 : start] == " " and text[start - 2 : start - 1].isdigit():
        return True
    group = text[end + 1 : end + 5]
    return text[end : end + 1] == " " and (group[:1].isdigit() or (HEX.issuperset(group) and not group.isalpha()))


def is_quantity(text: str, start: int, end: int) -> bool:
    """Returns whether a number is a quantity: a term of arithmetic, or followed by a unit."""
    before, after = text[max(0, start - _REACH_BEFORE) : start].rstrip(), text[end : end + _REACH_BEFORE]
    is_term = before[-1:] in _TERM_ENDS and _RUN.term_before.search(text[max(0, start - _REACH_BEFORE) : start])
    return bool(is_term or _TERM_AFTER.match(after))


def is_number_cell(text: str, start: int, end: int) -> bool:
    """Returns whether a number is a cell between cells that are numbers."""
    if text[start - 1 : start] not in _CELLS or not text[start - 2 : start - 1].isdigit():
        return False
    after = text[end : end + 2]
    return after[:1] in ("", "\n") or (after[0] in _CELLS and after[1:].isdigit())


def is_listed(text: str, start: int, end: int, valid: Valid) -> bool:
    """Returns whether a number is listed with others as long that are not valid, as the numbers of records are."""
    before = _RUN.listed_before.search(text, max(0, start - _LIST_REACH), start)
    after = _RUN.listed_after.match(text, end, end + _LIST_REACH)
    neighbours = "".join(match[0] for match in (before, after) if match)
    return any(len(other) == end - start and not valid(other) for other in _RUN.digits_together.findall(neighbours))


def near_word(number: str, valid: Callable[[str, int, int], bool], reach: int, before: int | None = None) -> Confirm:
    """Returns a check that takes a word, and yields the numbers after it, else those right before it.

    Within a short reach only the first counts, as without a checksum others may be anything. `valid`: of text and span.
    """
    pattern, any_digit = re2.compile(whole(number)), r"\d" in number
    reach_before = (_FAR_BEFORE if reach >= FAR else _REACH_BEFORE) if before is None else before

    def numbers_within(text: str, first: int, last: int) -> Iterator[Span]:
        if any_digit and _DIGIT_SET.isdisjoint(text[first:last]):
            return
        for match in islice(pattern.finditer(text[first : last + _LONGEST_NUMBER]), _MOST_NUMBERS):
            start, end = trimmed(text, first + match.start(), first + match.end())
            if start < last and stands_alone(text, start, end) and valid(text, start, end):
                yield Span(start, end)

    def confirm(text: str, start: int, end: int) -> Iterator[Span]:
        after = tuple(numbers_within(text, end, end + reach))
        yield from after[: None if reach >= FAR else 1] or numbers_within(text, max(0, start - reach_before), start)

    return confirm


def by_word(name: str, words: str, number: str, valid: Valid = always, reach: int = FAR) -> Form:
    """Returns a form for a number that a word near it names. `words`: patterns in any language, " | " between them."""

    def is_valid(text: str, start: int, end: int) -> bool:
        return valid(without_gaps(text[start:end])) and not (name in NAMED_FORMS and names_other(text, start, name))

    # The words as they are written in texts, and in keys and headings.
    spaced = "|".join(_whole(word_pattern(word), NUMBER_NAMES["suffix"]) for word in words.split(" | "))
    cased = camel_case(words)
    words_pattern = f"(?i:{spaced})" + (rf"|[a-z](?:{cased})(?:[A-Z]|{EDGE})" if cased else "")
    return Form(name, words_pattern, near_word(number, is_valid, reach), family="words")


def any_word(words: str) -> str:
    return "(?i)(?:" + "|".join(map(_whole, words.split(" | "))) + ")"


def _whole(word: str, suffix: str = "") -> str:
    """Returns a pattern for a whole word. RE2's word boundary knows only ASCII."""
    after = suffix + EDGE if word[-1].isascii() and word[-1] != "#" else suffix
    return (EDGE if word[0].isascii() else "") + word + after
