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


def _span(first: int, last: int) -> bytes:
    return bytes(range(first, last + 1))


_KINDS: dict[str, bytes] = {
    "digits": b"0123456789",
    "capitals": _span(0x41, 0x5A),
    "lines": b"\n",
    "tabs": b"\t",
    "questions": b"?",
    "quotes": b"\"'",
    "backticks": b"`",
    "commas": b",",
    "stops": b".!",
    "brackets": b"()[]",
    "braces": b"{};",
    "equals": b"=",
    "operators": b"+-*/<>|&%~",
    "powers": b"^_",
    "backslashes": b"\\",
    "dollars": b"$",
    "colons": b":#@",
    "accented": _span(0xC3, 0xCA),
    "greek": b"\xce\xcf",
    "cyrillic": _span(0xD0, 0xD3),
    "right_to_left": _span(0xD6, 0xDD),
    "indic": b"\xe0\xe1",
    "symbols": b"\xe2",
    "kana": b"\xe3",
    "han": _span(0xE4, 0xE9),
    "hangul": _span(0xEA, 0xED),
    "fullwidth": b"\xef",
    "emoji": b"\xf0",
}
"""Characters by their first byte in UTF-8, which also tells the script."""
_MARKS = {"fences": "```", "indents": "\n    ", "gaps": "\n\n", "links": "://"}
_WORDS: dict[str, frozenset[str]] = {
    "keywords": frozenset(
        [
            *("def", "class", "return", "import", "from", "for", "while", "if", "else", "try", "function", "const"),
            *("let", "var", "public", "static", "void", "int", "#include", "SELECT", "FROM", "WHERE"),
            *("{", "}", "=>", "->", "==", "!=", "&&", "||", "+=", "//", "#", "*/"),
        ]
    ),
    "choices": frozenset(form.format(letter) for letter in "ABCDEFGHIJ" for form in ("{})", "({})", "{}.", "{}:")),
    "items": frozenset({"-", "*", "•", *(f"{number}{mark}" for number in range(1, 10) for mark in ".)")}),
}
"""Words of programs, beginnings of answers to choose from, and marks of lists: how many different ones there are."""
_TABLE = np.array([[byte in kind for kind in _KINDS.values()] for byte in range(256)], np.float32)
"""Byte → one in the column of its kind."""
_DIGITS = tuple(_KINDS).index("digits")
_ALL = log1p(100)

FORM = ("functions", "function_characters", "turns", "tools", "schema", "images", "max_output", "position")
NAMES: tuple[str, ...] = (
    *("log_characters", "log_words", "word_length", "distinct_words", "log_lines", "log_last_line"),
    "log_digits",
    *_KINDS,
    *_MARKS,
    *_WORDS,
    *FORM,
)


def features(text: str, functions: str = "", shape: Shape = NO_SHAPE) -> NDArray[np.float32]:
    """`float32 [len(NAMES)]`, each from 0 to about 1. `functions`: the offered tools in JSON; "" for none."""
    seen = sample(text)
    words = seen.split()
    different = set(words)
    row = (
        *_sizes(text, seen, len(words), len(different)),
        *_kinds(seen),
        *(log1p(seen.count(mark)) / 8 for mark in _MARKS.values()),
        *(log1p(len(different & known)) / 4 for known in _WORDS.values()),
        *form(functions, shape),
    )
    return np.array(row, np.float32)


def form(functions: str, shape: Shape) -> tuple[float, ...]:
    """The last of the features, `len(FORM)` of them: what no text says."""
    number = max(functions.count('"parameters"'), 1) if functions else 0
    counts = (shape.turns, shape.tools, shape.schema, shape.images, shape.max_output, shape.position)
    return log1p(number) / 8, log1p(len(functions)) / 16, *[log1p(max(count, 0)) / 16 for count in counts]


def _sizes(text: str, seen: str, words: int, different: int) -> tuple[float, ...]:
    number = max(words, 1)
    return (
        log1p(len(text)) / 16,
        log1p(number * len(text) / max(len(seen), 1)) / 16,
        min(len(seen) / number / 16, 1.0),
        different / number,
        log1p(text.count("\n")) / 16,
        log1p(len(text) - text.rfind("\n")) / 16,
    )


def _kinds(seen: str) -> list[float]:
    """How many digits; then the share of each kind of character, as log(1 + per cent)."""
    raw = np.frombuffer(seen.encode(errors="replace"), np.uint8)
    counts = (np.bincount(raw, minlength=256).astype(np.float32) @ _TABLE).tolist()
    share = 100.0 / max(len(seen), 1)
    return [log1p(counts[_DIGITS]) / 16, *[log1p(count * share) / _ALL for count in counts]]
