"""Text that is written in disguise: escapes, look-alikes, wide spacing."""

import html
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from router.classify.detector import Characters, Pattern
from router.types.request import Path

# A text to scan, and where in the request its characters come from.


class Place(NamedTuple):
    """`exact`: characters start:end of the text at `path` are the value itself, as written; else it hides there."""

    path: Path
    start: int
    end: int
    exact: bool = True


Locate = Callable[[int, int], Place | None]


class View(NamedTuple):
    """`locate` turns (start, end) of `text` into a place; None: this hit says nothing, another view has all of it."""

    text: str
    locate: Locate


class TooMuch(Exception):
    """Something is wrapped more often than anybody looks. Its text never quotes."""


# A text in which pieces were replaced, and the way back to where they stood.

REACH = 160
"""Characters around a piece that are looked at again: a value and the words that tell what it is."""
_CUT = "\n\0\n"

Piece = tuple[int, int, str, bool]
"""(start, end, text, hidden): what characters start:end of a text stand for. Plain, as there may be a million of them.

As many characters as before stand for one each. What is found in a `hidden` text is not these characters.
"""


class _Run(NamedTuple):
    """Characters start:end of the old text, and what is written for them: None for the same."""

    start: int
    end: int
    text: str | None = None
    hidden: bool = False

    @property
    def cut(self) -> bool:
        return self.text is _CUT

    @property
    def each(self) -> bool:
        """Character by character."""
        return self.text is None or (len(self.text) == self.end - self.start and not self.hidden)


def rewritten(view: View, pieces: Sequence[Piece]) -> View:
    """Only what is near a piece: all else has been looked at. `pieces` in order; of two that overlap, the first."""
    old = view.text
    text = "".join([old[start:end] if new is None else new for start, end, new, _ in _runs(len(old), pieces)])
    return View(text, _Back(view, pieces).locate)


def _runs(length: int, pieces: Sequence[Piece]) -> Iterator[tuple[int, int, str | None, bool]]:
    last = 0
    reach = 0  # before the first piece nothing is behind another
    for piece in pieces:
        start = piece[0]
        if start < last:
            continue
        if start - last > reach + REACH:
            yield last, last + reach, None, False
            yield last, last, _CUT, False
            yield start - REACH, start, None, False
        elif start > last:
            yield last, start, None, False
        yield piece
        last, reach = piece[1], REACH
    yield last, min(last + REACH, length), None, False
    if last + REACH < length:
        yield last, last, _CUT, False


class _Back:
    """What stands where is counted up only when something was found."""

    def __init__(self, view: View, pieces: Sequence[Piece]) -> None:
        self._view, self._pieces = view, pieces
        self._runs: list[_Run] = []
        self._starts: list[int] = []

    def locate(self, start: int, end: int) -> Place | None:
        if not self._runs:
            self._runs = [_Run(*run) for run in _runs(len(self._view.text), self._pieces) if run[0] < run[1] or run[2]]
            lengths = (run.end - run.start if run.text is None else len(run.text) for run in self._runs)
            self._starts = list(accumulate(lengths, initial=0))
        first, last = self._number(start), self._number(end - 1)
        while first < last and self._runs[first].cut:
            first += 1
        while first < last and self._runs[last].cut:
            last -= 1
        return self._place(start, end, first, last)

    def _place(self, start: int, end: int, first: int, last: int) -> Place | None:
        severed = any(run.cut for run in self._runs[self._number(max(start - 1, 0)) : self._number(end) + 1])
        begin, until = self._runs[first], self._runs[last]
        if severed and first == last and begin.text is None:
            return None  # nothing was replaced in it, so that it was found whole before
        inside, before = max(start - self._starts[first], 0), max(self._starts[last + 1] - end, 0)
        place = self._view.locate(
            begin.start + inside if begin.each else begin.start, until.end - before if until.each else until.end
        )
        whole = (begin.each or not inside) and (until.each or not before) and not severed
        if place is None or (whole and not any(run.hidden for run in self._runs[first : last + 1])):
            return place
        return place._replace(exact=False)

    def _number(self, at: int) -> int:
        return bisect_right(self._starts, at, hi=len(self._runs)) - 1


# Characters written as others: percent signs and forms, HTML, backslashes, quoted-printable.

# one literal begins each pattern, and nothing in them can match in two ways: faster here than RE2's calls


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


# Characters that are read as others, and some that are not seen: facts of the Unicode Character Database.
#
# Letters are UTS #39's confusables of one letter or digit, but for those that are common in the prose of their
# scripts and are read otherwise there; the rest is what NFKC and the decimal digits say.

_LETTERS = {
    "A": "0410 0391 1D00 13AA 15C5 A4EE 102A0 2C80",
    "B": "0412 0392 0299 13F4 A4D0 10282 102A1 10301 2C82",
    "C": "0421 03F9 1D04 13DF A4DA 2CA4 102A2 10302 10415",
    "D": "1D05 13A0 A4D3",
    "E": "0415 0395 1D07 13AC A4F0 2D39 10286 118A6 118AE",
    "F": "03DC A730 A4DD 10287 102A5 118A2 118C2",
    "G": "050C 0262 13C0 13F3 A4D6",
    "H": "041D 0397 029C 13BB A4E7 2C8E 102CF",
    "I": "0406 0399 04C0 026A A4F2 2C92 1028A 10309 2D4F",
    "J": "0408 037F 1D0A 13AB A4D9",
    "K": "041A 039A 1D0B 13E6 A4D7 2C94 10518",
    "L": "029F 053C 13DE A4E1 2CD0 1041B 10526 118A3 118B2",
    "M": "041C 039C 1D0D 13B7 A4DF 2C98 03FA 102B0 10311",
    "N": "039D 0274 A4E0 2C9A 10513",
    "O": "041E 039F 0555 1D0F A4F3 2C9E 2D54 10292 102AB 10404 118B5 10516",
    "P": "0420 03A1 1D18 13E2 A4D1 2CA2 10295",
    "Q": "051A 2D55",
    "R": "0280 13A1 13D2 A4E3 104B4",
    "S": "0405 054F A731 13DA 13D5 A4E2 10296 10420",
    "T": "0422 03A4 1D1B 13A2 A4D4 2CA6 10297 102B1 10315 118BC",
    "U": "054D 1D1C A4F4 104CE 118B8",
    "V": "0474 1D20 13D9 A4E6 2D38 1051D 118A0",
    "W": "051C 1D21 13B3 13D4 A4EA",
    "X": "0425 03A7 A4EB 2CAC 2D5D 10290 102B4 10317 10527",
    "Y": "0423 03A5 04AE 028F 13BD A4EC 2CA8 03D2 102B2 118A4",
    "Z": "0396 1D22 13C3 A4DC 118A9",
    "a": "0430 03B1 0251 AB30",
    "b": "044C 042C 13CF 0184 1472 15AF",
    "c": "0441 03F2 2CA5 ABAF 1043D",
    "d": "0501 13E7 A4D2 146F",
    "e": "0435 0451 04BD AB32",
    "g": "0261 0581 018D 1D83",
    "h": "04BB 0570 13C2",
    "i": "0456 03B9 0131 0269 04CF 13A5 A647 AB75 118C3",
    "j": "0458 03F3",
    "k": "043A 03BA",
    "m": "043C",
    "n": "0578 043F 03B7 057C",
    "o": "043E 03BF 0585 03C3 1D11 AB3D 2C9F 1042C 104EA 118C8 118D7",
    "p": "0440 03C1 2CA3 03F1 01BF",
    "q": "051B 0566 0563",
    "r": "0433 AB47 AB48 1D26 2C85 AB81",
    "s": "0455 ABAA 01BD 10448 118C1",
    "t": "0442 03C4",
    "u": "03C5 057D A79F AB4E AB52 028B 104F6 118D8",
    "v": "0475 03BD ABA9 118C0 11706",
    "w": "051D 0461 03C9 026F AB83",
    "x": "0445 03C7 1541 157D",
    "y": "0443 03B3 04AF 0263 1D8C 1EFF AB5A 118DC",
    "z": "AB93 118C4",
    "f": "AB35 A799 1E9D 0584",
    "l": "0196 01C0 07CA",
    "2": "01A7 03E8 A644 14BF",
    "3": "0417 04E0 01B7 021C 2CCC A7AB 118CA",
    "4": "13CE 118AF",
    "5": "01BC 118BB",
    "6": "13EE 2CD2 118D5",
    "7": "118C6 104D2",
    "8": "0222 0223 1031A",
    "9": "2CCA 118CC 118D6 A76E",
    "-": "2010 2011 2012 2013 2014 2015 2043 2212",
    ".": "3002 FF61 0701 06D4",
    " ": "00A0 1680 2000 2001 2002 2003 2004 2005 2006 2007 2008 2009 200A 202F 205F 3000",
}
"""Only beside what is ASCII: by themselves they are prose."""
_DIGIT_ZEROS = (
    "0660 06F0 07C0 0966 09E6 0A66 0AE6 0B66 0BE6 0C66 0CE6 0D66 0DE6 0E50 0ED0 0F20 1040 1090 17E0 1810 1946 "
    "19D0 1A80 1A90 1B50 1BB0 1C40 1C50 A620 A8D0 A900 A9D0 A9F0 AA50 ABF0 104A0 10D30 11066 110F0 11136 "
    "111D0 112F0 11450 114D0 11650 116C0 11730 118E0 11950 11C50 11D50 11DA0 16A60 16AC0 16B50 1E140 1E2F0 "
    "1E950"
)
"""First of the ten decimal digits of each script (general category Nd)."""
_COMPATIBLE = (
    *(range(0xB2, 0xBA), range(0x2070, 0x209D), range(0x2100, 0x2190), range(0x2460, 0x24FF), range(0x3371, 0x3400)),
    *(range(0xFB00, 0xFB07), range(0xFE50, 0xFE70), range(0xFF04, 0xFF08), range(0xFF0A, 0xFF0C)),
    *(range(0xFF0D, 0xFF1A), range(0xFF1D, 0xFF1E), range(0xFF20, 0xFF5F), range(0x1D400, 0x1D800)),
    *(range(0x1F100, 0x1F170), range(0x1FBF0, 0x1FBFA)),
)
"""Where letters, digits and marks stand whose NFKC is ASCII; of full-width marks those that no prose needs."""
_INVISIBLE = (
    # Controls, but those that end a word or a line, and ESC, which colours the output of terminals.
    *((0x0, 0x8), (0xE, 0x1A), (0x7F, 0x84), (0x86, 0x9F)),
    *((0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180E)),
    *((0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x2800, 0x2800), (0x3164, 0x3164), (0xFE00, 0xFE0F)),
    *((0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF9, 0xFFFB), (0xE0001, 0xE0001), (0xE007F, 0xE007F)),
    (0xE0100, 0xE01EF),
)
_COMBINING = ((0x300, 0x36F), (0x1AB0, 0x1AFF), (0x1DC0, 0x1DFF), (0x20D0, 0x20F0), (0xFE20, 0xFE2F))
_TAGS = range(0xE0020, 0xE007F)
"""ASCII once more, invisible: models read it."""


def _letters() -> Iterator[tuple[int, str]]:
    for letter, codes in _LETTERS.items():
        yield from ((int(code, 16), letter) for code in codes.split())


def _plain() -> Iterator[tuple[int, str]]:
    """What is no prose wherever it stands."""
    for code in (code for block in _COMPATIBLE for code in block):
        text = unicodedata.normalize("NFKC", chr(code))
        if text != chr(code) and text.isascii():
            yield code, text
    for zero in _DIGIT_ZEROS.split():
        yield from ((int(zero, 16) + digit, str(digit)) for digit in range(10))
    # Dingbats of digits have a value, but no compatible character.
    yield from ((first + digit, str(digit + 1)) for first in (0x2776, 0x2780, 0x278A) for digit in range(9))
    yield from ((code, chr(code - _TAGS.start + 0x20)) for code in _TAGS)


def _all(ranges: Iterable[tuple[int, int]]) -> list[int]:
    return [code for first, last in ranges for code in range(first, last + 1)]


PLAIN = dict(_plain())
"""Code point → ASCII."""
BESIDE_ASCII = dict(_letters())
UNSEEN = frozenset(_all(_INVISIBLE) + _all(_COMBINING))
"""Invisible characters and combining marks."""


# Characters that are read as others, as those others; what is not seen is left out.

# classes of characters only: nothing to go back for


_TABLE = BESIDE_ASCII | PLAIN | dict.fromkeys(UNSEEN, "")
_ANY = frozenset(map(chr, _TABLE))
_ASCII = bytes(code for code in range(128) if code not in _TABLE)


def folds(text: str, encoded: bytes, place: Characters) -> Iterator[Piece]:
    """Where something stands that is never prose, and words that mix ASCII with its lookalikes."""
    if _ANY.isdisjoint(encoded.translate(None, _ASCII).decode()):
        return
    for first, last in _ODD.spans(encoded):
        for match in _ONE_KIND.finditer(text, place.of(first), place.of(last)):
            yield *match.span(), match.group().translate(_TABLE), False


def _set(codes: Iterable[int]) -> str:
    """The inside of a class of characters: ranges."""
    parts: list[str] = []
    ordered = sorted(codes)
    first = last = ordered[0]
    for code in (*ordered[1:], -1):
        if code != last + 1:
            parts.append(chr(first) if first == last else f"{chr(first)}-{chr(last)}")
            first = code
        last = code
    return "".join(parts)


_BESIDE = _set(BESIDE_ASCII.keys() | UNSEEN)
_ALIKE = f"[{_set(code for code, to in BESIDE_ASCII.items() if to.isalnum())}]+"
_NEAR = "0-9A-Za-z@"
_WORD = f"[{_NEAR}._%+{_BESIDE}]*"
_MIXED = f"{_WORD}(?:[{_NEAR}][{_BESIDE}]|[{_BESIDE}][{_NEAR}]){_WORD}"
_LINK = "[ :=_/-]{1,2}"
_DIGITS = "[0-9](?:[ .-]?[0-9])"
_CAPITALS = f"[{_set(code for code, to in BESIDE_ASCII.items() if to.isupper())}]{{1,3}}"
_ODD = Pattern(
    f"[{_set(PLAIN)}]+|(?:(?:{_ALIKE}|[0-9]+){_LINK}){{0,6}}{_MIXED}(?:{_LINK}(?:{_MIXED}|{_ALIKE}|[0-9]+))*"
    f"|{_CAPITALS}[ -]?{_DIGITS}{{4,}}(?:[ -]{_CAPITALS})?|{_DIGITS}{{5,}}[ -]{_CAPITALS}"
)
"""Words of lookalikes alone belong to what is mixed beside them, or to the digits of an identifier."""
_ONE_KIND = re.compile(
    f"[{_set(code for code, to in _TABLE.items() if len(to) == 1)}]+|[{_set(UNSEEN)}]+"
    f"|[{_set(code for code, to in _TABLE.items() if len(to) > 1)}]"
)


# Words whose letters stand apart: "j o e @ x . i o".

_SPACED = Pattern(r"[!-~](?:[ \t\n][!-~]){9,}")
"""Ten single characters: no prose, hardly a table."""


def spaced(text: str, encoded: bytes, place: Characters) -> Iterator[Piece]:
    for begin, until in _SPACED.spans(encoded):
        start = place.of(begin)
        end = start + until - begin
        # The first and the last may belong to words.
        first = start + 3 if text[max(start - 1, 0) : start].isalnum() else start + 1
        last = end - 2 if text[end : end + 1].isalnum() else end
        for blank in range(first, last, 2):
            yield blank, blank + 1, "", False
