"""All numbers of a text in one row: its embedding, then its features."""

from collections.abc import Iterable, Sequence
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from router.features.embedding import DIMENSIONS, embed
from router.features.features import FORM, NAMES, NO_SHAPE, Shape, features, form
from router.features.sample import sample

SIZE = DIMENSIONS + len(NAMES)


def look(text: str, functions: str = "", shape: Shape = NO_SHAPE) -> NDArray[np.float32]:
    """`float32 [SIZE]`. Raises `EmbeddingError` if the embedding's data can't be read."""
    row = np.empty(SIZE, np.float32)
    row[:DIMENSIONS] = embed(text)
    row[DIMENSIONS:] = features(text, functions, shape)
    return row


def formed(row: NDArray[np.float32], functions: str, shape: Shape) -> NDArray[np.float32]:
    """`float32 [SIZE]`: the look of the same text in another form."""
    row = row.copy()
    row[-len(FORM) :] = form(functions, shape)
    return row


def fingerprint(text: str) -> bytes:
    """Texts of one fingerprint have one look: of what is looked at, and of what is counted in the rest."""
    counted = f"{len(text)} {text.count(chr(10))} {text.rfind(chr(10))} {sample(text)}"
    return sha256(counted.encode(errors="replace")).digest()


def looks(texts: Iterable[str], functions: Sequence[str] | None = None) -> NDArray[np.float32]:
    """`float32 [n, SIZE]`: a row a text, in order. Raises `ValueError` where there is not one `functions` for each."""
    texts = list(texts)
    offered = functions if functions is not None else [""] * len(texts)
    rows = [look(text, schemas) for text, schemas in zip(texts, offered, strict=True)]
    return np.array(rows, np.float32).reshape(len(rows), SIZE)
