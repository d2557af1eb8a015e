"""Eligible targets and their estimates → the order in which they are tried."""

from collections.abc import Callable, Sequence
from math import isfinite

from router.decide.eligibility import Gate, must_redact, sift
from router.decide.strategies import Ordering, Weighing
from router.decide.weigh import (
    DecisionInput,
    Exploration,
    Takes,
    cannot_meet_deadline,
    explore,
    moved_back,
    noted,
    overflow,
)
from router.types.decision import Candidate, Dropped, Estimate, Forecast, Foretold, Plan
from router.types.target import Target

MOST_STEPS = 4
"""Targets that are tried, of those that were weighed: a request that fails so often is not helped by one more."""


Estimates = Callable[..., Sequence[Estimate]]
"""Of targets; `forecast`: what they were chosen by, where that has a number."""


def plan(
    route: str,
    strategy: Ordering,
    targets: Sequence[Target],
    gate: Gate,
    estimate: Estimates,
    draw: float,
    takes: Takes,
) -> Plan:
    """Pure: `draw`, uniform in [0, 1), is the only chance in it."""
    eligible, dropped = _in_time(targets, gate) if gate.queues else sift(targets, gate)
    steps = strategy.order(_candidates(eligible, gate, estimate(eligible)), draw)
    if not gate.queues:
        return Plan(route=route, strategy=strategy.kind, steps=steps, dropped=dropped)
    after = overflow(steps, gate.queues, gate.deadline_ms, takes)
    queued = noted(gate.queues, moved_back(steps, after))
    return Plan(route=route, strategy=strategy.kind, steps=after, dropped=dropped, queued=queued)


def weighed_plan(
    route: str,
    strategy: Weighing,
    targets: Sequence[Target],
    gate: Gate,
    estimate: Estimates,
    forecast: Callable[[Sequence[Target]], Forecast],
    situation: Callable[..., DecisionInput],
    exploration: Exploration,
) -> Plan:
    """Pure. `situation`: what it is decided by, but for what follows from the other arguments. The tokens and holds of
    the steps alone are worked out: the forecast covers the others."""
    eligible, dropped = _in_time(targets, gate) if gate.queues else sift(targets, gate)
    if not eligible:
        return Plan(
            route=route, strategy=strategy.kind, steps=(), dropped=dropped, queued=noted(gate.queues, frozenset())
        )
    about, expected = gate.classification, forecast(eligible)
    whole = situation(
        targets=eligible, forecast=expected, queues=gate.queues, classification=about, stream=gate.request.stream
    )
    ranked, arm, likely = explore(strategy.rank(whole), whole, exploration.share, whole.draw)
    order, alike = ranked.order[:MOST_STEPS], expected.alike
    asked = [eligible[at] for at in order]
    steps = _candidates(asked, gate, estimate(asked, forecast=_foretold(expected, order)))
    return Plan(
        route=route,
        strategy=strategy.kind,
        steps=steps,
        dropped=dropped,
        weigh=ranked.weigh,
        queued=noted(
            gate.queues, frozenset([row.target for row in ranked.weigh() if row.why in ("queued", "too_slow")])
        )
        if gate.queues
        else (),
        tactic=ranked.tactic,
        explored=arm,
        propensity=likely,
        alike=round(sum(alike.values())),
        alike_own=round(alike.get(asked[0].id, 0.0)),
        outcomes=round(float(expected.outcomes.sum())),
    )


def _in_time(targets: Sequence[Target], gate: Gate) -> tuple[tuple[Target, ...], tuple[Dropped, ...]]:
    """Targets that may and can serve, in spite of queues before the deadline, and why the others may not or can't."""
    eligible, dropped = sift(targets, gate)
    late = cannot_meet_deadline(eligible, gate.queues, gate.deadline_ms)
    return ((), (*dropped, *late)) if late else (eligible, dropped)


def _foretold(forecast: Forecast, order: Sequence[int]) -> list[Foretold | None]:
    """What is shown of steps is what they were chosen by; None where that is no number."""
    columns = forecast.cost.tolist(), forecast.output.tolist(), forecast.thinking.tolist()
    rows: list[Foretold | None] = []
    for at in order:
        cost, output, thinking = columns[0][at], columns[1][at], columns[2][at]
        known = isfinite(cost + output + thinking)
        rows.append((round(cost), round(output), round(thinking)) if known else None)
    return rows


def _candidates(targets: Sequence[Target], gate: Gate, estimates: Sequence[Estimate]) -> tuple[Candidate, ...]:
    steps = []
    for target, estimate in zip(targets, estimates, strict=True):
        redacted = gate.redacted is not None and must_redact(target, gate)
        wait_ms = gate.queues[target.id].wait_ms if target.id in gate.queues else 0
        steps.append(Candidate(target, estimate, redacted, wait_ms))
    return tuple(steps)
