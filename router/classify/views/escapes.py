"""Characters written as others: percent signs and forms, HTML, backslashes, quoted-printable."""

import html
import re  # one literal begins each pattern, and nothing in them can match in two ways: faster here than RE2's calls
from collections.abc import Callable

from router.classify.views.rewritten import Piece

_HEX = "[0-9A-Fa-f]"
_PERCENT = re.compile(rf"%(?:[2-7]{_HEX}|0[9AaDd]|[89A-Fa-f]{_HEX}(?:%[89A-Fa-f]{_HEX})*|u{_HEX}{{4}})")
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[Xx][0-9A-Fa-f]{1,6}|[A-Za-z][0-9A-Za-z]{1,31}(?=;));?")
_CLASS = r"(?<![\w.@\\]\\)([bBdDsSwWAzZ](?:\\[bBdDsSwW])?)(?![\w.@\\])"
"""Of a regular expression, with nothing beside it that it could be a letter of."""
_BACKSLASH = re.compile(
    rf"\\(?:{_CLASS}|\\+|u{_HEX}{{4}}(?:\\+u[Dd][C-Fc-f]{_HEX}{{2}})?|u\{{{_HEX}{{1,6}}\}}|U{_HEX}{{8}}|x{_HEX}{{2}}|[0-3][0-7]{{2}}|.)"
)
_QUOTED = re.compile(r"=(?:40|\r?\n|[2-7][0-9A-F](?:=[2-7][0-9A-F])+)")
_PLUS = re.compile(r"\+(?<=[0-9A-Za-z]{4}\+)(?<![0-9][Ee]\+)(?=[0-9A-Za-z]{2})")
"""A blank in a form, between groups of digits or words; not in 6.932e+14."""
_NAMED = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "0": "\0"}
"""Escapes of JSON and of most languages; before any other character the backslash is left out."""
_MOST, _HALVES, _UNKNOWN = 0x10FFFF, range(0xD800, 0xE000), "\ufffd"


def escapes(text: str) -> list[Piece]:
    found: list[Piece] = []
    for mark, pattern, meaning in _KINDS:
        if mark in text:
            known = _Meanings(meaning)
            found += [
                (match.start(), match.end(), said, False)
                for match in pattern.finditer(text)
                if not match.lastindex and (said := known[match.group()]) != match.group()  # &Name; is C++
            ]
    return found


class _Meanings(dict[str, str]):
    """Few escapes are many."""

    def __init__(self, meaning: Callable[[str], str]) -> None:
        self._meaning = meaning

    def __missing__(self, found: str) -> str:
        self[found] = known = self._meaning(found)
        return known


def _percent(found: str) -> str:
    if found[1] == "u":
        return _character(int(found[2:], 16))
    return bytes.fromhex(found.replace("%", "")).decode("utf-8", "replace")


def _backslash(found: str) -> str:
    kind = found[1]
    if kind == "\\":
        return "\\"  # however many: each level of quoting doubles them
    if kind in "uU" and len(found) > 2:
        return _unicode(found)
    if kind == "x" and len(found) > 2:
        return chr(int(found[2:], 16))
    if len(found) == 4:
        return chr(int(found[1:], 8))
    return _NAMED.get(kind, kind)


def _unicode(found: str) -> str:
    """One character, or the two halves of one beyond 16 bits."""
    first, _, second = found[2:].strip("{}").partition("\\")
    units = [int(one, 16) for one in (first, second.lstrip("\\u")) if one]
    if len(units) == 2:
        return b"".join(unit.to_bytes(2, "big") for unit in units).decode("utf-16-be", "replace")
    return _character(units[0])


def _character(code: int) -> str:
    """Half of a character is none, and can't be encoded."""
    return _UNKNOWN if code in _HALVES or code > _MOST else chr(code)


def _quoted(found: str) -> str:
    return bytes.fromhex(found.replace("=", "")).decode("ascii") if found[1] not in "\r\n" else ""


_KINDS: tuple[tuple[str, "re.Pattern[str]", Callable[[str], str]], ...] = (
    ("%", _PERCENT, _percent),
    ("&", _ENTITY, html.unescape),
    ("\\", _BACKSLASH, _backslash),
    ("=", _QUOTED, _quoted),
    ("+", _PLUS, lambda found: " "),
)
