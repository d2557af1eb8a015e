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
from router.classify.detector import SURE, Detects, DoubtfulValue, Hit, Scanner
from router.classify.views import TextView, body_views, may_go_on, strings, views
from router.types.request import Cause, Classification, Endpoint, Finding, Latest, Request
from router.types.target import Task

LARGE = 4_096
"""Body size in bytes from which a scan runs in a thread: 1 kB usually takes 0.5 ms, a malicious one 10 ms."""
_LONG = 65_536
"""Body size in bytes from which scans run one at a time in a thread of their own, so that they don't delay others."""
_threads, _long_threads = ThreadPoolExecutor(2, "scan"), ThreadPoolExecutor(1, "scan-long")


def beside(size: int, scan: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]":
    """Runs `scan(*arguments)` in a thread, for a body of `size` bytes, and returns a future of its result."""
    return asyncio.get_running_loop().run_in_executor(_long_threads if size >= _LONG else _threads, scan, *arguments)


# Cache of the classes of recently scanned fields, so that the same text is not scanned twice.

Fields = Mapping[str, msgspec.Raw]
LEAST = 256
"""Size in bytes from which a field of a body is long, so that its classes are worth caching."""
MOST_REST = 4_096
"""Maximum total size in bytes of the short fields, names included, with which the cache is used."""
_NO_FIELDS: Fields = {}


def _digests(fields: Fields) -> tuple[bytes, bytes] | None:
    """Returns SHA-256 digests of the long fields and of the short ones, each with their names and in order. None if no
    field is long, or the short ones exceed `MOST_REST`."""
    long, rest, size, known = sha256(), sha256(), 0, False
    for name, value in fields.items():
        key, held = name.encode("utf-8", "surrogatepass"), memoryview(value)
        head = b"%d %d %b" % (len(key), len(held), key)
        if len(held) >= LEAST:
            known = True
            long.update(head)
            long.update(held)
        else:
            size += len(head) + len(held)
            rest.update(head)
            rest.update(held)
    return (long.digest(), rest.digest()) if known and size <= MOST_REST else None


# Request → Classification: the classes of all findings, or every class of the policy if a detector fails.

_MOST_COMPARED = 1_000
_NONE: frozenset[DoubtfulValue] = frozenset()
_log = logging.getLogger(__name__)


class Classifier:
    """Determines the classes of requests by one policy, whose classes `ranks` orders, the most sensitive highest.

    `doubts`: whether uncertain findings count, unless they are denied; otherwise they never do.
    """

    def __init__(self, detectors: Sequence[Detects], ranks: Mapping[str, int], *, doubts: bool = False) -> None:
        self._detectors, self._ranks, self._doubts = detectors, ranks, doubts
        self._scanner = Scanner(detectors)
        self._cache = Latest[bytes, frozenset[str]](difficulty.MOST_REMEMBERED)
        """Digest of recently scanned fields → classes: of the whole request for long fields, none for short ones."""
        self._known = Latest[tuple[Cause, ...], tuple[str, frozenset[str]]](difficulty.MOST_REMEMBERED)
        """Causes → the highest class, and all classes."""
        difficulty.warm()

    def classify(
        self, request: Request, floor: Iterable[Cause], read: Sequence[Finding] = (), denied: Set[DoubtfulValue] = _NONE
    ) -> Classification:
        """Returns the classification of a request. `floor`: causes that hold whatever is found: default, key, header.

        `read`: findings of the deep tier. `denied`: values that the second opinion rejected.
        """
        findings, possible, causes = self._judge(request, floor, read, denied)
        known = self._known.get(causes)
        if known is None:
            classes = frozenset({cause.data_class for cause in causes})
            known = self._known.put(causes, (max(classes, key=self._ranks.__getitem__), classes))
        return Classification(
            data_class=known[0],
            classes=known[1],
            causes=causes,
            task=Task.EMBEDDING if request.endpoint is Endpoint.EMBEDDINGS else request.limits.task or Task.CHAT,
            findings=findings,
            possible=possible,
        )

    def classes(
        self, request: Request, floor: Iterable[Cause], read: Sequence[Finding] = (), denied: Set[DoubtfulValue] = _NONE
    ) -> frozenset[str]:
        """Returns only the classes that `classify` gives."""
        return frozenset(cause.data_class for cause in self._judge(request, floor, read, denied)[2])

    def scan(self, body: bytes, fields: Fields = _NO_FIELDS) -> frozenset[str]:
        """Returns the classes of the certain findings in the bytes of a body. Raises what a detector raises.

        `fields`: the fields that `body` encodes, if known. Long ones are not scanned again after a whole request with
        exactly the same ones, if the short ones are harmless.
        """
        digests = _digests(fields) if fields else None
        known = None if digests is None else self._cache.get(digests[0])
        if digests is not None and known is not None and self._is_harmless(fields, digests[1]):
            return known
        return _classes(self._conclude(self._find(body_views(body))[0]))

    def _is_harmless(self, fields: Fields, digest: bytes) -> bool:
        """Returns whether the short fields, whose digest is given, have no findings and no text that may go on in
        another field: an inconspicuous part may mean more beside the long fields."""
        if self._cache.get(digest) is not None:
            return True
        rest = msgspec.json.encode({name: raw for name, raw in fields.items() if len(memoryview(raw)) < LEAST})
        try:
            harmless = not any(map(may_go_on, strings(msgspec.json.decode(rest), keys=False)))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return False
        harmless = harmless and not self._find(body_views(rest))[0]
        if harmless:
            self._cache.put(digest, frozenset())
        return harmless

    def _judge(
        self, request: Request, floor: Iterable[Cause], read: Sequence[Finding], denied: Set[DoubtfulValue]
    ) -> tuple[tuple[Finding, ...], tuple[Finding, ...], tuple[Cause, ...]]:
        """Returns the findings, uncertain ones whose class nothing else gives, and the causes of all classes."""
        floor = tuple(floor)
        try:
            sure, doubted = self._find(views(request.passages, request.raw), self._doubts)
            # Without the names that the model found and uncertain findings: the egress filter looks for neither.
            certain = self._conclude(sure) if sure else []
            for fields in (request.body, request.chat) if request.raw else ():
                digests = _digests(fields) if fields else None
                if fields and digests is not None and (not sure or self._is_harmless(fields, digests[1])):
                    self._cache.put(digests[0], _classes(certain) if certain else frozenset())
            if not (sure or doubted or read):
                return (), (), floor
            known = {cause.data_class for cause in floor}
            left = [finding for finding, doubt in doubted.items() if doubt not in denied]
            findings = certain = self._conclude([*sure, *read]) if read else certain
            if left:
                findings = self._conclude([*sure, *read, *left])
                known |= {finding.data_class for finding in certain}
        except Exception as error:  # a broken detector must not let anything leave
            _log.error("a detector failed (%s): the request is given every class", type(error).__name__)
            return (), (), (*floor, *(Cause(name, "detector_failed") for name in self._ranks))
        counted = Counter((finding.data_class, finding.detector) for finding in findings)
        causes = [Cause(name, by, count) for (name, by), count in counted.items()]
        possible = tuple([finding for finding in left if finding.data_class not in known]) if left else ()
        return tuple(findings), possible, (*floor, *causes)

    def _find(
        self, texts: Iterable[TextView], doubts: bool = False
    ) -> tuple[list[Finding], dict[Finding, DoubtfulValue]]:
        """Returns the certain findings, and the uncertain ones with their values if `doubts` is set."""
        places: _HitPlaces | None = None
        for view in texts:
            for hit in self._scanner.scan(view.text):
                if doubts or hit.score >= SURE:
                    places = places or _HitPlaces()
                    places.add(hit, view)
        return ([], {}) if places is None else (list(places.sure), places.possible)

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
        self.sure: dict[Finding, DoubtfulValue] = {}
        self.possible: dict[Finding, DoubtfulValue] = {}
        self._values: dict[tuple[str, bool], set[str]] = {}

    def add(self, hit: Hit, view: TextView) -> None:
        place, sure = view.locate(hit.start, hit.end), hit.score >= SURE
        if place is None:
            return
        value, known = view.text[hit.start : hit.end], self._values.setdefault((hit.form, sure), set())
        # Skips known values, also with joined text around them ("mail to" + "a@b.io") while few are known.
        among = value in known or (len(known) <= _MOST_COMPARED and any(shorter in value for shorter in known))
        if place.exact or not among:
            findings = self.sure if sure else self.possible
            findings[Finding(hit.form, hit.data_class, *place)] = DoubtfulValue(hit.form, hit.data_class, value)
        known.add(value)
