"""Text → pieces of the embedding's vocabulary: byte-pair encoding, a word at a time, each word once."""

import re  # for the runs of characters only, which can match in one way: RE2's calls cost more than the cutting
from itertools import repeat
from operator import add

SPACE = "▁"
"""How the vocabulary writes a space; every word but the first of a line begins with one."""
_WORDS = 32_768
"""Words that are kept: some 5 MB, and more than the words of most languages' everyday use."""
_LONGEST = 48
"""Characters of the longest word that is kept; beyond it are addresses, data, and scripts without spaces."""
_DATA = 1_024
"""Characters that are looked at of a longer word in ASCII."""
_STRETCH = 32
"""Characters that are joined in one go: the work grows with the square of it."""
_CHARACTERS = 65_536
"""Pieces and other characters that are kept: all of the vocabulary, and more than any one script."""
_FIRST_BYTE = 3
"""The piece that stands for byte 0; characters outside the vocabulary are written as their UTF-8 bytes."""
_CONTROL = _FIRST_BYTE + 256
"""Pieces below are marks and bytes, which no text spells out."""
_NEVER = b"\xff\xff"
"""The rank of a pair that is no piece: after all others."""
_LINE = "\x01"
"""Stands before a line's first word, as a newline itself would not outlive the split into words."""
_INDENTS = tuple((" " * width, f" {SPACE * (width - 1)} ") for width in (15, 11, 7, 3))
_STOPS = ".,;:!?)\"'"
"""No piece joins them to a letter before them, so a word, and the same word before a comma, is cut once."""
_parts = re.compile(r"[0-9]|[A-Za-z]+|[^0-9A-Za-z]+").findall
"""Of a word in ASCII: no piece has both letters and others, or a digit and anything else, so each is cut alone."""


class Words(dict[str, bytes]):
    """Word → its pieces' numbers, two bytes each, big-endian. Filled as words come, emptied when it is full."""

    def __init__(self, vocabulary: dict[str, int]) -> None:
        self._pieces = _Pieces((key, number.to_bytes(2)) for key, number in vocabulary.items() if number >= _CONTROL)
        self._pieces[_LINE] = _byte(ord("\n"))

    def __repr__(self) -> str:
        """Without the words, which are somebody's text."""
        return f"<{len(self)} words>"

    def split(self, text: str) -> bytes:
        """The pieces of a whole text. A space belongs to the word after it; deeper indents are pieces of their own."""
        text = text.replace("\n", " " + _LINE)
        if "   " in text:
            for indent, marked in _INDENTS:
                text = text.replace(indent, marked)
        return b"".join(map(self.__getitem__, text.split()))

    def __missing__(self, word: str) -> bytes:
        if len(word) > _LONGEST:
            return self._long(word)
        parts = _parts(word) if word.isascii() else _stem(word)
        if len(parts) > 1:
            cut = self[parts[0]] + b"".join(map(self._pieces.__getitem__, parts[1:]))
        else:
            cut = self._pieces[word if word[0] == _LINE else SPACE + word]
        if len(self) >= _WORDS:
            self.clear()
        self[word] = cut
        return cut

    def _long(self, word: str) -> bytes:
        """In stretches. Of an endless word in ASCII only the beginning counts: it is data, and costs most to cut."""
        stretches = [word[start : start + _STRETCH] for start in range(0, len(word), _STRETCH)]
        if word.isascii():
            stretches = [part for stretch in stretches[: _DATA // _STRETCH] for part in _parts(stretch)]
        return b"".join(map(self._pieces.__getitem__, stretches))


class _Pieces(dict[str, bytes]):
    """Piece → its number; the order of the numbers is the order in which pairs are joined."""

    def __missing__(self, run: str) -> bytes:
        """Of characters that are no piece: what they are cut into."""
        if len(run) > 1:
            return self.join(run)
        spelt = b"".join(map(_byte, run.encode(errors="replace")))
        if len(self) < _CHARACTERS:
            self[run] = spelt
        return spelt

    def join(self, run: str) -> bytes:
        """Byte-pair encoding: neighbours are joined, the pair of the lowest number first, while any pair is a piece."""
        parts = list(run)
        ranks = list(map(self.get, map(add, parts, parts[1:]), repeat(_NEVER)))
        while ranks and (best := min(ranks)) != _NEVER:
            at = ranks.index(best)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
            del ranks[at]
            if at < len(ranks):
                ranks[at] = self.get(parts[at] + parts[at + 1], _NEVER)
            if at:
                ranks[at - 1] = self.get(parts[at - 1] + parts[at], _NEVER)
        return b"".join(map(self.__getitem__, parts))


def _stem(word: str) -> list[str]:
    """And the stops after it, where it ends in a letter or digit."""
    stem = word.rstrip(_STOPS)
    return [stem, word[len(stem) :]] if len(stem) < len(word) and stem[-1:].isalnum() else [word]


def _byte(value: int) -> bytes:
    return (_FIRST_BYTE + value).to_bytes(2)
