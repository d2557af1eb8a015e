"""The operator's own words: project names, markings, customer names."""

from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, Literal

import re2
from pydantic import BaseModel, ConfigDict, Field

from router.types.classification import Finding


class Keywords(BaseModel):
    """Whole words, any case."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
    kind: Literal["keywords"]
    data_class: str = Field(alias="class")
    words: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)

    @property
    def pattern(self) -> str:
        return "(?i)" + "|".join(map(_whole, self.words))

    @cached_property
    def _compiled(self) -> Any:
        return re2.compile(self.pattern)

    def scan(self, text: str) -> Iterator[Finding]:
        for match in self._compiled.finditer(text):
            yield Finding(self.kind, self.data_class, *match.span())


def _whole(word: str) -> str:
    """RE2's word boundary knows ASCII only: beside any other character it would never match, so there is none."""
    return _edge(word[0]) + str(re2.escape(word)) + _edge(word[-1])


def _edge(character: str) -> str:
    return r"\b" if character.isascii() and (character.isalnum() or character == "_") else ""
