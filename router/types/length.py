"""Lengths of time as people write them: 30m, 36h, 7d."""

import re

DAY_MS = 86_400_000
LONGEST_S = 3_660 * 86_400
"""Ten years: longer is a lifetime."""
_LENGTH = re.compile(r"([1-9]\d{0,5})([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def seconds(text: str) -> int:
    """ "36h" → 129600. Raises ValueError, with the remedy."""
    found = _LENGTH.fullmatch(text)
    length = int(found[1]) * _SECONDS[found[2]] if found else 0
    if not 0 < length <= LONGEST_S:
        raise ValueError("write a length such as 30m, 36h or 7d, at most 3660d")
    return length
