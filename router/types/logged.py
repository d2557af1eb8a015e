"""One row of the shared log of outcomes: what was said of an answer, and all that learning from it needs."""

from msgspec import Struct


class SourceScore(Struct, frozen=True, kw_only=True):
    """What one source says of one attempt. `score`: 0 … 1; None: it contradicted itself, so it says nothing."""

    request_id: str
    attempt: int
    target: str
    source: str
    """"client", "client.NAME", "reviewer.KEY", "verifier.NAME" or "judge.TARGET"."""
    score: float | None
    weight: float = 1.0
    """0: kept, and not learned from."""
    decides: bool = True
    """Its yes means that the answer is right. Else it means that nothing wrong was seen, so nothing changes."""
    key: str = ""
    """The client's own, against telling the same thing twice."""


class LoggedOutcome(Struct, frozen=True, kw_only=True):
    """What `SourceScore` became. `position` grows; a later row of the same source and attempt replaces the earlier."""

    position: int
    request_id: str
    attempt: int
    target: str
    source: str
    score: float | None
    weight: float
    was_score: float | None
    """Of the row that it replaces; None: there was none, or it said nothing."""
    was_weight: float
    was_ms: int | None
    decides: bool
    task: str
    traits: str
    """Base64 of `Outcome.traits`; empty: nobody looked at the request, so nothing can be learned."""
    template: str
    """`Outcome.template`."""
    expected: float | None
    """The pass rate that was expected of the target; None: nothing was."""
    given_ms: int
