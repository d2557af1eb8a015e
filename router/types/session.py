"""What a session has seen: its classes stick until a new session begins. The port that stores implement."""

from typing import Protocol

from msgspec import Struct


class Taint(Struct, frozen=True):
    """Classes that a session has had. `found` ones are known from findings alone, which redaction can take away;
    `firm` ones were declared (header), or stood for what can't be read."""

    firm: frozenset[str] = frozenset()
    found: frozenset[str] = frozenset()


CLEAN = Taint()


class SessionStore(Protocol):
    """`session` is `session_key` of caller and name. Shared by all processes of a gateway. Never hangs.

    Raises `StoreUnavailable`: then nobody knows what the session has seen.
    """

    async def taint(self, session: str) -> Taint: ...

    async def add(self, session: str, taint: Taint) -> None:
        """Returns once it can't be lost, and every process sees it. Adds to what is there; never takes away."""
        ...


def session_key(caller_id: str, session: str) -> str:
    """Another key's session of the same name is another session."""
    return f"{caller_id}/{session}"
