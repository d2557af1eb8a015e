"""The operator's own words: project names, markings, customer names."""

from collections.abc import Sequence
from typing import Annotated, Literal

import re2
from pydantic import BaseModel, ConfigDict, Field

from router.classify.detector import Form
from router.types.classification import Finding


class Keywords(BaseModel):
    """Whole words, any case."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
    kind: Literal["keywords"]
    data_class: str = Field(alias="class")
    words: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)

    @property
    def forms(self) -> tuple[Form, ...]:
        return (Form("word", "(?i)" + "|".join(map(_whole, self.words))),)

    def conclude(self, own: Sequence[Finding], found: Sequence[Finding]) -> Sequence[Finding]:
        return own


def _whole(word: str) -> str:
    """RE2's word boundary knows ASCII only: beside any other character it would never match, so there is none."""
    return _edge(word[0]) + str(re2.escape(word)) + _edge(word[-1])


def _edge(character: str) -> str:
    return r"\b" if character.isascii() and (character.isalnum() or character == "_") else ""
