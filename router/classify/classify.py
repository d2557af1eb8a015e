"""Step 3, classify: determines the sensitivity classes of a request. Recently scanned texts are not scanned again."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any

import msgspec

from router.classify import difficulty
from router.classify.detector import CERTAIN_SCORE, Detects, DoubtfulValue, Hit, Scanner
from router.classify.views import TextView, body_views, may_continue, passages_in, views
from router.types.request import Cause, Classification, Endpoint, Finding, Latest, Request
from router.types.target import Task

LARGE = 4_096
"""Body size in bytes from which a scan runs in a thread: 1 kB usually takes 0.5 ms, a malicious one 10 ms."""
_LONG = 65_536
"""Body size in bytes from which scans run one at a time in a thread of their own, so that they don't delay others."""
_threads, _long_threads = ThreadPoolExecutor(2, "scan"), ThreadPoolExecutor(1, "scan-long")


def in_thread(size: int, scan: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]":
    """Runs `scan(*arguments)` in a thread, for a body of `size` bytes, and returns a future of its result."""
    return asyncio.get_running_loop().run_in_executor(_long_threads if size >= _LONG else _threads, scan, *arguments)


# Cache of the classes of recently scanned fields, so that the same text is not scanned twice.

Fields = Mapping[str, msgspec.Raw]
LONG_FIELD = 256
"""Size in bytes from which a field of a body is long, so that its classes are worth caching."""
MOST_SHORT_BYTES = 4_096
"""Maximum total size in bytes of the short fields, names included, with which the cache is used."""
_NO_FIELDS: Fields = {}


def _digests(fields: Fields) -> tuple[bytes, bytes] | None:
    """Returns SHA-256 digests of the long fields and of the short ones, each with their names and in order. None if no
    field is long, or the short ones exceed `MOST_SHORT_BYTES`."""
    long, short, size, has_long = sha256(), sha256(), 0, False
    for name, value in fields.items():
        encoded_name, content = name.encode("utf-8", "surrogatepass"), memoryview(value)
        header = b"%d %d %b" % (len(encoded_name), len(content), encoded_name)
        if len(content) >= LONG_FIELD:
            has_long = True
            long.update(header)
            long.update(content)
        else:
            size += len(header) + len(content)
            short.update(header)
            short.update(content)
    return (long.digest(), short.digest()) if has_long and size <= MOST_SHORT_BYTES else None


# Request → Classification: the classes of all findings, or every class of the policy if a detector fails.

_MOST_COMPARED = 1_000
_NONE: frozenset[DoubtfulValue] = frozenset()
_log = logging.getLogger(__name__)


class Classifier:
    """Determines the classes of requests by one policy, whose classes `ranks` orders, the most sensitive highest.

    `with_doubtful`: whether uncertain findings count, unless they are denied; otherwise they never do.
    """

    def __init__(self, detectors: Sequence[Detects], ranks: Mapping[str, int], *, with_doubtful: bool = False) -> None:
        self._detectors, self._ranks, self._with_doubtful = detectors, ranks, with_doubtful
        self._scanner = Scanner(detectors)
        self._scanned_fields = Latest[bytes, frozenset[str]](difficulty.MOST_REMEMBERED)
        """Digest of recently scanned fields → classes: of the whole request for long fields, none for short ones."""
        self._classes_by_causes = Latest[tuple[Cause, ...], tuple[str, frozenset[str]]](difficulty.MOST_REMEMBERED)
        """Causes → the highest class, and all classes."""
        difficulty.warm()

    def classify(
        self, request: Request, floor: Iterable[Cause], deep: Sequence[Finding] = (), denied: Set[DoubtfulValue] = _NONE
    ) -> Classification:
        """Returns the classification of a request. `floor`: causes that hold whatever is found: default, key, header.

        `deep`: findings of the deep tier. `denied`: values that the second opinion rejected.
        """
        findings, uncertain, causes = self._judge(request, floor, deep, denied)
        highest_and_all = self._classes_by_causes.get(causes)
        if highest_and_all is None:
            classes = frozenset({cause.data_class for cause in causes})
            highest_and_all = self._classes_by_causes.put(causes, (max(classes, key=self._ranks.__getitem__), classes))
        return Classification(
            data_class=highest_and_all[0],
            classes=highest_and_all[1],
            causes=causes,
            task=Task.EMBEDDING if request.endpoint is Endpoint.EMBEDDINGS else request.limits.task or Task.CHAT,
            findings=findings,
            possible=uncertain,
        )

    def classes(
        self, request: Request, floor: Iterable[Cause], deep: Sequence[Finding] = (), denied: Set[DoubtfulValue] = _NONE
    ) -> frozenset[str]:
        """Returns only the classes that `classify` gives."""
        return frozenset(cause.data_class for cause in self._judge(request, floor, deep, denied)[2])

    def scan(self, body: bytes, fields: Fields = _NO_FIELDS) -> frozenset[str]:
        """Returns the classes of the certain findings in the bytes of a body. Raises what a detector raises.

        `fields`: the fields that `body` encodes, if known. Long ones are not scanned again after a whole request with
        exactly the same ones, if the short ones are harmless.
        """
        digests = _digests(fields) if fields else None
        cached = None if digests is None else self._scanned_fields.get(digests[0])
        if digests is not None and cached is not None and self._is_harmless(fields, digests[1]):
            return cached
        return _classes(self._conclude(self._find(body_views(body))[0]))

    def _is_harmless(self, fields: Fields, digest: bytes) -> bool:
        """Returns whether the short fields, whose digest is given, have no findings and no text that may go on in
        another field: an inconspicuous part may mean more beside the long fields."""
        if self._scanned_fields.get(digest) is not None:
            return True
        short = msgspec.json.encode({name: raw for name, raw in fields.items() if len(memoryview(raw)) < LONG_FIELD})
        try:
            harmless = not any(map(may_continue, passages_in(msgspec.json.decode(short), keys=False)))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return False
        harmless = harmless and not self._find(body_views(short))[0]
        if harmless:
            self._scanned_fields.put(digest, frozenset())
        return harmless

    def _judge(
        self, request: Request, floor: Iterable[Cause], deep: Sequence[Finding], denied: Set[DoubtfulValue]
    ) -> tuple[tuple[Finding, ...], tuple[Finding, ...], tuple[Cause, ...]]:
        """Returns the findings, uncertain ones whose class nothing else gives, and the causes of all classes."""
        floor = tuple(floor)
        try:
            certain_hits, uncertain_hits = self._find(views(request.passages, request.raw), self._with_doubtful)
            # Without the names that the model found and uncertain findings: the egress filter looks for neither.
            certain = self._conclude(certain_hits) if certain_hits else []
            for fields in (request.body, request.chat) if request.raw else ():
                digests = _digests(fields) if fields else None
                if fields and digests is not None and (not certain_hits or self._is_harmless(fields, digests[1])):
                    self._scanned_fields.put(digests[0], _classes(certain) if certain else frozenset())
            if not (certain_hits or uncertain_hits or deep):
                return (), (), floor
            known = {cause.data_class for cause in floor}
            undenied = [finding for finding, value in uncertain_hits.items() if value not in denied]
            findings = certain = self._conclude([*certain_hits, *deep]) if deep else certain
            if undenied:
                findings = self._conclude([*certain_hits, *deep, *undenied])
                known |= {finding.data_class for finding in certain}
        except Exception as error:  # a broken detector must not let anything leave
            _log.error("a detector failed (%s): the request is given every class", type(error).__name__)
            return (), (), (*floor, *(Cause(name, "detector_failed") for name in self._ranks))
        counts = Counter((finding.data_class, finding.detector) for finding in findings)
        causes = [Cause(name, detector, count) for (name, detector), count in counts.items()]
        uncertain = tuple([finding for finding in undenied if finding.data_class not in known]) if undenied else ()
        return tuple(findings), uncertain, (*floor, *causes)

    def _find(
        self, texts: Iterable[TextView], with_doubtful: bool = False
    ) -> tuple[list[Finding], dict[Finding, DoubtfulValue]]:
        """Returns the certain findings, and the uncertain ones with their values if `with_doubtful` is set."""
        places: _HitPlaces | None = None
        for view in texts:
            for hit in self._scanner.scan(view.text):
                if with_doubtful or hit.score >= CERTAIN_SCORE:
                    places = places or _HitPlaces()
                    places.add(hit, view)
        return ([], {}) if places is None else (list(places.certain), places.uncertain)

    def _conclude(self, findings: list[Finding]) -> list[Finding]:
        """Returns what the detectors conclude. Detectors of the same kind and class share their findings."""
        own: dict[tuple[str, str], list[Finding]] = {}
        for finding in findings:
            own.setdefault((finding.detector.partition(".")[0], finding.data_class), []).append(finding)
        keys = ((detector, (detector.kind, detector.data_class)) for detector in self._detectors if own)
        return [finding for detector, key in keys if key in own for finding in detector.conclude(own[key], findings)]


def _classes(findings: Iterable[Finding]) -> frozenset[str]:
    return frozenset({finding.data_class for finding in findings})


class _HitPlaces:
    """The findings of a request, each value once, however many views show it."""

    def __init__(self) -> None:
        self.certain: dict[Finding, DoubtfulValue] = {}
        self.uncertain: dict[Finding, DoubtfulValue] = {}
        self._values: dict[tuple[str, bool], set[str]] = {}

    def add(self, hit: Hit, view: TextView) -> None:
        place, is_certain = view.locate(hit.start, hit.end), hit.score >= CERTAIN_SCORE
        if place is None:
            return
        value, seen = view.text[hit.start : hit.end], self._values.setdefault((hit.form, is_certain), set())
        # Skips known values, also with joined text around them ("mail to" + "a@b.io") while few are known.
        is_known = value in seen or (len(seen) <= _MOST_COMPARED and any(shorter in value for shorter in seen))
        if place.exact or not is_known:
            findings = self.certain if is_certain else self.uncertain
            findings[Finding(hit.form, hit.data_class, *place)] = DoubtfulValue(hit.form, hit.data_class, value)
        seen.add(value)
