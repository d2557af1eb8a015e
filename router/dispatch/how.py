"""How one target is asked, where that is not as plainly as can be."""

from msgspec import Struct

CLIENT_GONE = "client_gone"
"""Outcome of an attempt whose client left."""
OUTRUN = "outrun"
"""Outcome of an attempt that was given up because another target was quicker."""


class Presence:
    """Whether the client of a request still waits for it. `reads_on`: what is being asked is read though it leaves."""

    __slots__ = ("gone", "reads_on")

    def __init__(self) -> None:
        self.gone = self.reads_on = False


class Race:
    """Two targets asked at once: then neither is asked again, so that what is held pays for both."""

    __slots__ = ("begun", "on")

    def __init__(self) -> None:
        self.begun = self.on = False
        """`begun`: the first byte of an answer is here."""


class How(Struct, frozen=True):
    role: str = ""
    """`Attempt.role`."""
    fallback: bool = False
    """Something else stands ready: long pauses are not worth it."""
    whole: bool = False
    """Gathered, though the client wants a stream."""
    race: Race | None = None


ALONE = How()
WITH_FALLBACK = How(fallback=True)
