"""The operator's own words: project names, markings, customer names."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal

import re2
from pydantic import BaseModel, ConfigDict, Field

from router.classify.detector import Form, possibly
from router.types.classification import Finding

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
