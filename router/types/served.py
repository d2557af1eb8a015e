"""An answer on its way to the client."""

from collections.abc import AsyncGenerator
from typing import Protocol

from msgspec import Raw, Struct

from router.types.account import Account
from router.types.plan import Candidate, Decision


class Translation(Protocol):
    """Turns the chat events of a target into those that the client's endpoint speaks."""

    def check(self, body: dict[str, Raw]) -> None:
        """Raises `UpstreamFailure` for a whole answer that can't be translated."""
        ...

    def feed(self, events: bytes) -> bytes: ...
    def final(self, usage: bytes) -> bytes: ...
    def error_event(self, message: str, code: str) -> bytes: ...


class Served(Struct, frozen=True, kw_only=True):
    """Either a whole `body` (without `usage`, which stands beside it as JSON) or the `events` of a stream."""

    decision: Decision
    step: Candidate
    thinking: str
    lowered: tuple[str, ...] = ()
    """What was changed so that it fits its budgets: "route", "effort", "output"."""
    loop: str = ""
    """What will stop the conversation if it goes on like this."""
    rates: tuple[tuple[Account, int], ...] = ()
    """Limits a minute of its key, and what is left of each."""
    cost: int | None = None
    """nano-USD, where it is known before the body."""
    body: dict[str, Raw] | None = None
    usage: bytes = b""
    events: AsyncGenerator[bytes] | None = None
    translated: bool = False
    """The target was asked by chat; a Responses client needs the answer translated."""
