"""Is this text a value that somebody made up of chance, or words, a placeholder, an expression of a program?"""

import re  # for the runs of characters only: an object a match is what RE2 costs
import string
from math import log2

import re2

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
