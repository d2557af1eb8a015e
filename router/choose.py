"""Steps 3 to 5, pure: policy, request, health of the targets → a decision. `lowpass explain` calls it too."""

from collections.abc import Mapping

from msgspec import Struct

from router.budget.budget import Budget, Charged
from router.classify.classify import Classifier
from router.config.config import Config, Route
from router.decide.eligible import Gate
from router.decide.health import Health
from router.decide.plan import plan
from router.decide.strategies import Pinned
from router.errors import ClientError
from router.estimate.estimate import estimate
from router.refusals import unknown_model
from router.types.plan import Decision
from router.types.request import Caller, Request
from router.types.target import Target


class Rules(Struct, frozen=True):
    """A config, indexed once for all its requests."""

    config: Config
    ranks: Mapping[str, int]
    classifier: Classifier
    routes: Mapping[str, tuple[Route, tuple[Target, ...]]]
    """By the `model` that a client sends: routes, and every target by its own id as a route that pins it."""


def index(config: Config) -> Rules:
    pins = {name: Route(name, Pinned(kind="pinned", target=name)) for name in config.targets}
    routes = {
        name: (route, tuple(config.targets[target] for target in route.strategy.names()))
        for name, route in (dict(config.routes) | pins).items()
    }
    sensitivity = config.sensitivity
    ranks = {name: rank for rank, name in enumerate(sensitivity.classes)}
    return Rules(config, ranks, Classifier(sensitivity.detectors, ranks, sensitivity.default), routes)


def choose(rules: Rules, request: Request, caller: Caller, health: Health, draw: float) -> tuple[Decision, Gate]:
    """Raises `ClientError` for names that the policy does not know or the key may not use."""
    config = rules.config
    route, targets = _route(rules, request.model, caller)
    _check_class(rules, request.limits.data_class)
    seen = rules.classifier.classify(request)
    requirements = config.sensitivity.classes[seen.data_class]
    gate = Gate(request, caller, seen, requirements, health.resting)
    chosen = plan(route.name, route.strategy, targets, gate, estimate, draw)
    return Decision(id=request.id, requested=request.model, policy=config.hash, classification=seen, plan=chosen), gate


def binding(rules: Rules, request: Request, caller: Caller, route: str) -> list[Budget]:
    """Every budget that this request must fit: those whose filters match, and those named by key and header."""
    budgets, named = rules.config.budgets, {caller.budget, request.limits.budget} - {""}
    unknown = named - {budget.id for budget in budgets}
    if unknown:
        message = f"There is no budget '{min(unknown)}'. Known: {', '.join(budget.id for budget in budgets)}."
        raise ClientError(400, "invalid_request_error", message, param="x-lowpass-budget")
    charged = Charged(
        request_id=request.id,
        route=route,
        caller=caller,
        session=request.limits.session,
        tags=(*caller.tags, *request.limits.tags),
        targets=(),
    )
    return [budget for budget in budgets if budget.id in named or budget.binds(charged)]


def _route(rules: Rules, model: str, caller: Caller) -> tuple[Route, tuple[Target, ...]]:
    found = rules.routes.get(model)
    if found is None or not may_name(rules, caller, model):
        raise unknown_model(model, [name for name in rules.routes if may_name(rules, caller, name)])
    return found


def may_name(rules: Rules, caller: Caller, name: str) -> bool:
    """Whether a key may send `name` as its model. Bound to routes it names those, to targets those."""
    if name in rules.config.routes:
        return not caller.routes or name in caller.routes
    return name in caller.targets or not (caller.targets or caller.routes)


def _check_class(rules: Rules, name: str) -> None:
    if name and name not in rules.ranks:
        message = f"Unknown data class '{name}'. The policy declares: {', '.join(rules.ranks)}."
        raise ClientError(400, "invalid_request_error", message, param="x-lowpass-data-class")
