"""The queues that one request would find."""

from collections.abc import Callable, Iterable

from router.types.queue import Asks, Queues
from router.types.target import Target

NO_QUEUES: Queues = {}


def queues_of(targets: Iterable[Target], asks: Asks, usual_ms: Callable[[Target], float]) -> Queues:
    """At the engines of those targets that have one."""
    served = [target for target in targets if target.engine is not None]
    if not served:
        return NO_QUEUES
    found = ((target.id, asks.queue(target, usual_ms)) for target in served)
    return {name: queue for name, queue in found if queue is not None}
