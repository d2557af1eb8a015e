"""A text to scan, and where in the request its characters come from."""

from collections.abc import Callable
from typing import NamedTuple

from router.types.request import Path


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
