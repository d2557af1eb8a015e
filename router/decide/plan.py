"""Eligible targets and their estimates → the order in which they are tried."""

from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from typing import Protocol

import numpy as np
from msgspec import structs
from typing_extensions import TypeIs

from router.decide.eligibility import Gate, must_redact, sift
from router.decide.weigh import Exploration, Ranks, Situation, Takes, explore, hopeless, noted, overtaken, spilled
from router.types.decision import Candidate, Dropped, Estimate, Forecast, Plan
from router.types.request import Request
from router.types.target import Target

MOST_STEPS = 4
"""Targets that are tried, of those that were weighed: a request that fails so often is not helped by one more."""
Estimates = Callable[[Target, Request], Estimate]
Situations = Callable[[tuple[Target, ...]], Situation]


class Orders(Protocol):
    """What every strategy offers."""

    @property
    def kind(self) -> str: ...

    def order(self, candidates: tuple[Candidate, ...], draw: float) -> tuple[Candidate, ...]: ...


def weighs(strategy: Orders | Ranks) -> TypeIs[Ranks]:
    """It goes by forecasts."""
    return hasattr(strategy, "rank")


def plan(
    route: str,
    strategy: Orders,
    targets: Iterable[Target],
    gate: Gate,
    estimate: Estimates,
    draw: float,
    takes: Takes,
) -> Plan:
    """Pure: `draw`, uniform in [0, 1), is the only chance in it."""
    eligible, dropped = _in_time(targets, gate)
    steps = strategy.order(_candidates(eligible, gate, estimate), draw)
    if not gate.queues:
        return Plan(route=route, strategy=strategy.kind, steps=steps, dropped=dropped)
    after = spilled(steps, gate.queues, gate.deadline_ms, takes)
    queued = noted(gate.queues, overtaken(steps, after))
    return Plan(route=route, strategy=strategy.kind, steps=after, dropped=dropped, queued=queued)


def weighed_plan(
    route: str,
    strategy: Ranks,
    targets: Iterable[Target],
    gate: Gate,
    estimate: Estimates,
    situation: Situations,
    exploration: Exploration,
    draw: float,
) -> Plan:
    """Pure. The tokens and holds of the steps alone are worked out: the forecast covers the others."""
    eligible, dropped = _in_time(targets, gate)
    if not eligible:
        return Plan(
            route=route, strategy=strategy.kind, steps=(), dropped=dropped, queued=noted(gate.queues, frozenset())
        )
    seen = situation(eligible)
    ranked, arm, likely = explore(strategy.rank(seen), seen, exploration.share, draw, strategy.caution)
    order = ranked.order[:MOST_STEPS]
    steps = _as_forecast(_candidates([eligible[at] for at in order], gate, estimate), order, seen.forecast)
    return Plan(
        route=route,
        strategy=strategy.kind,
        steps=steps,
        dropped=dropped,
        weighed=ranked.weighed,
        queued=noted(
            gate.queues, frozenset([row.target for row in ranked.weighed if row.why in ("queued", "too_slow")])
        )
        if gate.queues
        else (),
        tactic=ranked.tactic,
        explored=arm,
        propensity=likely,
    )


def _in_time(targets: Iterable[Target], gate: Gate) -> tuple[tuple[Target, ...], tuple[Dropped, ...]]:
    """Targets that may and can serve before the deadline, and why the others may not or can't."""
    eligible, dropped = sift(targets, gate)
    late = hopeless(eligible, gate.queues, gate.deadline_ms) if gate.queues else ()
    return ((), (*dropped, *late)) if late else (tuple(eligible), tuple(dropped))


def _as_forecast(steps: Sequence[Candidate], order: Sequence[int], forecast: Forecast) -> tuple[Candidate, ...]:
    """What is shown of steps is what they were chosen by; what has no number there stays as it was estimated."""
    rows = np.stack([forecast.cost, forecast.output, forecast.thinking])[:, order].T.tolist()
    shown = list(steps)
    for at, (step, row) in enumerate(zip(steps, rows, strict=True)):
        if isfinite(sum(row)):
            cost, output, thinking = map(round, row)
            known = structs.replace(step.estimate, cost=cost, output_tokens=output, thinking_tokens=thinking)
            shown[at] = structs.replace(step, estimate=known)
    return tuple(shown)


def _candidates(targets: Sequence[Target], gate: Gate, estimate: Estimates) -> tuple[Candidate, ...]:
    steps = []
    for target in targets:
        redacted = gate.redacted is not None and must_redact(target, gate)
        wait_ms = gate.queues[target.id].wait_ms if target.id in gate.queues else 0
        steps.append(Candidate(target, estimate(target, gate.request), redacted, wait_ms))
    return tuple(steps)
