"""Detectors of the operator's own words and patterns, and of markings that law or an originator puts on a text."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, get_args

import re2
from pydantic import AfterValidator, Field, StringConstraints

from router.classify.detector import DetectorModel, Form, confirm_uncertain
from router.errors import mistake
from router.types.tables import patterns, table

# The operator's own words: project names, markings, customer names.

_MOST_CHARACTERS = 6_000
"""Maximum number of characters of words in one pattern: with some 100,000 RE2's automaton runs out of memory."""


class Keywords(DetectorModel):
    """Finds whole words in any case, also across the ends of lines."""

    kind: Literal["keywords"]
    words: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)
    ask: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="They count only where the second opinion says that they mean this."
    )

    @property
    def forms(self) -> tuple[Form, ...]:
        confirm = None if self.ask is None else confirm_uncertain
        expressions = ("(?i)" + "|".join(map(_whole_word, words)) for words in _word_groups(self.words))
        return tuple(Form("word", expression, confirm, self.ask or "") for expression in expressions)


def _word_groups(words: Iterable[str]) -> Iterator[list[str]]:
    """Yields groups of words, for one pattern each; words that begin alike are neighbours, the longest first."""
    group: list[str] = []
    for word in sorted(words, reverse=True):
        if sum(map(len, group)) + len(word) > _MOST_CHARACTERS and group:
            yield group
            group = []
        group.append(word)
    yield group


def _whole_word(word: str) -> str:
    """Returns a pattern for a whole word. RE2's word boundaries know only ASCII: other characters get none."""
    parts = r"\s+".join(str(re2.escape(part)) for part in word.split()) or str(re2.escape(word))
    return _boundary(word[0]) + parts + _boundary(word[-1])


def _boundary(character: str) -> str:
    return r"\b" if character.isascii() and (character.isalnum() or character == "_") else ""


# The operator's own regular expressions: staff numbers, case numbers, names of machines.

_QUIET: Any = re2.Options()
_QUIET.log_errors = False
_SYNTAX = "a regular expression in RE2's syntax, which stays quick on any text"
_EVERY_PLACE = ("", "\naa  bb\n")
"""Texts with every place at which an expression without width can match."""
_ORDINARY_TEXTS = ("Thank you, that is all.", "How do I sort a list by two keys?", "Wo finde ich den Bahnhof?")
"""Ordinary texts: an expression that is found in all of them is found in nearly every request."""


def _compiled_expression(expression: str) -> Any:
    try:
        return re2.compile(expression, _QUIET)
    except re2.error as error:
        reason = error.args[0]
        complaint = reason.decode() if isinstance(reason, bytes) else str(reason)
        remedies = table("classify/data/expression_remedies.yaml").items()
        remedy = next(
            (remedy for start, remedy in remedies if complaint.startswith(start)), "correct it, or make it shorter"
        )
        raise mistake(_SYNTAX, remedy) from None


def _valid_expression(expression: str) -> str:
    compiled = _compiled_expression(expression)
    if any(match.start() == match.end() for text in _EVERY_PLACE for match in compiled.finditer(text)):
        remedy = "write + for *, and a character beside ^, $ or \\b"
        raise mistake("an expression that matches at least one character", remedy)
    if all(compiled.search(text) for text in _ORDINARY_TEXTS):
        raise mistake("an expression that most texts don't match", "add what is special to it, e.g. E-\\d{6} for \\w+")
    return expression


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$", max_length=128)]
"""Name of a pattern. Appears in headers and reports as "patterns.NAME"."""
Expression = Annotated[str, AfterValidator(_valid_expression)]


class Patterns(DetectorModel):
    """Finds matches of regular expressions. They are case-sensitive; write (?i) before one that must not be."""

    kind: Literal["patterns"]
    patterns: dict[Name, Expression] = Field(min_length=1, description="RE2 expressions by name.")
    ask: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="They count only where the second opinion says that it is this."
    )

    @property
    def forms(self) -> tuple[Form, ...]:
        confirm = None if self.ask is None else confirm_uncertain
        return tuple(Form(name, expression, confirm, self.ask or "") for name, expression in self.patterns.items())


# Markings: export control, classification, handling, distribution.

Marking = Literal[
    "itar", "ear", "us_classified", "cui", "nato", "eu", "uk", "germany", "france", "australia", "canada", "tlp",
    "distribution", "foreign_nationals", "company",
]  # fmt: skip
_OPTIONAL_MARKING = "company"


class Markings(DetectorModel):
    kind: Literal["markings"]
    only: tuple[Marking, ...] = Field(
        tuple(name for name in get_args(Marking) if name != _OPTIONAL_MARKING),
        min_length=1,
        description="Markings to look for; `company`, a line that says confidential, is found only where it is listed.",
    )

    @property
    def forms(self) -> tuple[Form, ...]:
        known = patterns("classify/data/markings.yaml")["markings"]
        return tuple(Form(name, known[name]) for name in self.only)
