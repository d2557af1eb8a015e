"""What a prompt has to do with the functions that are offered to it: whether one fits, and how often it is called."""

import re
from collections.abc import Sequence
from math import log1p
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from router.features.embedding import DIMENSIONS, embed_all
from router.features.look import looks

MOST = 16
"""Functions that are read."""
READ = 4_000
"""Characters of a prompt, and of what is said of a function, that are read."""
NAMES: tuple[str, ...] = (
    *("nearest", "near", "ahead", "rivals", "shared_words", "named", "usually_named"),
    *("functions", "required", "parameters", "values", "values_each", "joints", "sentences"),
)
_WORD = re.compile(r"[^\W_]{3,}")
_VALUE = re.compile(r"\d[\d.,:/-]*|\"[^\"]+\"|'[^']+'")
_JOINT = re.compile(r"[,;&，、；]|\b(?:and|also|then|both|each)\b")
_SENTENCE = re.compile(r"[.?!](?:\s|$)|[。？！]")


class Offer(NamedTuple):
    """One function: `text` is its name and description."""

    name: str
    text: str
    required: int
    parameters: int


def tool_looks(texts: Sequence[str], functions: Sequence[str]) -> NDArray[np.float32]:
    """`float32 [n, K]`: a look of each text, then `NAMES`. `functions`: tools in JSON, "" for none."""
    plain = looks(texts, functions)
    found = np.zeros((len(texts), len(NAMES)), np.float32)
    for row, (text, offered) in enumerate(zip(texts, functions, strict=True)):
        known = offers(offered) if offered else []
        if known:
            found[row] = _relevance(text[:READ], plain[row, :DIMENSIONS], known)
    return np.hstack([plain, found])


def offers(functions: str) -> list[Offer]:
    """Functions as they are offered: bare or in an API's envelope, one or several. What can't be read is none."""
    try:
        value = msgspec.json.decode(functions)
    except (ValueError, RecursionError):
        return []
    rows = value if isinstance(value, list) else [value]
    return [_offer(row) for row in rows[:MOST] if isinstance(row, dict)]


def _offer(row: dict[str, Any]) -> Offer:
    inner = row.get("function")
    tool = inner if isinstance(inner, dict) else row
    schema = tool.get("parameters")
    parts = schema if isinstance(schema, dict) else {}
    name = str(tool.get("name", ""))
    text = f"{name} {tool.get('description', '')}"[:READ]
    return Offer(name, text, _size(parts.get("required")), _size(parts.get("properties")))


def _size(value: Any) -> int:
    return len(value) if isinstance(value, list | dict) else 0


def _relevance(text: str, embedded: NDArray[np.float32], known: Sequence[Offer]) -> tuple[float, ...]:
    close = embed_all(offer.text for offer in known) @ embedded
    similar, best = np.sort(close), known[int(close.argmax())]
    words = _words(text)
    shared = max(_share(words, offer.text) for offer in known)
    named = [_share(words, offer.name) for offer in known]
    values, top = log1p(len(_VALUE.findall(text))), float(similar[-1])
    return (
        *(top, float(similar.mean()), top - float(similar[-2]) if len(known) > 1 else 0.0),
        *(float((similar > top / 2).sum()) / 4, shared, max(named), sum(named) / len(named)),
        *(log1p(len(known)), log1p(best.required), log1p(best.parameters), values, values - log1p(best.required)),
        *(log1p(len(_JOINT.findall(text))), log1p(len(_SENTENCE.findall(text)))),
    )


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))


def _share(words: set[str], text: str) -> float:
    """Of the words of `text`, how many are among `words`."""
    theirs = _words(text)
    return len(words & theirs) / max(len(theirs), 1)
