"""JSON inside a string: arguments of tools, structured answers, tool results. A value stands there in its escapes."""

from bisect import bisect_right
from typing import NamedTuple

import msgspec
import re2

_STRING = re2.compile(r'(?s)"(?:[^"\\]|\\.)*"')
_ESCAPE = re2.compile(r"(?s)\\(?:u[dD][89aAbB][0-9A-Fa-f]{2}\\u[dD][c-fC-F][0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|.)")
_NUMBER = frozenset("0123456789+-.eE")
_LONGEST_ESCAPE = 12
_MOST_BACKSLASHES = 1_000
"""In a row; who writes more gets a text that is not JSON any more."""
_LISTS = ("[{", "[[", '["')


class Part(NamedTuple):
    """Characters to replace. `quoted`: they are a number, and a string comes in its place."""

    start: int
    end: int
    quoted: bool = False


def head(before: str, text: str) -> str:
    """The first two characters of a text, blanks apart, by which `is_json` judges; `before`: those known so far."""
    return before if len(before) > 1 else before + "".join(text.split(None, 2)[:2])[: 2 - len(before)]


def is_json(field: object, head: str) -> bool:
    """A whole text and one that still grows must be judged alike, so by their beginnings."""
    return field == "arguments" or head[:1] == "{" or head in _LISTS


def escaped(value: str) -> str:
    return msgspec.json.encode(value).decode()[1:-1]


def unescaped(text: str) -> str:
    """As it is where it isn't the inside of a JSON string."""
    try:
        return msgspec.json.decode(f'"{text}"', type=str) if "\\" in text else text
    except msgspec.DecodeError:
        return text


class Strings:
    """The strings of one JSON text: what lies outside of them can't be replaced by just anything."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._spans = [match.span() for match in _STRING.finditer(text)]
        self._ends = [last for _, last in self._spans]

    def parts(self, start: int, end: int) -> list[Part]:
        """What to replace for `text[start:end]` so that JSON stays JSON: insides of strings, or a whole number."""
        found = []
        for first, last in self._spans[bisect_right(self._ends, start) :]:
            if first >= end:
                break
            found.append(self._whole(max(start, first + 1), min(end, last - 1)))
        return [part for part in found if part.start < part.end] if found else [self._number(start, end)]

    def _whole(self, start: int, end: int) -> Part:
        r"""The n of \n belongs to no value, but the letter of \u00fc may: an escape is in or out as a whole."""
        first, last = self._escape(start)
        start = first if unescaped(self._text[first:last]).isalnum() else last
        return Part(start, self._escape(end)[1])

    def _escape(self, place: int) -> tuple[int, int]:
        """Of the escape that `place` would cut; else (place, place)."""
        for first in range(max(0, place - _LONGEST_ESCAPE + 1), place):
            if self._text[first] == "\\" and not _odd(self._text[max(0, first - _MOST_BACKSLASHES) : first]):
                match = _ESCAPE.match(self._text[first : first + _LONGEST_ESCAPE])
                if match and place < first + match.end():
                    return first, first + match.end()
        return place, place

    def _number(self, start: int, end: int) -> Part:
        text = self._text
        while start > 0 and text[start - 1] in _NUMBER:
            start -= 1
        while end < len(text) and text[end] in _NUMBER:
            end += 1
        return Part(start, end, quoted=_NUMBER.issuperset(text[start:end]))


def _odd(text: str) -> bool:
    """It ends in an odd number of backslashes."""
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1
