"""Which columns of a report stand beside each other where there is so much room; the others follow below."""

from collections.abc import Iterator

from rich.cells import cell_len

from router.report.render import NUMBERS, Written, words

_WRAPPED = 24
"""Text may be folded to so many letters before a number has to make room."""
_FRAME = 3
"""Letters that each column needs beside its text."""


def parts(text: Written, width: int) -> Iterator[list[int]]:
    """Places of columns, part by part; the labels in front of the first number are in each. `width` is in letters."""
    numeric = [column.kind in NUMBERS for column in text.columns]
    first = numeric.index(True) if True in numeric else len(numeric)
    labels, rest = list(range(first)), list(range(first, len(numeric)))
    room = width - 1 - sum(_width(text, place) for place in labels)
    part: list[int] = []
    for place in rest:
        if part and sum(_width(text, one) for one in (*part, place)) > room:
            yield labels + part
            part = []
        part.append(place)
    yield labels + part


def _width(text: Written, place: int) -> int:
    column = text.columns[place]
    cells = [words(column), *(row[place] for row in text.rows), *text.totals[place : place + 1]]
    widest = max(map(cell_len, cells))
    return _FRAME + (widest if column.kind in NUMBERS else min(widest, _WRAPPED))
