"""Request → Classification: the join of everything that was seen, with the strictest class when a detector fails."""

import logging
from collections.abc import Iterable, Mapping
from typing import Protocol

from router.classify.difficulty import difficulty
from router.classify.task import task
from router.types.classification import Classification, Finding
from router.types.request import Request

_log = logging.getLogger(__name__)


class Detects(Protocol):
    """What every detector of `router.classify.sensitivity` offers."""

    def scan(self, text: str) -> Iterable[Finding]: ...


def classify(request: Request, detectors: Iterable[Detects], ranks: Mapping[str, int], default: str) -> Classification:
    """`ranks` orders the policy's classes, strictest highest. The caller's header can only raise the class."""
    try:
        findings = tuple(finding for detector in detectors for finding in detector.scan(request.text))
        seen = [default, *(finding.data_class for finding in findings)]
    except Exception as error:  # whatever breaks a detector, nothing may leave because of it
        _log.error("a detector failed (%s): the request is given the strictest class", type(error).__name__)
        findings, seen = (), list(ranks)
    if request.limits.data_class:
        seen.append(request.limits.data_class)
    return Classification(
        data_class=max(seen, key=ranks.__getitem__) if len(seen) > 1 else default,
        difficulty=difficulty(request),
        task=task(request),
        findings=findings,
    )
