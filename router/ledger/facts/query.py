"""A question to the ledger and its answer: which sums, by what, of what."""

from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

from msgspec import Struct

K = TypeVar("K")
Label = str | int | None
"""None: there is no such thing, or it is not known."""
Sums = dict[tuple[Label, ...], tuple[int, ...]]
"""Values of the dimensions → sums of the measures, both in the query's order. Money in nano-USD, times in ms."""


class LabelFilter(Struct, frozen=True):
    """Only what has one of these labels in this dimension; or, `inverted`, only what has none of them."""

    dimension: str
    labels: frozenset[Label]
    inverted: bool = False

    def holds(self, label: Label) -> bool:
        """By their texts, as in a database: what is asked for comes as text."""
        text = None if label is None else str(label)
        return any(text == (None if wanted is None else str(wanted)) for wanted in self.labels) != self.inverted


class Query(Struct, frozen=True, kw_only=True):
    """Of all facts of `table` whose request began in the window: `since_ms` is included, `until_ms` is not."""

    table: str
    by: tuple[str, ...]
    measures: tuple[str, ...]
    where: tuple[LabelFilter, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def dimensions(self) -> frozenset[str]:
        """All that an answer needs to tell apart."""
        return frozenset((*self.by, *(where.dimension for where in self.where)))

    def check(self, dimensions: Collection[str], measures: Collection[str]) -> None:
        """Raises ValueError for what the table does not know."""
        for asked, known in ((self.dimensions, dimensions), (self.measures, measures)):
            if unknown := sorted(set(asked) - set(known)):
                raise ValueError(f"unknown: {', '.join(unknown)}. Known: {', '.join(known)}.")

    def collect(
        self,
        facts: Iterable[tuple[Sequence[Label], Sequence[int]]],
        dimensions: Sequence[str],
        measures: Sequence[str],
        sums: Sums,
    ) -> None:
        """Adds to `sums` the facts of which the conditions hold; `facts`: labels by `dimensions`, amounts by
        `measures`."""
        conditions = [(dimensions.index(where.dimension), where) for where in self.where]
        by = [dimensions.index(name) for name in self.by]
        wanted = [measures.index(name) for name in self.measures]
        for labels, amounts in facts:
            if all(where.holds(labels[place]) for place, where in conditions):
                add(sums, tuple([labels[place] for place in by]), tuple([amounts[place] for place in wanted]))


class RowsExpired(Exception):
    """Rows that the question needs are gone: what is left of them can't be told apart so."""

    def __init__(self, before_ms: int, dimensions: Iterable[str]) -> None:
        """`before_ms`: only from then on (Unix) can it be answered."""
        super().__init__(before_ms)
        self.before_ms, self.dimensions = before_ms, tuple(dimensions)


def add(found: dict[K, tuple[int, ...]], key: K, amounts: tuple[int, ...]) -> None:
    """To what is there under this key."""
    before = found.get(key)
    found[key] = tuple(map(int.__add__, before, amounts)) if before else amounts
