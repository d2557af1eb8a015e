"""Detectors of sensitive text. One file a family; a new one is a file and a name in the union."""

from typing import Annotated

from pydantic import Field

from router.classify.ner import Names
from router.classify.second_opinion import SecondOpinion
from router.classify.sensitivity.health import Health
from router.classify.sensitivity.identifiers import Identifiers
from router.classify.sensitivity.patterns import Keywords, Markings, Patterns
from router.classify.sensitivity.secrets import Secrets
from router.classify.sensitivity.source_code import SourceCode

Detector = Annotated[
    Secrets | Identifiers | Keywords | Patterns | Markings | SourceCode | Health | Names | SecondOpinion,
    Field(discriminator="kind"),
]

__all__ = [
    "Detector",
    "Health",
    "Identifiers",
    "Keywords",
    "Markings",
    "Names",
    "Patterns",
    "SecondOpinion",
    "Secrets",
    "SourceCode",
]
