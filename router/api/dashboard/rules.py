"""The policy in force as tables: what serves, how it is chosen, what it may cost, where classes may go."""

from collections.abc import Iterable, Mapping

from router.budget.budget import Budget
from router.config import Config, Route
from router.decide.requirements import Requirements
from router.report.charts.units import dollars
from router.report.report import Column, Kind, Report, Row
from router.types.account import Unit
from router.types.stakes import Stakes
from router.types.target import Target

_ROUTES = ("route", "strategy", "targets", "at stake", "verifiers", "judge")
_TARGETS = ("target", "model", "effort", "provider", "where", "state")
_BUDGETS = ("budget", "limit", "window", "scope", "binds", "when used up")
_CLASSES = ("class", "demands")
_FILTERS = ("organisations", "teams", "keys", "routes", "tags", "targets")
HEALTHY = "healthy"


def tables(config: Config, health: Mapping[str, str]) -> tuple[Report, ...]:
    """Holds no key, no header and no URL."""
    return (
        _table("Routes", _ROUTES, map(_route, config.routes.values())),
        targets(config, health),
        _table("Budgets", _BUDGETS, map(_budget, config.budgets)),
        _table(
            f"Classes, least sensitive first; '{config.sensitivity.default}' binds whatever is sent",
            _CLASSES,
            ((name, _demands(row)) for name, row in config.sensitivity.classes.items()),
        ),
    )


def targets(config: Config, health: Mapping[str, str]) -> Report:
    return _table("Targets", _TARGETS, (_target(one, health) for one in config.targets.values()))


def _table(title: str, names: tuple[str, ...], rows: Iterable[Row]) -> Report:
    first, *others = names
    columns = (Column(first, Kind.LABEL), *map(Column, others))
    return Report(name=first, title=title, columns=columns, rows=tuple(rows))


def _route(route: Route) -> Row:
    judge = route.judge.target if route.judge else None
    verifiers = ", ".join(verifier.kind for verifier in route.verifiers)
    named = ", ".join(route.strategy.names())
    return route.name, route.strategy.kind.replace("_", " "), named, _stakes(route.stakes), verifiers, judge


def _target(target: Target, health: Mapping[str, str]) -> Row:
    place = "local" if target.local else target.region or target.provider.jurisdiction
    state = health.get(target.id, HEALTHY)
    return target.id, target.model.id, target.effort, target.provider.id, place or None, state


def _budget(budget: Budget) -> Row:
    limit = dollars(budget.limit) if budget.unit is Unit.USD else f"{budget.limit:,} thinking tokens"
    window = (
        budget.window if isinstance(budget.window, str) else f"rolling {budget.window.rolling}" if budget.window else ""
    )
    used_up = budget.exhausted if isinstance(budget.exhausted, str) else f"goes to {budget.exhausted.downgrade}"
    return budget.id, limit, window, budget.scope, _binds(budget), "alerts only" if budget.soft else used_up


def _binds(budget: Budget) -> str:
    filters = ((name.removesuffix("s"), getattr(budget, name)) for name in _FILTERS)
    return "; ".join(f"{name} {' or '.join(values)}" for name, values in filters if values) or "everything"


def _stakes(stakes: Stakes) -> str:
    told = [
        *([f"a failure costs {dollars(stakes.failure_nano)}"] if stakes.failure_nano is not None else []),
        *([f"pass rate at least {stakes.min_pass_rate:g}"] if stakes.min_pass_rate is not None else []),
        *([f"at most {dollars(stakes.max_nano)}"] if stakes.max_nano is not None else []),
        *([f"within {stakes.deadline_ms / 1000:g} s"] if stakes.deadline_ms is not None else []),
    ]
    return ", ".join(told)


def _demands(row: Requirements) -> str:
    given = row.model_dump(mode="json", exclude_defaults=True)
    return "; ".join(f"{name.replace('_', ' ')} {_said(value)}".strip() for name, value in given.items())


def _said(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_said(one)}".strip() for name, one in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else "" if value is True else str(value)
