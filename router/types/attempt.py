"""What happened at one target."""

from msgspec import Struct

from router.types.outcome import Verdict
from router.types.price import Cost
from router.types.target import Target
from router.types.usage import Usage


class Attempt(Struct, frozen=True, kw_only=True):
    """One call of one target: how it ended and what it cost. Times in ms; `first_ms` until the first body byte."""

    target: Target
    outcome: str
    """"ok", an `ErrorKind`, "client_gone", or "outrun" where another target was quicker."""
    started_ms: int
    total_ms: int
    first_ms: int | None = None
    status: int | None = None
    usage: Usage | None = None
    cost: Cost
    finish_reason: str = ""
    answered: bool = False
    """There was something for the client, not only thoughts."""
    model_served: str = ""
    thinking: str = "none"
    classes: frozenset[str] = frozenset()
    """Of what was sent: all that bound. Empty: not known."""
    redacted: bool = False
    region: str = ""
    """Where it was served: verified where the provider says so, else as the target states."""
    region_verified: bool = False
    """The provider says so; that it is not the target's region is an incident."""
    role: str = ""
    """Why it was made: as a level of a "cascade", as a sample of a "vote", as a "hedge"; empty: to answer."""
    passed_over: bool = False
    """It was answered, but the client was not given this answer."""
    verdicts: tuple[Verdict, ...] = ()
    """Of its answer, where that was looked at before it was given."""
