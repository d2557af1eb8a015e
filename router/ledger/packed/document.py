"""Documents of decisions in few bytes: their structure, and what stands in it, column by column."""

import re
from collections.abc import Sequence
from itertools import repeat

import numpy as np
from msgspec import Struct

from router.ledger.packed.column import Ints, Same, Texts, decoded, deflated, inflated, ints, numbers, texts
from router.types.journal import Value

_SCALAR = re.compile(
    r'(?<=[:\[,])("[^"\\]*(?:\\.[^"\\]*)*"|-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null)(?=[,\]}])'
)
_ID, _GAP = "\x01", "\x00"
"""JSON has neither; a document that does is kept as it is."""


class _Shape(Struct, frozen=True, array_like=True):
    """Documents of one structure: which they are, and a column for each gap."""

    frame: bytes
    """Deflated text."""
    places: Ints | Same
    gaps: list[Texts | int]
    """A number: the same as in the gap of that number."""


class Documents(Struct, frozen=True, array_like=True):
    length: int
    shapes: list[_Shape]
    others: dict[int, str]
    """Place → what is no JSON."""


def packed(documents: Sequence[str], identifiers: Sequence[str]) -> Documents:
    """`identifiers`: the request of each; most name it."""
    found: dict[str, list[tuple[int, list[str]]]] = {}
    others: dict[int, str] = {}
    for place, (document, identifier) in enumerate(zip(documents, identifiers, strict=True)):
        if _ID in document or _GAP in document or not identifier:
            others[place] = document
        else:
            pieces = _SCALAR.split(document.replace(identifier, _ID))
            found.setdefault(_GAP.join(pieces[::2]), []).append((place, pieces[1::2]))
    return Documents(len(documents), [_shape(frame, rows) for frame, rows in found.items()], others)


def unpacked(found: Documents, identifiers: Sequence[str]) -> list[str]:
    documents = [found.others.get(place, "") for place in range(found.length)]
    for shape in found.shapes:
        frame = inflated(shape.frame).decode().replace("%", "%%").replace(_GAP, "%s")
        places = numbers(shape.places).tolist()
        columns: list[list[Value]] = []
        for gap in shape.gaps:
            columns.append(columns[gap] if isinstance(gap, int) else decoded(gap))
        rows = zip(*columns, strict=True) if columns else repeat(())
        for place, gaps in zip(places, rows, strict=False):
            documents[place] = (frame % gaps).replace(_ID, identifiers[place])
    return documents


def _shape(frame: str, rows: Sequence[tuple[int, list[str]]]) -> _Shape:
    places = ints(np.array([place for place, _ in rows], np.int64))
    first: dict[tuple[str, ...], int] = {}
    gaps: list[Texts | int] = []
    for at, column in enumerate(zip(*(row for _, row in rows), strict=True)):
        before = first.setdefault(column, at)
        gaps.append(texts(column) if before == at else before)
    return _Shape(deflated(frame.encode()), places, gaps)
