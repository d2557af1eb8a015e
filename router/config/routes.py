"""What a route says beside its strategy: nothing that it needs and lacks, nothing that can never take effect."""

from collections.abc import Iterable

from router.config.policy import Policy, RouteRow
from router.config.references import report_unknown
from router.config.source import Source
from router.decide.plan import weighs
from router.decide.strategies import Cascade, Plan
from router.outcomes.checks import mistakes

_FORECAST_ONLY = ("failure_cost_usd", "min_pass_rate", "exploration")
"""Keys that only strategies heed which go by forecasts."""


def check_outcomes(source: Source, policy: Policy, targets: Iterable[str]) -> None:
    """Verifiers and judges. `targets`: all that the file declares."""
    for name, row in policy.routes.items():
        loc, known = ("routes", name), tuple(targets)
        if row.judge is not None and row.judge.target not in known:
            report_unknown(source, (*loc, "judge", "target"), "target", row.judge.target, known)
        for mistake in mistakes(row.verifiers, row.judge, row.strategy.names()):
            source.report(source.node((*loc, *mistake.at)), mistake.what, mistake.remedy)
        if isinstance(row.strategy, Cascade) and not row.verifiers and (*loc, "verifiers") not in source.dropped:
            what = "a cascade without verifiers would never know when to ask its second target"
            source.report(source.node((*loc, "strategy", "kind")), what, "add verifiers to the route")


def check_stakes(source: Source, policy: Policy) -> None:
    for name, row in policy.routes.items():
        if weighs(row.strategy):
            _check_weighing(source, name, row)
        else:
            _check_idle(source, name, row)


def _check_weighing(source: Source, name: str, row: RouteRow) -> None:
    strategy, loc = row.strategy, ("routes", name, "strategy", "kind")
    if isinstance(strategy, Plan):
        if _absent(source, name, row, ("max_cost_usd", "deadline_ms")) and strategy.session is None:
            what = "a plan needs something to keep within"
            source.report(source.node(loc), what, "add max_cost_usd, deadline_ms or session to the route")
    elif _absent(source, name, row, ("failure_cost_usd", "min_pass_rate")):
        what = f"{strategy.kind} alone would reward cheap wrong answers"
        remedy = "add failure_cost_usd (USD that a wrong answer costs) or min_pass_rate to the route"
        source.report(source.node(loc), what, remedy)


def _absent(source: Source, name: str, row: RouteRow, keys: tuple[str, ...]) -> bool:
    """None of them is there, not even as a mistake."""
    return all(getattr(row, key) is None and ("routes", name, key) not in source.dropped for key in keys)


def _check_idle(source: Source, name: str, row: RouteRow) -> None:
    for key in _FORECAST_ONLY:
        if key in row.model_fields_set:
            what = f"{row.strategy.kind} does not go by forecasts: {key} would never take effect"
            remedy = "remove it, or use cost_of_pass, cascade, self_consistency or plan"
            source.report(source.key(("routes", name, key)), what, remedy)
