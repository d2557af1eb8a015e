"""The texts in which a request is looked at: its passages as they are, and as what evasions hide.

The first view has every passage once, what of the body is in none of them, and the seams between passages. What is
written otherwise than it is read is replaced, and what stands near it is a second view; and so on, until nothing is
left to replace. Ordinary text has one view.
"""

from collections.abc import Iterator, Sequence

import msgspec

from router.classify.bytewise import Characters, Pattern
from router.classify.views.blobs import blobs, pairs
from router.classify.views.escapes import escapes
from router.classify.views.folded import folds
from router.classify.views.joined import joined, segments
from router.classify.views.residue import residue
from router.classify.views.rewritten import Piece, rewritten
from router.classify.views.seams import seams
from router.classify.views.spaced import spaced
from router.classify.views.view import Place, TooMuch, View
from router.classify.views.walk import strings
from router.types.request import Passage

__all__ = ["Place", "TooMuch", "View", "body_views", "strings", "views"]

MOST_LAYERS = 6
"""Base64 of base64 and so on: whoever wraps more often has something to hide."""


def views(passages: Sequence[Passage], raw: bytes) -> Iterator[View]:
    """Everything to scan of one request. `raw`: its whole body, for what no passage shows.

    Hits in what no passage shows have the path () and are not exact. Raises `TooMuch`.
    """
    rest = residue(raw, passages) if raw else ()
    view = joined([*segments([*passages, *rest]), *seams(passages)])
    yield view
    dull: set[bytes] = set()
    for _ in range(MOST_LAYERS):
        pieces = _pieces(view.text, dull)
        if not pieces:
            return
        view = rewritten(view, pieces)
        yield view
    if _pieces(view.text, dull):
        raise TooMuch(f"More than {MOST_LAYERS} layers of encodings.")


def body_views(body: bytes) -> Iterator[View]:
    """Everything to scan of a body that is about to be sent. Keys are no passages, and so part of what is left."""
    try:
        passages = list(strings(msgspec.json.decode(body), keys=False))
    except (msgspec.DecodeError, UnicodeDecodeError):
        passages = []
    return views(passages, body)


def _pieces(text: str, dull: set[bytes]) -> list[Piece]:
    encoded = text.encode("utf-8", "replace")
    place = Characters(text, encoded)
    found = [*escapes(text), *folds(text, encoded, place), *blobs(encoded, place, dull)]
    if _APART.search(encoded)[0] >= 0:
        found += (*pairs(encoded, place), *spaced(text, encoded, place))
    found.sort()
    return found


_APART = Pattern(r"(?:\s[!-~]){8}|(?:[ :][0-9A-Fa-f]{2}){11}")
"""Letters that stand apart, or pairs of digits."""
