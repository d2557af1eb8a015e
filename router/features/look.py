"""All numbers of a text in one row: its embedding, then its features."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from router.features import embedding
from router.features.embedding import DIMENSIONS
from router.features.features import NAMES, NO_SHAPE, Shape, features
from router.features.sample import sample

SIZE = DIMENSIONS + len(NAMES)


def look(text: str, functions: str = "", shape: Shape = NO_SHAPE) -> NDArray[np.float32]:
    """`float32 [SIZE]`. Raises `EmbeddingError` if the embedding's data can't be read."""
    row = np.empty(SIZE, np.float32)
    row[:DIMENSIONS] = embedding.load().embed(sample(text))[0]
    row[DIMENSIONS:] = features(text, functions, shape)
    return row


def looks(texts: Iterable[str], functions: Sequence[str] | None = None) -> NDArray[np.float32]:
    """`float32 [n, SIZE]`: a row a text, in order. Raises `ValueError` where there is not one `functions` for each."""
    texts = list(texts)
    offered = functions if functions is not None else [""] * len(texts)
    rows = [look(text, schemas) for text, schemas in zip(texts, offered, strict=True)]
    return np.array(rows, np.float32).reshape(len(rows), SIZE)
