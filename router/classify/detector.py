"""Detectors and the scanner: one pass of RE2 over the text, candidates confirmed one by one."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

import re2
from pydantic import BaseModel, ConfigDict, Field

from router.types.request import Finding

# What every detector offers, and what a scan yields.

SURE = 0.5
"""A hit below this score is only possible: it counts where a second opinion confirms it."""
POSSIBLE = 0.3


class Span(NamedTuple):
    """Characters of a text, and how sure it is that they are the thing: 0 … 1."""

    start: int
    end: int
    score: float = 1.0


Confirm = Callable[[str, int, int], Iterable[Span]]
"""(text, start, end) of what matched a pattern → what really is there: checksums, context words."""


class Form(NamedTuple):
    """One thing that a detector knows. `pattern` is in RE2's syntax and matches every candidate."""

    name: str
    pattern: str
    confirm: Confirm | None = None
    """None: a match is a hit."""
    words: str = ""
    """What a second opinion is told that it is; empty: as its name says."""
    family: str = ""
    """Of patterns that begin alike, so that one automaton for all of them stays small."""
    gate: str = ""
    """Common to a family: a cheap pattern that matches every text with a hit."""


def possibly(text: str, start: int, end: int) -> Iterable[Span]:
    """What matched may be the thing."""
    return (Span(start, end, POSSIBLE),)


class DoubtfulValue(NamedTuple):
    """A value that is only possible. It is text of a request: never shown."""

    form: str
    data_class: str
    value: str

    def __repr__(self) -> str:
        return f"Doubt({self.form})"


class Hit(NamedTuple):
    """`form` is "kind.name". Offsets are characters of the text that was scanned."""

    form: str
    data_class: str
    start: int
    end: int
    score: float = 1.0


class Detects(Protocol):
    """A detector of the fast tier."""

    @property
    def kind(self) -> str: ...
    @property
    def data_class(self) -> str: ...
    @property
    def forms(self) -> tuple[Form, ...]: ...

    def conclude(self, own: Sequence[Finding], findings: Sequence[Finding]) -> Sequence[Finding]:
        """What its own hits in a whole request mean, beside those of all detectors."""
        ...


class DetectorModel(BaseModel):
    """A detector as the policy file has it. `kind` is the subclass's."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, hide_input_in_errors=True)
    kind: str
    data_class: str = Field(alias="class")

    def conclude(self, own: Sequence[Finding], findings: Sequence[Finding]) -> Sequence[Finding]:
        return own


# RE2 over bytes, without what its wrapper makes of each match: a text has thousands of them.
#
# Offsets are bytes of UTF-8; `Characters` turns them into characters.

_ANYWHERE, _HERE = re2._re2.RE2.Anchor.UNANCHORED, re2._re2.RE2.Anchor.ANCHOR_START
_OPTIONS = re2.Options()
_OPTIONS.never_capture = True
_OPTIONS.log_errors = False
"""RE2 tells of automata that grow too large on standard error, at each text anew."""

_LARGE = re2.Options()
_LARGE.never_capture, _LARGE.log_errors, _LARGE.max_mem = True, False, 32 * 1024 * 1024
"""With RE2's usual 8 MiB the automaton of all numbers is built anew for every text."""

_STEP = 512
"""Bytes that are counted together."""
_CONTINUED = bytes(range(0x80, 0xC0))
"""No first bytes of a character in UTF-8."""


class Pattern:
    """Compiled. Raises `re2.error`."""

    def __init__(self, pattern: str) -> None:
        self.matches: Any = re2.compile(pattern.encode(), _OPTIONS)._regexp.Match

    def search(self, encoded: bytes, at: int = 0) -> tuple[int, int]:
        """(start, end) of the first match from there on; (-1, -1): none."""
        return self.matches(_ANYWHERE, encoded, at, len(encoded))[0]  # type: ignore[no-any-return]

    def match(self, encoded: bytes, at: int, limit: int) -> tuple[int, int]:
        """(start, end) of the match that begins there, in a text that ends at the limit."""
        return self.matches(_HERE, encoded, at, limit)[0]  # type: ignore[no-any-return]

    def spans(self, encoded: bytes) -> Iterator[tuple[int, int]]:
        """All that do not overlap. Of patterns that match no empty text."""
        matches, size = self.matches, len(encoded)
        ((start, end),) = matches(_ANYWHERE, encoded, 0, size)
        while start >= 0:
            yield start, end
            ((start, end),) = matches(_ANYWHERE, encoded, end, size)


class NamedGroups:
    """A pattern with named groups, compiled: texts instead of RE2's objects, which cost seven times the match."""

    def __init__(self, pattern: str) -> None:
        regexp: Any = re2.compile(pattern.encode())._regexp
        self._matches = regexp.Match
        self._names = [("", 0), *((name.decode(), number) for name, number in regexp.NamedCapturingGroups())]

    def match(self, text: str) -> dict[str, str]:
        """What each group matches at the start of a text, empty for none, and "" the whole. Empty: no match."""
        encoded = text.encode()
        spans = self._matches(_HERE, encoded, 0, len(encoded))
        if spans[0][0] < 0:
            return {}
        return {name: encoded[slice(*spans[number])].decode() for name, number in self._names}


class CharacterOffsets:
    """Of a text: how many stand before an offset in bytes. The text is counted once, when that is first asked."""

    def __init__(self, text: str, encoded: bytes) -> None:
        self._encoded, self._plain = encoded, len(encoded) == len(text)
        self._before: Sequence[int] = ()

    def of(self, byte: int) -> int:
        if self._plain:
            return byte
        encoded = self._encoded
        if not self._before:
            steps = (encoded[at : at + _STEP] for at in range(0, len(encoded), _STEP))
            self._before = list(accumulate((len(step.translate(None, _CONTINUED)) for step in steps), initial=0))
        step = byte // _STEP
        return self._before[step] + len(encoded[step * _STEP : byte].translate(None, _CONTINUED))

    def span(self, first: int, last: int) -> tuple[int, int]:
        """Of both ends of what lies there, which is counted by itself: most of it is short."""
        if self._plain:
            return first, last
        start = self.of(first)
        return start, start + len(self._encoded[first:last].translate(None, _CONTINUED))


# All patterns of all detectors over one text. Most patterns begin with words: a single pass for all such words tells
# which of these have anything to look at. The others begin with classes (digits, say), and are tried a few at a time:
# in one automaton together they build new states for every text that they have not seen.

MOST_CANDIDATES = 5_000
"""Looked at per form and text. What lies beyond counts as found: who writes more than that hides something."""
_REACH = 64
"""Bytes of a candidate in which another may begin, should it be nothing itself."""
_ALWAYS = r"\A"
"""Matches every text. Without it among the matches RE2 has run out of memory, and says so only by finding nothing."""
_LAST_WORD = b"\x00\x01\x02\x03"
"""Stands behind every text, for the same reason."""


class Scanner:
    """Built once a policy. Linear in the text, whatever it holds."""

    def __init__(self, detectors: Sequence[Detects]) -> None:
        self._forms = [
            _Compiled(f"{detector.kind}.{form.name}", detector.data_class, _pattern(form.pattern).matches, form)
            for detector in detectors
            for form in detector.forms
        ]
        self._alone = [number for number, compiled in enumerate(self._forms) if not compiled.form.family]
        self._words = _words(self._patterns(self._alone))
        matched = self._words.Match(_LAST_WORD, True)[:-1] if self._words else range(len(self._alone))
        self._wordless = frozenset(matched)
        members = {("", ""): [self._alone[place] for place in matched]}
        for number, compiled in enumerate(self._forms):
            if compiled.form.family:
                members.setdefault((compiled.form.family, compiled.form.gate), []).append(number)
        # What gives the places in a list of numbers of the forms that match anywhere; where a gate does.
        self._shares = [
            (_automaton(self._patterns(numbers)), numbers, _pattern(gate).matches if gate else None)
            for (_, gate), numbers in members.items()
            if numbers
        ]

    def scan(self, text: str) -> list[Hit]:
        """A lone surrogate is looked at as a question mark."""
        encoded = text.encode("utf-8", "replace")
        hits, place = list[Hit](), None
        for number in self._present(encoded):
            form = self._forms[number]
            first, last = form.match(_ANYWHERE, encoded, 0, len(encoded))[0]
            if first >= 0:
                if place is None:
                    text = encoded.decode()
                    place = CharacterOffsets(text, encoded)
                hits += form.hits(text, encoded, place, first, last)
        return hits

    def _present(self, encoded: bytes) -> Sequence[int]:
        """The forms that may match anywhere; all, where RE2 could not tell."""
        last = len(self._alone)
        matched = self._words.Match(encoded + _LAST_WORD, True) if self._words else [last]
        if matched[-1:] != [last]:
            return range(len(self._forms))
        present = list[int]()
        for place in matched[:-1]:
            if place not in self._wordless:
                present.append(self._alone[place])
        for match, numbers, gate in self._shares:
            if gate is not None and gate(_ANYWHERE, encoded, 0, len(encoded))[0][0] < 0:
                continue
            # Only its own memory's end keeps an automaton from matching `_ALWAYS`, its last.
            for place in (match(encoded) if match else ()) or range(len(numbers)):
                if place < len(numbers):
                    present.append(numbers[place])
        return sorted(present)

    def _patterns(self, numbers: Iterable[int]) -> tuple[str, ...]:
        return tuple(self._forms[number].form.pattern for number in numbers)


class _Compiled(NamedTuple):
    name: str
    data_class: str
    match: Any
    """`Pattern.matches`."""
    form: Form

    def hits(self, text: str, encoded: bytes, place: CharacterOffsets, first: int, last: int) -> Iterator[Hit]:
        """`first`, `last`: of the first candidate, in bytes."""
        confirm, looked = self.form.confirm, 0
        while first >= 0:
            start, end = place.span(first, last)
            if looked == MOST_CANDIDATES:
                yield Hit(self.name, self.data_class, start, len(text))
                return
            looked += 1
            again = last - _REACH
            for span in (Span(start, end),) if confirm is None else confirm(text, start, end):
                yield Hit(self.name, self.data_class, *span)
                if span.score >= SURE:
                    # A key may be glued to thousands of others: all of that word is one hit.
                    glued = len(text[end : span.end].encode()) if span.start == start else 0
                    again = last + max(glued - _REACH, 0)
            first, last = self.match(_ANYWHERE, encoded, max(first + 1, again), len(encoded))[0]


_pattern = lru_cache(2_048)(Pattern)


@lru_cache(256)
def _automaton(expressions: tuple[str, ...]) -> Any:
    """Gives the numbers of those that match anywhere. None, where it is one alone, or they are too large for one.

    Kept, as most edits of a policy leave its detectors as they are."""
    if len(expressions) == 1:
        return None
    automaton = re2.Set.SearchSet(_LARGE)
    for expression in (*expressions, _ALWAYS):
        automaton.Add(expression)
    try:
        automaton.Compile()
    except re2.error:
        return None
    return automaton._set.Match


@lru_cache(32)
def _words(expressions: tuple[str, ...]) -> Any:
    """Tells by the words in a text which patterns may match it; `_LAST_WORD` is the last of the patterns. None, where
    they have too many words."""
    words = re2._re2.Filter()
    for expression in expressions:
        words.Add(expression.encode(), _OPTIONS)
    words.Add(_LAST_WORD, _OPTIONS)
    return words if words.Compile() else None
