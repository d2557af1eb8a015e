"""A static embedding: the mean of the vectors of a text's word pieces, from the data files of the `wordllama` package.

The package is located but never imported: it would bring a tokenizer, an HTTP client and more with it. Its vectors are
kept in eight bits: the cosine to the exact mean of a prompt is 0.999, and sums of integers are the same on every
machine and in any order.
"""

import re  # for runs of characters only, which match in one way only: RE2's calls cost more than the cutting
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from itertools import repeat
from math import sqrt
from operator import add
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from router.errors import DataError
from router.types.request import Passage

DIMENSIONS = 256
_PIECES = 32_000
_STEPS_PER_UNIT = 16.0
"""Eight-bit steps per unit: of the 8 million values one exceeds 7.94, and is cut off there."""
_BATCH = 1_000
"""Number of rows read at a time, so that no second table is in memory."""
Single = NDArray[np.float32]
_MANY_ONES = np.ones(4_096, np.float32)  # for as many pieces as most texts have
_DIGITS = b"0123456789"
_ZEROS = bytes.maketrans(_DIGITS, b"0" * len(_DIGITS))
_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
SPACE = "▁"
"""The vocabulary's sign for a space; every word but the first of a line begins with it."""
WORDS = 32_768
"""Maximum number of cached words: some 5 MB, and more than everyday use of most languages needs."""
LONGEST_WORD = 48
"""Maximum length in characters of a cached word; longer ones are addresses, data, and scripts without spaces."""
_LONGEST_ASCII = 1_024
"""Number of characters that are read of a longer word in ASCII."""
_STRETCH = 32
"""Number of characters that are joined at once: the work grows with the square of it."""
_CHARACTERS = 65_536
"""Maximum number of cached pieces and other characters: the whole vocabulary, and more than any one script."""
_FIRST_BYTE = 3
"""Number of the piece for byte 0; characters outside the vocabulary are spelled as their UTF-8 bytes."""
FIRST_PIECE = _FIRST_BYTE + 256
"""Number of the first ordinary piece: those below are control marks and bytes, which no text spells out."""
_NO_PIECE = b"\xff\xff"
"""Rank of a pair that is not a piece: after all others."""
_LINE_START = "\x01"
"""Marks a line's first word, since a newline itself would be lost when words are split."""
_INDENTS = tuple((" " * width, f" {SPACE * (width - 1)} ") for width in (15, 11, 7, 3))
_parts = re.compile(r"[0-9]|[A-Za-z]+|[^0-9A-Za-z]+").findall
"""Splits a word in ASCII: no piece mixes letters, or a digit, with anything else, so each part is cut alone."""


class StaticEmbedding:
    """The vocabulary and its vectors, `[32000, 256]` in eight bits: 8 MB, and about as much for the cached words."""

    def __init__(self) -> None:
        """Reads the package's files. Raises `DataError`."""
        spec = find_spec("wordllama")
        if spec is None or not spec.submodule_search_locations:
            raise DataError("the package wordllama is not installed: install requirements/runtime.txt, with --no-deps")
        folder = Path(spec.submodule_search_locations[0])
        try:
            vocabulary: dict[str, int] = msgspec.json.decode((folder / _TOKENIZER).read_bytes())["model"]["vocab"]
            self.vectors = _vectors(folder / _WEIGHTS)
            if sorted(vocabulary.values()) != list(range(_PIECES)):
                raise ValueError("another vocabulary than expected")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"the data files of the package wordllama can't be read ({type(error).__name__}): "
                "install it again from requirements/runtime.txt, with --no-deps --force-reinstall"
            ) from error
        self.words = WordPieces(vocabulary)

    def embed(self, text: str) -> tuple[Single, NDArray[np.intp]]:
        """Returns the mean vector, `float32 [256]`, of length one if there is any word; and the pieces' numbers."""
        pieces = np.frombuffer(self.words.split(zeroed(text)), ">u2").astype(np.intp)
        rows = self.vectors.take(pieces, axis=0).astype(np.float32)
        ones = _MANY_ONES[: len(rows)] if len(rows) <= len(_MANY_ONES) else np.ones(len(rows), np.float32)
        total: Single = ones.dot(rows)
        total /= max(sqrt(total.dot(total)), 1.0)
        return total, pieces


load = cache(StaticEmbedding)
"""Returns this process's embedding, which is read at the first call. Raises `DataError`."""


def zeroed(text: str) -> str:
    """Returns a text with zeros in place of all digits, so that numbers of one form are one word."""
    return text.encode(errors="surrogatepass").translate(_ZEROS).decode(errors="surrogatepass")


SLICES, SLICE = 8, 128
"""Number and length in characters of the parts of a longer text whose pieces are counted."""


def count_pieces(passages: Sequence[Passage]) -> int:
    """Returns the approximate number of pieces of texts. In other vocabularies they have 0.6 to 1.04 times as many."""
    text = passages[0].text if len(passages) == 1 else "\n".join([passage.text for passage in passages])
    if len(text) <= SLICES * SLICE:
        return len(load().words.split(zeroed(text))) // 2
    parts = [text[at : at + SLICE] for at in range(0, len(text) - SLICE + 1, (len(text) - SLICE) // (SLICES - 1))]
    return len(load().words.split(zeroed(" ".join(parts)))) * len(text) // (2 * SLICE * len(parts))


def _vectors(path: Path) -> NDArray[np.int8]:
    """Reads the table of a safetensors file: the size of its header, the header in JSON, the rows."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        tensor = msgspec.json.decode(file.read(min(size, 65_536)))["embedding.weight"]
        if (tensor["dtype"], tensor["shape"], tensor["data_offsets"][0]) != ("F16", [_PIECES, DIMENSIONS], 0):
            raise ValueError("another table than expected")
        table = np.empty((_PIECES, DIMENSIONS), np.int8)
        for start in range(0, _PIECES, _BATCH):
            rows = np.fromfile(file, np.float16, _BATCH * DIMENSIONS).reshape(_BATCH, DIMENSIONS).astype(np.float32)
            table[start : start + _BATCH] = np.rint(rows * _STEPS_PER_UNIT).clip(-127, 127)
    return table


# Text → pieces: byte-pair encoding word by word; each word is cut once


class WordPieces(dict[str, bytes]):
    """Cache of word → its pieces' numbers, two bytes each, big-endian. Filled on demand, emptied when it is full."""

    def __init__(self, vocabulary: dict[str, int]) -> None:
        self._pieces = _Pieces((key, number.to_bytes(2)) for key, number in vocabulary.items() if number >= FIRST_PIECE)
        self._pieces[_LINE_START] = _byte_piece(ord("\n"))

    def __repr__(self) -> str:
        """Leaves out the words, which are text of requests."""
        return f"<{len(self)} words>"

    def split(self, text: str) -> bytes:
        """Returns a text's pieces. A space belongs to the word after it; deeper indents are pieces of their own."""
        text = text.replace("\n", " " + _LINE_START)
        if "   " in text:
            for indent, marked in _INDENTS:
                text = text.replace(indent, marked)
        words = text.split()
        cached: list[Any] = list(map(self.get, words))  # much faster than `__getitem__`, which cuts missing ones
        return b"".join(map(self.__getitem__, words) if None in cached else cached)

    def __missing__(self, word: str) -> bytes:
        if len(word) > LONGEST_WORD:
            # In stretches. Of an endless word in ASCII only the beginning counts: it is data, and costs most to cut.
            stretches = [word[start : start + _STRETCH] for start in range(0, len(word), _STRETCH)]
            if word.isascii():
                stretches = [part for stretch in stretches[: _LONGEST_ASCII // _STRETCH] for part in _parts(stretch)]
            return b"".join(map(self._pieces.__getitem__, stretches))
        parts = _parts(word) if word.isascii() else (word,)
        if len(parts) > 1:
            pieces = self[parts[0]] + b"".join(map(self._pieces.__getitem__, parts[1:]))
        else:
            pieces = self._pieces[word if word[0] == _LINE_START else SPACE + word]
        if len(self) >= WORDS:
            self.clear()
        self[word] = pieces
        return pieces


class _Pieces(dict[str, bytes]):
    """Piece → its number as two bytes; pairs are joined in the order of these numbers."""

    def __missing__(self, run: str) -> bytes:
        """Returns the numbers of what characters that are not a piece are cut into."""
        if len(run) > 1:
            return self.join(run)
        byte_pieces = b"".join(map(_byte_piece, run.encode(errors="replace")))
        if len(self) < _CHARACTERS:
            self[run] = byte_pieces
        return byte_pieces

    def join(self, run: str) -> bytes:
        """Joins neighbours, the pair with the lowest number first, while any pair is a piece (byte-pair encoding)."""
        parts = list(run)
        ranks = list(map(self.get, map(add, parts, parts[1:]), repeat(_NO_PIECE)))
        while ranks and (best := min(ranks)) != _NO_PIECE:
            at = ranks.index(best)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
            del ranks[at]
            if at < len(ranks):
                ranks[at] = self.get(parts[at] + parts[at + 1], _NO_PIECE)
            if at:
                ranks[at - 1] = self.get(parts[at - 1] + parts[at], _NO_PIECE)
        return b"".join(map(self.__getitem__, parts))


def _byte_piece(value: int) -> bytes:
    return (_FIRST_BYTE + value).to_bytes(2)
