"""Finds credentials in assignments and sentences, and tells whether a value is plausible as one."""

import re  # for runs of characters only: RE2's wrapper creates an object for each match
import string
from collections.abc import Iterator
from math import log2
from types import SimpleNamespace
from typing import NamedTuple

import re2

from router.classify.detector import NamedGroups, Span
from router.types.tables import patterns

# Whether a text is a random value, or words, a placeholder, an expression of a program.

PATTERNS = patterns("classify/data/secrets.yaml")
IS = SimpleNamespace(**{name: re2.compile(pattern) for name, pattern in PATTERNS["shapes"].items()})
_PARTS, _MENTION_PARTS = NamedGroups(f"(?:{PATTERNS['assignment_parts']})$"), NamedGroups(PATTERNS["mention_parts"])
_RUN = SimpleNamespace(**{name: re.compile(pattern) for name, pattern in PATTERNS["runs"].items()})
_ELSEWHERE = tuple(re2.compile(PATTERNS[name]) for name in ("reference", "elsewhere", "date"))
"""Values that only refer to a secret (variables, URLs, paths, files), and dates."""
_FUNCTION_WORDS = frozenset(PATTERNS["function_words"].split())
_NO_LETTERS = bytes(set(range(256)) - set(string.ascii_letters.encode()))
_SMALL = bytes(code if chr(code) in string.ascii_lowercase else 32 for code in range(256))
_HARSH = bytes(code if chr(code) in "bcdfghjklmnpqrstvwxz" else 32 for code in range(256))
"""Tables that keep only lower-case letters, or only consonants, and turn all other bytes into spaces."""
_LEAST_ENTROPY = 2.5
"""Minimum bits of entropy per character of a token: 16 random hexadecimal digits have 3.2, rarely less than 2.5."""


_EXAMINED = 96
"""Number of characters of a value that are examined."""


def filler(value: str) -> bool:
    """Returns whether a value is a placeholder, as in documentation."""
    characters = set(value)
    many = max(6, len(value) // 8)
    if len(characters) < (4 if len(value) < 16 else 6) or any(character * many in value for character in characters):
        return True  # xxxxxxxx, 00000000, a sequence of four letters
    return IS.stand_in.search(value) is not None


def token(value: str, least: int = 16) -> bool:
    """Returns whether a value is a machine-made key or token."""
    value = value[:_EXAMINED]
    if len(value) < least or not IS.key.fullmatch(value) or _is_no_secret(value) or IS.uuid.fullmatch(value):
        return False
    return bits(value) >= _LEAST_ENTROPY and (jumbled(value) or not IS.words.fullmatch(value))


def password(value: str, *, bare_words: bool = False) -> bool:
    """Returns whether a value may be a password made by a person; with `bare_words` also if it is a plain word."""
    value = value[:_EXAMINED]
    if len(value) < 6 or " " in value or len(set(value)) < 4 or _is_no_secret(value) or IS.hash.fullmatch(value):
        return False
    stem = value.strip("\"'!?.:;,()[]").rstrip("0123456789").lower()
    digits = sum(character.isdigit() for character in value)
    if IS.commonplace.fullmatch(stem) and digits < 3 and value.isalnum():
        return False
    if value.isalpha():
        return jumbled(value) or (bare_words and len(value) >= 8 and not IS.weak.search(value.lower()))
    if value.isalnum():
        return not IS.names.fullmatch(value) and digits < len(value)
    return jumbled(value) or not IS.words.fullmatch(value) or chosen(value)


def phrase(value: str) -> bool:
    """Returns whether a value is a passphrase of random words: it has none of the small words of a sentence."""
    return _RUN.phrase.fullmatch(value) is not None and _FUNCTION_WORDS.isdisjoint(re.split("[ _-]", value))


def chosen(value: str) -> bool:
    """Returns whether a value is words with a number, as people choose where capitals and digits are required."""
    every = all(any(map(kind, value)) for kind in (str.isupper, str.islower, str.isdigit))
    return (
        every
        and len(value) >= 8
        and (patchy(value) or bool(IS.numbered.search(value)))
        and not IS.weak.search(value.lower())
    )


def jumbled(value: str) -> bool:
    """Returns whether the letters are not words: the case keeps changing, or six consonants follow one another."""
    data = value.encode("ascii", "replace")
    letters = data.translate(None, _NO_LETTERS)
    if len(letters) < 10:
        return False
    small = data.translate(_SMALL).split()
    mixed = len(b"".join(small)) * 10 < 29 * len(small) and len(letters) > 10
    return mixed or max(map(len, letters.lower().translate(_HARSH).split()), default=0) >= 6


def patchy(value: str) -> bool:
    """Returns whether letters and digits alternate, as in no name of a program."""
    return len(_RUN.pieces.findall(value)) * 3 >= len(value) and not value.isalpha()


def bits(value: str) -> float:
    """Returns the Shannon entropy of a value, in bits per character."""
    size = len(value)
    counts = {character: value.count(character) for character in set(value)}
    return -sum(count / size * log2(count / size) for count in counts.values())


def _is_no_secret(value: str) -> bool:
    """Returns whether a value refers to something stored elsewhere, or is not a secret by its form."""
    if value.startswith("$") and len(value) >= 8 and patchy(value[1:]):
        return False
    return filler(value) or any(pattern.fullmatch(value) for pattern in _ELSEWHERE)


# `password = …`, `"api_key": "…"`, `<token>…</token>`: a value under a name that suggests a secret.

KINDS = ("password", "secret", "token")
_REACH = 16_384
"""Maximum number of characters that are searched for a value's end; without one, it extends to the end of the text."""
_LEAST = {"secret": 12, "token": 16}
"""Minimum number of characters: shorter values under these names are seldom secrets."""
_QUOTED = re.compile(
    r"(?:(?:[bBrRuUfF]|@|\$)?"
    r"|(?:new )?(?:[\w.:]{0,40}(?:from|of|new|decode)|[A-Z]?\w{0,20}(?:[Ss]tring|Str|Secret|Bytes|Buffer|Some))\()"
    r"""(\\*)(["'`])"""
)
"""The start of a literal, also as the argument of a call that makes a value of it."""
_LINE_REACH = 80
"""Number of characters before a name that are examined, for example for whether it begins its line."""


class _ValuePlace(NamedTuple):
    """How a value follows its name."""

    named: str
    literal: bool
    """Whether only a value can stand here: a command's option, an element, a connection string, a sentence."""
    line: bool
    """Whether the line is only a name and a value, as in an environment or a configuration."""
    tight: bool
    """Whether such a line has no blank before its mark, nor between an equals sign and the value."""
    environment: bool


def confirm(text: str, start: int, end: int) -> Iterator[Span]:
    part = _PARTS.match(text[start : end - 1])
    if not part:
        return
    mark = part["mark"]
    before = text[max(0, start - _LINE_REACH) : start].rpartition("\n")[2]
    option = (before + text[start]).rpartition(" ")[2].startswith("-")
    if before.endswith((":", "::")) or "::" in before.rpartition(" ")[2]:
        return  # a part of a resource's name
    if part["option"] and before[-1:].isalnum():
        return  # a dash in a sentence: "words--pass them by"
    if part["token"] and IS.passing.search(before + part["option"]):
        return
    line = mark in (":", "=") and IS.line_start.fullmatch(before) is not None
    tight = not part["gap"] and not (part["after"] and mark == "=")
    place = _ValuePlace(
        named=next(kind for kind in KINDS if part[kind]),
        literal=option or _said(mark) or mark == ">" or (mark == "=" and IS.among.search(before) is not None),
        line=line,
        tight=line and tight,
        environment=line and tight and mark == "=" and text[start : start + 3].isupper(),
    )
    first, last = literal(text, end - 1, mark) or (0, 0)
    if last:
        if _secret(text[first:last], place):
            yield Span(first, last)
    elif mark != "(":
        last = _unquoted(text, end - 1, line=line, sentence=_said(mark))
        if _plausible_unquoted(text[end - 1 : last], text[last : last + 2], place, mark):
            yield Span(end - 1, last)


def _said(mark: str) -> bool:
    """Returns whether the mark is a verb, as in a sentence."""
    return mark[:1].isalpha() or mark[:1] in ("'", "’")


def literal(text: str, at: int, mark: str = "") -> tuple[int, int] | None:
    """Returns (start, end) of a literal that begins at `at`, up to its closing quote; None if there is none."""
    annotated = _RUN.annotated.match(text, at, at + _LINE_REACH) if mark == ":" else None
    opening = _QUOTED.match(text, annotated.start(1) if annotated is not None else at)
    if opening is None:
        return None
    first, slashes, quote = opening.end(), opening[1], opening[2]
    limit = first + _REACH
    line_end = text.find("\n", first, limit)
    closing = text.find(quote, first, limit if line_end < 0 else line_end)
    while closing >= 0:
        escapes = closing
        while text[escapes - 1] == "\\" and escapes > first:
            escapes -= 1
        doubled = quote == "'" and closing > first and text[closing + 1 : closing + 2] == quote
        if doubled:  # an escaped quote in SQL and YAML
            closing += 1
        elif closing - escapes == len(slashes) or (not slashes and (closing - escapes) % 2 == 0):
            return first, closing - len(slashes)
        closing = text.find(quote, closing + 1, limit if line_end < 0 else line_end)
    return first, first if line_end >= 0 else len(text)


def striking(value: str) -> bool:
    """Returns whether a value looks like a password anywhere: no word, path or version mixes characters so."""
    if value.isalpha() or not 6 <= len(value) <= 128 or "/" in value or "(" in value:
        return False
    upper, lower, digits = (any(map(kind, value)) for kind in (str.isupper, str.islower, str.isdigit))
    marked = upper + lower + digits >= 2 and any(not each.isalnum() and each not in "-_.," for each in value)
    if not (digits or marked) or _is_no_secret(value):
        return False
    return password(value) and (_looks_random(value) or chosen(value) or marked)


def _unquoted(text: str, at: int, *, line: bool, sentence: bool) -> int:
    """Returns where a value ends: in a configuration or sentence at a blank or quote, else after an expression."""
    limit = at + _REACH
    if line or sentence:
        stop = _RUN.blank_or_quote.search(text, at, limit)
        last = len(text) if stop is None else stop.start()
        return at + len(text[at:last].rstrip(".,;:!?)]}>")) if sentence else last
    stop = _RUN.end.search(text, at, limit)
    while (
        stop is not None and stop.start() > at and not _RUN.next.match(text, stop.start(), stop.start() + _LINE_REACH)
    ):
        stop = _RUN.end.search(text, stop.end(), limit)
    return len(text) if stop is None else stop.start()


def _plausible_unquoted(value: str, behind: str, place: _ValuePlace, mark: str) -> bool:
    """Returns whether a value without quotes is a secret, and not an expression of a program."""
    if (mark == ">" and not behind.startswith("</")) or (_said(mark) and IS.call.fullmatch(value + behind[:1])):
        return False
    if place.environment:
        return not IS.call.fullmatch(value) and _secret(value, place)
    if (place.line or mark == ":") and place.named == "password" and chosen(value):
        return _secret(value, place)
    if place.literal or (place.tight and value.isalnum() and not value.isalpha()) or not IS.expression.fullmatch(value):
        return _secret(value, place)
    by_chance = patchy(value) or (len(value) >= 20 and jumbled(value))
    return by_chance and IS.letters.fullmatch(value) is not None and _secret(value, place)


def _secret(value: str, place: _ValuePlace) -> bool:
    return secret(value, place.named, bare_words=place.environment)


def secret(value: str, named: str, *, bare_words: bool = False) -> bool:
    """Returns whether a value is plausible under a name of the kind `named`, one of `KINDS`."""
    if named == "password":
        # In quotes it may be a passphrase, or have blanks: then a piece of it must not be a word.
        pieces = value[:_EXAMINED].split(" ")
        bare = bare_words and len(pieces) == 1
        return any(password(piece, bare_words=bare) for piece in pieces) or phrase(value[:_EXAMINED])
    return token(value, _LEAST[named])


# `DB_PASSWORD` to `…`, | DB_PASSWORD | … |, {"name": "DB_PASSWORD", "value": "…"}: a name, and its value further on.
# As this is less evidence than an assignment, only values that don't look like words count.

_MENTIONS_LEAST = 20
"""Minimum number of characters of a random value that needs no other evidence."""
_MENTIONS_REACH = 64


def mentions_confirm(text: str, start: int, end: int) -> Iterator[Span]:
    part = _MENTION_PARTS.match(text[start:end])
    if not part:
        return
    before = text[max(0, start - _MENTIONS_REACH) : start].rpartition("\n")[2]
    if IS.passing.search(before):
        return
    named = next(kind for kind in KINDS if part[kind])
    head = IS.head.search(before).group()
    tail = IS.tail.match(text[start : start + _MENTIONS_REACH]).group()
    first = start + len(part[""]) - 1
    value = text[first : _unquoted(text, first, line=False, sentence=bool(part["said"]))].rstrip(".:?*")
    if secret(value, named) and _is_evidence(part, head + tail, before[: len(before) - len(head)], value):
        yield Span(first, first + len(value))


def _is_evidence(part: dict[str, str], name: str, before: str, value: str) -> bool:
    """Returns whether a mention is evidence enough: a word of a sentence names many things, a setting's name one."""
    if part["record"] or (part["blank"] and IS.setting.search(before)):
        return True
    compound = IS.compound.match(name) is not None
    if not (_looks_random(value) or (part["password"] and (compound or part["said"]) and striking(value))):
        return False
    if part["said"]:
        return compound or IS.noun.match(name) is not None
    if part["comma"]:
        return not before and compound
    return bool(part["cell"]) or len(value) >= _MENTIONS_LEAST or (name.isupper() and not before)


def _looks_random(value: str) -> bool:
    """Returns whether a value looks random, as no word, path or version does."""
    if (
        not IS.plain.fullmatch(value)
        or not IS.letter.search(value)
        or not IS.digit.search(value)
        or IS.number.fullmatch(value)
    ):
        return False
    return patchy(value) or (len(value) >= _MENTIONS_LEAST and (jumbled(value) or bits(value) >= 4))
