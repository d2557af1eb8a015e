"""Texts that were taken apart: the end of one passage beside the beginning of the next."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from router.classify.views.joined import Segment
from router.types.request import Passage

REACH = 64
"""Characters on either side of a seam; a shorter passage is joined whole, with both its neighbours."""
_SAID = frozenset({"content", "text", "arguments", "output", "input"})
"""What a message says stands under these names."""


def seams(passages: Sequence[Passage]) -> Iterator[Sequence[Segment]]:
    """Of passages as they follow each other, and of those of one role, whoever spoke in between.

    Top-level lists (inputs of an embedding) are texts of their own.
    """
    if len(passages) < 2:
        return
    said = list(filter(joins, passages))
    yield from _chains(said)
    if len(said) < 3:
        return
    by_role: dict[str, list[int]] = {}
    for number, passage in enumerate(said):
        by_role.setdefault(passage.role, []).append(number)
    for own in by_role.values():
        if own[-1] - own[0] >= len(own):  # others spoke in between
            yield from _chains([said[number] for number in own])


def joins(passage: Passage) -> bool:
    """It may go on in another."""
    return len(passage.path) > 1 and passage.path[-1] in _SAID


def _chains(passages: Sequence[Passage]) -> Iterator[Sequence[Segment]]:
    """A chain ends where a passage is so long that its end and its beginning are apart."""
    chain: list[Segment] = []
    for before, after in pairwise(passages):
        if not chain:
            chain.append(_tail(before))
        short = len(after.text) <= REACH
        chain.append(Segment(after.text[:REACH], after.path, 0, 0, True))
        if not short:
            yield chain
            chain = []
    if chain:
        yield chain


def _tail(passage: Passage) -> Segment:
    start = max(len(passage.text) - REACH, 0)
    return Segment(passage.text[start:], passage.path, start, 0, True)
