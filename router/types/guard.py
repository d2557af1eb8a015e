"""The port of the rule that stands at the door: may these bytes go to that place?"""

from typing import Protocol

from router.types.target import Target


class Guard(Protocol):
    """One policy's rule over its classes. Pure, and never wrong in favour of sending."""

    def refusal(self, target: Target, classes: frozenset[str], now_ms: int, *, redacted: bool) -> str:
        """Why what has these classes may not go to `target`, in one sentence; empty where it may.

        Every class binds, so that one more never opens a place. `redacted`: what would be sent has placeholders in
        the place of its findings.
        """
        ...

    def unseen(self, body: bytes, classes: frozenset[str]) -> frozenset[str]:
        """Classes of what these very bytes hold that are not among `classes`; all there are where the look fails."""
        ...

    def private(self, classes: frozenset[str]) -> bool:
        """The provider must neither keep nor train on what has these classes."""
        ...
