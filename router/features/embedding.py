"""A static embedding: the mean of the vectors of a text's pieces, from the data files of the `wordllama` package.

The package itself is located and never imported: it would bring a tokenizer, an HTTP client and more with it. Its
vectors are kept in eight bits: the cosine to the exact mean of a prompt is 0.999, and sums of integers are the same on
every machine and in any order.
"""

from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from math import sqrt
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from router.errors import LowpassError
from router.features.pieces import Words
from router.features.sample import sample

DIMENSIONS = 256
_PIECES = 32_000
_STEPS = 16.0
"""Eight-bit steps to the unit: of the 8 million values one is beyond 7.94, and cut off there."""
_ROWS = 1_000
"""Rows that are read at a time, so that no second table is ever in memory."""
Single = NDArray[np.float32]
_DIGITS = b"0123456789"
_ZEROS = bytes.maketrans(_DIGITS, b"0" * len(_DIGITS))
_OTHERS = bytes(set(range(256)) - set(_DIGITS))
_GROUP = 256
"""Vectors of eight bits that 16 bits hold the sum of."""
BYTES = 259
"""Pieces up to this number are marks and single bytes."""
_NOTHING = _PIECES.to_bytes(2)
"""The number of a piece that adds nothing."""
_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"


class EmbeddingError(LowpassError):
    """The embedding's data files are missing or not what they should be; says which and what to do."""


class _Model(msgspec.Struct):
    vocab: dict[str, int]


class _Tokenizer(msgspec.Struct):
    model: _Model


class _Tensor(msgspec.Struct):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


class Embedding:
    """The vocabulary and its vectors, `[32001, 256]` in eight bits: 8 MB, and about as much for its words."""

    def __init__(self) -> None:
        """Reads the package's files. Raises `EmbeddingError`."""
        folder = _folder()
        try:
            tokenizer = msgspec.json.decode((folder / _TOKENIZER).read_bytes(), type=_Tokenizer)
            self.vectors = _vectors(folder / _WEIGHTS)
            if sorted(tokenizer.model.vocab.values()) != list(range(_PIECES)):
                raise ValueError("another vocabulary than expected")
        except (OSError, ValueError, KeyError) as problem:
            raise EmbeddingError(
                f"the data files of the package wordllama can't be read ({type(problem).__name__}): "
                "install it again from requirements/runtime.txt, with --no-deps --force-reinstall"
            ) from problem
        self.words = Words(tokenizer.model.vocab)
        pieces = [tokenizer.model.vocab[chr(digit)] for digit in _DIGITS]
        self._zero = pieces[0].to_bytes(2)
        digits = self.vectors[pieces].astype(np.float32)
        self._apart = digits - digits[0]

    def embed(self, text: str) -> tuple[Single, NDArray[np.uint16]]:
        """The mean `float32 [256]`, of length one unless there is no word; and the numbers of the pieces."""
        total, pieces = self._total(text)
        return total / np.float32(max(sqrt(total @ total), 1.0)), np.frombuffer(pieces, ">u2")

    def _total(self, text: str) -> tuple[Single, bytes]:
        """Sum of its pieces, and they. A digit is a piece wherever it stands: numbers of one form are one word."""
        raw = text.encode(errors="surrogatepass")
        pieces = self.words.split(raw.translate(_ZEROS).decode(errors="surrogatepass"))
        digits = raw.translate(None, _OTHERS)
        if pieces.count(self._zero) != len(digits):  # there is a word of which not all is looked at
            pieces = self.words.split(text)
            return _sum(self.vectors, pieces), pieces
        counts = np.array(list(map(digits.count, _DIGITS)), np.float32)
        total: Single = _sum(self.vectors, pieces) + counts @ self._apart
        return total, pieces


load = cache(Embedding)
"""The one of this process, read when first asked for. Raises `EmbeddingError`."""


def _sum(vectors: NDArray[np.int8], pieces: bytes) -> Single:
    """`float32 [256]`, exact: in groups of so few pieces that none overflows in 16 bits, which is twice as quick."""
    number = len(pieces) // 2
    groups = max(-(-number // _GROUP), 1)
    even = np.frombuffer(pieces + _NOTHING * (-number % groups), ">u2")
    grouped = vectors.take(even, axis=0).reshape(-1, groups, DIMENSIONS)
    total: Single = np.add.reduce(np.add.reduce(grouped, axis=0, dtype=np.int16), axis=0, dtype=np.float32)
    return total


def _folder() -> Path:
    spec = find_spec("wordllama")
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddingError("the package wordllama is not installed: install requirements/runtime.txt, with --no-deps")
    return Path(spec.submodule_search_locations[0])


def _vectors(path: Path) -> NDArray[np.int8]:
    """The table of a safetensors file: the size of its header, the header in JSON, the rows; then a row of zeros."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = msgspec.json.decode(file.read(min(size, 65_536)), type=dict[str, _Tensor])
        tensor = header["embedding.weight"]
        if (tensor.dtype, tensor.shape, tensor.data_offsets[0]) != ("F16", (_PIECES, DIMENSIONS), 0):
            raise ValueError("another table than expected")
        table = np.zeros((_PIECES + 1, DIMENSIONS), np.int8)
        for start in range(0, _PIECES, _ROWS):
            rows = np.fromfile(file, np.float16, _ROWS * DIMENSIONS).reshape(_ROWS, DIMENSIONS).astype(np.float32)
            table[start : start + _ROWS] = np.rint(rows * _STEPS).clip(-127, 127)
    return table


def embed_all(texts: Iterable[str]) -> Single:
    """`float32 [n, 256]`: each text's embedding, in order. Raises `EmbeddingError`."""
    rows = [load().embed(sample(text))[0] for text in texts]
    return np.array(rows, np.float32).reshape(len(rows), DIMENSIONS)
