"""What a request would find at the engine of a target: a queue, or nobody."""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from msgspec import Struct

from router.types.target import Target


class Queue(Struct, frozen=True, kw_only=True):
    """At the replica that would begin it first."""

    wait_ms: int = 0
    """Expected, until it is begun."""
    waiting: int = 0
    """Requests that are there already and not yet begun."""
    full: bool = False
    """It has just turned a request away rather than let it wait."""
    degraded: bool = False
    """The target fails too often or is much slower than usual, and this request is not in its share."""
    down: str = ""
    """Why no replica can begin it at all: the engine's status."""


Queues: TypeAlias = Mapping[str, Queue]
"""By target's id; who would begin a request at once is left out."""


class Asks(Protocol):
    """Who knows the queues."""

    def queue(self, target: Target, usual_ms: Callable[[Target], float]) -> Queue | None:
        """None: it would be begun at once, or nobody knows. `usual_ms`: what a request takes there, once begun."""
        ...
