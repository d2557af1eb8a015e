"""Detectors of sensitive text, one file per family. A new one needs a file, and its class in the union below."""

from typing import Annotated

from pydantic import Field

from router.classify.ner import NamesDetector
from router.classify.second_opinion import SecondOpinion
from router.classify.sensitivity.health import HealthDetector
from router.classify.sensitivity.identifiers import Identifiers
from router.classify.sensitivity.patterns import Keywords, Markings, Patterns
from router.classify.sensitivity.secrets import Secrets
from router.classify.sensitivity.source_code import SourceCode

Detector = Annotated[
    Secrets
    | Identifiers
    | Keywords
    | Patterns
    | Markings
    | SourceCode
    | HealthDetector
    | NamesDetector
    | SecondOpinion,
    Field(discriminator="kind"),
]
