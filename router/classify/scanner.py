"""All patterns of all detectors over one text: one pass tells which have anything to look at, the others rest."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import re2

from router.classify.bytewise import Characters, Pattern
from router.classify.detector import SURE, Confirm, Detects, Form, Hit, Span

MOST_CANDIDATES = 5_000
"""Looked at per form and text. What lies beyond counts as found: who writes more than that hides something."""
_TOGETHER, _TOGETHER_IF_SHORT = 24, 96
"""Patterns in one automaton: more are faster, but long hostile text makes a large one build a state a character."""
_SHORT = 16_384
"""Bytes of a text that can't."""
_REACH = 64
"""Bytes of a candidate in which another may begin, should it be nothing itself."""
_QUIET = re2.Options()
_QUIET.log_errors = False
_QUIET.max_mem = 32 << 20
"""RE2 tells of automata that grow too large on standard error, at each text anew.

Bytes: hostile text makes an automaton build a state a character, and one that has no room for them begins anew.
"""
_ALWAYS = r"\A"
"""Matches every text. Without it among the matches RE2 has run out of memory, and says so only by finding nothing."""


class Scanner:
    """Built once a policy. Linear in the text, whatever it holds."""

    def __init__(self, detectors: Sequence[Detects]) -> None:
        forms = [_compiled(one, form) for one in detectors for form in one.forms]
        self._few, self._many = _dealt(forms, _TOGETHER_IF_SHORT), _dealt(forms, _TOGETHER)

    def scan(self, text: str) -> list[Hit]:
        """A lone surrogate is looked at as a question mark."""
        encoded = text.encode("utf-8", "replace")
        text = encoded.decode()
        place = Characters(text, encoded)
        shares = self._few if len(encoded) <= _SHORT else self._many
        forms = [form for share in shares for form in share.present(encoded)]
        return [hit for form in forms for hit in form.hits(text, encoded, place)]


class _Compiled(NamedTuple):
    name: str
    data_class: str
    expression: str
    pattern: Pattern
    confirm: Confirm | None

    def hits(self, text: str, encoded: bytes, place: Characters) -> Iterator[Hit]:
        looked = 0
        first, last = self.pattern.search(encoded)
        while first >= 0:
            start = place.of(first)
            if looked == MOST_CANDIDATES:
                yield Hit(self.name, self.data_class, start, len(text))
                return
            looked += 1
            again = last - _REACH
            for span in self._confirmed(text, start, place.of(last)):
                yield Hit(self.name, self.data_class, *span)
                again = last if span.score >= SURE else again
            first, last = self.pattern.search(encoded, max(first + 1, again))

    def _confirmed(self, text: str, start: int, end: int) -> Iterable[Span]:
        return (Span(start, end),) if self.confirm is None else self.confirm(text, start, end)


class _Share:
    """Some of the forms, in one automaton; none, where they are too large for that."""

    def __init__(self, forms: Sequence[_Compiled]) -> None:
        self._forms = forms
        self._set = _automaton(tuple(form.expression for form in forms))

    def present(self, encoded: bytes) -> Sequence[_Compiled]:
        """The forms that match anywhere; all, where RE2 could not tell."""
        matched = self._set and self._set.Match(encoded)
        if not matched:
            return self._forms
        return [self._forms[number] for number in sorted(matched)[:-1]] if len(matched) > 1 else ()


_pattern = lru_cache(2_048)(Pattern)


@lru_cache(32)
def _automaton(expressions: tuple[str, ...]) -> Any:
    """None, where they are too large for one. Kept, as most edits of a policy leave its detectors as they are."""
    automaton = re2.Set.SearchSet(_QUIET)
    for expression in (*expressions, _ALWAYS):
        automaton.Add(expression)
    try:
        automaton.Compile()
    except re2.error:
        return None
    return automaton


def _dealt(forms: Sequence[_Compiled], most: int) -> list[_Share]:
    """Like cards, so that forms that look alike, which multiply each other's states, lie apart."""
    shares = -(-len(forms) // most)
    return [_Share(forms[first::shares]) for first in range(shares)]


def _compiled(detector: Detects, form: Form) -> _Compiled:
    name = f"{detector.kind}.{form.name}"
    return _Compiled(name, detector.data_class, form.pattern, _pattern(form.pattern), form.confirm)
