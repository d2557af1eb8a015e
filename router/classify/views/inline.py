"""Documents that stand in a request as base64: data URLs and payloads."""

import binascii
from typing import NamedTuple

MOST_DECODED = 256 * 1024
"""Characters of base64 that are decoded of all documents of a request; the rest is as good as a picture."""
LEAST_BARE = 1024
"""A string of nothing but so much base64 is a payload, whatever stands before it."""
_LONGEST_HEADER = 256
_SNIFFED = 4096
"""Characters that tell a text from other data: a multiple of 4."""
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=\r\n"
_CONTROL = bytes(code for code in range(32) if code not in b"\t\n\r") + b"\x7f"
_STANDARD = str.maketrans("-_", "+/", "\r\n ")
_UTF_8 = "utf-8-sig"
_MARKS = (b"\xff\xfe", b"\xfe\xff")
"""Of UTF-16."""


class Inline(NamedTuple):
    """`media_type` is empty where nothing says it."""

    media_type: str
    payload: str


def inline(text: str, least: int = LEAST_BARE) -> Inline | None:
    """The base64 that a string is; None for all other text."""
    if text.startswith("data:"):
        comma = text.find(",", 0, _LONGEST_HEADER)
        if comma > 0 and text[:comma].endswith(";base64") and is_base64(text[comma + 1 :]):
            return Inline(text[len("data:") : comma].partition(";")[0].lower(), text[comma + 1 :])
    return Inline("", text) if len(text) >= least and is_base64(text) else None


def is_base64(text: str) -> bool:
    """Most texts show in their first word that they are not."""
    return text.isascii() and not _beyond(text[:64]) and not _beyond(text)


def document(payload: str) -> str | None:
    """The text that a payload is; None where it is none."""
    if len(payload) > _SNIFFED and not begins_as_text(unbase64(payload[:_SNIFFED])):
        return None
    return text_of(unbase64(payload))


def begins_as_text(data: bytes | None) -> bool:
    """Of a piece, whose last character may be cut: UTF-8 has at most four bytes. Cheap where it is none."""
    if not data:
        return False
    if _encoding(data) != _UTF_8:
        return text_of(data[: len(data) & -2]) is not None
    if len(data.translate(None, _CONTROL)) != len(data):
        return False
    return data.isascii() or len(data) - len(data.decode("utf-8", "ignore").encode()) < 4


def text_of(data: bytes | None) -> str | None:
    """Bytes as UTF-8 or UTF-16, without control characters; None where they are none."""
    if not data:
        return None
    try:
        text = data.decode(_encoding(data))
    except UnicodeDecodeError:
        return None
    plain = text.encode()
    return text if len(plain.translate(None, _CONTROL)) == len(plain) else None


def _encoding(data: bytes) -> str:
    """UTF-16 has a mark, or every other byte of it is 0, as in what shells on Windows take."""
    if data.startswith(_MARKS):
        return "utf-16"
    if data[1:2] == b"\0" and not data[1::2].strip(b"\0"):
        return "utf-16-le"
    return _UTF_8


def unbase64(text: str) -> bytes | None:
    """Standard or URL-safe, wrapped or not, padded or not; a single character too many is left out."""
    bare = text.translate(_STANDARD).rstrip("=")
    bare = bare[:-1] if len(bare) % 4 == 1 else bare
    try:
        return binascii.a2b_base64(bare + "=" * (-len(bare) % 4))
    except binascii.Error:
        return None


def _beyond(text: str) -> bytes:
    return text.encode().translate(None, _BASE64)
