"""Texts written as base64, base32 or hexadecimal digits."""

import base64
from collections.abc import Iterator

from router.classify.bytewise import Characters, Pattern
from router.classify.views.inline import begins_as_text, text_of, unbase64
from router.classify.views.rewritten import Piece

LEAST = 16
"""Characters: twelve bytes of base64 are a short e-mail address; words are rarely as long."""
_SNIFFED = 64
_RUN = Pattern(r"[0-9A-Za-z+/_-]{16,}(?:\r?\n[0-9A-Za-z+/_-]+)*={0,6}")
_PAIRS = Pattern(r"\b(?:[0-9A-Fa-f]{2}[ :]){11,}[0-9A-Fa-f]{2}\b")
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


def blobs(encoded: bytes, place: Characters, dull: set[bytes]) -> Iterator[Piece]:
    """`dull`: runs that have been tried in vain; they are added."""
    for start, end in _RUN.spans(encoded):
        run = encoded[start:end]
        if run in dull:
            continue
        if _promising(run) if run.isalnum() else any(map(_promising, _words(run))):
            first = place.of(start)
            yield from _decoded(run.decode(), first, first + end - start)
        else:
            dull.add(run)


def pairs(encoded: bytes, place: Characters) -> Iterator[Piece]:
    for start, end in _PAIRS.spans(encoded):
        if (found := _text(encoded[start:end].decode().translate(_BETWEEN))) is not None:
            first = place.of(start)
            yield first, first + end - start, _apart(found), True


def _words(run: bytes) -> set[bytes]:
    """Its lines, and their parts."""
    return {word for word in (*run.translate(_WHOLE).split(), *run.translate(_PARTS).split()) if len(word) >= LEAST}


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
