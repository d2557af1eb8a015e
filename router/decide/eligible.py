"""The hard filter: who may and can serve a request. Runs before any scoring, and again at the door."""

from collections.abc import Callable

from msgspec import Struct

from router.decide.demands import expired
from router.decide.special import ANYTHING, Asked, special
from router.types.classification import Classification
from router.types.engine import Status
from router.types.guard import Guard
from router.types.plan import Dropped
from router.types.queue import Queues
from router.types.redacted import Redacted
from router.types.request import Caller, Request
from router.types.target import Capability, Target

_FAILED = "its engine has failed, and `lowpass local status` says why"


class Gate(Struct, frozen=True):
    """Everything that decides over eligibility besides the target itself."""

    request: Request
    caller: Caller
    classification: Classification
    guard: Guard
    redacted: Redacted | None
    """The request with placeholders, where the policy lets a class of it be redacted."""
    now_ms: int
    resting: Callable[[str], float]
    """Seconds for which a target's circuit stays open."""
    thinks_within: Callable[[Target, int], bool]
    """Whether a target can be held to so many thinking tokens."""
    asked: Asked = ANYTHING
    queues: Queues = {}
    """At the engines of targets."""
    deadline_ms: int | None = None
    """For how long the answer may take."""


def refusal(target: Target, gate: Gate) -> Dropped | None:
    """The first reason why `target` must not be asked, or None."""
    for reason, check in _CHECKS:
        detail = check(target, gate)
        if detail:
            return Dropped(target.id, reason, detail)
    return None


def must_redact(target: Target, gate: Gate) -> bool:
    """`target` may not see the request as it is."""
    return bool(_as_it_is(target, gate))


def narrowed(target: Target, region: str) -> str:
    """Why the caller's own wish for a region keeps a request from `target`. The wish is any text, and kept nowhere."""
    if not region or target.local or target.region == region:
        return ""
    return f"the caller wants another region; this target is in {target.region or 'no stated region'}"


def _key(target: Target, gate: Gate) -> str:
    allowed = gate.caller.targets
    return "the key may not use it" if allowed and target.id not in allowed else ""


def _evidence(target: Target, gate: Gate) -> str:
    return expired(target, gate.now_ms)


def _data_class(target: Target, gate: Gate) -> str:
    detail = _as_it_is(target, gate)
    if not detail or gate.redacted is None:
        return detail
    detail = gate.guard.refusal(target, gate.redacted.classes, gate.now_ms, redacted=True)
    return f"even redacted: {detail}" if detail else ""


def _as_it_is(target: Target, gate: Gate) -> str:
    return gate.guard.refusal(target, gate.classification.classes, gate.now_ms, redacted=False)


def _region(target: Target, gate: Gate) -> str:
    return narrowed(target, gate.request.limits.region)


def _capability(target: Target, gate: Gate) -> str:
    missing = gate.request.needs - target.model.capabilities
    if target.provider.quirks.responses:
        missing -= {Capability.RESPONSES}
    return f"lacks {', '.join(sorted(missing))}" if missing else ""


def _context(target: Target, gate: Gate) -> str:
    # A token is at least a byte of UTF-8 for every tokenizer in use, so this drops only what can never fit.
    least = gate.request.prompt_bytes // 16
    return f"the request cannot fit its {target.model.context} tokens" if least > target.model.context else ""


def _special(target: Target, gate: Gate) -> str:
    return special(target, gate.asked)


def _thinking(target: Target, gate: Gate) -> str:
    budget = gate.request.limits.thinking_budget
    if budget is None or gate.thinks_within(target, budget // gate.request.n):
        return ""
    return f"can't be kept within {budget} thinking tokens"


def _price(target: Target, gate: Gate) -> str:
    return "" if target.model.price else "has no price, and the policy refuses unpriced targets"


def _health(target: Target, gate: Gate) -> str:
    seconds = gate.resting(target.id)
    return f"its circuit is open for {seconds:.0f} s more" if seconds > 0 else ""


def _engine(target: Target, gate: Gate) -> str:
    queue = gate.queues.get(target.id)
    if queue is None or not queue.down:
        return ""
    return _FAILED if queue.down == Status.FAILED else f"its engine is {queue.down}"


_CHECKS: tuple[tuple[str, Callable[[Target, Gate], str]], ...] = (
    ("not_allowed", _key),
    ("evidence_expired", _evidence),
    ("data_class", _data_class),
    ("region", _region),
    ("capability", _capability),
    ("specialist", _special),
    ("context", _context),
    ("thinking", _thinking),
    ("unpriced", _price),
    ("circuit_open", _health),
    ("engine_down", _engine),
)
