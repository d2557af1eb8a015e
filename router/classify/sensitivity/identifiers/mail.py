"""E-mail addresses, also quoted, in any script, and written out to hide them."""

from collections.abc import Iterator

from router.classify.detector import Form, Span

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


FORMS = (
    Form("email", rf"(?:{_LOCAL})@{_DOMAIN}", _email),
    Form("email", _SPELT),
)
