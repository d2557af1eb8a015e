"""Loads policies and checks them beyond their schema; all errors are reported at once."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from operator import attrgetter
from pathlib import Path

from msgspec import structs

from router.budget.budget import Budget, Downgrade, FailOpenWithin, RollingWindow, SessionLimit
from router.classify.second_opinion import SecondOpinion
from router.classify.sensitivity.patterns import Keywords, Patterns
from router.config.policy import Catalog, Config, Policy, Route, RouteRow, Sensitivity
from router.config.sensitivity import Found, check_sensitivity, check_served
from router.config.targets import TargetBuilder
from router.decide.strategies import CascadeStrategy, PlanStrategy, Weighing
from router.errors import ConfigError
from router.outcomes.checks import mistakes
from router.types.account import SESSION_TURNS, Unit
from router.types.price import SERVED, Price
from router.types.request import KeyTerms
from router.types.target import ServedEngine, Target
from router.types.yaml_file import Loc, Problem, YamlFile, construct, in_order, pairs, parse, read_bytes
from router.types.yaml_model import read_model

# Second opinions: at most one detector gives them, from a local target, and only if another one asks for them.

_DETECTORS_AT: Loc = ("sensitivity", "detectors")


def check_opinion(source: YamlFile, sensitivity: Sensitivity, names: Sequence[str]) -> None:
    """Checks the detectors' second opinions. `names`: all targets that the file declares, also those with mistakes."""
    asking = tuple(_asking(sensitivity))
    for index, second in asking:
        if names and second.target not in names:
            source.report_unknown((*_DETECTORS_AT, index, "target"), "target", second.target, names)
    for index, _ in asking[1:]:
        source.report((*_DETECTORS_AT, index), "a second local_llm: there is no third opinion", "keep one of them")
    if asking or any(loc[:2] == _DETECTORS_AT for loc in source.dropped):
        return
    for index, detector in enumerate(sensitivity.detectors):
        if isinstance(detector, Keywords | Patterns) and detector.ask is not None:
            problem = "there is no model to ask: what it finds would never count"
            remedy = "add {kind: local_llm, target: a local one} to the detectors, or remove ask"
            source.report(source.key((*_DETECTORS_AT, index, "ask")), problem, remedy)


def check_asked(source: YamlFile, sensitivity: Sensitivity, targets: Mapping[str, Target]) -> None:
    """Checks that second opinions come from local targets. `targets`: those that could be built."""
    for index, second in _asking(sensitivity):
        target = targets.get(second.target)
        if target is not None and not target.provider.local:
            problem = f"target {target.id} is not local: a second opinion never leaves this machine"
            local = ", ".join(name for name, other in targets.items() if other.provider.local)
            remedy = f"name a local one: {local}" if local else "add a local target and name it"
            source.report((*_DETECTORS_AT, index, "target"), problem, remedy)


def _asking(sensitivity: Sensitivity) -> Iterator[tuple[int, SecondOpinion]]:
    for index, detector in enumerate(sensitivity.detectors):
        if isinstance(detector, SecondOpinion):
            yield index, detector


# What a route states besides its strategy: nothing may be missing, nothing without effect.

_FORECAST_ONLY = ("failure_cost_usd", "min_pass_rate", "exploration")
"""Keys that only strategies based on forecasts use."""


def check_outcomes(source: YamlFile, policy: Policy, targets: Iterable[str]) -> None:
    """Checks verifiers and judges. `targets`: all that the file declares."""
    for name, row in policy.routes.items():
        loc, known = ("routes", name), tuple(targets)
        if row.judge is not None and row.judge.target not in known:
            source.report_unknown((*loc, "judge", "target"), "target", row.judge.target, known)
        for mistake in mistakes(row.verifiers, row.judge, row.strategy.names()):
            source.report((*loc, *mistake.path), mistake.problem, mistake.remedy)
        if (
            isinstance(row.strategy, CascadeStrategy)
            and not row.verifiers
            and (*loc, "verifiers") not in source.dropped
        ):
            problem = "a cascade without verifiers would never know when to ask its second target"
            source.report((*loc, "strategy", "kind"), problem, "add verifiers to the route")


def check_stakes(source: YamlFile, policy: Policy) -> None:
    for name, row in policy.routes.items():
        if isinstance(row.strategy, Weighing):
            _check_weighing(source, name, row)
            continue
        for key in _FORECAST_ONLY:
            if key in row.model_fields_set:
                problem = f"{row.strategy.kind} does not go by forecasts: {key} would never take effect"
                remedy = "remove it, or use cost_of_pass, cascade, self_consistency or plan"
                source.report(source.key(("routes", name, key)), problem, remedy)


def _check_weighing(source: YamlFile, name: str, row: RouteRow) -> None:
    strategy, loc = row.strategy, ("routes", name, "strategy", "kind")
    if isinstance(strategy, PlanStrategy):
        if _absent(source, name, row, ("max_cost_usd", "deadline_ms")) and strategy.session is None:
            problem = "a plan needs something to keep within"
            source.report(loc, problem, "add max_cost_usd, deadline_ms or session to the route")
    elif _absent(source, name, row, ("failure_cost_usd", "min_pass_rate")):
        problem = f"{strategy.kind} alone would reward cheap wrong answers"
        source.report(
            loc, problem, "add failure_cost_usd (USD that a wrong answer costs) or min_pass_rate to the route"
        )


def _absent(source: YamlFile, name: str, row: RouteRow, keys: tuple[str, ...]) -> bool:
    """Returns whether none of the keys is stated, not even with a mistake."""
    return all(getattr(row, key) is None and ("routes", name, key) not in source.dropped for key in keys)


# The keys of a budget together: one limit, a possible window, nothing without effect.

_RESERVED_IDS = ("key.limit", "key.rpm", "key.tpm", "key.parallel", "loops.session_usd", SESSION_TURNS)
_FILTERS = ("organisations", "teams", "keys", "routes", "tags", "targets")


def check_budgets(source: YamlFile, policy: Policy, routes: Sequence[str], targets: Sequence[str]) -> None:
    """Checks the budgets. `routes`, `targets`: all that the file declares, also those with mistakes."""
    ids = [budget.id for budget in policy.budgets]
    serves = {name: row.strategy.names() for name, row in policy.routes.items()}
    for index, budget in enumerate(policy.budgets):
        at: Loc = ("budgets", index)
        if budget.id in _RESERVED_IDS:
            problem = f"'{budget.id}' is what lowpass calls limits of keys and sessions"
            source.report((*at, "id"), problem, "give the budget another id")
        if budget.id in ids[:index]:
            source.report((*at, "id"), f"two budgets have the id '{source.text((*at, 'id'))}'", "rename one of the two")
        limits = [key for key in ("limit_usd", "limit_thinking_tokens") if getattr(budget, key) is not None]
        dropped = [loc for loc in source.dropped if loc[:2] == at and loc[2:] and str(loc[2]).startswith("limit")]
        if len(limits) == 2:
            problem = "a budget counts USD or thinking tokens, not both"
            source.report(source.key((*at, "limit_thinking_tokens")), problem, "make two budgets of it")
        elif not limits and not dropped:
            problem = f"the budget '{source.text((*at, 'id'))}' has no limit"
            source.report(at, problem, "add limit_usd: … or limit_thinking_tokens: …")
        for key in _FILTERS:
            if source.walk((*at, key))[0] == (*at, key) and not getattr(budget, key):
                problem = f"an empty list of {key} binds nothing"
                source.report((*at, key), problem, f"remove {key} to bind all, or name some")
            source.report_twice((*at, key), key.removesuffix("s"), getattr(budget, key))
        if len(set(budget.alerts)) < len(budget.alerts):
            source.report((*at, "alerts"), "a share is listed twice", "list it once")
        _check_names(source, at, budget, routes, targets)
        for key, problem, remedy in _without_effect(budget, serves):
            source.report(source.key((*at, key)), problem, remedy)
    if not any(loc[0] in ("budgets", "routes") for loc in source.dropped):
        _check_downgrade_cycles(source, policy.budgets, routes)


def _check_names(source: YamlFile, at: Loc, budget: Budget, routes: Sequence[str], targets: Sequence[str]) -> None:
    for name in budget.routes:
        if name not in routes:
            source.report_unknown((*at, "routes"), "route", name, routes)
    for name in budget.targets:
        if name not in targets:
            source.report_unknown((*at, "targets"), "target", name, targets)
    if isinstance(budget.exhausted, Downgrade) and budget.exhausted.downgrade not in routes:
        source.report_unknown((*at, "exhausted", "downgrade"), "route", budget.exhausted.downgrade, routes)


def _without_effect(budget: Budget, serves: Mapping[str, Sequence[str]]) -> Iterator[Found]:
    """Yields keys that can have no effect because of the budget's other keys."""
    rolls = isinstance(budget.window, RollingWindow)
    if "timezone" in budget.model_fields_set and (rolls or budget.window_name in ("lifetime", "request")):
        problem = f"a {budget.window_name} window has no time zone"
        yield "timezone", problem, "remove timezone, or choose a calendar window"
    if budget.scope == "request":
        yield from _idle_in_each_request(budget)
    if budget.soft and budget.exhausted != "refuse":
        yield "exhausted", "a soft budget sends no request elsewhere", "remove exhausted, or remove soft"
    if budget.soft and budget.outage != "fail_closed":
        yield "outage", "a soft budget refuses nothing during an outage either", "remove outage, or remove soft"
    lease = budget.outage.fail_open_within_usd if isinstance(budget.outage, FailOpenWithin) else None
    if lease is not None and budget.unit is not Unit.USD:
        yield "outage", "fail_open_within_usd in a budget of thinking tokens", "write fail_closed, or limit_usd"
    elif lease is not None and budget.limit_usd is not None and lease > budget.limit_usd:
        yield "outage", "fail_open_within_usd is more than the whole budget", "lower it, or raise limit_usd"
    if budget.webhook is not None and not budget.alerts:
        yield "webhook", "a webhook without alerts is never called", "add alerts: [0.8, 1], or remove webhook"
    # Requests that pin a target name no route, so this budget does not bind them.
    reached = {target for route in budget.routes for target in serves.get(route, budget.targets)}
    if budget.routes and budget.targets and reached.isdisjoint(budget.targets):
        problem = f"route {' or '.join(budget.routes)} has none of these targets: it binds nothing"
        yield "targets", problem, "name some of the route's targets"


def _idle_in_each_request(budget: Budget) -> Iterator[Found]:
    if budget.window is not None:
        yield "window", "a budget of each request has no window", "remove window, or choose another scope"
    if budget.alerts:
        yield "alerts", "a budget of each request never fills up", "remove alerts, or choose another scope"
    if budget.soft:
        yield "soft", "a soft limit of each request limits nothing", "remove soft"
    if budget.outage != "fail_closed":
        yield "outage", "a budget of each request is kept in no store", "remove outage"


def _check_downgrade_cycles(source: YamlFile, budgets: Sequence[Budget], routes: Iterable[str]) -> None:
    """Reports downgrades that could send a request from route to route in a circle."""
    # (index of the budget, route that it binds, route that it downgrades to)
    downgrades = []
    for index, budget in enumerate(budgets):
        if isinstance(budget.exhausted, Downgrade):
            goal, bound = budget.exhausted.downgrade, budget.routes or routes
            downgrades += [(index, origin, goal) for origin in bound if origin != goal or set(bound) == {goal}]
    for index, origin, goal in downgrades:
        if origin in _reachable(goal, [(start, end) for _, start, end in downgrades]):
            problem = f"requests that it sends from route '{origin}' to '{goal}' would be sent back"
            remedy = f"let no budget that binds '{goal}' downgrade to where it leads back"
            source.report(("budgets", index, "exhausted", "downgrade"), problem, remedy)


def _reachable(origin: str, edges: Sequence[tuple[str, str]]) -> set[str]:
    reached, pending = {origin}, [origin]
    while pending:
        current = pending.pop()
        new = {end for start, end in edges if start == current} - reached
        reached |= new
        pending.extend(new)
    return reached


# The names that a policy refers to: nothing unknown, nothing without effect.


class DeclaredNames:
    """All names in the file, those with mistakes included: a mistake in a target must not make its routes wrong."""

    def __init__(self, source: YamlFile) -> None:
        self.targets = _keys(source, ("targets",))
        self.routes = _keys(source, ("routes",))
        self.classes = _keys(source, ("sensitivity", "classes")) or ("internal",)
        self.sections = _keys(source, ())


def _keys(source: YamlFile, loc: Loc) -> tuple[str, ...]:
    trail, node = source.walk(loc)
    return tuple(key.value for key, _ in pairs(node)) if trail == loc else ()


def check_meaning(source: YamlFile, policy: Policy, catalog: Catalog, names: DeclaredNames) -> None:
    _check_sections(source, names)
    for name in sorted(set(names.targets) & set(names.routes)):
        problem = f"'{name}' is both a route and a target: a request could mean either"
        source.report(source.key(("routes", name)), problem, "rename one of the two")
    _check_routes(source, policy, names)
    _check_aliases(source, policy, names)
    check_stakes(source, policy)
    check_outcomes(source, policy, names.targets)
    check_sensitivity(source, policy, catalog, names.classes)
    check_opinion(source, policy.sensitivity, names.targets)
    check_budgets(source, policy, names.routes, names.targets)


def _check_sections(source: YamlFile, names: DeclaredNames) -> None:
    if "version" not in names.sections:
        source.report(source.root, "the key 'version' is missing", "add version: 1 as the first line")
    for section, example in (
        ("targets", "local: {model: local/smollm2-135m-instruct, engine: smollm2}"),
        ("routes", "auto: {strategy: {kind: cheapest, targets: [local]}}"),
    ):
        if not getattr(names, section) and (section,) not in source.dropped:
            source.report(source.key((section,)), f"the policy has no {section}", f"add {section}: {{{example}}}")


def _check_routes(source: YamlFile, policy: Policy, names: DeclaredNames) -> None:
    for route, row in policy.routes.items():
        loc = ("routes", route, "strategy")
        wanted = row.strategy.names()
        for name in dict.fromkeys(wanted):
            if names.targets and name not in names.targets:
                source.report_unknown(loc, "target", name, names.targets)
        source.report_twice(loc, "target", wanted)


def _check_aliases(source: YamlFile, policy: Policy, names: DeclaredNames) -> None:
    known = (*names.routes, *names.targets)
    for alias, name in policy.aliases.items():
        if known and name not in known:
            source.report_unknown(("aliases", alias), "route", name, known)
        if alias in known:
            problem = f"'{alias}' is the name of a route or target: the alias would never be used"
            source.report(source.key(("aliases", alias)), problem, "leave it out")


# Policy file → Config, or every problem at once.


def load(path: Path, catalog: Catalog, environ: Mapping[str, str], engines: Mapping[str, ServedEngine]) -> Config:
    """Returns the config of a valid policy file; raises `ConfigError` with all problems in the order of the file.

    `engines`: those that targets may name.
    """
    source = YamlFile(str(path), environ=environ)
    return _sound(_examine(read_bytes(path, source), source, catalog, engines), source)


def load_text(
    name: str, data: bytes, catalog: Catalog, environ: Mapping[str, str], engines: Mapping[str, ServedEngine]
) -> Config:
    """Returns the config of a policy that is not in a file; problems name `name` as its file. Raises as `load`."""
    source = YamlFile(name, environ=environ)
    return _sound(_examine(data, source, catalog, engines), source)


def problems(
    path: Path, catalog: Catalog, environ: Mapping[str, str], engines: Mapping[str, ServedEngine]
) -> tuple[Problem, ...]:
    """Returns all problems of a file in its order; those of a valid file come from time alone (expired evidence)."""
    source = YamlFile(str(path), environ=environ)
    _examine(read_bytes(path, source), source, catalog, engines)
    return in_order([*source.problems, *source.passed])


def engines_needed(path: Path) -> tuple[str, ...]:
    """Returns the engines that targets name, in the file's order; of an invalid file, those that can be read."""
    source = YamlFile(str(path), environ={})
    parse(read_bytes(path, source), source)
    values = construct(source.root, source) if source.root else None
    rows = values.get("targets") if isinstance(values, dict) else None
    targets = rows.values() if isinstance(rows, dict) else ()
    named = (row.get("engine") for row in targets if isinstance(row, dict))
    return tuple(dict.fromkeys(name for name in named if isinstance(name, str)))


def _sound(config: Config | None, source: YamlFile) -> Config:
    if source.problems or config is None:
        raise ConfigError(in_order(source.problems))
    return config


def _examine(data: bytes, source: YamlFile, catalog: Catalog, engines: Mapping[str, ServedEngine]) -> Config | None:
    """Returns the config; None if the YAML can't be read. All problems are reported to `source`."""
    parse(data, source)
    if source.root is None:
        return None
    names = DeclaredNames(source)
    policy = read_model(Policy, source.root, source)
    digest = hashlib.sha256(data).hexdigest()[:16]
    check_meaning(source, policy, catalog, names)
    version = f"policy {digest}"
    worst = None if policy.unpriced == "refuse" else policy.unpriced.price(version, assumed=True)
    builder = TargetBuilder(source, catalog, engines, worst=worst, price_version=version)
    built = {name: builder.build(name, row) for name, row in policy.targets.items()}
    targets = _with_own_prices({name: target for name, target in built.items() if target is not None}, version)
    check_asked(source, policy.sensitivity, targets)
    damaged = any(loc[0] == "targets" for loc in source.dropped)
    if len(targets) == len(names.targets) and not source.unset and not damaged:
        check_served(source, policy.sensitivity, targets)
    return _config(source.path, digest, policy, targets)


def _with_own_prices(targets: dict[str, Target], version: str) -> dict[str, Target]:
    """Adds the policy's prices to its providers by their models' names, since one model may answer for another."""
    prices = defaultdict[str, dict[str, Price]](dict)
    for target in targets.values():
        model, price = target.model, target.model.price
        if not target.provider.local and price is not None and price.version == version and not price.assumed:
            price = structs.replace(price, version=f"{SERVED}{model.id}, {version}")
            known = prices[target.provider.id].get(model.name, price)
            prices[target.provider.id][model.name] = max(known, price, key=attrgetter("output", "input"))
    for name, target in targets.items():
        if own := prices.get(target.provider.id):
            provider = structs.replace(target.provider, prices={**target.provider.prices, **own})
            targets[name] = structs.replace(target, provider=provider)
    return targets


def _config(path: str, digest: str, policy: Policy, targets: dict[str, Target]) -> Config:
    loops, budgets = policy.loops, policy.budgets
    if loops.enabled and loops.session_usd is not None:
        budgets = (*budgets, SessionLimit(limit_usd=loops.session_usd, exempt=loops.exempt))
    return Config(
        path=path,
        hash=digest,
        targets=targets,
        routes={
            name: Route(name, row.strategy, row.stakes(), row.exploration, row.verifiers, row.judge)
            for name, row in policy.routes.items()
        },
        sensitivity=policy.sensitivity,
        budgets=budgets,
        budget_status=policy.budget_status,
        aliases=policy.aliases,
        loops=loops,
        browsers=policy.browsers,
    )


# Changes of the policy file while a gateway runs.


class Watcher:
    """Detects edits of a policy file. Create it before the first load, so that none is missed. Owns no thread."""

    def __init__(self, path: Path, load: Callable[[Path], Config]) -> None:
        self._path, self._load = path, load
        self._stamp = _stamp(path)

    def poll(self) -> Config | ConfigError | None:
        """Loads the file if it changed since the last call, or vanished; returns the config or the error, else None."""
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return None
        self._stamp = stamp
        try:
            return self._load(self._path)
        except ConfigError as error:
            return error


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Returns time, size and inode: editors and mounted volumes may replace a file without a later time."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


# Names that a key may be given under a policy.

_ID_LENGTH = 32
"""Length of the id of a budget that was split off."""
_NEW_TAG = ". For a tag that no budget has: --new-tag, by API new_tags."


def check_terms(terms: KeyTerms, config: Config, new_tags: Collection[str] = ()) -> None:
    """Raises `ValueError` that lists all names unknown to the policy. `new_tags`: tags that are intended, although no
    budget names them."""
    if problems := "; ".join(_unknown(terms, config, new_tags)):
        raise ValueError(f"{problems} (policy {config.path})")


def _unknown(terms: KeyTerms, config: Config, new_tags: Collection[str]) -> Iterator[str]:
    budgets = [budget.id for budget in config.budgets]
    tags = {tag for budget in config.budgets for tag in budget.tags}
    split_off = len(terms.budget) == _ID_LENGTH and terms.budget.isalnum()
    given: list[tuple[str, Collection[str], Collection[str]]] = [
        ("route", terms.routes, config.routes),
        ("target", terms.targets, config.targets),
        ("budget", [terms.budget] if terms.budget and not split_off else [], budgets),
        ("class", [terms.min_class] if terms.min_class else [], config.sensitivity.classes),
        ("tag", [tag for tag in terms.tags if tag not in new_tags], tags),
    ]
    for kind, names, known in given:
        for name in names:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                suggestion = f"did you mean '{near[0]}'?" if near else f"Known: {', '.join(sorted(known)) or 'none'}"
                yield f"unknown {kind} '{name}'; {suggestion}" + (_NEW_TAG if kind == "tag" else "")
