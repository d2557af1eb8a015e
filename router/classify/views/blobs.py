"""Texts written as base64, base32 or hexadecimal digits."""

import base64
from collections.abc import Iterator

import re2

from router.classify.views.inline import begins_as_text, text_of, unbase64
from router.classify.views.rewritten import Piece

LEAST = 16
"""Characters: twelve bytes of base64 are a short e-mail address; words are rarely as long."""
_SNIFFED = 64
_RUN = re2.compile(r"[0-9A-Za-z+/_-]{16,}(?:\r?\n[0-9A-Za-z+/_-]+)*={0,6}")
_PAIRS = re2.compile(r"\b(?:[0-9A-Fa-f]{2}[ :]){11,}[0-9A-Fa-f]{2}\b")
_BETWEEN = str.maketrans("", "", " :")
_SEPARATORS = str.maketrans("/-_+\r\n", "      ")
_BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567="
_HEX = "0123456789abcdefABCDEF"
_HEX_BYTES = _HEX.encode()
_PREFIXES = ("0x", "0X")
_FEW = 18
"""Fewer bytes are believed to be a text in ASCII only: others often decode by accident."""
_WHOLE = bytes(code if (chr(code).isalnum() and code < 128) or code in b"/-_+" else 32 for code in range(256))
_PARTS = _WHOLE.translate(bytes.maketrans(b"/-_+", b"    "))
"""What ends a word: everything that base64 does not have, or also what it has in common with paths and names."""


def blobs(text: str, dull: set[bytes]) -> Iterator[Piece]:
    """`dull`: words that have been tried in vain; they are added."""
    words = _words(text) - dull
    promising = set(filter(_promising, words))
    dull |= words - promising
    if promising:
        for match in _RUN.finditer(text):
            yield from _decoded(match.group(), *match.span())
    for match in _PAIRS.finditer(text):
        if (found := _text(match.group().translate(_BETWEEN))) is not None:
            yield *match.span(), _apart(found), True


def _words(text: str) -> set[bytes]:
    """Few matches are worth an object: most long words are names, and many stand there often."""
    words = {word for word in text.encode("utf-8", "replace").translate(_WHOLE).split() if len(word) >= LEAST}
    return words | {part for word in words for part in word.translate(_PARTS).split() if len(part) >= LEAST}


def _promising(word: bytes) -> bool:
    """It begins as a text would: whole groups of characters, as it may go on in the next line."""
    if word.islower() and word.removeprefix(b"0x").strip(_HEX_BYTES):
        return False
    data = _bytes(word[: min(len(word) & -8, _SNIFFED)].decode())
    return begins_as_text(data) and _believed(data)


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
    bare = "".join(run.split()) if "\n" in run else run
    if len(bare) > _SNIFFED and not begins_as_text(_bytes(bare[:_SNIFFED])):
        return None
    data = _bytes(bare)
    return text_of(data) if _believed(data) else None


def _bytes(run: str) -> bytes | None:
    if not run.strip(_HEX):
        return _unhex(run)
    if run.startswith(_PREFIXES):
        return _unhex(run[2:])
    if run.isupper() and not run.strip(_BASE32):
        return _unbase32(run.rstrip("="))
    if run.islower() or run.isupper():
        return None  # a path, a word, a name: base64 of a text has both
    return unbase64(run)


def _believed(data: bytes | None) -> bool:
    return data is not None and (len(data) >= _FEW or data.isascii())


def _unbase32(bare: str) -> bytes | None:
    try:
        return base64.b32decode(bare + "=" * (-len(bare) % 8))
    except ValueError:
        return None


def _unhex(bare: str) -> bytes | None:
    try:
        return bytes.fromhex(bare)
    except ValueError:
        return None
