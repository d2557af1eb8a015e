"""Request → Classification: the join of everything that was seen, and every class there is when a detector fails."""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from router.classify.detector import SURE, Detects
from router.classify.difficulty import difficulty
from router.classify.scanner import Scanner
from router.classify.task import task
from router.classify.views import View, body_views, views
from router.types.classification import Cause, Classification, Finding
from router.types.request import Request

_MOST_COMPARED = 1_000
_log = logging.getLogger(__name__)


class Classifier:
    """`ranks` orders the policy's classes, the most sensitive highest; built once a policy."""

    def __init__(self, detectors: Sequence[Detects], ranks: Mapping[str, int]) -> None:
        self._detectors, self._ranks = detectors, ranks
        self._scanner = Scanner(detectors)

    def classify(self, request: Request, floor: Iterable[Cause], read: Sequence[Finding] = ()) -> Classification:
        """`floor`: what the request has whatever is found in it: the default, its key's minimum, its header.

        `read`: findings of the deep tier.
        """
        findings, causes = self._seen(request, read)
        causes = (*floor, *causes)
        classes = frozenset(cause.data_class for cause in causes)
        return Classification(
            data_class=max(classes, key=self._ranks.__getitem__),
            classes=classes,
            causes=causes,
            difficulty=difficulty(request),
            task=task(request),
            findings=findings,
        )

    def scan(self, body: bytes) -> frozenset[str]:
        """Classes of what is found in the bytes of a body. May raise."""
        return frozenset(finding.data_class for finding in self._conclude(self._find(body_views(body))))

    def _seen(self, request: Request, read: Sequence[Finding]) -> tuple[tuple[Finding, ...], tuple[Cause, ...]]:
        try:
            findings = self._conclude([*self._find(views(request.passages, request.raw)), *read])
        except Exception as error:  # whatever breaks a detector, nothing may leave because of it
            _log.error("a detector failed (%s): the request is given every class", type(error).__name__)
            return (), tuple(Cause(name, "detector_failed") for name in self._ranks)
        counted = Counter((finding.data_class, finding.detector) for finding in findings)
        causes = tuple(Cause(name, by, count) for (name, by), count in counted.items())
        return tuple(findings), causes

    def _find(self, looks: Iterable[View]) -> list[Finding]:
        found: dict[Finding, None] = {}
        values: dict[str, set[str]] = {}
        for view in looks:
            for hit in self._scanner.scan(view.text):
                place = view.locate(hit.start, hit.end) if hit.score >= SURE else None
                if place is None:
                    continue
                value, known = view.text[hit.start : hit.end], values.setdefault(hit.form, set())
                if place.exact or not _among(value, known):
                    found[Finding(hit.form, hit.data_class, *place)] = None
                known.add(value)
        return list(found)

    def _conclude(self, found: list[Finding]) -> list[Finding]:
        """Several detectors may be of one kind."""
        if not found:
            return found
        concluded: list[Finding] = []
        for one in self._detectors:
            prefix = f"{one.kind}."
            own = [
                finding
                for finding in found
                if finding.data_class == one.data_class and finding.detector.startswith(prefix)
            ]
            concluded += one.conclude(own, found) if own else ()
        return concluded


def _among(value: str, known: set[str]) -> bool:
    """Nothing new, as with what was joined to it ("mail to" + "a@b.io"). Where too many are known, all is new."""
    return value in known or (len(known) <= _MOST_COMPARED and any(one in value for one in known))
