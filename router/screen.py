"""Step 3: what a request holds, what its session has seen, and what it looks like without its findings."""

from collections.abc import Iterable

from msgspec import Struct

from router.classify.classify import Classifier
from router.config.policy import Sensitivity
from router.decide.guard import ClassGuard
from router.types.classification import Cause, Classification
from router.types.redacted import Redacted
from router.types.request import Caller, Request
from router.types.session import CLEAN, SessionStore, Taint, session_key
from router.types.store import StoreUnavailable


class Screened(Struct, frozen=True):
    """`redacted`: the same with placeholders, where the policy lets a class of it be redacted."""

    classification: Classification
    redacted: Redacted | None = None


class Screen:
    """One policy's."""

    def __init__(self, sensitivity: Sensitivity, ranks: dict[str, int]) -> None:
        self._sensitivity, self.ranks = sensitivity, ranks
        self.classifier = Classifier(sensitivity.detectors, ranks)
        self.guard = ClassGuard(sensitivity.classes, self.classifier.scan)

    async def look(self, request: Request, caller: Caller, sessions: SessionStore) -> Screened:
        """What the session has seen binds this request, and what this one holds binds the next."""
        name = request.limits.session
        if not name:
            return self.alone(request, caller)
        key = session_key(caller.id, name)
        try:
            before = await sessions.taint(key)
            screened = self.alone(request, caller, before)
            after = self._taint(screened.classification)
            if after.firm - before.firm or after.found - before.found:
                await sessions.add(key, after)
        except StoreUnavailable:
            return self.alone(request, caller, Taint(firm=frozenset(self.ranks)))
        return screened

    def alone(self, request: Request, caller: Caller, before: Taint = CLEAN) -> Screened:
        """Without its session's store. Pure."""
        floor = (*self._floor(request, caller), *_causes(before.firm), *_causes(before.found))
        return Screened(self.classifier.classify(request, floor))

    def _floor(self, request: Request, caller: Caller) -> Iterable[Cause]:
        """What holds whatever is found. A name that the policy does not know is every class."""
        yield Cause(self._sensitivity.default, "default")
        for name, by in ((caller.min_class, "key"), (request.limits.data_class, "header")):
            for known in (name,) if name in self.ranks else self.ranks if name else ():
                yield Cause(known, by)

    def _taint(self, seen: Classification) -> Taint:
        default = {self._sensitivity.default}
        firm = frozenset(cause.data_class for cause in seen.causes if cause.by in _FIRM)
        return Taint(firm - default, seen.classes - firm - default)


_FIRM = ("header", "detector_failed")


def _causes(classes: Iterable[str]) -> Iterable[Cause]:
    return (Cause(name, "session") for name in sorted(classes))
