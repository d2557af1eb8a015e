"""Words whose letters stand apart: "j o e @ x . i o"."""

from collections.abc import Iterator

from router.classify.bytewise import Characters, Pattern
from router.classify.views.rewritten import Piece

_SPACED = Pattern(r"[!-~](?:[ \t\n][!-~]){9,}")
"""Ten single characters: no prose, hardly a table."""


def spaced(text: str, encoded: bytes, place: Characters) -> Iterator[Piece]:
    for begin, until in _SPACED.spans(encoded):
        start = place.of(begin)
        end = start + until - begin
        # The first and the last may belong to words.
        first = start + 3 if text[max(start - 1, 0) : start].isalnum() else start + 1
        last = end - 2 if text[end : end + 1].isalnum() else end
        for blank in range(first, last, 2):
            yield blank, blank + 1, "", False
