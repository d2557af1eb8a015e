"""Eligible targets and their estimates → the order in which they are tried."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from typing_extensions import TypeIs

from router.decide.eligibility import Gate, must_redact, refusal
from router.decide.weigh import Exploration, Ranks, Situation, Takes, explore, hopeless, noted, overtaken, spilled
from router.types.decision import Candidate, Dropped, Estimate, Plan, Weighed
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
    eligible, dropped = sift(targets, gate)
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
    eligible, dropped = sift(targets, gate)
    if not eligible:
        return Plan(
            route=route, strategy=strategy.kind, steps=(), dropped=dropped, queued=noted(gate.queues, frozenset())
        )
    seen = situation(eligible)
    ranked, arm, likely = explore(strategy.rank(seen), seen, exploration.share, draw)
    steps = _candidates([eligible[at] for at in ranked.order[:MOST_STEPS]], gate, estimate)
    return Plan(
        route=route,
        strategy=strategy.kind,
        steps=steps,
        dropped=dropped,
        weighed=ranked.weighed,
        queued=noted(gate.queues, _late(ranked.weighed)),
        tactic=ranked.tactic,
        explored=arm,
        propensity=likely,
    )


def sift(targets: Iterable[Target], gate: Gate) -> tuple[tuple[Target, ...], tuple[Dropped, ...]]:
    """Who may and can serve, and why the others may not or can't."""
    eligible: list[Target] = []
    dropped: list[Dropped] = []
    for target in targets:
        reason = refusal(target, gate)
        if reason is None:
            eligible.append(target)
        else:
            dropped.append(reason)
    late = hopeless(eligible, gate.queues, gate.deadline_ms) if gate.queues else ()
    if late:
        return (), (*dropped, *late)
    return tuple(eligible), tuple(dropped)


def _late(weighed: Sequence[Weighed]) -> frozenset[str]:
    return frozenset([one.target for one in weighed if one.why in ("queued", "too_slow")])


def _candidates(targets: Sequence[Target], gate: Gate, estimate: Estimates) -> tuple[Candidate, ...]:
    redacts, queues = gate.redacted is not None, gate.queues
    return tuple(
        Candidate(
            target,
            estimate(target, gate.request),
            redacts and must_redact(target, gate),
            queues[target.id].wait_ms if target.id in queues else 0,
        )
        for target in targets
    )
