"""Words whose letters stand apart: "j o e @ x . i o"."""

from collections.abc import Iterator

import re2

from router.classify.views.rewritten import Piece

_SPACED = re2.compile(r"(?:^|[\s])([!-~](?:[ \t\n][!-~]){9,})(?:$|[\s])")
"""Ten single characters: no prose, hardly a table."""


def spaced(text: str) -> Iterator[Piece]:
    for match in _SPACED.finditer(text):
        start, end = match.span(1)
        for blank in range(start + 1, end, 2):
            yield Piece(blank, blank + 1, "")
