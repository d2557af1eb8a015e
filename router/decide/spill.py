"""Queues of engines, and degraded targets → whom else to ask first. Only the order of targets changes."""

from collections.abc import Callable, Sequence, Set
from math import erf, hypot, sqrt

import numpy as np
from numpy.typing import NDArray

from router.decide.situation import Situation
from router.types.forecast import Vector
from router.types.plan import Candidate, Dropped, Queued
from router.types.queue import Queue, Queues
from router.types.target import Target

Takes = Callable[[Candidate], tuple[float, float]]
"""ms that a request takes there, once begun: its mean and its 90 % quantile."""
Z90 = 1.2816
"""Quantile of the normal distribution."""
_NONE = Queue()
_TINY = 1e-9


def hopeless(targets: Sequence[Target], queues: Queues, deadline_ms: int | None) -> tuple[Dropped, ...]:
    """All of them, where none would begin before the deadline: an answer that comes too late helps nobody."""
    if deadline_ms is None or not all(queues.get(one.id, _NONE).wait_ms >= deadline_ms for one in targets):
        return ()
    return tuple(Dropped(one.id, "saturated", f"its queue takes {queues[one.id].wait_ms} ms") for one in targets)


def spilled(steps: Sequence[Candidate], queues: Queues, deadline_ms: int | None, takes: Takes) -> tuple[Candidate, ...]:
    """Who has too long a queue comes behind all others, the shortest queue first."""
    late = [_late(step, queues, deadline_ms, takes) for step in steps]
    here = [step for step, is_late in zip(steps, late, strict=True) if not is_late]
    behind = [step for step, is_late in zip(steps, late, strict=True) if is_late]
    behind.sort(key=lambda step: (queues[step.target.id].full, step.wait_ms))
    return (*(_sooner(here, takes) if deadline_ms is None else here), *behind)


def overtaken(before: Sequence[Candidate], after: Sequence[Candidate]) -> frozenset[str]:
    """Ids of those that others were put before."""
    rank = {step.target.id: place for place, step in enumerate(before)}
    order = [step.target.id for step in after]
    return frozenset(
        name for place, name in enumerate(order) if any(rank[other] > rank[name] for other in order[:place])
    )


def noted(queues: Queues, spilled: Set[str]) -> tuple[Queued, ...]:
    """What is kept of queues; an engine that is down is told of as the reason for which its target was dropped."""
    return tuple(
        Queued(
            target=name,
            wait_ms=queue.wait_ms,
            waiting=queue.waiting,
            full=queue.full,
            degraded=queue.degraded,
            spilled=name in spilled,
        )
        for name, queue in queues.items()
        if not queue.down
    )


def queued(situation: Situation) -> NDArray[np.bool_]:
    """Whose queue is too long, whatever the deadline."""
    found = (_too_long(one, situation.queues.get(one.id, _NONE)) for one in situation.targets)
    return np.fromiter(found, dtype=np.bool_, count=len(situation.targets))


def waits_ms(situation: Situation) -> Vector:
    return np.array([situation.queues.get(one.id, _NONE).wait_ms for one in situation.targets], dtype=np.float64)


def timely(situation: Situation) -> Vector:
    """Chance that an answer of each target makes the deadline; 1 where nobody waits: who is slow anyway is out."""
    chance, forecast, deadline = np.ones(len(situation.targets)), situation.forecast, situation.stakes.deadline_ms
    if deadline is None:
        return chance
    for at, one in enumerate(situation.targets):
        if one.id in situation.queues:
            spread = (forecast.total_p90_ms[at] - forecast.total_ms[at]) / Z90
            chance[at] = _normal((deadline - forecast.total_ms[at]) / max(spread, _TINY))
    return chance


def _normal(z: float) -> float:
    return (1 + erf(z / sqrt(2))) / 2


def _late(step: Candidate, queues: Queues, deadline_ms: int | None, takes: Takes) -> bool:
    queue = queues.get(step.target.id)
    if queue is None:
        return False
    return _too_long(step.target, queue) or (deadline_ms is not None and _slow_ms(queue, *takes(step)) > deadline_ms)


def _slow_ms(queue: Queue, mean: float, p90: float) -> float:
    """Only one time in ten wait and answer take longer: each of n that end before it scatters by itself."""
    return queue.wait_ms + mean + hypot(p90 - mean, Z90 * queue.wait_ms / sqrt(queue.waiting + 1))


def _too_long(target: Target, queue: Queue) -> bool:
    """Beyond the timeout of the first byte nobody waits anyway."""
    most = target.timeouts.first if target.max_wait_ms is None else min(target.max_wait_ms, target.timeouts.first)
    return queue.full or queue.degraded or queue.wait_ms > most


def _sooner(steps: list[Candidate], takes: Takes) -> list[Candidate]:
    """The first gives way to one that is no dearer and would have answered before it begins; unless the policy says how
    long to wait for it."""
    if not steps or not steps[0].wait_ms or steps[0].target.max_wait_ms is not None:
        return steps
    first = steps[0]
    for at, other in enumerate(steps):
        if at and other.estimate.cost <= first.estimate.cost and other.wait_ms + takes(other)[0] < first.wait_ms:
            return [other, *steps[:at], *steps[at + 1 :]]
    return steps
