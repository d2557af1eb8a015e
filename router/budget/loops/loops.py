"""What the loop breaker watches for, as the policy declares it, and what it says when it trips."""

from decimal import Decimal
from enum import StrEnum
from functools import cached_property
from typing import Annotated

from msgspec import Struct
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from router.types.length import seconds
from router.types.money import nano_from_usd

Usd = Annotated[Decimal, Field(gt=0, le=1_000_000_000, decimal_places=9)]


def _length(text: str) -> str:
    try:
        seconds(text)
    except ValueError as error:
        context = {"expected": "a length of time", "remedy": str(error)}
        raise PydanticCustomError("mistake", "not {expected}", context) from None
    return text


Length = Annotated[str, AfterValidator(_length)]
"""A length of time such as 30m, 36h or 7d."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Spike(_Part):
    """Spending in one window above the floor, and above `factor` times the most that was usual for a session or key."""

    window: Length = "10m"
    factor: Annotated[int, Field(ge=2)] = 20
    floor_usd: Usd = Decimal(50)

    @cached_property
    def floor(self) -> int:
        """nano-USD."""
        return nano_from_usd(self.floor_usd)

    @cached_property
    def window_ms(self) -> int:
        return seconds(self.window) * 1000


class Loops(_Part):
    """Limits that normal use never meets; each count is of requests, so a slow loop trips like a fast one."""

    enabled: bool = True
    no_progress: Annotated[int, Field(ge=8)] = Field(
        24, description="Turns of a conversation, one after another, that bring nothing new."
    )
    repeats: Annotated[int, Field(ge=8)] = Field(
        80, description="Requests of a session, one after another, without a new word."
    )
    session_turns: Annotated[int, Field(gt=0)] | None = Field(50_000, description="In a session's whole life.")
    resent: Annotated[int, Field(ge=8)] = Field(
        120, description="The same request of a key, one after another, without a pause of half a minute."
    )
    session_usd: Usd | None = Field(None, description="In a session's whole life; a budget.")
    spike: Spike | None = Spike()
    cool_down: Length = Field("5m", description="Doubled every time it trips again, up to a day.")
    exempt: tuple[str, ...] = Field((), description="Names of keys that are not watched.")

    @cached_property
    def cool_down_ms(self) -> int:
        return seconds(self.cool_down) * 1000


class Kind(StrEnum):
    NO_PROGRESS = "no_progress"
    """Turn after turn of one conversation brings nothing new."""
    PING_PONG = "ping_pong"
    """So does a conversation that two keys lead with each other."""
    REPEATS = "repeats"
    """The same request, or nearly, one after another."""
    SPEND_SPIKE = "spend_spike"
    SESSION_TURNS = "session_turns"


class Scope(StrEnum):
    """What is refused: all requests of a session or a key, or only the conversation of a key or of a pair."""

    SESSION = "session"
    KEY = "key"
    CONVERSATION = "conversation"
    PAIR = "pair"


class Tripped(Struct, frozen=True):
    """Why requests of `subject` are refused until `until_ms`; None: for good.

    `seen` and `limit` are requests, or nano-USD for `spend_spike`. `subject` is a session's id or
    the names of keys, never a secret.
    """

    kind: Kind
    scope: Scope
    subject: str
    reason: str
    seen: int
    limit: int
    at_ms: int
    until_ms: int | None
