"""Markings that law or an originator puts on a text: export control, classification, handling, distribution."""

from typing import Literal, get_args

from pydantic import Field

from router.classify.detector import DetectorModel, Form
from router.tables import patterns

Marking = Literal[
    "itar", "ear", "us_classified", "cui", "nato", "eu", "uk", "germany", "france", "australia", "canada", "tlp",
    "distribution", "foreign_nationals", "company",
]  # fmt: skip
_OPTIONAL = "company"


class Markings(DetectorModel):
    kind: Literal["markings"]
    only: tuple[Marking, ...] = Field(
        tuple(name for name in get_args(Marking) if name != _OPTIONAL),
        min_length=1,
        description="Markings to look for; `company`, a line that says confidential, is found only where it is listed.",
    )

    @property
    def forms(self) -> tuple[Form, ...]:
        known = patterns("classify/data/markings.yaml")["markings"]
        return tuple(Form(name, known[name]) for name in self.only)
