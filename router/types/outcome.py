"""How good an answer was: what verifiers, judges and clients say, and what estimates learn from."""

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from router.types.request import Request
from router.types.target import Target
from router.types.task import Task

PASSED = 0.5
"""A score of at least so much is a pass."""


class ToolCall(Struct, frozen=True):
    name: str
    arguments: str
    """JSON, as the model wrote it."""


class Answer(Struct, frozen=True, kw_only=True):
    """One choice of what a target answered, as far as it can be judged. Its text goes nowhere but to verifiers."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    refusal: str = ""
    finish_reason: str = ""


class Verdict(Struct, frozen=True):
    """`score`: 0 (wrong) … 1 (right); None: nothing can be said (it does not apply, it crashed, it hung)."""

    verifier: str
    score: float | None

    @property
    def passed(self) -> bool:
        return self.score is not None and self.score >= PASSED


class Asked(Struct, frozen=True, kw_only=True):
    """What a verifier is told. `classes`: of the request, which bind whoever looks at it."""

    request: Request
    target: Target
    """Whose answer it is."""
    answers: tuple[Answer, ...]
    """One for each choice; all must be right."""
    classes: frozenset[str]


Verify = Callable[[Asked], Awaitable[Sequence[Verdict]]]
"""All verifiers of a route. Never raises, never hangs: what breaks says nothing, and is counted."""


class Outcome(Struct, frozen=True, kw_only=True):
    """One score of one answer with all that learning needs, so that any process can learn from it later."""

    request_id: str
    target: str
    source: str
    """"verifier.NAME", "judge", "client" …"""
    score: float
    task: Task
    traits: bytes
    """`Reading.traits`, one signed byte each."""
    expected: float | None
    """The pass rate that was expected of the target; None: its route went by none."""
    given_ms: int
    template: str = ""
    """`Classification.template`."""
    weight: float = 1.0
    """How much it counts; below 0: what was observed so before is taken back, as a later score stands in its place."""


def accepted(verdicts: Sequence[Verdict]) -> bool | None:
    """Whether an answer passes: nobody says no, and somebody says yes. None: nobody says anything."""
    said = [verdict for verdict in verdicts if verdict.score is not None]
    return all(verdict.passed for verdict in said) if said else None
