"""Rows of codes and amounts → one row a group, with exact sums."""

from collections.abc import Sequence
from typing import TypeAlias, TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from router.ledger.facts.query import Label, Sums
from router.ledger.packed.column import Numbers

Labelled = tuple[Sequence[Label], Numbers]
"""Distinct labels, and which of them each row has."""
T = TypeVar("T")
_Amounts: TypeAlias = NDArray[np.int64] | NDArray[np.object_]
_WIDEST = 2**62
"""What a key of 64 bits may count up to."""
_TOGETHER = 2_000_000
"""Rows gathered before they are summed, so that memory does not grow with the ledger."""


class Groups(Struct, frozen=True, eq=False):
    """`order` brings equal rows together; each group begins at one of `starts`, in that order."""

    order: NDArray[np.intp]
    starts: NDArray[np.intp]

    @property
    def firsts(self) -> NDArray[np.intp]:
        """A row of each group."""
        return self.order[self.starts]

    def sums(self, amounts: Numbers) -> _Amounts:
        """As Python's own integers where 64 bits might not hold them."""
        sorted_ = amounts[self.order]
        if _greatest(amounts) * len(amounts) >= _WIDEST:
            return np.add.reduceat(sorted_.astype(object), self.starts)
        return np.add.reduceat(sorted_, self.starts)


def groups(columns: Sequence[tuple[Numbers, int]], length: int) -> Groups:
    """Of at least one row. Each column: codes, all of them below the number beside them. The first one sorts first."""
    key, size = np.zeros(length, np.int64), 1
    for codes, count in columns:
        if size * count >= _WIDEST:
            distinct, key = np.unique(key, return_inverse=True)
            size = len(distinct)
        key, size = key * count + codes, size * count
    order = np.argsort(key, kind="stable")
    sorted_ = key[order]
    changes = np.flatnonzero(sorted_[1:] != sorted_[:-1]) + 1
    return Groups(order, np.concatenate((np.zeros(1, np.intp), changes)))


def labelled(values: Sequence[Label]) -> Labelled:
    index: dict[Label, int] = {}
    codes = [index.setdefault(value, len(index)) for value in values]
    return tuple(index), np.array(codes, np.int64)


def of_numbers(values: Numbers) -> Labelled:
    distinct, codes = np.unique(values, return_inverse=True)
    return distinct.tolist(), codes.astype(np.int64)


class Tally:
    """Adds up rows of many tables, each with labels of its own."""

    def __init__(self, dimensions: int, measures: int) -> None:
        self._indexes: list[dict[Label, int]] = [{} for _ in range(dimensions)]
        self._codes: list[list[Numbers]] = [[] for _ in range(dimensions)]
        self._amounts: list[list[_Amounts | None]] = [[] for _ in range(measures)]
        self._length = 0
        self._lengths: list[int] = []

    def add(self, columns: Sequence[Labelled], amounts: Sequence[Numbers], length: int) -> None:
        for (labels, codes), index, kept in zip(columns, self._indexes, self._codes, strict=True):
            known = np.array([index.setdefault(label, len(index)) for label in labels], np.int64)
            kept.append(known[codes])
        for amount, some in zip(amounts, self._amounts, strict=True):
            some.append(amount if amount.any() else None)
        self._lengths.append(length)
        if sum(self._lengths) >= _TOGETHER + 2 * self._lengths[0]:
            self._sum_up()

    def sums(self) -> Sums:
        if not self._lengths:
            return {}
        self._sum_up()
        names = [list(index) for index in self._indexes]
        keys = [[name[code] for code in codes[0].tolist()] for name, codes in zip(names, self._codes, strict=True)]
        count = self._lengths[0]
        sums = [[0] * count if some[0] is None else some[0].tolist() for some in self._amounts]
        return dict(zip(_rows(keys, count), _rows(sums, count), strict=True))

    def _sum_up(self) -> None:
        """All that was gathered becomes the first part of what will be."""
        columns = [np.concatenate(codes) for codes in self._codes]
        sizes = [len(index) for index in self._indexes]
        found = groups(list(zip(columns, sizes, strict=True)), sum(self._lengths))
        self._codes = [[codes[found.firsts]] for codes in columns]
        self._amounts = [[self._summed(some, found)] for some in self._amounts]
        self._lengths = [len(found.starts)]

    def _summed(self, some: Sequence[_Amounts | None], found: Groups) -> _Amounts | None:
        """None: all of it is 0, as half of the measures are in most ledgers."""
        if all(part is None for part in some):
            return None
        whole = (
            np.zeros(length, np.int64) if part is None else part
            for part, length in zip(some, self._lengths, strict=True)
        )
        return found.sums(np.concatenate(list(whole)))


def _rows(columns: Sequence[list[T]], count: int) -> list[tuple[T, ...]]:
    return list(zip(*columns, strict=True)) if columns else [()] * count


def _greatest(amounts: Numbers) -> int:
    return max(abs(int(amounts.min())), abs(int(amounts.max()))) if len(amounts) else 0
