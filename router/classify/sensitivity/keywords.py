"""The operator's own words: project names, markings, customer names."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal

import re2
from pydantic import BaseModel, ConfigDict, Field

from router.types.classification import Finding


class Keywords(BaseModel):
    """Whole words, any case."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
    kind: Literal["keywords"]
    data_class: str = Field(alias="class")
    words: tuple[str, ...] = Field(min_length=1)

    @property
    def pattern(self) -> str:
        return r"(?i)\b(?:" + "|".join(map(re2.escape, self.words)) + r")\b"

    @cached_property
    def _compiled(self) -> Any:
        return re2.compile(self.pattern)

    def scan(self, text: str) -> Iterator[Finding]:
        for match in self._compiled.finditer(text):
            yield Finding(self.kind, self.data_class, *match.span())
