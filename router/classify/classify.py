"""Request → Classification: the join of everything that was seen, with the strictest class when a detector fails."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

import re2

from router.classify.difficulty import difficulty
from router.classify.task import task
from router.types.classification import Classification, Finding
from router.types.request import Request

MOST_FINDINGS = 100
"""Kept of one detector; all of them have its class, so more would only make the decision longer."""
_log = logging.getLogger(__name__)


class Detects(Protocol):
    """What every detector of `router.classify.sensitivity` offers."""

    @property
    def pattern(self) -> str:
        """RE2 syntax; a text without a match has no findings."""
        ...

    def scan(self, text: str) -> Iterable[Finding]: ...


class Classifier:
    """`ranks` orders the policy's classes, strictest highest; built once a policy."""

    def __init__(self, detectors: Sequence[Detects], ranks: Mapping[str, int], default: str) -> None:
        self._detectors, self._ranks, self._default = detectors, ranks, default
        self._prefilter = _prefilter(detectors)

    def classify(self, request: Request) -> Classification:
        """The caller's header can only raise the class."""
        findings, seen = self._seen(request.text)
        if request.limits.data_class:
            seen.append(request.limits.data_class)
        return Classification(
            data_class=max(seen, key=self._ranks.__getitem__) if len(seen) > 1 else seen[0],
            difficulty=difficulty(request),
            task=task(request),
            findings=findings,
        )

    def _seen(self, text: str) -> tuple[tuple[Finding, ...], list[str]]:
        try:
            findings = self._scan(text)
        except Exception as error:  # whatever breaks a detector, nothing may leave because of it
            _log.error("a detector failed (%s): the request is given the strictest class", type(error).__name__)
            return (), [max(self._ranks, key=self._ranks.__getitem__)]
        return findings, [self._default, *(finding.data_class for finding in findings)]

    def _scan(self, text: str) -> tuple[Finding, ...]:
        """One pass over the text finds out which detectors have anything to look at: for most texts none."""
        hits = self._prefilter.Match(text) if self._prefilter is not None else None
        detectors = (self._detectors[index] for index in hits or ())
        return tuple(finding for one in detectors for finding in islice(one.scan(text), MOST_FINDINGS))


def _prefilter(detectors: Sequence[Detects]) -> Any:
    if not detectors:
        return None
    patterns = re2.Set.SearchSet()
    for detector in detectors:
        patterns.Add(detector.pattern)
    patterns.Compile()
    return patterns
