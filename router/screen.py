"""Step 3: findings in a request, the classes of its session, and the request with its findings redacted."""

import hashlib
import hmac
import logging
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress

from msgspec import Struct

from router.classify.classify import LARGE, Classifier, in_thread
from router.classify.detector import DoubtfulValue
from router.classify.ner import NamesDetector, NamesNotRead, NamesReader
from router.classify.second_opinion import SecondOpinion, form_words
from router.classify.sessions import SessionStore
from router.config.policy import Sensitivity
from router.decide.eligibility import ClassGuard, Redact
from router.dispatch.side_calls import SecondOpinions, SideCall
from router.redact.redact import redact
from router.types.account import StoreUnavailable
from router.types.request import (
    CLEAN,
    Caller,
    Cause,
    Classification,
    Finding,
    Redacted,
    Request,
    SessionClasses,
    session_key,
)
from router.types.target import Secret, Target

_KNOWN = ("default", "key", "session")
"""Causes that apply to the session's next request anyway."""
_NO_TARGETS: Mapping[str, Target] = {}
_NOTHING: frozenset[DoubtfulValue] = frozenset()
_log = logging.getLogger(__name__)


class ScreenSources(Struct, frozen=True):
    """What stays when the policy changes."""

    sessions: SessionStore
    reader: NamesReader
    secret: Secret
    opinions: SecondOpinions | None = None
    """Asks for second opinions; None to ask for none."""


class Screened(Struct, frozen=True):
    """A classified request. `redacted` has placeholders, if the policy lets one of its classes be redacted."""

    classification: Classification
    redacted: Redacted | None = None


class Screen:
    """Screens requests under one policy. Without `secret`, placeholders can't be linked to their values."""

    def __init__(self, sensitivity: Sensitivity, secret: Secret, targets: Mapping[str, Target] = _NO_TARGETS) -> None:
        self._sensitivity, self._secret = sensitivity, secret.reveal().encode()
        self.ranks = sensitivity.ranks()
        self._default = Cause(sensitivity.default, "default")
        detectors = sensitivity.detectors
        self._second = next((detector for detector in detectors if isinstance(detector, SecondOpinion)), None)
        self._asked = targets.get(self._second.target) if self._second else None
        self._called = form_words(detectors) if self._second else {}
        self.classifier = Classifier(detectors, self.ranks, with_doubtful=self._second is not None)
        self.guard = ClassGuard(sensitivity.classes, self.classifier.scan)
        self._redactable = {name for name, row in sensitivity.classes.items() if row.redact is not Redact.NEVER}
        self._names = [detector for detector in sensitivity.detectors if isinstance(detector, NamesDetector)]

    @property
    def deep(self) -> bool:
        """Whether the policy looks for names, which needs a reader."""
        return bool(self._names)

    async def look(self, request: Request, caller: Caller, sources: ScreenSources) -> Screened:
        """Screens a request within its session: earlier findings bind this request, and its own bind the next."""
        read = await self.read(request, sources.reader) if self._names else ()
        name = request.limits.session
        if not name:
            if self._second is None and len(request.raw) < LARGE:
                return self.alone(request, caller, CLEAN, read)
            return await self._look(request, caller, CLEAN, read, sources)
        key = session_key(caller.id, name)
        try:
            before = await sources.sessions.taint(key)
            screened = await self._look(request, caller, before, read, sources)
            after = self._taint(screened.classification)
            if after.permanent - before.permanent or after.found - before.found:
                await sources.sessions.add(key, after)
        except StoreUnavailable:
            own = self._taint((await self._look(request, caller, CLEAN, read, sources)).classification)
            if own != CLEAN:
                # The store gets these once it is back, as they bind later requests too.
                with suppress(StoreUnavailable):
                    await sources.sessions.add(key, own)
            return await self._look(request, caller, SessionClasses(permanent=frozenset(self.ranks)), read, sources)
        return screened

    async def read(self, request: Request, reader: NamesReader) -> Sequence[Finding] | None:
        """Returns findings of names; None if names could not be looked for."""
        passages, findings = request.passages, list[Finding]()
        try:
            for names in self._names:
                unread = names.too_long(passages)
                if unread is None:
                    named = await reader.read([passage.text for passage in passages], names.timeout_ms)
                    findings += names.findings(passages, named)
                else:
                    findings.append(unread)
        except NamesNotRead as error:
            _log.error("%s: the request is given every class", error)
            return None
        return findings

    async def _look(
        self,
        request: Request,
        caller: Caller,
        before: SessionClasses,
        read: Sequence[Finding] | None,
        sources: ScreenSources,
    ) -> Screened:
        """Screens with second opinions. Possible findings count unless a second opinion denies them."""
        size, arguments = len(request.raw), (request, caller, before, read)
        screened: Screened = await in_thread(size, self.alone, *arguments) if size >= LARGE else self.alone(*arguments)
        if not screened.classification.possible or self._second is None:
            return screened
        if denied := await self._denied(request, screened.classification, sources.opinions):
            screened = await in_thread(size, self.alone, *arguments, denied)
        return screened

    async def _denied(
        self, request: Request, known: Classification, opinions: SecondOpinions | None
    ) -> Set[DoubtfulValue]:
        """Returns the values that a second opinion denies; empty if no target can be asked."""
        second, target = self._second, self._asked
        if second is None or target is None or opinions is None:
            return _NOTHING
        questions = second.questions(known.possible, request.passages)
        if not questions:
            return _NOTHING
        called, limit = self._called, second.timeout_ms
        return await opinions.denied(SideCall(target, self.guard, known.classes, questions, called, limit, request.id))

    def alone(
        self,
        request: Request,
        caller: Caller,
        before: SessionClasses = CLEAN,
        read: Sequence[Finding] | None = (),
        denied: Set[DoubtfulValue] = _NOTHING,
    ) -> Screened:
        """Screens without asking other services or changing state. `read`: names found; `denied`: values denied."""
        floor = self._floor(request, caller, before, read)
        past = self._remembered(before.found) if before.found else ()
        known = self.classifier.classify(request, (*floor, *past), read or (), denied)
        names = known.classes & self._redactable
        if not names:
            return Screened(known)
        left = [finding for finding in read or () if finding.data_class not in names or not finding.exact]
        # Health is only detected beside a person. If it may not be redacted, redacting the person must not hide it.
        stays = [Cause(name, "kept") for name in sorted(known.classes - names)]
        stays += [Cause(self._sensitivity.redacted_to(name), "redacted") for name in sorted(names)]
        floor = (*floor, *self._remembered(before.found - names), *stays)
        # Placeholders are the same in all turns of a session; without a session, only within the request.
        scope = session_key(caller.id, request.limits.session) if request.limits.session else request.id
        key = hmac.digest(self._secret, scope.encode(), hashlib.sha256)
        # Classify the redacted request again: what could not be replaced keeps its class.
        bare, values = redact(request, [finding for finding in known.findings if finding.data_class in names], key)
        return Screened(known, Redacted(bare, self.classifier.classes(bare, floor, left, denied), values))

    def _floor(
        self, request: Request, caller: Caller, before: SessionClasses, read: Sequence[Finding] | None
    ) -> tuple[Cause, ...]:
        """Returns causes that don't depend on the text. A class that the policy does not know counts as every class."""
        causes = [self._default]
        for name, by in ((caller.min_class, "key"), (request.limits.data_class, "header")):
            if name:
                causes += [Cause(known, by) for known in ((name,) if name in self.ranks else self.ranks)]
        for modality in sorted(request.unscannable):
            causes.append(Cause(self._sensitivity.unread(modality), f"unscannable.{modality}"))
        if before.permanent:
            causes += self._remembered(before.permanent)
        if read is None:
            causes += [Cause(name, "detector_failed") for name in self.ranks]
        return tuple(causes)

    def _remembered(self, classes: frozenset[str]) -> Iterable[Cause]:
        """Returns causes from a session. A class that the policy no longer has counts as every class."""
        return (Cause(name, "session") for name in sorted(classes if classes <= self.ranks.keys() else self.ranks))

    def _taint(self, known: Classification) -> SessionClasses:
        """Returns what this request adds to its session's classes."""
        default = self._sensitivity.default
        new = [cause for cause in known.causes if cause.by not in _KNOWN and cause.data_class != default]
        permanent = frozenset(
            cause.data_class
            for cause in new
            if (cause.by in ("header", "detector_failed") or cause.by.startswith("unscannable"))
        )
        return SessionClasses(permanent, frozenset(cause.data_class for cause in new) - permanent)
