"""`password = …`, `"api_key": "…"`, `<token>…</token>`: a value under a name that promises a secret."""

from collections.abc import Iterator
from typing import NamedTuple

import re2

from router.classify.detector import Span
from router.classify.sensitivity.plausible import jumbled, password, patchy, token

NAMES = {
    "password": r"passw(?:or)?d|passphrase|passcode|pwd|\bpass|_pass|kennwort|passwort|mot[ _]de[ _]passe|contraseña",
    "secret": r"secret|api[ _.-]?key|credentials?|(?:access|auth|account|private|secret|signing|encryption|master"
    r"|shared|service|client|app(?:lication)?)[ _.-]?key",
    "token": r"token|authorization|\bauth|_auth",
}
SUFFIX = r"(?:[_.-](?:prod(?:uction)?|dev|staging|live|test|default|value|base64|b64|old|new|[0-9]))?"
NAMED = "|".join(NAMES.values())
PATTERN = (
    rf"(?i)(?:{NAMED}){SUFFIX}"
    r"""(?:["'`\])\\*]*[ \t]*(?::=|=>|[:=]|>|\bis:?[ \t])[ \t]*[^\s]|["']?[ \t]*,[ \t]*["'])"""
    rf"|(?i)--[\w-]*(?:{NAMED}){SUFFIX}[ \t]+[^\s]"
)
_REACH = 4_096
"""Characters of a value: a private key of 4,096 bits has 3,250."""
_TASTE = 96
"""Characters of it that are judged."""
_PARTS = re2.compile(
    rf"(?i)(?P<option>--[\w-]*)?(?:{'|'.join(f'(?P<{name}>{words})' for name, words in NAMES.items())}){SUFFIX}"
    r"""["'`\])\\*]*(?P<gap>[ \t]*)(?P<mark>:=|=>|[:=]|>|is:?|,|)(?P<after>[ \t]*)"""
)
_LEAST = {"secret": 12, "token": 16}
"""Characters; shorter ones under these names are seldom secrets."""
_CALL = re2.compile(r"[A-Za-z_$][\w.]*[(\[].*[)\]]")
_QUOTED = re2.compile(r"""(?:[bBrRuUfF]|@|\$)?\\*(["'`])""")
_ANNOTATED = re2.compile(r"""[A-Za-z_][\w.]*(?:\[[\w., |]*\])?(?: ?\| ?\w+| ?\?)* ?= ?(["'])""")
_EXPRESSION = re2.compile(r"[A-Za-z_$@][\w$]*(?:[.(\[:?]|->|\+\+).*|[({\[].*|[!&*][A-Za-z].*|[A-Za-z_]\w*[,;)]*|\$\w+-")
_LETTERS = re2.compile("[0-9A-Za-z_-]+")
_LITERAL_END = re2.compile(r"""[\s"'`,;)<>\]}&|\\]""")
_BLANK_OR_QUOTE = re2.compile(r"""[\s"'`]""")
PASSING = re2.compile(
    r"(?i)(?:public[ _-]?key|next|page|pagination|continuation|sync|change|export|starting|(?:in|out)put|request"
    r"|csrf|xsrf|cancel(?:lation)?)"
    r"[ _.-]?(?:request|middleware)?[ _.-]?$"
)
"""Tokens that page through lists and guard forms, fingerprints of public keys: of no use to anybody else."""
_LINE_START = re2.compile(r"(?:export[ \t]+|set[ \t]+|env[ \t]+|ARG[ \t]+|ENV[ \t]+|-e[ \t]+|[ \t>#$-])*[\w.\"'-]*")
_AMONG = re2.compile(
    r"""(?i);[ \t]*$|[?&;]$|\b(?:host|server|user(?:name|[ _]?id)?|uid|dbname|database)=[^\s,;&()"']+[ ;&]$"""
)
"""What stands before a password in a connection string or an address."""
_LINE_REACH = 80
"""Characters before a name that say whether it begins its line."""


class _Place(NamedTuple):
    """How a value stands behind its name."""

    named: str
    literal: bool
    """Nothing but a value can stand here: an option of a command, an element, a connection string, a sentence."""
    line: bool
    """The line is its name and its value: of an environment, of a configuration."""
    tight: bool
    """No blank before a value that follows an equals sign."""
    environment: bool


def confirm(text: str, start: int, end: int) -> Iterator[Span]:
    match = _PARTS.fullmatch(text[start : end - 1])
    if match is None:
        return
    part = match.groupdict()
    mark = part["mark"]
    before = text[max(0, start - _LINE_REACH) : start].rpartition("\n")[2]
    option = (before + text[start]).rpartition(" ")[2].startswith("-")
    if before.endswith((":", "::")) or "::" in before.rpartition(" ")[2]:
        return  # a part of a resource's name
    if part["option"] and before[-1:].isalnum():
        return  # a dash between words--pass them by
    if part["token"] and PASSING.search(before + (part["option"] or "")):
        return
    line = mark in (":", "=") and _LINE_START.fullmatch(before) is not None
    tight = not part["gap"] and not (part["after"] and mark == "=")
    place = _Place(
        named=next(name for name in NAMES if part[name]),
        literal=option or mark in ("is", "is:", ">") or (mark == "=" and _AMONG.search(before) is not None),
        line=line,
        tight=line and tight,
        environment=line and tight and mark == "=" and text[start : start + 3].isupper(),
    )
    ahead = text[end - 1 : end - 1 + _REACH]
    yield from (Span(end - 1 + first, end - 1 + last) for first, last in _values(ahead, place, mark))


def _values(ahead: str, place: _Place, mark: str) -> Iterator[tuple[int, int]]:
    annotated = _ANNOTATED.match(ahead) if mark == ":" else None
    opening = _QUOTED.match(ahead, annotated.start(1) if annotated is not None else 0)
    if opening is not None:
        first = opening.end()
        value = ahead[first : _closed(ahead, first, opening[1])].rstrip("\\")
        sound = "\n" not in value and _secret(value, place)
    else:
        first, value = 0, _bare(ahead, place)
        sound = _sound(value, ahead[len(value) :], place, mark)
    if sound:
        yield first, first + len(value)


def _closed(ahead: str, first: int, quote: str) -> int:
    end = ahead.find(quote, first)
    return end if end >= 0 else len(ahead)


def _bare(ahead: str, place: _Place) -> str:
    """Up to the end of the line where an environment or a configuration gives it, else up to the next mark."""
    end = (_BLANK_OR_QUOTE if place.line else _LITERAL_END).search(ahead)
    return ahead[: end.start()] if end is not None else ahead


def _sound(value: str, behind: str, place: _Place, mark: str) -> bool:
    """Without quotes it may as well be an expression of a program."""
    if (mark == ">" and not behind.startswith("</")) or (mark == "is" and "(" in value):
        return False
    if place.environment:
        return not _CALL.fullmatch(value) and _secret(value, place)
    if place.literal or (place.tight and value.isalnum() and not value.isalpha()) or not _EXPRESSION.fullmatch(value):
        return _secret(value, place)
    by_chance = patchy(value) or (len(value) >= 20 and jumbled(value))
    return by_chance and _LETTERS.fullmatch(value) is not None and _secret(value, place)


def _secret(value: str, place: _Place) -> bool:
    return secret(value, place.named, bare_words=place.environment)


def secret(value: str, named: str, *, bare_words: bool = False) -> bool:
    """`named`: one of `NAMES`."""
    if named == "password":
        return password(value[:_TASTE], bare_words=bare_words)
    return token(value[:_TASTE], _LEAST[named])
