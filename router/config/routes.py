"""What a route says beside its strategy: nothing that it needs and lacks, nothing that can never take effect."""

from router.config.policy import Policy, RouteRow
from router.config.source import Source
from router.decide.plan import weighs
from router.decide.strategies import Plan

_FORECAST_ONLY = ("failure_cost_usd", "min_pass_rate", "exploration")
"""Keys that only strategies heed which go by forecasts."""


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
