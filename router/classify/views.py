"""The texts in which a request is looked at: its passages as they are, and as what evasions hide."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from router.types.request import Passage, Path


class Place(NamedTuple):
    """Where in the request the characters of a view come from."""

    path: Path
    start: int
    end: int
    exact: bool = True


class View(NamedTuple):
    """`locate` turns (start, end) of `text` into a place."""

    text: str
    locate: Callable[[int, int], Place]


def views(passages: Sequence[Passage], raw: bytes) -> Iterator[View]:
    """Everything to scan of one request. `raw`: its whole body, for what no passage shows."""
    yield _joined(passages)


def body_views(body: bytes) -> Iterator[View]:
    """Everything to scan of a body that is about to be sent."""
    yield View(body.decode("utf-8", "replace"), lambda start, end: Place((), start, end, exact=False))


def _joined(passages: Sequence[Passage]) -> View:
    starts: list[int] = []
    length = 0
    for passage in passages:
        starts.append(length)
        length += len(passage.text) + 1

    def locate(start: int, end: int) -> Place:
        number = bisect_right(starts, start) - 1
        passage, first = passages[number], starts[number]
        return Place(passage.path, start - first, end - first, exact=end - first <= len(passage.text))

    return View("\n".join(passage.text for passage in passages), locate)
