"""Small draws that the makers of values share."""

import re
import string
from collections.abc import Callable
from random import Random

ALNUM = string.ascii_letters + string.digits
UPPER = string.ascii_uppercase + string.digits
LOWER = string.ascii_lowercase + string.digits
HEX = "0123456789abcdef"
URLSAFE = ALNUM + "-_"
_MARK = re.compile(r"\[([^\]]+)\]|x|N|A")
_ANY = {"x": string.digits, "N": "23456789", "A": string.ascii_uppercase}


def digits(draw: Random, count: int) -> str:
    return word(draw, string.digits, count)


def word(draw: Random, alphabet: str, count: int) -> str:
    return "".join(draw.choices(alphabet, k=count))


def mask(draw: Random, pattern: str) -> str:
    """`x`: a digit, `N`: one from 2, `A`: a capital, `[357]`: one of these; all else stands for itself."""
    return _MARK.sub(lambda found: draw.choice(found[1] or _ANY[found[0]]), pattern)


def grouped(text: str, sizes: tuple[int, ...], mark: str) -> str:
    """Cut into groups of these sizes; the last one repeats."""
    parts, at, number = [], 0, 0
    while at < len(text):
        size = sizes[min(number, len(sizes) - 1)]
        parts.append(text[at : at + size])
        at, number = at + size, number + 1
    return mark.join(parts)


def until(draw: Callable[[], str], right: Callable[[str], bool]) -> str:
    """The first draw that is right."""
    while not right(found := draw()):
        pass
    return found
