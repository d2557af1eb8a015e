"""Characters that are read as others, as those others; what is not seen is left out."""

import re  # classes of characters only: nothing to go back for
from collections.abc import Iterable, Iterator

from router.classify.bytewise import Characters, Pattern
from router.classify.views.lookalikes import BESIDE_ASCII, PLAIN, UNSEEN
from router.classify.views.rewritten import Piece

_TABLE = BESIDE_ASCII | PLAIN | dict.fromkeys(UNSEEN, "")
_ANY = frozenset(map(chr, _TABLE))
_ASCII = bytes(code for code in range(128) if code not in _TABLE)


def folds(text: str, encoded: bytes, place: Characters) -> Iterator[Piece]:
    """Where something stands that is never prose, and words that mix ASCII with its lookalikes."""
    if _ANY.isdisjoint(encoded.translate(None, _ASCII).decode()):
        return
    for first, last in _ODD.spans(encoded):
        for match in _ONE_KIND.finditer(text, place.of(first), place.of(last)):
            yield *match.span(), match.group().translate(_TABLE), False


def _set(codes: Iterable[int]) -> str:
    """The inside of a class of characters: ranges."""
    parts: list[str] = []
    ordered = sorted(codes)
    first = last = ordered[0]
    for code in (*ordered[1:], -1):
        if code != last + 1:
            parts.append(chr(first) if first == last else f"{chr(first)}-{chr(last)}")
            first = code
        last = code
    return "".join(parts)


_BESIDE = _set(BESIDE_ASCII.keys() | UNSEEN)
_ALIKE = f"[{_set(code for code, to in BESIDE_ASCII.items() if to.isalnum())}]+"
_NEAR = "0-9A-Za-z@"
_WORD = f"[{_NEAR}._%+{_BESIDE}]*"
_MIXED = f"{_WORD}(?:[{_NEAR}][{_BESIDE}]|[{_BESIDE}][{_NEAR}]){_WORD}"
_LINK = "[ :=_/-]{1,2}"
_DIGITS = "[0-9](?:[ .-]?[0-9])"
_CAPITALS = f"[{_set(code for code, to in BESIDE_ASCII.items() if to.isupper())}]{{1,3}}"
_ODD = Pattern(
    f"[{_set(PLAIN)}]+|(?:(?:{_ALIKE}|[0-9]+){_LINK}){{0,6}}{_MIXED}(?:{_LINK}(?:{_MIXED}|{_ALIKE}|[0-9]+))*"
    f"|{_CAPITALS}[ -]?{_DIGITS}{{4,}}(?:[ -]{_CAPITALS})?|{_DIGITS}{{5,}}[ -]{_CAPITALS}"
)
"""Words of lookalikes alone belong to what is mixed beside them, or to the digits of an identifier."""
_ONE_KIND = re.compile(
    f"[{_set(code for code, to in _TABLE.items() if len(to) == 1)}]+|[{_set(UNSEEN)}]+"
    f"|[{_set(code for code, to in _TABLE.items() if len(to) > 1)}]"
)
