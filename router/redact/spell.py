"""Placeholders as models write them: in HTML's and JSON's escapes, in small letters, without their marks."""

import string
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import re2

from router.redact.json_text import escaped
from router.redact.placeholder import SHORTEST_TAG, core

_MARKS = {
    "\\\\u003c": "\\\\u003e",
    "\\u003c": "\\u003e",
    "&#60;": "&#62;",
    "&lt;": "&gt;",
    "%3c": "%3e",
    "\\\\<": "\\\\>",
    "\\<": "\\>",
    "<": ">",
}
"""As they are, and as Markdown, HTML, JSON and links have them; longer ones first."""
_SLASHES = 2
"""Backslashes that Markdown puts before an underscore, itself maybe in JSON."""
_MOST_MARKS = 20
"""Characters of both marks, at most."""
_RUN = string.ascii_letters + string.digits + "_\\<>&;#%"
_FIRST = "<&\\%"
_TAG = re2.compile(rf"_([A-Za-z2-7]{{{SHORTEST_TAG}}})")
_CLOSING = re2.compile(r"(?i)(?:\\{1,2}(?:u(?:0(?:0(?:3e?)?)?)?)?|&(?:gt?|#(?:6(?:2)?)?)?|%3?)?")
_UNFINISHED = re2.compile(
    r"(?i)(\\{0,2}<|&lt;|&#60;|\\{1,2}u003c|%3c)?"
    rf"((?:[A-Z0-9]|\\{{0,{_SLASHES}}}_)*)"
    r"(\\{1,2}(?:u(?:0(?:0(?:3[ce]?)?)?)?)?|&(?:[lg]t?|#(?:6[02]?)?)?|%3?)?"
)


class Restored(NamedTuple):
    """`held` may be the beginning of a placeholder; `last`: up to two characters that stand before what follows."""

    text: str
    held: str = ""
    last: str = ""

    def __repr__(self) -> str:
        return f"Restored({len(self.text)} characters)"


class _Found(NamedTuple):
    """A placeholder in a text, without its marks."""

    start: int
    end: int
    name: str


class Speller:
    """Of the placeholders of one request. No pattern is made of them: thousands would be too many for one."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = {core(placeholder): value for placeholder, value in values.items()}
        self._names = sorted(self._values)
        self._by_tag: dict[str, list[str]] = {}
        for name in self._names:
            self._by_tag.setdefault(name.rpartition("_")[2][:SHORTEST_TAG], []).append(name)
        self._longest = _MOST_MARKS + max((len(name) + _SLASHES * name.count("_") for name in self._names), default=0)

    def in_bytes(self, data: bytes) -> bool:
        """A placeholder may be there."""
        return any(tag.decode().upper() in self._by_tag for tag in _TAG.findall(data))

    def restore(self, text: str, *, json: bool, last: str = "", more: bool = False) -> Restored:
        """`text` with values in the place of placeholders, escaped where it is `json`; `more` of it may come.

        `last`: what stands before it.
        """
        pieces, at, end = [], 0, len(text)
        for found in self._find(text) if "_" in text else ():
            opening = _opening(text[at : found.start])
            if not (opening or _begins(text, found.start, at, last)):
                continue
            closing = _closing(text[found.end : found.end + _MOST_MARKS])
            if more and opening and not closing and _CLOSING.fullmatch(text[found.end :]):
                end = found.start - len(opening)
                break
            before, behind = _extent(opening, closing)
            value = self._values[found.name]
            pieces += [text[at : found.start - before], escaped(value) if json else value]
            at = found.end + behind
        if more and end == len(text):
            end = self._unfinished_from(text, at, last)
        said = text[at:end]
        return Restored("".join([*pieces, said]), text[end:], (said if at else last + said)[-2:])

    def _find(self, text: str) -> Iterator[_Found]:
        """In their order; they don't overlap, for a tag has no underscore."""
        for match in _TAG.finditer(text):
            for name in self._by_tag.get(match.group(1).upper(), ()):
                kind, _, tag = name.rpartition("_")
                end = match.start() + 1 + len(tag)
                start = _kind_from(text, match.start(), kind)
                if start >= 0 and text[match.start() + 1 : end].upper() == tag:
                    yield _Found(start, end, name)

    def _unfinished_from(self, text: str, at: int, last: str) -> int:
        """Where what may become a placeholder begins; `text` up to `at` is done."""
        tail = text[max(at, len(text) - self._longest) :]
        run = tail[len(tail.rstrip(_RUN)) :]
        start = len(text) - len(run)
        if run.isalnum():
            return start if self._starts_name(run.upper()) and _begins(text, start, at, last) else len(text)
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
        return self._starts_name(name) and bool(opening or (name not in self._values and (name or rest)))

    def _starts_name(self, text: str) -> bool:
        number = bisect_left(self._names, text)
        return number < len(self._names) and self._names[number].startswith(text)


def _kind_from(text: str, end: int, kind: str) -> int:
    """Where `kind` begins that ends at the underscore before its tag; -1 where something else stands there."""
    for word in reversed(kind.split("_")):
        bare = text[max(0, end - _SLASHES) : end].rstrip("\\")
        end -= min(end, _SLASHES) - len(bare)
        if text[max(0, end - len(word)) : end].upper() != word:
            return -1
        end -= len(word) + 1
    return end + 1


def _begins(text: str, place: int, at: int, last: str) -> bool:
    r"""No word goes on here, as none does behind a placeholder, which ends `at`; the n of a \n is none."""
    before = text[place - 2 : place] if place > 1 else (last + text[:place])[-2:]
    return place == at > 0 or not (before[-1:].isascii() and before[-1:].isalnum()) or before[:-1] == "\\"


def _opening(text: str) -> str:
    tail = text[-_MOST_MARKS:].lower()
    return next((mark for mark in _MARKS if tail.endswith(mark)), "")


def _closing(text: str) -> str:
    head = text.lower()
    return next((mark for mark in _MARKS.values() if head.startswith(mark)), "")


def _extent(opening: str, closing: str) -> tuple[int, int]:
    """How much of both marks goes with the placeholder; one mark alone is the text's own."""
    if opening and _MARKS[opening] == closing:
        return len(opening), len(closing)
    return (1, 1) if opening.endswith("<") and closing == ">" else (0, 0)
