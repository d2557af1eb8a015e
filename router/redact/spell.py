"""Placeholders as models write them: in HTML's and JSON's escapes, in small letters, without their marks."""

import string
from collections.abc import Mapping
from typing import Any, NamedTuple

import re2

from router.redact.json_text import escaped
from router.redact.placeholder import core

_PAIRS = {
    "<": ">",
    "\\<": "\\>",
    "\\\\<": "\\\\>",
    "&lt;": "&gt;",
    "&#60;": "&#62;",
    "\\u003c": "\\u003e",
    "\\\\u003c": "\\\\u003e",
    "%3c": "%3e",
}
"""Marks as they are, and as Markdown, HTML, JSON and links have them."""
_OPEN = r"\\{0,2}<|&lt;|&#60;|\\{1,2}u003c|%3c"
_CLOSE = r"\\{0,2}>|&gt;|&#62;|\\{1,2}u003e|%3e"
_NEVER = r"\b\B"
_SLASHES = 2
"""Backslashes that Markdown puts before an underscore, itself maybe in JSON."""
_MARKS = 20
"""Characters of both marks, at most."""
_RUN = string.ascii_letters + string.digits + "_\\<>&;#%"
_FIRST = "<&\\%"
_CLOSING = re2.compile(r"(?i)(?:\\{1,2}(?:u(?:0(?:0(?:3e?)?)?)?)?|&(?:gt?|#(?:6(?:2)?)?)?|%3?)?")
_UNFINISHED = re2.compile(
    rf"(?i)({_OPEN})?((?:[A-Z0-9]|\\{{0,{_SLASHES}}}_)*)"
    r"(\\{1,2}(?:u(?:0(?:0(?:3[ce]?)?)?)?)?|&(?:[lg]t?|#(?:6[02]?)?)?|%3?)?"
)


class Restored(NamedTuple):
    """`held` may be the beginning of a placeholder; `last`: up to two characters that stand before what follows."""

    text: str
    held: str = ""
    last: str = ""


class Speller:
    """Of the placeholders of one request."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = {core(placeholder): value for placeholder, value in values.items()}
        self._prefixes = {name[:length] for name in self._values for length in range(len(name) + 1)}
        self._longest = _MARKS + max((len(name) + _SLASHES * name.count("_") for name in self._values), default=0)
        names = "|".join(name.replace("_", rf"\\{{0,{_SLASHES}}}_") for name in self._values)
        self._pattern: Any = re2.compile(f"(?i)({_OPEN})?({names or _NEVER})({_CLOSE})?")

    def in_bytes(self, data: bytes) -> bool:
        """A placeholder may be there."""
        return self._pattern.search(data) is not None

    def restore(self, text: str, *, json: bool, last: str = "", more: bool = False) -> Restored:
        """`text` with values in the place of placeholders, escaped where it is `json`; `more` of it may come.

        `last`: what stands before it.
        """
        pieces, at, end = [], 0, len(text)
        for match in self._pattern.finditer(text) if "_" in text else ():
            if not (match.group(1) or _begins(text, match.start(), at, last)):
                continue
            if more and match.group(1) and not match.group(3) and _CLOSING.fullmatch(text[match.end() :]):
                end = match.start()
                break
            start, stop = _extent(match)
            value = self._values[match.group(2).replace("\\", "").upper()]
            pieces += [text[at:start], escaped(value) if json else value]
            at = stop
        if more and end == len(text):
            end = self._unfinished_from(text, at, last)
        said = text[at:end]
        return Restored("".join([*pieces, said]), text[end:], (said if at else last + said)[-2:])

    def _unfinished_from(self, text: str, at: int, last: str) -> int:
        """Where what may become a placeholder begins; `text` up to `at` is done."""
        tail = text[max(at, len(text) - self._longest) :]
        run = tail[len(tail.rstrip(_RUN)) :]
        start = len(text) - len(run)
        if run.isalnum():
            return start if run.upper() in self._prefixes and _begins(text, start, at, last) else len(text)
        for place in range(start, len(text)):
            first = text[place] in _FIRST or _begins(text, place, at, last)
            if first and self._unfinished(text[place:]):
                return place
        return len(text)

    def _unfinished(self, text: str) -> bool:
        match = _UNFINISHED.fullmatch(text)
        if match is None:
            return False
        opening, name, rest = match.groups()
        name = name.replace("\\", "").upper()
        return name in self._prefixes and bool(opening or (name not in self._values and (name or rest)))


def _begins(text: str, place: int, at: int, last: str) -> bool:
    r"""No word goes on here, as none does behind a placeholder, which ends `at`; the n of a \n is none."""
    before = text[place - 2 : place] if place > 1 else (last + text[:place])[-2:]
    return place == at > 0 or not (before[-1:].isascii() and before[-1:].isalnum()) or before[:-1] == "\\"


def _extent(match: Any) -> tuple[int, int]:
    """Of a placeholder with its marks; one mark alone is the text's own."""
    opening, closing = match.group(1) or "", match.group(3) or ""
    start, end = match.span(2)
    if opening and _PAIRS[opening.lower()] == closing.lower():
        return start - len(opening), end + len(closing)
    if opening.endswith("<") and closing == ">":
        return start - 1, end + 1
    return start, end
