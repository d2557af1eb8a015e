"""Tables of any usual form as columns: pandas, polars, pyarrow, a dict of columns, a list of dicts; imports none."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray


class Frame(Protocol):
    """pandas.DataFrame, polars.DataFrame and pyarrow.Table, as far as they are read here."""

    def __getitem__(self, name: Any, /) -> Any: ...


Table: TypeAlias = Mapping[str, Iterable[Any]] | Sequence[Mapping[str, Any]] | Frame


class Columns:
    """A table by its columns; `what` is its name in errors. Only columns that are asked for are read."""

    def __init__(self, table: Table, what: str) -> None:
        self._what = what
        self._rows: Any = _by_column(table, what)
        self._names = _names(self._rows, what)
        self._height: int | None = None

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def need(self, name: str) -> list[Any]:
        """ValueError where it is missing, or as long as no other."""
        if name not in self._names:
            has = ", ".join(sorted(self._names)) or "none"
            raise ValueError(f"{self._what}: column {name!r} is missing (there: {has}); rename or add it")
        values = _plain(self._rows[name])
        if self._height not in (None, len(values)):
            raise ValueError(f"{self._what}: column {name!r} has {len(values)} rows, others {self._height}")
        self._height = len(values)
        return values

    def numbers(self, name: str) -> NDArray[np.float64]:
        """As floats: NaN for what is absent. ValueError for text, and for infinite values."""
        try:
            values = np.array([np.nan if value is None else value for value in self.need(name)], dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"{self._what}: column {name!r} holds something that is no number") from None
        if np.isinf(values).any():
            raise ValueError(f"{self._what}: column {name!r} holds infinite values; write NaN for what is unknown")
        return values

    def texts(self, name: str) -> list[str | None]:
        """None for what is absent. ValueError for anything but text."""
        return [self._text(value, name) for value in self.need(name)]

    def _text(self, value: Any, name: str) -> str | None:
        if isinstance(value, str):
            return value
        if absent(value):
            return None
        raise ValueError(f"{self._what}: column {name!r} holds a {type(value).__name__}; text is needed")

    def names(self, name: str) -> list[str]:
        """Ids and names. ValueError where one is absent."""
        values = self.need(name)
        if any(absent(value) for value in values):
            raise ValueError(f"{self._what}: column {name!r} has gaps; every row needs one")
        return [value if isinstance(value, str) else str(value) for value in values]


def absent(value: Any) -> bool:
    """None, NaN, and what pandas writes for them."""
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


def _by_column(table: Any, what: str) -> Any:
    if not isinstance(table, Sequence):
        return table
    if isinstance(table, str | bytes) or not all(isinstance(row, Mapping) for row in table):
        raise ValueError(f"{what}: a list must hold one dict for each row")
    names = dict.fromkeys(name for row in table for name in row)
    return {name: [row.get(name) for row in table] for name in names}


def _names(table: Any, what: str) -> list[str]:
    if isinstance(table, Mapping):
        return list(table)
    names = getattr(table, "column_names", None) or getattr(table, "columns", None)
    if names is None or not hasattr(table, "__getitem__"):
        raise ValueError(f"{what}: a {type(table).__name__} is no table; give a data frame, columns or rows")
    return list(names)


def _plain(values: Any) -> list[Any]:
    for method in ("to_pylist", "tolist", "to_list"):
        if hasattr(values, method):
            return list(getattr(values, method)())
    return list(values)
