"""How one target is asked, where that is not as plainly as can be."""

from collections.abc import Callable

from msgspec import Struct

CLIENT_GONE = "client_gone"
"""Outcome of an attempt whose client left."""
OUTRUN = "outrun"
"""Outcome of an attempt that was given up because another target was quicker."""


class Presence:
    """Who is still there: the client of a request, that it may be read on though it leaves, and the process' lease."""

    __slots__ = ("gone", "lost_since", "reads_on")

    def __init__(self) -> None:
        self.gone = self.reads_on = False
        self.lost_since: Callable[[int], bool] = lambda start_ms: False
        """`Lease.lost_since`."""


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
