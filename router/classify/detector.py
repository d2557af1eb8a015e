"""Detectors of the fast tier, and the scanner: RE2 finds candidates in one pass over a text, and each is confirmed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

import re2
from pydantic import BaseModel, ConfigDict, Field

from router.types.request import Finding

# The interface of detectors, and the results of a scan.

CERTAIN_SCORE = 0.5
"""Minimum score of a certain hit. Others count only if a second opinion is asked and does not deny them."""
UNCERTAIN_SCORE = 0.3


class Span(NamedTuple):
    """Characters of a text, and a score from 0 to 1 for how certain it is that they are a hit."""

    start: int
    end: int
    score: float = 1.0


Confirm = Callable[[str, int, int], Iterable[Span]]
"""(text, start, end) of a candidate → the spans that are hits, by checksums and context."""


class Form(NamedTuple):
    """One kind of value that a detector finds. `pattern` is in RE2's syntax and matches every candidate."""

    name: str
    pattern: str
    confirm: Confirm | None = None
    """Confirms a candidate; None if every match is a hit."""
    words: str = ""
    """Description of the form for the second opinion; empty for its name."""
    family: str = ""
    """Group of patterns that begin alike, so that their common automaton stays small."""
    gate: str = ""
    """A cheap pattern, common to a family, that matches every text with a hit of it."""


def confirm_uncertain(text: str, start: int, end: int) -> Iterable[Span]:
    """Confirms a candidate as uncertain."""
    return (Span(start, end, UNCERTAIN_SCORE),)


class DoubtfulValue(NamedTuple):
    """An uncertain value. It is text of a request: never logged or shown."""

    form: str
    data_class: str
    value: str

    def __repr__(self) -> str:
        return f"Doubt({self.form})"


class Hit(NamedTuple):
    """A hit in a text. `form` is "kind.name". Offsets are characters of the text that was scanned."""

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
        """Returns the detector's findings in a whole request, from its own and those of all detectors."""
        ...


class DetectorModel(BaseModel):
    """Base of the detectors in a policy file. `kind` is set by the subclass."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, hide_input_in_errors=True)
    kind: str
    data_class: str = Field(alias="class")

    def conclude(self, own: Sequence[Finding], findings: Sequence[Finding]) -> Sequence[Finding]:
        return own


# RE2 over bytes, without the objects that its wrapper creates for each match: a text has thousands of matches.
#
# Offsets are bytes of UTF-8; `CharacterOffsets` turns them into characters.

_ANYWHERE, _AT_START = re2._re2.RE2.Anchor.UNANCHORED, re2._re2.RE2.Anchor.ANCHOR_START
_OPTIONS = re2.Options()
_OPTIONS.never_capture = True
_OPTIONS.log_errors = False
"""Keeps RE2 from reporting automata that grow too large on standard error, for every text."""

_LARGE_OPTIONS = re2.Options()
_LARGE_OPTIONS.never_capture, _LARGE_OPTIONS.log_errors, _LARGE_OPTIONS.max_mem = True, False, 32 * 1024 * 1024
"""With RE2's default of 8 MiB of memory the automaton of all numbers is built anew for every text."""

_STEP_BYTES = 512
"""Number of bytes whose characters are counted together."""
_CONTINUATION = bytes(range(0x80, 0xC0))
"""Continuation bytes of UTF-8, which begin no character."""


class Pattern:
    """A compiled pattern without groups. Raises `re2.error`."""

    def __init__(self, pattern: str) -> None:
        self.matches: Any = re2.compile(pattern.encode(), _OPTIONS)._regexp.Match

    def search(self, encoded: bytes, at: int = 0) -> tuple[int, int]:
        """Returns (start, end) of the first match at `at` or after it; (-1, -1) if there is none."""
        return self.matches(_ANYWHERE, encoded, at, len(encoded))[0]  # type: ignore[no-any-return]

    def match(self, encoded: bytes, at: int, limit: int) -> tuple[int, int]:
        """Returns (start, end) of the match at `at`, in a text that ends at `limit`; (-1, -1) if there is none."""
        return self.matches(_AT_START, encoded, at, limit)[0]  # type: ignore[no-any-return]

    def spans(self, encoded: bytes) -> Iterator[tuple[int, int]]:
        """Yields (start, end) of the matches, which do not overlap. The pattern must not match an empty text."""
        matches, size = self.matches, len(encoded)
        ((start, end),) = matches(_ANYWHERE, encoded, 0, size)
        while start >= 0:
            yield start, end
            ((start, end),) = matches(_ANYWHERE, encoded, end, size)


class NamedGroups:
    """A compiled pattern with named groups. Returns texts, as RE2's match objects cost seven times the match."""

    def __init__(self, pattern: str) -> None:
        regexp: Any = re2.compile(pattern.encode())._regexp
        self._matches = regexp.Match
        self._names = [("", 0), *((name.decode(), number) for name, number in regexp.NamedCapturingGroups())]

    def match(self, text: str) -> dict[str, str]:
        """Returns each named group's text at the start of `text` ("" if unmatched), and the match as ""; or {}."""
        encoded = text.encode()
        spans = self._matches(_AT_START, encoded, 0, len(encoded))
        if spans[0][0] < 0:
            return {}
        return {name: encoded[slice(*spans[number])].decode() for name, number in self._names}


class CharacterOffsets:
    """Converts byte offsets of a text to character offsets. Counts its characters once, at the first call."""

    def __init__(self, text: str, encoded: bytes) -> None:
        self._encoded, self._is_ascii = encoded, len(encoded) == len(text)
        self._counts: Sequence[int] = ()

    def of(self, byte: int) -> int:
        if self._is_ascii:
            return byte
        encoded = self._encoded
        if not self._counts:
            parts = (encoded[at : at + _STEP_BYTES] for at in range(0, len(encoded), _STEP_BYTES))
            self._counts = list(accumulate((len(step.translate(None, _CONTINUATION)) for step in parts), initial=0))
        step = byte // _STEP_BYTES
        return self._counts[step] + len(encoded[step * _STEP_BYTES : byte].translate(None, _CONTINUATION))

    def span(self, first: int, last: int) -> tuple[int, int]:
        """Converts both ends of a span. Counts the characters between them directly, as most spans are short."""
        if self._is_ascii:
            return first, last
        start = self.of(first)
        return start, start + len(self._encoded[first:last].translate(None, _CONTINUATION))


# All patterns of all detectors over one text. Most patterns contain words: one pass for all these words finds which
# patterns can match. The others begin with character classes (digits, say), and run a few at a time: one automaton for
# all of them would build new states for every text that it has not seen.

MOST_CANDIDATES = 5_000
"""Maximum number of candidates per form and text. The text after them counts as a hit: so many are suspicious."""
_OVERLAP_BYTES = 64
"""Number of bytes at the end of a candidate in which the next one may begin, unless the first is a certain hit."""
_ALWAYS = r"\A"
"""Matches every text. If it is not among the matches, RE2 ran out of memory, which it reports in no other way."""
_SENTINEL = b"\x00\x01\x02\x03"
"""Appended to every text, and a pattern of the word filter: if it is not found, RE2 ran out of memory."""


class Scanner:
    """Finds the hits of a policy's detectors in a text, in time linear in its length. Built once per policy."""

    def __init__(self, detectors: Sequence[Detects]) -> None:
        self._forms = [
            _Compiled(f"{detector.kind}.{form.name}", detector.data_class, _compiled(form.pattern).matches, form)
            for detector in detectors
            for form in detector.forms
        ]
        self._ungrouped = [number for number, compiled in enumerate(self._forms) if not compiled.form.family]
        self._filter = _word_filter(self._patterns(self._ungrouped))
        matched = self._filter.Match(_SENTINEL, True)[:-1] if self._filter else range(len(self._ungrouped))
        self._without_words = frozenset(matched)
        members_by_family = {("", ""): [self._ungrouped[index] for index in matched]}
        for number, compiled in enumerate(self._forms):
            if compiled.form.family:
                members_by_family.setdefault((compiled.form.family, compiled.form.gate), []).append(number)
        # For each family: an automaton that gives places in a list of form numbers, that list, and the gate.
        self._families = [
            (_automaton(self._patterns(numbers)), numbers, _compiled(gate).matches if gate else None)
            for (_, gate), numbers in members_by_family.items()
            if numbers
        ]

    def scan(self, text: str) -> list[Hit]:
        """Returns the hits in a text. A lone surrogate is scanned as a question mark."""
        encoded = text.encode("utf-8", "replace")
        hits, offsets = list[Hit](), None
        for number in self._matching_forms(encoded):
            form = self._forms[number]
            first, last = form.match(_ANYWHERE, encoded, 0, len(encoded))[0]
            if first >= 0:
                if offsets is None:
                    text = encoded.decode()
                    offsets = CharacterOffsets(text, encoded)
                hits += form.hits(text, encoded, offsets, first, last)
        return hits

    def _matching_forms(self, encoded: bytes) -> Sequence[int]:
        """Returns the numbers of the forms that may match anywhere; of all forms if RE2 could not tell."""
        sentinel = len(self._ungrouped)
        matched = self._filter.Match(encoded + _SENTINEL, True) if self._filter else [sentinel]
        if matched[-1:] != [sentinel]:
            return range(len(self._forms))
        present = list[int]()
        for index in matched[:-1]:
            if index not in self._without_words:
                present.append(self._ungrouped[index])
        for match, numbers, gate in self._families:
            if gate is not None and gate(_ANYWHERE, encoded, 0, len(encoded))[0][0] < 0:
                continue
            # `_ALWAYS` is the last pattern: it is missing only if the automaton ran out of memory.
            for index in (match(encoded) if match else ()) or range(len(numbers)):
                if index < len(numbers):
                    present.append(numbers[index])
        return sorted(present)

    def _patterns(self, numbers: Iterable[int]) -> tuple[str, ...]:
        return tuple(self._forms[number].form.pattern for number in numbers)


class _Compiled(NamedTuple):
    name: str
    data_class: str
    match: Any
    form: Form

    def hits(self, text: str, encoded: bytes, offsets: CharacterOffsets, first: int, last: int) -> Iterator[Hit]:
        """Yields the hits. `first`, `last`: byte offsets of the first candidate."""
        confirm, candidate_count = self.form.confirm, 0
        while first >= 0:
            start, end = offsets.span(first, last)
            if candidate_count == MOST_CANDIDATES:
                yield Hit(self.name, self.data_class, start, len(text))
                return
            candidate_count += 1
            next_start = last - _OVERLAP_BYTES
            for span in (Span(start, end),) if confirm is None else confirm(text, start, end):
                yield Hit(self.name, self.data_class, *span)
                if span.score >= CERTAIN_SCORE:
                    # A key may be glued to thousands of others: the whole word is one hit.
                    glued_bytes = len(text[end : span.end].encode()) if span.start == start else 0
                    next_start = last + max(glued_bytes - _OVERLAP_BYTES, 0)
            first, last = self.match(_ANYWHERE, encoded, max(first + 1, next_start), len(encoded))[0]


_compiled = lru_cache(2_048)(Pattern)


@lru_cache(256)
def _automaton(expressions: tuple[str, ...]) -> Any:
    """Returns a function that gives the numbers of the patterns that match anywhere. None for a single pattern, and if
    they are too large for one automaton. Cached, as most edits of a policy keep its detectors."""
    if len(expressions) == 1:
        return None
    automaton = re2.Set.SearchSet(_LARGE_OPTIONS)
    for expression in (*expressions, _ALWAYS):
        automaton.Add(expression)
    try:
        automaton.Compile()
    except re2.error:
        return None
    return automaton._set.Match


@lru_cache(32)
def _word_filter(expressions: tuple[str, ...]) -> Any:
    """Returns a filter that finds by the words in a text which patterns may match it; `_SENTINEL` is its last pattern.
    None if they have too many words."""
    words = re2._re2.Filter()
    for expression in expressions:
        words.Add(expression.encode(), _OPTIONS)
    words.Add(_SENTINEL, _OPTIONS)
    return words if words.Compile() else None
