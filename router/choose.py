"""Steps 3 to 5: makes a decision from policy, request and health of the targets. `explain` and `replay` use it too."""

from collections.abc import Callable, Mapping, Sequence, Set
from fnmatch import fnmatchcase
from functools import cache, partial
from operator import attrgetter
from typing import Protocol

import numpy as np
from msgspec import Struct, structs

from router.budget.budget import BudgetAccounts
from router.classify.difficulty import with_difficulty
from router.classify.embedding import count_pieces
from router.classify.language import languages
from router.config.policy import Config, Route
from router.decide.eligibility import ANYTHING, Gate, Reason, asked, must_redact, sift
from router.decide.profile import NEW, SessionState, own_stakes, shape_of
from router.decide.replicas import LONGEST, conversation
from router.decide.strategies import Ordering, Pinned, Weighing
from router.decide.weigh import DecisionInput, Takes, explore, for_later, moved_back, noted, overflow
from router.dispatch.refusals import unknown_model
from router.dispatch.tactics import always_the_same
from router.errors import ClientError
from router.estimate.caches import COLD, LEAST, CachedPrompt
from router.estimate.forecast import Forecaster, ForecastInput, takes_ms, usual_ms
from router.estimate.learn import TargetStats
from router.estimate.tokens import fits_thinking
from router.screen import Screen, Screened
from router.types.account import ANY_AMOUNT, Account, Amount
from router.types.clock import now_ms
from router.types.decision import (
    NO_STAKES,
    UNCOUNTED,
    CachePrefix,
    Candidate,
    Counts,
    Decision,
    Dropped,
    Estimate,
    FittedRequest,
    Objective,
    Plan,
    RequestProfile,
    first_stated,
)
from router.types.request import NO_LIMITS, UNKNOWN, Caller, Request, instructions, template
from router.types.target import Queue, QueueReader, Secret, Target

_CHANCE_RANGE = 1 << 62
_ID = attrgetter("id")
_UNCAPPED: tuple[Account, ...] = ()


class RecentHealth(Protocol):
    """The health of targets, according to recent attempts."""

    def unwell(self, *targets: str, alone: bool = False) -> tuple[Mapping[str, float], frozenset[str]]:
        """Returns the resting targets, with the seconds until they may be asked again, and the targets that others are
        asked before. `alone`: the request has no other target."""
        ...


class CompiledPolicy(Struct, frozen=True):
    """A config, indexed once for all requests."""

    config: Config
    screen: Screen
    accounts: BudgetAccounts
    routes: Mapping[str, tuple[Route, tuple[Target, ...]]]
    """Routes with their targets by the client's `model`. A target's own id is a route that pins it."""
    specialised: frozenset[str]
    """Names of routes with a target for certain tasks or languages only."""
    queueing: frozenset[str]
    """Names of routes with a target on an engine."""
    reading: frozenset[str]
    """Names of routes that need a reading of the request's text. For other routes the text is read after the answer."""
    regions: frozenset[str]
    budgets: frozenset[str]


def index(config: Config, secret: Secret, limits: Mapping[str, int] | None = None) -> CompiledPolicy:
    """Indexes a config. `limits` replace those of the policy's budgets (`Budget.with_limits`)."""
    pins = {name: Route(name, Pinned(kind="pinned", target=name)) for name in config.targets}
    routes = {
        name: (route, tuple(config.targets[target] for target in route.strategy.names()))
        for name, route in (dict(config.routes) | pins).items()
    }
    screen, accounts = Screen(config.sensitivity, secret, config.targets), BudgetAccounts(config.budgets)
    specialised = {name for name, (_, targets) in routes.items() if any(row.tasks or row.languages for row in targets)}
    queueing = {name for name, (_, targets) in routes.items() if any(row.engine is not None for row in targets)}
    regions = frozenset(target.region for target in config.targets.values())
    budgets = frozenset(budget.id for budget in config.budgets)
    # Needed for the strategy, for learning from verifiers and judges, or for how long a request occupies an engine.
    reading = specialised | {
        name
        for name, (route, targets) in routes.items()
        if route.strategy.reads or route.verifiers or route.judge is not None or (len(targets) > 1 and name in queueing)
    }
    named = frozenset(specialised), frozenset(queueing), frozenset(reading)
    rules = CompiledPolicy(config, screen, accounts, routes, *named, regions, budgets)
    return limited(rules, limits) if limits else rules


def limited(rules: CompiledPolicy, limits: Mapping[str, int]) -> CompiledPolicy:
    budgets = [budget.with_limits(limits) for budget in rules.config.budgets]
    return structs.replace(rules, accounts=BudgetAccounts(budgets))


def chance(identifier: str) -> float:
    """Returns a number, uniform in [0, 1), from a request id's random bits. It depends on nothing else."""
    return (int(identifier[16:], 16) % _CHANCE_RANGE) / _CHANCE_RANGE


def choose(
    rules: CompiledPolicy,
    request: Request,
    caller: Caller,
    screened: Screened,
    health: RecentHealth,
    forecaster: Forecaster,
    model: str = "",
    progress: SessionState = NEW,
    asks: QueueReader | None = None,
    counts: Counts = UNCOUNTED,
    left: Amount = ANY_AMOUNT,
    internal: str = "",
    at_ms: int | None = None,
) -> tuple[Decision, Gate]:
    """Decides a request that passed `check`. `model`: route to use instead of the named one; `progress`: of its
    session; `at_ms`: decide again as of then, without holds; `asks`: reads engines' queues; `counts`: token counts of
    its prompt; `left`: what is left in short budgets; `internal`: route name if no client sent the request."""
    learned, known, live = forecaster.learned, screened.classification, at_ms is None
    route, targets = rules.routes[model or check(rules, request, caller)]
    if live:
        targets, app = learned.measured.priced(targets), request.limits.app or caller.name
        whole = with_difficulty(known, request) if route.name in rules.reading else known
        of_template = template(request, route.name, app, caller.organisation or caller.id)
        known = structs.replace(whole, app=app, template=of_template)
    now, for_some = now_ms() if at_ms is None else at_ms, route.name in rules.specialised
    spoken = languages(request) if for_some and any([target.languages for target in targets]) else None
    special = asked(request, known, targets, spoken or UNKNOWN) if for_some else ANYTHING
    names = tuple(map(_ID, targets))
    resting, degraded = health.unwell(*names, alone=len(names) == 1)
    asks = asks if route.name in rules.queueing else None
    queues = _queues(targets, degraded, asks, learned) if degraded or asks else {}
    long = live and request.prompt_bytes > LEAST and (rough := request.rough_tokens) >= LEAST
    prefix = _prefix(request, caller, known.template) if long else None
    cached = learned.caches.expected(prefix, rough, now) if prefix else COLD
    guard, own = rules.screen.guard, NO_STAKES if request.limits is NO_LIMITS else own_stakes(request)
    demands, accounts, caps, thinking = guard.demands(known.classes), rules.accounts, _UNCAPPED, None
    stakes, name = first_stated(own, demands.stakes, route.stakes), internal or route.name
    if own is not NO_STAKES or stakes.max_nano is not None or demands.thinking_cap is not None or accounts.can_cap:
        caps, thinking = accounts.caps(request, caller, name, names, stakes.max_nano, demands.thinking_cap)
    by = (guard.of(request.body) if guard.tools else guard, screened.redacted, now, resting)
    within = partial(fits_thinking, learned=learned)
    gate = Gate(request, caller, known, *by, within, special, queues, stakes.deadline_ms, counts)
    fixed = ("seed" in request.body or "temperature" in request.body) and always_the_same(request)
    rest = None if left is ANY_AMOUNT else (left.usd, left.thinking)
    profile = (request, own, progress, fixed, screened.redacted, rules.regions, rules.budgets, spoken, now, rest)
    money = (live, left.within(caps) if caps else left, thinking)
    decision = Decision(
        id=request.id,
        requested=request.model,
        policy=rules.config.in_force.hash,
        classification=known,
        plan=_plan(route, name, targets, gate, forecaster, cached, stakes, progress, fixed, *money),
        stakes=stakes,
        shape=shape_of(*profile) if live else RequestProfile(),
        prefix=prefix,
        caps=caps,
        thinking=thinking,
    )
    return decision, gate


def _plan(
    route: Route,
    name: str,
    targets: Sequence[Target],
    gate: Gate,
    forecaster: Forecaster,
    cached: CachedPrompt,
    stakes: Objective,
    progress: SessionState,
    fixed: bool,
    live: bool,
    limit: Amount,
    thinking: int | None,
) -> Plan:
    """Makes the plan by the route's strategy. With a forecasting strategy, only targets to be asked are estimated.
    `name` is the route's name; `limit` and `thinking` limit the answer's cost and thinking tokens."""
    request, known, now, learned = gate.request, gate.classification, gate.now_ms, forecaster.learned
    draw = chance(request.id) if len(targets) > 1 else 0.0
    pieces = cache(partial(count_pieces, request.passages))
    forecast_input = ForecastInput(request, known, now, cached, gate.counts, pieces)
    short = limit is not ANY_AMOUNT or thinking is not None
    steps = partial(forecaster.estimates, asked=forecast_input, holds=live)
    afford = partial(forecaster.afforded, asked=forecast_input, limit=limit, thinking_cap=thinking) if short else None
    if not isinstance(route.strategy, Weighing):
        takes = partial(takes_ms, learned=learned, choices=request.choices)
        return plan(name, route.strategy, targets, gate, steps, draw, takes, afford)
    eligible, dropped = sift(targets, gate)
    if not eligible:
        queued = noted(gate.queues, ())
        return Plan(route=name, strategy=route.strategy.kind, steps=(), dropped=dropped, queued=queued)
    fits = afford(eligible) if afford else ()
    expected = forecaster.forecast(eligible, forecast_input, gate.queues, fits)
    situation = DecisionInput(
        targets=eligible,
        forecast=expected if expected.later is None else for_later(expected, stakes),
        classification=known,
        stakes=stakes,
        draw=draw,
        queues=gate.queues,
        unpaid=np.array([made is None for made in fits]) if fits else None,
        last=progress.target,
        verified=bool(route.verifiers),
        samples_differ=request.choices == 1 and not fixed,
        stream=request.stream,
        spent=progress.spent,
        calls=progress.calls,
        elapsed_ms=now - progress.at_ms if progress.calls else 0.0,
    )
    return weighed_plan(name, route.strategy, gate, situation, dropped, fits, steps, route.exploration.share)


# Eligible targets and their estimates → the order in which they are tried.

_LOW_REASONS = ("queued", "degraded", "too_slow")
MAX_STEPS = 4
"""Maximum number of weighed targets that are tried. After so many failures, another target would not help."""
Estimates = Callable[..., Sequence[Estimate]]
"""Estimates targets. `foretold` is the forecast by which they were chosen; `fits` is described at `Afford`."""
Afford = Callable[[Sequence[Target]], Sequence[FittedRequest | None]]
"""Returns how each target is asked so that money and thinking tokens suffice; None if they can't. Used only if there is
such a limit."""
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
    """Plans without side effects. The only randomness is `draw`, uniform in [0, 1)."""
    eligible, dropped = sift(targets, gate)
    fits = afford(eligible) if afford else ()
    if any(fits):
        dropped += tuple([Dropped(row.id, *_UNPAID) for row, made in zip(eligible, fits, strict=True) if made is None])
        eligible = tuple([row for row, made in zip(eligible, fits, strict=True) if made is not None])
        fits = [made for made in fits if made is not None]
    steps = _candidates(eligible, gate, estimate(eligible, fits=fits))
    steps = strategy.order(steps, draw) if len(steps) > 1 else steps
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
    """Plans without side effects. Only the steps get token counts and holds; the forecast covers the other targets.
    `share` is the share of exploration."""
    eligible, expected = whole.targets, whole.forecast
    ranked, arm, likely = explore(strategy.rank(whole), whole, share, whole.draw)
    order = [at for at in ranked.order if fits[at] is not None] if any(fits) else list(ranked.order)
    del order[MAX_STEPS:]
    tried, sent_as = list(map(eligible.__getitem__, order)), list(map(fits.__getitem__, order)) if fits else ()
    foretold = np.array(expected.foretold)[:, order]  # steps show the forecast by which they were chosen
    behind = [row.target for row in ranked.weigh() if row.why in _LOW_REASONS] if gate.queues else ()
    return Plan(
        route=route,
        strategy=strategy.kind,
        steps=_candidates(tried, gate, estimate(tried, foretold=foretold, fits=sent_as)),
        dropped=dropped,
        weigh=ranked.weigh,
        queued=noted(gate.queues, behind) if gate.queues else (),
        tactic=ranked.tactic,
        explored=arm,
        propensity=likely,
        alike=round(sum(expected.alike.values())),
        alike_own=round(expected.alike.get(tried[0].id, 0.0)),
        outcomes=round(expected.outcomes),
    )


def _candidates(targets: Sequence[Target], gate: Gate, estimates: Sequence[Estimate]) -> tuple[Candidate, ...]:
    steps = []
    for target, estimate in zip(targets, estimates, strict=True):
        redacted = gate.redacted is not None and must_redact(target, gate)
        wait_ms = gate.queues[target.id].wait_ms if target.id in gate.queues else 0
        steps.append(Candidate(target, estimate, redacted, wait_ms))
    return tuple(steps)


def _queues(
    targets: Sequence[Target], degraded: Set[str], asks: QueueReader | None, learned: TargetStats
) -> dict[str, Queue]:
    """Returns the queues of the targets' engines by target id."""
    queues = {}
    for target in targets:
        queue = None
        if asks is not None and target.engine is not None:
            queue = asks(target, partial(usual_ms, learned=learned))
        # A degraded target is treated like one with too long a queue.
        if target.id in degraded:
            queue = structs.replace(queue or Queue(), degraded=True)
        if queue is not None:
            queues[target.id] = queue
    return queues


def _prefix(request: Request, caller: Caller, template: str) -> CachePrefix:
    begins = instructions(request)
    # A session may have several agents, each with its own instructions, and several conversations.
    first = next((passage.text[:LONGEST] for passage in request.passages if passage.role in ("user", "")), "")
    turns = hash((conversation(request, f"{begins} {caller.id}".encode()[:64]), first))
    shared = begins / max(request.prompt_bytes, 1)
    return CachePrefix(turns, template, min(shared, 1.0), request.caches_long)


def may_name(rules: CompiledPolicy, caller: Caller, name: str) -> bool:
    """Whether a key may send `name`: a route unless it lists others; a target if it lists it or lists nothing."""
    if name in rules.config.routes:
        return not caller.routes or name in caller.routes
    return name in caller.targets or not (caller.targets or caller.routes)


def check(rules: CompiledPolicy, request: Request, caller: Caller) -> str:
    """Returns the name of the request's route. Raises `ClientError` for names that the policy does not have or that the
    key may not use."""
    model, stated = request.model, request.limits.data_class
    name = (
        model
        if model in rules.routes
        else next((name for pattern, name in rules.config.aliases.items() if fnmatchcase(model, pattern)), model)
    )
    if name not in rules.routes or ((caller.routes or caller.targets) and not may_name(rules, caller, name)):
        raise unknown_model(model, [name for name in rules.routes if may_name(rules, caller, name)])
    if stated and stated not in rules.screen.ranks:
        message = f"Unknown data class '{stated}'. The policy declares: {', '.join(rules.screen.ranks)}."
        raise ClientError(400, "invalid_request_error", message, param="x-lowpass-data-class")
    return name
