"""Eligible targets and their estimates → the order in which they are tried."""

from collections.abc import Callable, Iterable
from typing import Protocol

from router.decide.eligible import Gate, must_redact, refusal
from router.types.plan import Candidate, Dropped, Estimate, Plan
from router.types.request import Request
from router.types.target import Target


class Orders(Protocol):
    """What every strategy offers."""

    @property
    def kind(self) -> str: ...

    def order(self, candidates: tuple[Candidate, ...], draw: float) -> tuple[Candidate, ...]: ...


def plan(
    route: str,
    strategy: Orders,
    targets: Iterable[Target],
    gate: Gate,
    estimate: Callable[[Target, Request], Estimate],
    draw: float,
) -> Plan:
    """Pure: `draw`, uniform in [0, 1), is the only chance in it."""
    candidates: list[Candidate] = []
    dropped: list[Dropped] = []
    for target in targets:
        reason = refusal(target, gate)
        if reason is None:
            redacted = gate.redacted is not None and must_redact(target, gate)
            candidates.append(Candidate(target, estimate(target, gate.request), redacted))
        else:
            dropped.append(reason)
    steps = strategy.order(tuple(candidates), draw)
    return Plan(route=route, strategy=strategy.kind, steps=steps, dropped=tuple(dropped))
