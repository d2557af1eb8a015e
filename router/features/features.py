"""Cheap numbers of a request: how long, in which script, with how much code, mathematics and structure, in what form.

All are bounded and about one in size: shares on a logarithmic scale, and logarithms of counts. What a text is about is
left to its embedding.
"""

from math import log1p

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from router.features.sample import sample


class Shape(Struct, frozen=True):
    """A request's own form, as far as its text does not show it; all 0 where only a text is known."""

    turns: int = 0
    """Messages of the conversation."""
    tools: int = 0
    schema: int = 0
    """1: the answer must follow a JSON schema."""
    images: int = 0
    max_output: int = 0
    """Tokens that the caller allows; 0: no limit."""
    position: int = 0
    """Requests of its session before it."""


NO_SHAPE = Shape()


def _code(*ranges: tuple[int, int]) -> bytes:
    return b"".join(bytes(range(first, last + 1)) for first, last in ranges)


_BYTES: dict[str, bytes] = {
    "digits": b"0123456789",
    "capitals": _code((0x41, 0x5A)),
    "spaces": b" \t",
    "lines": b"\n",
    "questions": b"?",
    "quotes": b"\"'`",
    "commas": b",",
    "stops": b".!",
    "brackets": b"()[]",
    "braces": b"{};",
    "operators": b"+-*/=<>^|&%~",
    "underscores": b"_",
    "backslashes": b"\\",
    "dollars": b"$",
    "colons": b":#@",
    "accented": b"\xc3\xc4\xc5\xc6",
    "greek": b"\xce\xcf",
    "cyrillic": _code((0xD0, 0xD4)),
    "right_to_left": _code((0xD6, 0xDB)),
    "indic": b"\xe0\xe1",
    "symbols": b"\xe2",
    "kana": b"\xe3",
    "han": _code((0xE4, 0xE9)),
    "hangul": _code((0xEA, 0xED)),
    "emoji": b"\xf0",
}
"""Kinds of characters by their first byte in UTF-8, which tells the script."""
_MARKS: dict[str, tuple[str, ...]] = {
    "fences": ("```",),
    "indents": ("\n    ", "\n\t"),
    "keywords": ("def ", "return ", "import ", "class ", "function ", "SELECT ", "#include", "=>", "()"),
    "formulas": ("\\frac", "\\(", "\\[", "$$", "^{", "_{", " = ", "√", "∑", "∫", "≤"),
    "links": ("://",),
    "gaps": ("\n\n",),
    "items": ("\n- ", "\n* ", "\n1. ", "\n2. "),
}
_CHOICES = tuple(f"{letter}{mark}" for letter in "ABCD" for mark in (") ", ". ", ": "))
"""How answers to choose from begin."""
_TABLE = np.zeros((256, len(_BYTES)), np.float32)
for _column, _values in enumerate(_BYTES.values()):
    _TABLE[list(_values), _column] = 100.0

NAMES: tuple[str, ...] = (
    *("log_characters", "log_words", "word_length", "distinct_words", "log_lines"),
    *_BYTES,
    *_MARKS,
    *("choices", "functions", "function_characters"),
    *("turns", "tools", "schema", "images", "max_output", "position"),
)


def features(text: str, functions: str = "", shape: Shape = NO_SHAPE) -> NDArray[np.float32]:
    """`float32 [len(NAMES)]`, each from 0 to about 1. `functions`: the offered tools in JSON; "" for none."""
    seen = sample(text)
    words = seen.split()
    row = [
        *_sizes(text, seen, words),
        *_kinds(seen),
        *_marked(seen),
        _choices(seen),
        *_offered(functions),
        *_form(shape),
    ]
    return np.array(row, np.float32)


def _sizes(text: str, seen: str, words: list[str]) -> tuple[float, ...]:
    number = max(len(words), 1)
    return (
        log1p(len(text)) / 16,
        log1p(number * len(text) / max(len(seen), 1)) / 16,
        min(len(seen) / number / 16, 1.0),
        len(set(words)) / number,
        log1p(text.count("\n")) / 16,
    )


def _kinds(seen: str) -> list[float]:
    """The share of each kind of character, as log(1 + per cent)."""
    raw = np.frombuffer(seen.encode(errors="replace"), np.uint8)
    shares = np.bincount(raw, minlength=256).astype(np.float32) @ _TABLE / max(len(seen), 1)
    kinds: list[float] = (np.log1p(shares) / log1p(100)).tolist()
    return kinds


def _marked(seen: str) -> list[float]:
    return [log1p(sum(map(seen.count, marks))) / 8 for marks in _MARKS.values()]


def _choices(seen: str) -> float:
    return log1p(sum(map(seen.count, _CHOICES))) / 8


def _offered(functions: str) -> tuple[float, float]:
    number = max(functions.count('"parameters"'), 1) if functions else 0
    return log1p(number) / 8, log1p(len(functions)) / 16


def _form(shape: Shape) -> tuple[float, ...]:
    counts = (shape.turns, shape.tools, shape.schema, shape.images, shape.max_output, shape.position)
    return tuple(log1p(max(count, 0)) / 16 for count in counts)
