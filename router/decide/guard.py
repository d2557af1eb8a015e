"""The policy's rule over its classes, asked when targets are chosen and again at the door. Implements `Guard`."""

from collections.abc import Callable, Mapping
from functools import reduce

from router.decide.requirements import Requirements
from router.types.target import Target

Scan = Callable[[bytes], frozenset[str]]
"""Classes of everything that is found in the bytes of a body."""


class ClassGuard:
    """`classes` from least to most sensitive; `scan` may raise."""

    def __init__(self, classes: Mapping[str, Requirements], scan: Scan) -> None:
        self._classes, self._scan = classes, scan
        self._joined: dict[frozenset[str], Requirements] = {}

    def demands(self, classes: frozenset[str]) -> Requirements:
        """What all of these classes together require."""
        found = self._joined.get(classes)
        if found is None:
            found = self._joined[classes] = reduce(Requirements.joined, (self._classes[name] for name in classes))
        return found

    def refusal(self, target: Target, classes: frozenset[str], now_ms: int, *, redacted: bool) -> str:
        return self.demands(classes).refusal(target, now_ms, redacted=redacted)

    def unseen(self, body: bytes, classes: frozenset[str]) -> frozenset[str]:
        try:
            return self._scan(body) - classes
        except Exception:  # whatever breaks a detector, nothing may leave because of it
            return frozenset(self._classes) - classes

    def private(self, classes: frozenset[str]) -> bool:
        return self.demands(classes).private
