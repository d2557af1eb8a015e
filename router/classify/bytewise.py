"""RE2 over bytes, without what its wrapper makes of each match: a text has thousands of them.

Offsets are bytes of UTF-8; `Characters` turns them into characters.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import re2

_ANYWHERE, _HERE = re2._re2.RE2.Anchor.UNANCHORED, re2._re2.RE2.Anchor.ANCHOR_START
_OPTIONS = re2.Options()
_OPTIONS.never_capture = True
_OPTIONS.log_errors = False
"""RE2 tells of automata that grow too large on standard error, at each text anew."""

_STEP = 1024
"""Bytes that are counted together."""
_CONTINUED = bytes(range(0x80, 0xC0))
"""No first bytes of a character in UTF-8."""


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


class Characters:
    """Of a text: how many stand before an offset in bytes. The text is counted once, when that is first asked."""

    def __init__(self, text: str, encoded: bytes) -> None:
        self._encoded, self._plain = encoded, len(encoded) == len(text)
        self._before: Sequence[int] = ()

    def of(self, byte: int) -> int:
        if self._plain:
            return byte
        if not self._before:
            starts = range(0, len(self._encoded), _STEP)
            self._before = list(accumulate((_begun(self._encoded[at : at + _STEP]) for at in starts), initial=0))
        step = byte // _STEP
        return self._before[step] + _begun(self._encoded[step * _STEP : byte])


def _begun(part: bytes) -> int:
    """Characters whose first byte is in it."""
    return len(part.translate(None, _CONTINUED))
