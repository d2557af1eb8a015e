"""RE2 over bytes, without what its wrapper makes of each match: a text has thousands of them.

Offsets are bytes of UTF-8; `Walk` turns them into characters.
"""

from collections.abc import Iterator
from typing import Any

import re2

_ANYWHERE, _HERE = re2._re2.RE2.Anchor.UNANCHORED, re2._re2.RE2.Anchor.ANCHOR_START
_OPTIONS = re2.Options()
_OPTIONS.never_capture = True
_OPTIONS.log_errors = False
"""RE2 tells of automata that grow too large on standard error, at each text anew."""


class Pattern:
    """Compiled. Raises `re2.error`."""

    def __init__(self, pattern: str) -> None:
        self._match: Any = re2.compile(pattern.encode(), _OPTIONS)._regexp.Match

    def search(self, encoded: bytes, at: int = 0) -> tuple[int, int]:
        """(start, end) of the first match from there on; (-1, -1): none."""
        return self._match(_ANYWHERE, encoded, at, len(encoded))[0]  # type: ignore[no-any-return]

    def match(self, encoded: bytes, at: int, limit: int) -> tuple[int, int]:
        """(start, end) of the match that begins there, in a text that ends at the limit."""
        return self._match(_HERE, encoded, at, limit)[0]  # type: ignore[no-any-return]

    def spans(self, encoded: bytes) -> Iterator[tuple[int, int]]:
        """All that do not overlap. Of patterns that match no empty text."""
        start, end = self.search(encoded)
        while start >= 0:
            yield start, end
            start, end = self.search(encoded, end)


class Walk:
    """Characters for offsets in bytes, which are asked for in rising order: one walk over the text."""

    def __init__(self, text: str, encoded: bytes) -> None:
        self._encoded, self._plain = encoded, len(encoded) == len(text)
        self._byte = self._character = 0

    def of(self, byte: int) -> int:
        if self._plain:
            return byte
        self._character += self.between(self._byte, byte)
        self._byte = byte
        return self._character

    def between(self, first: int, last: int) -> int:
        return last - first if self._plain else len(self._encoded[first:last].decode())
