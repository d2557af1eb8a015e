"""Texts written as base64, base32 or hexadecimal digits."""

import base64
from collections.abc import Iterator

import re2

from router.classify.views.inline import text_of, unbase64
from router.classify.views.rewritten import Piece

LEAST = 16
"""Characters: twelve bytes of base64 are a short e-mail address; words are rarely as long."""
_SNIFFED = 64
_RUN = re2.compile(
    r"[0-9A-Za-z+/_-]{16,}(?:\r?\n[0-9A-Za-z+/_-]+)*={0,6}|\b(?:[0-9A-Fa-f]{2}[ :]){11,}[0-9A-Fa-f]{2}\b"
)
_BETWEEN = str.maketrans("", "", " :\r\n")
_SEPARATORS = str.maketrans("/-_+\r\n", "      ")
_BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567="
_HEX = "0123456789abcdefABCDEF"
_PREFIXES = ("0x", "0X")
_WIDE = 24
"""Fewer characters are believed to be a text in ASCII only: others often decode by accident."""


def blobs(text: str) -> Iterator[Piece]:
    for match in _RUN.finditer(text):
        start, end = match.span()
        yield from _decoded(match.group(), start, end)


def _decoded(run: str, start: int, end: int) -> Iterator[Piece]:
    """The whole run, or all but its last line, else its parts: paths and words may stand around it."""
    for until in (len(run), run.rfind("\n")):
        if until > 0 and (found := _text(run[:until].rstrip())) is not None:
            yield start, start + until, _apart(found), True
            return
    at = 0
    for part in run.translate(_SEPARATORS).split(" "):
        if LEAST <= len(part) < len(run) and (found := _text(part)) is not None:
            yield start + at, start + at + len(part), _apart(found), True
        at += len(part) + 1


def _apart(text: str) -> str:
    """The characters around it belong to something else."""
    return f" {text} "


def _text(run: str) -> str | None:
    if " " in run or ":" in run or not run.strip(_HEX):
        return _of_hex(run)
    if run.startswith(_PREFIXES):
        return _of_hex(run[2:])
    if run.isupper() and not run.strip(_BASE32):
        return _plain(_unbase32(run.rstrip("=")))
    if run.islower() or run.isupper():
        return None  # a path, a word, a name: base64 of a text has both
    bare = "".join(run.split())
    if len(bare) > _SNIFFED and _plain(unbase64(bare[:_SNIFFED]), cut=3) is None:
        return None
    return _plain(unbase64(bare))


def _unbase32(bare: str) -> bytes | None:
    try:
        return base64.b32decode(bare + "=" * (-len(bare) % 8))
    except ValueError:
        return None


def _of_hex(run: str) -> str | None:
    bare = run.translate(_BETWEEN)
    try:
        return _plain(bytes.fromhex(bare))
    except ValueError:
        return None


def _plain(data: bytes | None, cut: int = 0) -> str | None:
    if data is None or (len(data) < _WIDE * 3 // 4 and not data.isascii()):
        return None
    found = text_of(data)
    for less in range(1, cut + 1):
        found = found if found is not None else text_of(data[:-less])
    return found
