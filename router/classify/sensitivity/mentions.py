"""`DB_PASSWORD` to `…`, | DB_PASSWORD | … |, {"name": "DB_PASSWORD", "value": "…"}: a name, and its value further on.

Where less than an assignment says that this is a value, only what nobody would write as a word counts as one.
"""

from collections.abc import Iterator

import re2

from router.classify.detector import Span
from router.classify.sensitivity.assignments import NAMED, NAMES, PASSING, SUFFIX, secret
from router.classify.sensitivity.plausible import bits, chosen, jumbled, patchy

_SAYING = (
    r"to|with|is|was|as|be|are|should|must|now|currently|still|set|equals?|value|valued|from|the|an?|old|new|one"
    r"|ist|auf|lautet|mit|wert|war|est|vaut|à|avec|valeur|es|vale|con|valor|è|é|com|=|:"
)
_MARK = r"""["'`*\\]*"""
_WORDS = rf"{_MARK}[)\]]?[ \t]+(?:(?:{_SAYING})[ \t]+){{1,6}}{_MARK}"
_CELL = rf"{_MARK}[ \t]*(?:\||->|→|—|–|\t)[ \t|]*{_MARK}"
_RECORD = rf"{_MARK}\s*[,;]?\s*{_MARK}(?:value|default){_MARK}\s*[:=]\s*{_MARK}"
_BLOCK = r"""["']\s*\{[^{}="']*(?:=\s*(?:\w+|"[^"{}]*")\s[^{}="']*){0,3}default\s*=\s*["']"""
_LINES = rf"{_MARK}[ \t]*:[ \t]*[|>]?-?\r?\n[ \t]*{_MARK}"
_BLANK = r"""[ \t]+(?:--(?:body|value|secret-string)[ =])?["']?"""
GAP = f"(?:{_WORDS}|{_CELL}|{_RECORD}|{_LINES}|{_BLANK})"
"""What stands between any name and its value."""
PATTERN = rf"(?i)(?:{NAMED}){SUFFIX}(?:{GAP}|{_BLOCK}|,)[!-~]*[0-9]"
_PARTS = re2.compile(
    rf"(?i)(?:{'|'.join(f'(?P<{name}>{words})' for name, words in NAMES.items())}){SUFFIX}"
    rf"(?:(?P<said>{_WORDS}|{_LINES})|(?P<cell>{_CELL})|(?P<record>{_RECORD}|{_BLOCK})|(?P<blank>{_BLANK})|(?P<comma>,))[!-~]"
)
_COMPOUND = re2.compile(r".*(?:[0-9A-Za-z][_.-][0-9A-Za-z]|[a-z][A-Z])|[A-Z]+$")
_NOUN = re2.compile("(?i)(?:passw(?:or)?d|passphrase|passcode|kennwort|passwort|mot[ _]de[ _]passe|contraseña)$")
_HEAD, _TAIL = re2.compile(r"[\w.-]*$"), re2.compile(r"[\w.-]*")
_SETTING = re2.compile(r"(?i)(?:^|[\s>])(?:env|arg|setx|secret[ \t]+set)[ \t]+[\"']?$")
_END = re2.compile(r"""[\s"'`,;)<>\]}&|\\]""")
_PLAIN = re2.compile(r"[0-9A-Za-z._~+/=@!$#%^&*?:-]+")
_NUMBER = re2.compile(r"0[xX].*|(?:\d+:)?v?\d+(?:[._-]\d+)+.*")
"""A constant of a program, a version."""
_LETTER, _DIGIT = re2.compile("[A-Za-z]"), re2.compile("[0-9]")
_LEAST = 20
"""Characters of what stands for itself."""
_REACH, _LONGEST = 64, 512


def confirm(text: str, start: int, end: int) -> Iterator[Span]:
    match = _PARTS.match(text[start:end])
    if match is None:
        return
    before = text[max(0, start - _REACH) : start].rpartition("\n")[2]
    if PASSING.search(before):
        return
    part = match.groupdict()
    named = next(name for name in NAMES if part[name])
    head = _HEAD.search(before).group()
    tail = _TAIL.match(text[start : start + _REACH]).group()
    first = start + match.end() - 1
    value = _value(text[first : first + _LONGEST])
    if secret(value, named) and _stands(part, head + tail, before[: len(before) - len(head)], value):
        yield Span(first, first + len(value))


def _stands(part: dict[str, str], name: str, before: str, value: str) -> bool:
    """A word of a sentence names many things; a setting's name, one."""
    if part["record"] or (part["blank"] and _SETTING.search(before)):
        return True
    compound = _COMPOUND.match(name) is not None
    if not (_chance(value) or (part["password"] and compound and chosen(value))):
        return False
    if part["said"]:
        return compound or _NOUN.match(name) is not None
    if part["comma"]:
        return not before and compound
    return bool(part["cell"]) or len(value) >= _LEAST or (name.isupper() and not before)


def _value(ahead: str) -> str:
    end = _END.search(ahead)
    return (ahead if end is None else ahead[: end.start()]).rstrip(".:?*")


def _chance(value: str) -> bool:
    """Nobody would write this as a word, a path or a version."""
    if not _PLAIN.fullmatch(value) or not _LETTER.search(value) or not _DIGIT.search(value) or _NUMBER.fullmatch(value):
        return False
    return patchy(value) or (len(value) >= _LEAST and (jumbled(value) or bits(value) >= 4))
