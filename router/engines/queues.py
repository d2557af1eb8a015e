"""The queues that one request would find."""

from collections.abc import Callable, Sequence

from msgspec import structs

from router.types.queue import Asks, Queue, Queues
from router.types.target import Target

NO_QUEUES: Queues = {}


def queues_of(
    targets: Sequence[Target],
    asks: Asks | None,
    degraded: Callable[[str], bool],
    usual_ms: Callable[[Target], float],
) -> Queues:
    """At the engines of those targets that have one; a degraded target is as one with too long a queue."""
    queues = {}
    for target in targets:
        queue = asks.queue(target, usual_ms) if asks is not None and target.engine is not None else None
        if len(targets) > 1 and degraded(target.id):
            queue = structs.replace(queue or Queue(), degraded=True)
        if queue is not None:
            queues[target.id] = queue
    return queues or NO_QUEUES
