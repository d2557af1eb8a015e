"""What of a body stands in none of its passages: numbers, keys that stand twice, roles, whatever was not read."""

from collections.abc import Iterator, Sequence
from json.encoder import encode_basestring_ascii

import msgspec

from router.classify.views.inline import LEAST_BARE, inline
from router.types.request import Passage

_encode = msgspec.json.encode
_HEAD = 32
"""Bytes of a passage that are looked for; the rest is compared. A long needle is slow to prepare."""
_TRIES = 4
_EFFORT = 8
"""So many times the body is searched at most: texts that are not where they are expected stay in the residue."""
_EMPTY = b'""'


def residue(raw: bytes, passages: Sequence[Passage]) -> Iterator[Passage]:
    """The body with empty strings in the place of the passages; long strings of base64 apart, as they are media.

    Whatever is cut out is, letter by letter, one of the passages.
    """
    kept: list[bytes] = []
    end = 0
    for start, until in sorted(_found(raw, passages)):
        if start >= end:
            kept.append(raw[end:start])
            end = until
    kept.append(raw[end:])
    text = _EMPTY.join(kept).decode("utf-8", "replace")
    return _apart(text) if len(text) >= LEAST_BARE else iter((Passage((), text),))


def _apart(text: str) -> Iterator[Passage]:
    rest: list[str] = []
    for string in text.split('"'):
        bare = string.replace("\\/", "/") if len(string) >= LEAST_BARE else ""
        if bare and inline(bare):
            yield Passage((), bare)
        else:
            rest.append(string)
    yield Passage((), '"'.join(rest))


def _found(raw: bytes, passages: Sequence[Passage]) -> Iterator[tuple[int, int]]:
    """Where the passages stand: those of one field in their order, wherever that field is."""
    ends: dict[str | int, int] = {}
    left = _EFFORT * len(raw)
    ascii_only = raw.isascii()
    for passage in passages:
        sent = _encode(passage.text)
        if ascii_only and not sent.isascii():
            sent = encode_basestring_ascii(passage.text).encode()
        root = passage.path[0] if passage.path else ""
        start = ends.get(root, 0)
        at = _find(raw, sent, start)
        left -= (len(raw) if at < 0 else at) - start
        if left < 0:
            return
        if at >= 0:
            ends[root] = at + len(sent)
            yield at, ends[root]


def _find(raw: bytes, sent: bytes, start: int) -> int:
    """Some texts begin alike."""
    head = sent[:_HEAD]
    for _ in range(_TRIES):
        start = raw.find(head, start)
        if start < 0 or raw.startswith(sent, start):
            return start
        start += 1
    return -1
