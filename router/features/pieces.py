"""Text → pieces of the embedding's vocabulary: byte-pair encoding, a word at a time, each word once."""

from itertools import repeat
from operator import add

SPACE = "▁"
"""How the vocabulary writes a space; every word but the first of a line begins with one."""
_WORDS = 32_768
"""Words that are kept: about 5 MB, and more than the words of most languages' everyday use."""
_LONGEST = 32
"""Characters of the longest word that is kept or cut in one go; beyond it are formulas, addresses and scripts without spaces."""
_FIRST_BYTE = 3
"""The piece that stands for byte 0; characters outside the vocabulary are written as their UTF-8 bytes."""
_CONTROL = _FIRST_BYTE + 256
"""Pieces below are marks and bytes, which no text spells out."""
_NEVER = b"\xff\xff"
_LINE = "\x01"
_INDENTS = tuple((" " * width, f" {SPACE * (width - 1)} ") for width in (15, 11, 7, 3))


class Words(dict[str, bytes]):
    """Word → its pieces' numbers, two bytes each, big-endian. Filled as words come, emptied when it is full."""

    def __init__(self, vocabulary: dict[str, int]) -> None:
        self._pieces = _Pieces((key, number.to_bytes(2)) for key, number in vocabulary.items() if number >= _CONTROL)
        self._newline = _byte(ord("\n"))

    def split(self, text: str) -> bytes:
        """The pieces of a whole text. Spaces between words belong to the next word; deeper indents are pieces of their own."""
        text = text.replace("\n", " " + _LINE)
        if "   " in text:
            for indent, marked in _INDENTS:
                text = text.replace(indent, marked)
        return b"".join(map(self.__getitem__, text.split()))

    def __missing__(self, word: str) -> bytes:
        cut = self._newline + self._cut(word[1:]) if word[0] == _LINE else self._cut(SPACE + word)
        if len(word) <= _LONGEST:
            if len(self) >= _WORDS:
                self.clear()
            self[word] = cut
        return cut

    def _cut(self, word: str) -> bytes:
        if known := self._pieces.get(word):
            return known
        starts = range(0, len(word), _LONGEST)
        return b"".join(self._merge(word[start : start + _LONGEST]) for start in starts)

    def _merge(self, word: str) -> bytes:
        """Byte-pair encoding: neighbours are joined, the pair of the lowest number first, while any pair is a piece."""
        pieces, parts = self._pieces, list(word)
        ranks = list(map(pieces.get, map(add, parts, parts[1:]), repeat(_NEVER)))
        while ranks and (best := min(ranks)) != _NEVER:
            at = ranks.index(best)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
            del ranks[at]
            if at < len(ranks):
                ranks[at] = pieces.get(parts[at] + parts[at + 1], _NEVER)
            if at:
                ranks[at - 1] = pieces.get(parts[at - 1] + parts[at], _NEVER)
        return b"".join(map(pieces.__getitem__, parts))


class _Pieces(dict[str, bytes]):
    """Piece → its number; its order is the order in which pairs are joined."""

    def __missing__(self, character: str) -> bytes:
        return b"".join(map(_byte, character.encode(errors="replace")))


def _byte(value: int) -> bytes:
    return (_FIRST_BYTE + value).to_bytes(2)
