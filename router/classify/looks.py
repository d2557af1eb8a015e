"""What was found in requests that have just been looked at, so that the same text is not looked at twice."""

from collections import OrderedDict
from hashlib import sha256
from typing import NamedTuple

import msgspec

from router.classify.views import strings
from router.classify.views.seams import joins

LEAST = 256
"""Bytes of a field that are worth it."""
MOST_REST = 4_096
"""Bytes of all other fields."""
MOST = 1_024
"""Looks that are kept: of requests that are about to be sent."""
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.encode


class Parts(NamedTuple):
    """A body's long fields, with their names and in their order, and an object of all others: both as JSON."""

    long: bytes
    rest: bytes


class Looks:
    """One policy's. No text is kept, only digests; the oldest are forgotten."""

    def __init__(self) -> None:
        self._classes: OrderedDict[bytes, frozenset[str]] = OrderedDict()

    def keep(self, text: bytes, classes: frozenset[str]) -> None:
        """`classes`: of all that was found in it, by a look at the whole of which it is a part."""
        self._classes[sha256(text).digest()] = classes
        if len(self._classes) > MOST:
            self._classes.popitem(last=False)

    def known(self, text: bytes) -> frozenset[str] | None:
        return self._classes.get(sha256(text).digest())


def parts(body: bytes, *, whole: bool) -> Parts | None:
    """None: it is no JSON object, has no long field, or too much else.

    With `whole` also where anything in it is in no part: a field that stands there twice, blanks.
    """
    try:
        fields = _fields(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if whole and _encode(fields) != body:
        return None
    rest = _encode({name: value for name, value in fields.items() if len(bytes(value)) < LEAST})
    long = {name: value for name, value in fields.items() if len(bytes(value)) >= LEAST}
    return Parts(_encode(long), rest) if long and len(rest) <= MOST_REST else None


def apart(rest: bytes) -> bool:
    """Nothing in it goes on in another field."""
    try:
        return not any(map(joins, strings(msgspec.json.decode(rest), keys=False)))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
