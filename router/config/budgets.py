"""What the keys of a budget mean together: one limit, a window that can be, nothing that can never take effect."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from router.budget.budget import Budget, Downgrade, FailOpenWithin, Rolling
from router.config.policy import Policy
from router.config.references import check_twice, report_unknown
from router.config.source import Loc, Source
from router.types.account import Unit

_OURS = ("key.limit", "key.rpm", "key.tpm", "key.parallel", "loops.session_usd")
_FILTERS = ("organisations", "teams", "keys", "routes", "tags", "targets")


def check_budgets(source: Source, policy: Policy, routes: Sequence[str], targets: Sequence[str]) -> None:
    """`routes` and `targets` are all that the file declares, those with mistakes included."""
    ids = [budget.id for budget in policy.budgets]
    serves = {name: row.strategy.names() for name, row in policy.routes.items()}
    for index, budget in enumerate(policy.budgets):
        at: Loc = ("budgets", index)
        if budget.id in _OURS:
            what = f"'{budget.id}' is what lowpass calls limits of keys and sessions"
            source.report(source.node((*at, "id")), what, "give the budget another id")
        if budget.id in ids[:index]:
            what = f"two budgets have the id '{source.text((*at, 'id'))}'"
            source.report(source.node((*at, "id")), what, "rename one of the two")
        _check_limit(source, at, budget)
        _check_lists(source, at, budget)
        _check_names(source, at, budget, routes, targets)
        for key, what, remedy in _without_effect(budget, serves):
            source.report(source.key((*at, key)), what, remedy)
    if not any(loc[0] in ("budgets", "routes") for loc in source.dropped):
        _check_circles(source, policy.budgets, routes)


def _check_limit(source: Source, at: Loc, budget: Budget) -> None:
    limits = [key for key in ("limit_usd", "limit_thinking_tokens") if getattr(budget, key) is not None]
    if len(limits) == 2:
        what = "a budget counts USD or thinking tokens, not both"
        source.report(source.key((*at, "limit_thinking_tokens")), what, "make two budgets of it")
    elif not limits and not any(loc[:2] == at and str(loc[2]).startswith("limit") for loc in source.dropped if loc[2:]):
        what = f"the budget '{source.text((*at, 'id'))}' has no limit"
        source.report(source.node(at), what, "add limit_usd: … or limit_thinking_tokens: …")


def _check_lists(source: Source, at: Loc, budget: Budget) -> None:
    for key in _FILTERS:
        if source.walk((*at, key))[0] == (*at, key) and not getattr(budget, key):
            what = f"an empty list of {key} binds nothing"
            source.report(source.node((*at, key)), what, f"remove {key} to bind all, or name some")
        check_twice(source, (*at, key), key.removesuffix("s"), getattr(budget, key))
    if len(set(budget.alerts)) < len(budget.alerts):
        source.report(source.node((*at, "alerts")), "a share is listed twice", "list it once")


def _check_names(source: Source, at: Loc, budget: Budget, routes: Sequence[str], targets: Sequence[str]) -> None:
    for name in budget.routes:
        if name not in routes:
            report_unknown(source, (*at, "routes"), "route", name, routes)
    for name in budget.targets:
        if name not in targets:
            report_unknown(source, (*at, "targets"), "target", name, targets)
    if isinstance(budget.exhausted, Downgrade) and budget.exhausted.downgrade not in routes:
        report_unknown(source, (*at, "exhausted", "downgrade"), "route", budget.exhausted.downgrade, routes)


Found = tuple[str, str, str]
"""The key at fault, what is wrong, the remedy."""


def _without_effect(budget: Budget, serves: Mapping[str, Sequence[str]]) -> Iterator[Found]:
    """Keys that the other keys of the budget leave nothing to do."""
    yield from _idle_window(budget)
    if budget.scope == "request":
        yield from _idle_in_each_request(budget)
    if budget.soft:
        yield from _idle_when_soft(budget)
    if isinstance(budget.outage, FailOpenWithin):
        yield from _wrong_lease(budget, budget.outage)
    if budget.webhook is not None and not budget.alerts:
        yield "webhook", "a webhook without alerts is never called", "add alerts: [0.8, 1], or remove webhook"
    yield from _unreachable(budget, serves)


def _idle_window(budget: Budget) -> Iterator[Found]:
    rolls = isinstance(budget.window, Rolling)
    if "timezone" in budget.model_fields_set and (rolls or budget.window_name in ("lifetime", "request")):
        yield (
            "timezone",
            f"a {budget.window_name} window has no time zone",
            "remove timezone, or choose a calendar window",
        )


def _idle_in_each_request(budget: Budget) -> Iterator[Found]:
    if budget.window is not None:
        yield "window", "a budget of each request has no window", "remove window, or choose another scope"
    if budget.alerts:
        yield "alerts", "a budget of each request never fills up", "remove alerts, or choose another scope"
    if budget.soft:
        yield "soft", "a soft limit of each request limits nothing", "remove soft"
    if budget.outage != "fail_closed":
        yield "outage", "a budget of each request is kept in no store", "remove outage"


def _idle_when_soft(budget: Budget) -> Iterator[Found]:
    if budget.exhausted != "refuse":
        yield "exhausted", "a soft budget sends no request elsewhere", "remove exhausted, or remove soft"
    if budget.outage != "fail_closed":
        yield "outage", "a soft budget refuses nothing during an outage either", "remove outage, or remove soft"


def _wrong_lease(budget: Budget, lease: FailOpenWithin) -> Iterator[Found]:
    if budget.unit is not Unit.USD:
        yield "outage", "fail_open_within_usd in a budget of thinking tokens", "write fail_closed, or limit_usd"
    elif budget.limit_usd is not None and lease.fail_open_within_usd > budget.limit_usd:
        yield "outage", "fail_open_within_usd is more than the whole budget", "lower it, or raise limit_usd"


def _unreachable(budget: Budget, serves: Mapping[str, Sequence[str]]) -> Iterator[Found]:
    """A client may pin any target, but then names no route."""
    reached = [target for route in budget.routes for target in serves.get(route, budget.targets)]
    if budget.routes and budget.targets and not set(budget.targets) & set(reached):
        routes = " or ".join(budget.routes)
        yield (
            "targets",
            f"route {routes} has none of these targets: it binds nothing",
            "name some of the route's targets",
        )


def _check_circles(source: Source, budgets: Sequence[Budget], routes: Iterable[str]) -> None:
    """A request that fits nowhere must not be sent around for ever."""
    ways = [(index, *way) for index, budget in enumerate(budgets) for way in _ways(budget, routes)]
    for index, origin, goal in ways:
        if origin in _reachable(goal, [(start, end) for _, start, end in ways]):
            what = f"requests that it sends from route '{origin}' to '{goal}' would be sent back"
            remedy = f"let no budget that binds '{goal}' downgrade to where it leads back"
            source.report(source.node(("budgets", index, "exhausted", "downgrade")), what, remedy)


def _ways(budget: Budget, routes: Iterable[str]) -> list[tuple[str, str]]:
    """From each route that it binds to the one that it downgrades to."""
    if not isinstance(budget.exhausted, Downgrade):
        return []
    goal, bound = budget.exhausted.downgrade, budget.routes or routes
    return [(origin, goal) for origin in bound if origin != goal or budget.routes == (goal,)]


def _reachable(origin: str, ways: Sequence[tuple[str, str]]) -> set[str]:
    found, ahead = {origin}, [origin]
    while ahead:
        here = ahead.pop()
        onward = {end for start, end in ways if start == here} - found
        found |= onward
        ahead.extend(onward)
    return found
