"""Invented values: right in every checksum, in the notations that people use."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple


class Value(NamedTuple):
    """`notation` names the way it is written, for the list of misses."""

    text: str
    notation: str = ""


Maker = Callable[[Random], Value]
