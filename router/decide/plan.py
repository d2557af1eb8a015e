"""Eligible targets and their estimates → the order in which they are tried."""

from collections.abc import Callable, Sequence
from math import isfinite

from router.decide.eligibility import Gate, Reason, must_redact, sift
from router.decide.strategies import Ordering, Weighing
from router.decide.weigh import DecisionInput, Takes, explore, moved_back, noted, overflow
from router.types.decision import Candidate, Dropped, Estimate, FittedRequest, Foretold, Plan
from router.types.target import Target

_BEHIND = ("queued", "degraded", "too_slow")
MOST_STEPS = 4
"""Targets that are tried, of those that were weighed: a request that fails so often is not helped by one more."""


Estimates = Callable[..., Sequence[Estimate]]
"""Of targets; `forecast`: what they were chosen by, where that has a number; `fits`: see `Afford`."""
Afford = Callable[[Sequence[Target]], Sequence[FittedRequest | None]]
"""How each target is asked so that money and thinking tokens suffice; None: they can't. It is asked for only where
something limits them."""
_UNPAID: tuple[Reason, str] = "over_cost", "not even a short answer at its lowest effort is within what this may cost"


def plan(
    route: str,
    strategy: Ordering,
    targets: Sequence[Target],
    gate: Gate,
    estimate: Estimates,
    draw: float,
    takes: Takes,
    afford: Afford | None = None,
) -> Plan:
    """Pure: `draw`, uniform in [0, 1), is the only chance in it."""
    eligible, dropped = sift(targets, gate)
    fits = afford(eligible) if afford else ()
    if any(fits):
        dropped += tuple([Dropped(row.id, *_UNPAID) for row, made in zip(eligible, fits, strict=True) if made is None])
        eligible = tuple([row for row, made in zip(eligible, fits, strict=True) if made is not None])
        fits = [made for made in fits if made is not None]
    steps = strategy.order(_candidates(eligible, gate, estimate(eligible, fits=fits)), draw)
    if not gate.queues:
        return Plan(route=route, strategy=strategy.kind, steps=steps, dropped=dropped)
    after = overflow(steps, gate.queues, gate.deadline_ms, takes)
    queued = noted(gate.queues, moved_back(steps, after))
    return Plan(route=route, strategy=strategy.kind, steps=after, dropped=dropped, queued=queued)


def weighed_plan(
    route: str,
    strategy: Weighing,
    gate: Gate,
    whole: DecisionInput,
    dropped: tuple[Dropped, ...],
    fits: Sequence[FittedRequest | None],
    estimate: Estimates,
    share: float,
) -> Plan:
    """Pure. The tokens and holds of the steps alone are worked out: the forecast covers the others. `share`: of
    exploration."""
    eligible, expected = whole.targets, whole.forecast
    ranked, arm, likely = explore(strategy.rank(whole), whole, share, whole.draw)
    order = [at for at in ranked.order if fits[at] is not None] if any(fits) else list(ranked.order)
    del order[MOST_STEPS:]
    asked, sent_as = list(map(eligible.__getitem__, order)), list(map(fits.__getitem__, order)) if fits else ()
    foretold: list[Foretold | None] = []
    for at in order:  # what is shown of steps is what they were chosen by; None where that is no number
        cost, output, thinking = float(expected.cost[at]), float(expected.output[at]), float(expected.thinking[at])
        foretold.append((round(cost), round(output), round(thinking)) if isfinite(cost + output + thinking) else None)
    behind = [row.target for row in ranked.weigh() if row.why in _BEHIND] if gate.queues else ()
    return Plan(
        route=route,
        strategy=strategy.kind,
        steps=_candidates(asked, gate, estimate(asked, forecast=foretold, fits=sent_as)),
        dropped=dropped,
        weigh=ranked.weigh,
        queued=noted(gate.queues, behind) if gate.queues else (),
        tactic=ranked.tactic,
        explored=arm,
        propensity=likely,
        alike=round(sum(expected.alike.values())),
        alike_own=round(expected.alike.get(asked[0].id, 0.0)),
        outcomes=round(expected.outcomes),
    )


def _candidates(targets: Sequence[Target], gate: Gate, estimates: Sequence[Estimate]) -> tuple[Candidate, ...]:
    steps = []
    for target, estimate in zip(targets, estimates, strict=True):
        redacted = gate.redacted is not None and must_redact(target, gate)
        wait_ms = gate.queues[target.id].wait_ms if target.id in gate.queues else 0
        steps.append(Candidate(target, estimate, redacted, wait_ms))
    return tuple(steps)
