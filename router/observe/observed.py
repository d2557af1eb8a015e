"""One client's request as whoever watches sees it, noted on the way and looked at when it is over."""

import time
from collections.abc import Iterable, Sequence

from router.types.attempt import Attempt
from router.types.plan import Decision
from router.types.request import Endpoint

PARENT = frozenset({b"traceparent", b"tracestate"})
"""Headers that name the client's own trace; no other is kept."""
LONGEST_NAME = 128
_NAMED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:/@+-")


class Observed:
    """Times in ns since 1970. It holds decision and attempts, which have no text, and nothing of the request."""

    __slots__ = (
        *("attempts", "began_ns", "cost", "decision", "endpoint", "ended_ns", "error", "id", "parent", "status"),
        *("steps", "stream"),
    )

    def __init__(self, identifier: str, endpoint: Endpoint, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.id, self.endpoint = identifier, endpoint
        self.parent = {name: value for name, value in headers if name in PARENT}
        self.began_ns = self.ended_ns = time.time_ns()
        self.steps: list[tuple[str, int]] = [("parse", self.began_ns)]
        """Each until the next begins."""
        self.decision: Decision | None = None
        self.attempts: Sequence[Attempt] = ()
        self.status, self.cost, self.stream = 0, 0, False
        self.error: str | None = None

    def step(self, name: str) -> None:
        self.steps.append((name, time.time_ns()))

    def settled(self, status: int, error: str | None, attempts: Sequence[Attempt], cost: int) -> None:
        """`cost` in nano-USD."""
        self.status, self.error, self.attempts, self.cost = status, error, attempts, cost

    def refused(self, status: int, error: str) -> None:
        """What was settled stays as it is."""
        if not self.status:
            self.status, self.error = status, error

    @property
    def served(self) -> Attempt | None:
        """The attempt whose answer the client got; else the last one."""
        given = (one for one in reversed(self.attempts) if one.outcome == "ok" and not one.passed_over)
        return next(given, self.attempts[-1] if self.attempts else None)


def plain(said: str) -> str:
    """What a provider calls something. A sentence is no name: it may repeat what it was asked."""
    return said if len(said) <= LONGEST_NAME and _NAMED.issuperset(said) else "?"
