"""The policy's rule over its classes, asked when targets are chosen and again at the door. Implements `Guard`."""

from collections.abc import Callable, Mapping
from functools import reduce

from router.decide.demands import Objection, expired, objection
from router.decide.requirements import Requirements
from router.types.target import Target

Scan = Callable[[bytes], frozenset[str]]
"""Classes of everything that is found in the bytes of a body."""
_MOST_SETS = 4_096
"""Sets of classes whose verdicts are kept: callers can combine them at will."""
_Verdicts = dict[tuple[str, bool], tuple[Target, str]]
"""By a target's id and whether it would see placeholders: that very target, and what it is told."""


class ClassGuard:
    """`classes` from least to most sensitive; `scan` may raise. No class at all is all of them: nothing is known then.

    What a target lacks changes with the policy only, so it is judged once; time is looked at each time.
    """

    def __init__(self, classes: Mapping[str, Requirements], scan: Scan) -> None:
        self._classes, self._scan = classes, scan
        self._joined: dict[frozenset[str], Requirements] = {}
        self._judged: dict[frozenset[str], _Verdicts] = {}

    def demands(self, classes: frozenset[str]) -> Requirements:
        """What all of these classes together require."""
        found = self._joined.get(classes)
        if found is None:
            _bound(self._joined)
            required = (self._classes[name] for name in classes or self._classes)
            found = self._joined[classes] = reduce(Requirements.joined, required)
        return found

    def refusal(self, target: Target, classes: frozenset[str], now_ms: int, *, redacted: bool) -> str:
        verdicts = self._judged.get(classes)
        if verdicts is None:
            _bound(self._judged)
            verdicts = self._judged[classes] = {}
        found = verdicts.get((target.id, redacted))
        if found is None or found[0] is not target:
            found = verdicts[target.id, redacted] = (target, self._judge(target, classes, redacted=redacted))
        return (expired(target, now_ms) if target.terms.expires_ms is not None else "") or found[1]

    def unseen(self, body: bytes, classes: frozenset[str]) -> frozenset[str]:
        try:
            return self._scan(body) - classes
        except Exception:  # whatever breaks a detector, nothing may leave because of it
            return frozenset(self._classes) - classes

    def private(self, classes: frozenset[str]) -> bool:
        return self.demands(classes).private

    def _judge(self, target: Target, classes: frozenset[str], *, redacted: bool) -> str:
        """Every class binds. Told is what the most sensitive of them objects to, and who else does."""
        objections: dict[Objection, list[str]] = {}
        for name in sorted(classes or self._classes, key=tuple(self._classes).index, reverse=True):
            found = objection(self._classes[name], target, redacted=redacted)
            if found is not None:
                objections.setdefault(found, []).append(name)
        return next((found.told(names) for found, names in objections.items()), "")


def _bound(kept: dict[frozenset[str], _Verdicts] | dict[frozenset[str], Requirements]) -> None:
    if len(kept) >= _MOST_SETS:
        kept.clear()
