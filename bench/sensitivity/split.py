"""Two halves of everything: `dev` may be looked at while detectors are made, `test` is only measured."""

from collections.abc import Sequence
from enum import StrEnum
from random import Random
from typing import TypeVar

SEED = "lowpass-sensitivity-1"
"""Fixed before the first measurement; another one is another benchmark."""
T = TypeVar("T")


class Split(StrEnum):
    DEV = "dev"
    TEST = "test"


def chance(split: Split, *names: str) -> Random:
    """The same draws for the same names, on every machine; never the same for both halves."""
    return Random(":".join((SEED, split, *names)))  # noqa: S311 - a set, not a secret


def half(items: Sequence[T], split: Split) -> Sequence[T]:
    """Every other item. There must be two at least."""
    assert len(items) > 1
    return items[split is Split.TEST :: 2]
