"""A request's profile, which is stored with its decision, and the state of sessions."""

from collections.abc import Set
from operator import attrgetter

from msgspec import Raw, Struct

from router.types.decision import NO_STAKES, OTHER, USUAL, Before, Objective, RequestProfile
from router.types.request import NO_LIMITS, UNKNOWN, Endpoint, Languages, Latest, Limits, Redacted, Request
from router.types.target import EFFORTS, Capability

# What sessions have done so far, for the next decision: kept in this process, the oldest are forgotten.

MOST_SESSIONS = 65_536


class SessionState(Struct, frozen=True):
    """State of one session. `at_ms`: when it began (Unix)."""

    target: str = ""
    spent: int = 0
    calls: int = 0
    at_ms: int = 0


NEW = SessionState()


class SessionStates:
    def __init__(self) -> None:
        self._sessions = Latest[str, SessionState](MOST_SESSIONS)

    def of(self, session: str) -> SessionState:
        return self._sessions.get(session, NEW)

    def note(self, session: str, target: str, cost: int, began_ms: int) -> None:
        """Records a request of a session. `target`: the one that answered; empty if none did. `began_ms`: Unix."""
        before = self._sessions.get(session) or SessionState(at_ms=began_ms)
        after = SessionState(target or before.target, before.spent + cost, before.calls + 1, before.at_ms)
        self._sessions.put(session, after)


# Request → stored profile, and back to a request without text that is decided the same way.

TIERS = frozenset({"auto", "batch", "default", "fast", "flex", "priority", "scale", "standard", "standard_only"})
"""Service tiers, by the names that providers give them."""
_SIZES = {"bytes": "prompt_bytes", "dense": "dense_bytes", "wide": "wide_bytes", "audio_s": "audio_seconds"}
_SIZES |= {name: name for name in ("images", "file_bytes", "max_output", "n", "prompts", "best_of")}
"""Maps fields of a profile to fields of the request."""
_sizes_of = attrgetter(*_SIZES.values())
_CHAT = frozenset({Capability.CHAT})
_EMPTY_BODY: dict[str, Raw] = {}
_AUDIO_BODY, _SEEDED_BODY = {"audio": Raw(b"{}")}, {"seed": Raw(b"0")}


def shape_of(
    request: Request,
    stakes: Objective,
    progress: SessionState,
    fixed: bool,
    redacted: Redacted | None,
    regions: Set[str],
    budgets: Set[str],
    languages: Languages | None,
    at_ms: int,
    left: tuple[int, int] | None = None,
) -> RequestProfile:
    """Returns the profile of a request. `stakes`: the request's own. `regions`, `budgets`: the policy's names; others
    are not stored. `languages`: None if not detected. `at_ms`: Unix. `left`: see `RequestProfile`."""
    limits, needs = request.limits, request.needs
    return RequestProfile(
        **dict(zip(_SIZES, _sizes_of(request), strict=True)),
        needs=USUAL if needs == _CHAT else tuple(sorted(needs)),
        effort=_known_or_other(request.effort, EFFORTS) if request.effort else "",
        tier=_known_or_other(request.service_tier, TIERS) if request.service_tier else "",
        caches=request.caches + request.caches_long,
        speaks="audio" in request.body,
        fixed=fixed,
        task=limits.task,
        languages=None if languages is None else (languages.source, languages.target),
        region=_known_or_other(limits.region, regions) if limits.region else "",
        thinking=limits.thinking_budget,
        budget=limits.budget if limits.budget in budgets else "",
        stakes=NO_STAKES if stakes == NO_STAKES else stakes,
        redacted=None if redacted is None else tuple(sorted(redacted.classes)),
        before=None
        if progress is NEW
        else Before(progress.target, progress.spent, progress.calls, at_ms - progress.at_ms),
        left=left,
    )


def request_of(
    shape: RequestProfile, *, id: str, endpoint: str, model: str, stream: bool, session: str, tags: tuple[str, ...]
) -> Request:
    """Returns a request with all that steps 4 and 5 use. `tags`: the request's own, without its key's."""
    body = _EMPTY_BODY
    if shape.speaks or shape.fixed:
        body = (_AUDIO_BODY if shape.speaks else _EMPTY_BODY) | (_SEEDED_BODY if shape.fixed else _EMPTY_BODY)
    return Request(
        id=id,
        endpoint=Endpoint(endpoint),
        model=model,
        body=body,
        **{field: getattr(shape, name) for name, field in _SIZES.items()},
        caches=shape.caches > 0,
        caches_long=shape.caches > 1,
        service_tier=shape.tier,
        needs=_CHAT if shape.needs == USUAL else frozenset(shape.needs),
        stream=stream,
        effort=shape.effort or None,
        limits=_limits(shape, session, tags),
        languages=UNKNOWN if shape.languages is None else Languages(*shape.languages),
    )


def own_stakes(request: Request) -> Objective:
    """Returns the limits that the request itself states."""
    limits = request.limits
    return Objective(
        failure_nano=limits.failure_cost_nano,
        min_pass_rate=limits.min_pass_rate,
        max_nano=limits.budget_nano,
        deadline_ms=limits.deadline_ms,
    )


def progress_of(shape: RequestProfile, at_ms: int) -> SessionState:
    before = shape.before
    if before is None:
        return NEW
    return SessionState(before.target, before.spent, before.calls, at_ms - before.elapsed_ms)


def _limits(shape: RequestProfile, session: str, tags: tuple[str, ...]) -> Limits:
    own = shape.stakes
    limits = Limits(
        session=session,
        task=shape.task,
        region=shape.region,
        budget=shape.budget,
        budget_nano=own.max_nano,
        thinking_budget=shape.thinking,
        deadline_ms=own.deadline_ms,
        failure_cost_nano=own.failure_nano,
        min_pass_rate=own.min_pass_rate,
        tags=tags,
    )
    return NO_LIMITS if limits == NO_LIMITS else limits


def _known_or_other(word: str, words: Set[str] | tuple[str, ...]) -> str:
    return word if word in words else OTHER
