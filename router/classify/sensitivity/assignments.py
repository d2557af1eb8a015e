"""Credentials in assignments and in sentences, and whether a value is plausible as one."""

import re
import string
from collections.abc import Iterator
from math import log2
from typing import NamedTuple

import re2

from router.classify.detector import Span

# Is this text a value that somebody made up of chance, or words, a placeholder, an expression of a program?

# for the runs of characters only: an object a match is what RE2 costs


_STAND_IN_WORDS = "your|example|placeholder|change[-_]?me|replace|insert|redacted|dummy|sample|fake|xxxx"
_STAND_IN = re2.compile(
    f"{_STAND_IN_WORDS}|{_STAND_IN_WORDS.title()}|{_STAND_IN_WORDS.upper()}"
    + r"|(?i:not.?a.?real|here$)|\*\*\*|\.\.\.|…|<[^>]*>|\$\{|\{\{|\$\(|#\{|%\(\w+\)|<%|\{\w*\}"
)
_REFERENCE = re2.compile(
    r"\$[A-Za-z_]\w*(?:[\[({].*|->.*)?|--[a-z-]+|%[sdvq]|%\w+%|@\w+@|__\w+__|\[[^\]]*\]|![A-Za-z:]+|[*&][A-Za-z_-]+"
    r"|(?:process\.env|os\.environ|os\.getenv|getenv|ENV|env|System|import\.meta|config|settings|self|this|var|local"
    r"|data|secrets?|vars|params?|args?|options?|opts|props|request|req|response|res|ctx|context|user|module)[.\[(].*"
)
"""Names a value that is kept elsewhere."""
_ELSEWHERE = re2.compile(
    r"(?i)[a-z][a-z0-9+.-]*://.*|(?:arn|urn|vault|ssm|op|file|env|gcp|aws|azure|sha\d+|md5|enc)[:\[].*"
    r"|(?:\.{0,2}|~|[a-z]:)[/\\].*|[^\s@]+@[\w-]+\.[\w.-]+"
    r"|.*\.(?:pem|key|crt|json|ya?ml|txt|env|py|js|ts|go|rs|java|html?|md|cfg|ini|conf|toml|xml|sh)"
)
"""Addresses, paths, files, e-mail."""
_HASH = re2.compile(
    r"\$(?:\d\w?|argon2\w*|pbkdf2[\w-]*|bcrypt[\w-]*|scrypt|y)\$.*|(?:pbkdf2|bcrypt|argon2|scrypt|sha\d+)[\w-]*\$.*|\{\w+\}.+"
)
_KEY = re2.compile(r"[0-9A-Za-z._~+/=:@!$#%^&*()?,-]+")
_UUID = re2.compile(r"(?i)[0-9a-z]{7,8}(?:-[0-9a-z]{3,4}){3}-[0-9a-z]{11,12}")
_DATE = re2.compile(r"\d{4}-\d\d-\d\d(?:[T ].*)?|\d[\d.,:_/-]*")
_WORDS = re2.compile(r"[\"'(\[]*(?:[A-Za-z]+\d{0,4}|\d+)(?:[-_./:,+ ]+(?:[A-Za-z]+\d{0,4}|\d+))*[-_.!?:;,)\]]*")
_NAMES = re2.compile(
    r"(?i)(?:sha|md|utf|base|u?int|float|oauth|pbkdf|argon|aes|rsa|str|ipv|http|v|ed|hs|rs|es)-?\d+\w{0,2}"
)
_PIECES = re.compile(r"[A-Z]*[a-z]+|[A-Z]+|[0-9]+")
_NUMBERED = re2.compile(r"[A-Za-z]{4}\d{2,4}[-_.!?]?$")
_NO_LETTERS = bytes(set(range(256)) - set(string.ascii_letters.encode()))
_SMALL = bytes(code if chr(code) in string.ascii_lowercase else 32 for code in range(256))
_HARSH = bytes(code if chr(code) in "bcdfghjklmnpqrstvwxz" else 32 for code in range(256))
"""What is left of a text: small letters, consonants."""
_COMMONPLACE = re2.compile(
    ".*(?:password|secret)|passwd|pass|pwd|token|key|tests?|admin|root|user|postgres|mysql|guest|default|none|null|true"
    "|false|string|value|field|required|optional|undefined|nil|str|bytes|qwerty|letmein|foo|bar|baz|foobar"
)
_WEAK = re2.compile("pass|secret|token|admin|root|user|string|require|default|test|value|key")
_LEAST_ENTROPY = 2.5
"""Bits a character; sixteen hexadecimal digits of chance have about 3.2, and hardly ever less than this."""


def filler(value: str) -> bool:
    """Stands in for a value in documentation."""
    characters = set(value)
    many = max(6, len(value) // 8)
    if len(characters) < (4 if len(value) < 16 else 6) or any(one * many in value for one in characters):
        return True  # xxxxxxxx, 00000000, a sequence of four letters
    return _STAND_IN.search(value) is not None


def token(value: str, least: int = 16) -> bool:
    """Made by a machine: a key or a token."""
    if len(value) < least or not _KEY.fullmatch(value) or _aside(value) or _UUID.fullmatch(value):
        return False
    return bits(value) >= _LEAST_ENTROPY and (jumbled(value) or not _WORDS.fullmatch(value))


def password(value: str, *, bare_words: bool = False) -> bool:
    """May be made by a person. `bare_words`: where it stands nothing but a password would, so that a word is one."""
    if (
        len(value) < 6
        or len(value) > 256
        or " " in value
        or len(set(value)) < 4
        or _aside(value)
        or _HASH.fullmatch(value)
    ):
        return False
    stem = value.strip("\"'!?.:;,()[]").rstrip("0123456789").lower()
    digits = sum(character.isdigit() for character in value)
    if _COMMONPLACE.fullmatch(stem) and digits < 3 and value.isalnum():
        return False
    if value.isalpha():
        return jumbled(value) or (bare_words and len(value) >= 8 and not _WEAK.search(value.lower()))
    if value.isalnum():
        return not _NAMES.fullmatch(value) and digits < len(value)
    return jumbled(value) or not _WORDS.fullmatch(value) or chosen(value)


def chosen(value: str) -> bool:
    """Words with a number, as people choose them where a rule asks for capitals and digits."""
    every = all(any(map(kind, value)) for kind in (str.isupper, str.islower, str.isdigit))
    return (
        every
        and len(value) >= 8
        and (patchy(value) or bool(_NUMBERED.search(value)))
        and not _WEAK.search(value.lower())
    )


def jumbled(value: str) -> bool:
    """Letters that are no words: the case changes every other letter, or hardly a vowel."""
    data = value.encode("ascii", "replace")
    letters = data.translate(None, _NO_LETTERS)
    if len(letters) < 10:
        return False
    small = data.translate(_SMALL).split()
    mixed = len(b"".join(small)) * 10 < 29 * len(small) and len(letters) > 10
    return mixed or max(map(len, letters.lower().translate(_HARSH).split()), default=0) >= 6


def patchy(value: str) -> bool:
    """Letters and digits in turn, as in no name of a program."""
    pieces = len(_PIECES.findall(value))
    return pieces * 3 >= len(value) and not value.isalpha()


def bits(value: str) -> float:
    """Shannon's entropy of its characters."""
    size = len(value)
    counts = {character: value.count(character) for character in set(value)}
    return -sum(count / size * log2(count / size) for count in counts.values())


def _aside(value: str) -> bool:
    """Stands for something that is elsewhere, or is no secret by its form."""
    if value.startswith("$") and len(value) >= 8 and patchy(value[1:]):
        return False
    return filler(value) or any(one.fullmatch(value) for one in (_REFERENCE, _ELSEWHERE, _DATE))


# `password = …`, `"api_key": "…"`, `<token>…</token>`: a value under a name that promises a secret.

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


# `DB_PASSWORD` to `…`, | DB_PASSWORD | … |, {"name": "DB_PASSWORD", "value": "…"}: a name, and its value further on.
#
# Where less than an assignment says that this is a value, only what nobody would write as a word counts as one.

_SAYING = (
    r"to|with|is|was|as|be|are|should|must|now|currently|still|set|equals?|value|valued|from|the|an?|old|new|one"
    r"|ist|auf|lautet|mit|wert|war|est|vaut|à|avec|valeur|es|vale|con|valor|è|é|com|=|:"
)
_MARK = r"""["'`*\\]*"""
_MENTIONS_WORDS = rf"{_MARK}[)\]]?[ \t]+(?:(?:{_SAYING})[ \t]+){{1,6}}{_MARK}"
_CELL = rf"{_MARK}[ \t]*(?:\||->|→|—|–|\t)[ \t|]*{_MARK}"
_RECORD = rf"{_MARK}\s*[,;]?\s*{_MARK}(?:value|default){_MARK}\s*[:=]\s*{_MARK}"
_BLOCK = r"""["']\s*\{[^{}="']*(?:=\s*(?:\w+|"[^"{}]*")\s[^{}="']*){0,3}default\s*=\s*["']"""
_LINES = rf"{_MARK}[ \t]*:[ \t]*[|>]?-?\r?\n[ \t]*{_MARK}"
_BLANK = r"""[ \t]+(?:--(?:body|value|secret-string)[ =])?["']?"""
GAP = f"(?:{_MENTIONS_WORDS}|{_CELL}|{_RECORD}|{_LINES}|{_BLANK})"
"""What stands between any name and its value."""
MENTIONS_PATTERN = rf"(?i)(?:{NAMED}){SUFFIX}(?:{GAP}|{_BLOCK}|,)[!-~]*[0-9]"
_MENTIONS_PARTS = re2.compile(
    rf"(?i)(?:{'|'.join(f'(?P<{name}>{words})' for name, words in NAMES.items())}){SUFFIX}"
    rf"(?:(?P<said>{_MENTIONS_WORDS}|{_LINES})|(?P<cell>{_CELL})|(?P<record>{_RECORD}|{_BLOCK})|(?P<blank>{_BLANK})|(?P<comma>,))[!-~]"
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
_MENTIONS_LEAST = 20
"""Characters of what stands for itself."""
_MENTIONS_REACH, _LONGEST = 64, 512


def mentions_confirm(text: str, start: int, end: int) -> Iterator[Span]:
    match = _MENTIONS_PARTS.match(text[start:end])
    if match is None:
        return
    before = text[max(0, start - _MENTIONS_REACH) : start].rpartition("\n")[2]
    if PASSING.search(before):
        return
    part = match.groupdict()
    named = next(name for name in NAMES if part[name])
    head = _HEAD.search(before).group()
    tail = _TAIL.match(text[start : start + _MENTIONS_REACH]).group()
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
    return bool(part["cell"]) or len(value) >= _MENTIONS_LEAST or (name.isupper() and not before)


def _value(ahead: str) -> str:
    end = _END.search(ahead)
    return (ahead if end is None else ahead[: end.start()]).rstrip(".:?*")


def _chance(value: str) -> bool:
    """Nobody would write this as a word, a path or a version."""
    if not _PLAIN.fullmatch(value) or not _LETTER.search(value) or not _DIGIT.search(value) or _NUMBER.fullmatch(value):
        return False
    return patchy(value) or (len(value) >= _MENTIONS_LEAST and (jumbled(value) or bits(value) >= 4))
