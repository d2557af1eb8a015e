"""The operator's own words and patterns."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal

import re2
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

from router.classify.detector import Form, possibly
from router.types.request import Finding

# The operator's own words: project names, markings, customer names.

_MOST_TOGETHER = 6_000
"""Characters of words in one pattern: with some 100,000 RE2's automaton runs out of memory."""


class Keywords(BaseModel):
    """Whole words, any case, across the ends of lines."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
    kind: Literal["keywords"]
    data_class: str = Field(alias="class")
    words: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)
    ask: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="They count only where the second opinion says that they mean this."
    )

    @property
    def forms(self) -> tuple[Form, ...]:
        confirm = None if self.ask is None else possibly
        patterns = ("(?i)" + "|".join(map(_whole, words)) for words in _shares(self.words))
        return tuple(Form("word", pattern, confirm, self.ask or "") for pattern in patterns)

    def conclude(self, own: Sequence[Finding], found: Sequence[Finding]) -> Sequence[Finding]:
        return own


def _shares(words: Iterable[str]) -> Iterator[list[str]]:
    """Of words that begin alike the longest comes first, and its neighbours share their beginnings."""
    share: list[str] = []
    for word in sorted(words, reverse=True):
        if sum(map(len, share)) + len(word) > _MOST_TOGETHER and share:
            yield share
            share = []
        share.append(word)
    yield share


def _whole(word: str) -> str:
    """RE2's word boundary knows ASCII only: beside any other character it would never match, so there is none."""
    parts = r"\s+".join(str(re2.escape(part)) for part in word.split()) or str(re2.escape(word))
    return _edge(word[0]) + parts + _edge(word[-1])


def _edge(character: str) -> str:
    return r"\b" if character.isascii() and (character.isalnum() or character == "_") else ""


# The operator's own regular expressions: staff numbers, case numbers, names of machines.

_QUIET: Any = re2.Options()
_QUIET.log_errors = False
_SYNTAX = "a regular expression in RE2's syntax, which stays quick on any text"
_REMEDIES = (
    (
        ("invalid perl operator: (?=", "invalid perl operator: (?!", "invalid perl operator: (?<"),
        "it has no look-around: match what stands beside as well, or use \\b",
    ),
    (("invalid perl operator",), "it has only (?:…), (?P<name>…) and the flags i, m, s, U: leave this group out"),
    (("invalid escape sequence: \\u",), "write the character itself, or \\x{20AC}"),
    (("invalid escape sequence: \\Z",), "write \\z for the end of the text"),
    (("invalid escape sequence",), "it has no such escape and no backreferences: write out what it stands for"),
    (
        ("invalid repetition size", "pattern too large"),
        "repeat at most 1000 times in all: write + or * and leave it open",
    ),
    (("bad repetition operator",), "put one of * + ? {n,m} after a part, not two: it has no possessive repeats"),
    (
        ("no argument for repetition",),
        "put something before the * + ? or {n,m}, or a backslash for the character itself",
    ),
    (("missing ]",), "close the bracket with ], or write \\[ for the character itself"),
    (("missing )",), "close the parenthesis, or write \\( for the character itself"),
    (("unexpected )",), "open the parenthesis, or write \\) for the character itself"),
    (("invalid character class",), "give the range from low to high, e.g. [a-z], and a class that Unicode has"),
    (("trailing \\",), "delete the \\ at its end, or double it"),
    (("invalid UTF-8",), "write characters that UTF-8 has"),
)
_NOTHING = ("", "\naa  bb\n")
"""Has every place at which something without width can match."""
_ORDINARY = ("Thank you, that is all.", "How do I sort a list by two keys?", "Wo finde ich den Bahnhof?")
"""An expression that is found in each of them is found in nearly every request."""


def _mistake(expected: str, remedy: str) -> PydanticCustomError:
    """What the value must be, and what to write; the policy's reader adds the place."""
    return PydanticCustomError("mistake", "must be {expected}: {remedy}", {"expected": expected, "remedy": remedy})


def _remedy(reason: str) -> str:
    return next((remedy for starts, remedy in _REMEDIES if reason.startswith(starts)), "correct it, or make it shorter")


def _compiled(expression: str) -> Any:
    try:
        return re2.compile(expression, _QUIET)
    except re2.error as error:
        reason = error.args[0]
        raise _mistake(_SYNTAX, _remedy(reason.decode() if isinstance(reason, bytes) else str(reason))) from None


def _selective(expression: str) -> str:
    compiled = _compiled(expression)
    if any(match.start() == match.end() for text in _NOTHING for match in compiled.finditer(text)):
        remedy = "write + for *, and a character beside ^, $ or \\b"
        raise _mistake("an expression that matches at least one character", remedy)
    if all(compiled.search(text) for text in _ORDINARY):
        raise _mistake("an expression that most texts don't match", "add what is special to it, e.g. E-\\d{6} for \\w+")
    return expression


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$", max_length=128)]
"""Travels in headers and reports, as "patterns.NAME"."""
Expression = Annotated[str, AfterValidator(_selective)]


class Patterns(BaseModel):
    """Case counts; write (?i) before an expression where it must not."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, hide_input_in_errors=True)
    kind: Literal["patterns"]
    data_class: str = Field(alias="class")
    patterns: dict[Name, Expression] = Field(min_length=1, description="RE2 expressions by name.")
    ask: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="They count only where the second opinion says that it is this."
    )

    @property
    def forms(self) -> tuple[Form, ...]:
        confirm = None if self.ask is None else possibly
        return tuple(Form(name, expression, confirm, self.ask or "") for name, expression in self.patterns.items())

    def conclude(self, own: Sequence[Finding], found: Sequence[Finding]) -> Sequence[Finding]:
        return own
