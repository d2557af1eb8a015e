"""Recorded requests and the policies that decide them again, with the health of targets as of then."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import starmap, zip_longest
from typing import NamedTuple

import msgspec
from msgspec import Struct, structs

from router.choose import CompiledPolicy, choose, index
from router.config.policy import Config
from router.decide.eligibility import Redact
from router.decide.explain import Explanation
from router.decide.profile import progress_of, request_of
from router.errors import ClientError
from router.estimate.forecast import Forecaster
from router.estimate.learn import TargetStats
from router.estimate.pass_rate import PassRateModel
from router.estimate.price import timed
from router.ledger.ledger import Ledger
from router.ledger.query import RequestRow
from router.recorder import learned_from, recollect
from router.screen import Screened
from router.types.account import ANY_AMOUNT, Amount, LedgerUnavailable
from router.types.clock import new_id
from router.types.decision import Decision, Plan, RequestProfile, Tactic, Weighed
from router.types.request import Caller, Classification, Reading, Redacted, Request
from router.types.target import Queue, QueueReader, Secret, Target, Task

# Conversion of ledger rows to requests that can be decided again.

_ENDED = ("settled", "released")
LOWERED = "route"
"""Value in a row's `lowered`: a budget moved the request to another route than the one it named."""


class Choice(Struct, frozen=True):
    """Targets and tactic of a request, and whether it is redacted. Without a target the request is refused."""

    target: str = ""
    tactic: Tactic | None = None
    second: str = ""
    """Second target, which the tactic may ask."""
    redacted: bool = False


REFUSED = Choice()
_CHOSEN_REASONS = ("chosen", "kept", "nearest")
_EXCLUDED_REASONS = ("below_floor", "over_cost", "too_slow", "unknown", "queued", "degraded")


class ExperimentDraw(NamedTuple):
    """An experiment as a trial of the new policy. `target`: the new choice that the experiment asked, if it did."""

    target: str = ""
    supported: bool = False
    """Whether the new choice differs from the old one and could have been asked by an experiment."""


class Stored(Struct, frozen=True, gc=False):
    """A recorded request with its decision and outcome."""

    row: RequestRow
    lowered: bool
    spent: int
    reading: Reading | None
    """Reading of the request's text; None if the text was not read, as with embeddings."""
    answered: bool
    document: Explanation
    request: Request
    caller: Caller
    choice: Choice
    task: Task

    def trial(self, plan: Plan) -> ExperimentDraw:
        """Returns the request's experiment as a trial of another policy with this plan. Applies to single targets only,
        since experiments ask one target."""
        document = self.document
        if document.propensity >= 1 or not plan.steps:
            return ExperimentDraw()
        new = _chosen(weighed) if (weighed := plan.weigh()) else plan.steps[0].target.id
        if not new or new == _chosen(document.weighed):
            return ExperimentDraw()
        tried = new if document.explored and self.choice.target == new else ""
        # Every target within all limits has some chance of being asked.
        could_be_asked = any(row.target == new and row.why not in _EXCLUDED_REASONS for row in document.weighed)
        return ExperimentDraw(tried, not plan.explored and could_be_asked)


def _chosen(weighed: Sequence[Weighed]) -> str:
    """Returns the choice without exploration; empty if it is a pair of targets."""
    return next((row.target for row in weighed if row.why in _CHOSEN_REASONS), "")


_decoder, _UNSHAPED = msgspec.json.Decoder(Explanation), RequestProfile()


def stored(row: RequestRow, callers: Mapping[str, Caller]) -> Stored | str:
    """Returns the request, or why it can't be replayed: "undecided", "unsettled", "unreadable" or "unshaped"."""
    if row.state not in _ENDED:
        return "unsettled"
    if row.document is None:
        return "undecided"
    try:
        document = _decoder.decode(row.document)
        if document.shape == _UNSHAPED:
            return "unshaped"
        traits, tags = document.classification.traits, tuple(row.tags.split(",")) if row.tags else ()
        about = {"id": row.id, "endpoint": row.endpoint, "model": row.requested, "session": row.session}
        steps = [(step.target, step.redacted) for step in document.considered]
        return Stored(
            row=row,
            lowered=LOWERED in row.lowered.split(", "),
            spent=row.cost or 0,
            reading=Reading.unpack(traits) if traits else None,
            answered=row.status == 200,
            document=document,
            request=request_of(document.shape, **about, stream=bool(row.stream), tags=tags),
            caller=callers.get(row.key_id) or Caller(id=row.key_id),
            choice=_choice(document.chosen, document.tactic, steps),
            task=Task(row.task),
        )
    except (ValueError, msgspec.DecodeError):
        return "unreadable"


def _choice(chosen: str | None, tactic: Tactic | None, steps: Sequence[tuple[str, bool]]) -> Choice:
    """Builds a choice; `steps` are targets, each with whether it sees placeholders only."""
    if chosen is None:
        return REFUSED
    second = steps[1][0] if tactic is not None and len(steps) > 1 else ""
    return Choice(chosen, tactic, second, bool(steps and steps[0][1]))


# What the ledger has taught about targets, for decisions outside a gateway.


def forecasters(ledger: Ledger, targets: Sequence[Target]) -> Callable[[Sequence[Target], int], Forecaster]:
    """Returns a function that makes a `Forecaster` for some of the targets, with prices cached for `fresh_ms`. All
    share what the ledger has taught, or nothing if it can't be read. Must not run inside an event loop."""
    all_rates, learned = PassRateModel(), TargetStats()
    all_rates.adopt(targets)
    with suppress(LedgerUnavailable):
        if ledger.exists():
            asyncio.run(recollect(ledger, all_rates))
            learned, _ = learned_from(ledger, {target.id: target for target in targets})

    def make(some: Sequence[Target], fresh_ms: int) -> Forecaster:
        rates = PassRateModel()
        rates.adopt(some)
        rates.restore(all_rates.state())
        return Forecaster(some, learned, rates, fresh_ms)

    return make


# A policy that decides with today's knowledge, which is the same for all policies that are compared.

QUARTER_MS = 900_000
"""Interval in ms at which prices that depend on the time are looked up."""
_ALWAYS_MS = 2**62
_MAX_CACHED_SETS = 4_096
_CIRCUIT_OPEN, _ENGINE_DOWN = "circuit_open", "engine_down"
_DEFAULT = "default"


class NewDecision(NamedTuple):
    """A new choice; `decision` is None if the policy has no such model, or if the key may not name it."""

    choice: Choice
    decision: Decision | None


class _Health(NamedTuple):
    """Health of targets at the time of the request: failures of providers are not simulated."""

    rests: frozenset[str]
    degrades: frozenset[str]

    def unwell(self, *targets: str, alone: bool = False) -> tuple[dict[str, float], frozenset[str]]:
        degraded = frozenset() if alone else self.degrades.intersection(targets)
        return dict.fromkeys(self.rests.intersection(targets), 1.0), degraded


class PolicyReplay:
    """A policy under which recorded requests are decided again."""

    def __init__(self, config: Config, targets: Sequence[Target], forecaster: Forecaster) -> None:
        """`targets`: all targets for which forecasts exist."""
        self.rules: CompiledPolicy = index(config, Secret(new_id()))
        self.targets = {target.id: target for target in targets}
        self.forecaster = forecaster
        self._ranks = self.rules.screen.ranks
        classes = config.sensitivity.classes
        self._redactable = frozenset(name for name, row in classes.items() if row.redact is not Redact.NEVER)
        self._sets: dict[frozenset[str], tuple[frozenset[str], str]] = {}

        self.hash, self.config = config.in_force.hash, config

    def decide(self, record: Stored) -> NewDecision:
        classification = self.classified(record)
        screened = Screened(classification, self._redacted(record, classification.classes))
        rests = frozenset([dropped.target for dropped in record.document.dropped if dropped.reason == _CIRCUIT_OPEN])
        degrades = frozenset([queued.target for queued in record.document.queued if queued.degraded])
        try:
            decision, _ = choose(
                *(self.rules, record.request, record.caller, screened, _Health(rests, degrades), self.forecaster),
                model=self.named(record) if record.lowered else "",
                progress=progress_of(record.document.shape, record.row.started_ms),
                at_ms=record.row.started_ms,
                asks=_asks(record),
                left=ANY_AMOUNT if record.document.shape.left is None else Amount(*record.document.shape.left),
            )
        except ClientError:
            return NewDecision(REFUSED, None)
        steps = [(step.target.id, step.redacted) for step in decision.plan.steps]
        return NewDecision(_choice(steps[0][0] if steps else None, decision.plan.tactic, steps), decision)

    def named(self, record: Stored) -> str:
        """Returns the model to decide by: the row's route if a budget changed it, else what the request named."""
        return record.row.route if record.lowered and record.row.route in self.config.routes else record.request.model

    def unknown(self, record: Stored) -> list[str]:
        """Returns which inputs that this policy needs were not recorded: "class", "redaction"."""
        causes, left = record.document.classification.causes, record.document.shape.redacted
        lacks = any(cause.data_class not in self._ranks and cause.by != _DEFAULT for cause in causes)
        unread = left is None and any(cause.data_class in self._redactable for cause in causes)
        return [*(["class"] if lacks else ()), *(["redaction"] if unread else ())]

    def classified(self, record: Stored) -> Classification:
        """Returns the classification under this policy: all of its classes if it lacks one of the recorded ones."""
        stored_classes = record.document.classification
        causes = frozenset([cause.data_class for cause in stored_classes.causes if cause.by != _DEFAULT])
        known = self._sets.get(causes)
        if known is None:
            if len(self._sets) >= _MAX_CACHED_SETS:
                self._sets.clear()
            classes = causes if causes <= self._ranks.keys() else frozenset(self._ranks)
            classes |= {self.config.sensitivity.default}
            known = self._sets[causes] = (classes, max(classes, key=self._ranks.__getitem__))
        return Classification(
            classes=known[0],
            data_class=known[1],
            difficulty=stored_classes.difficulty,
            task=record.task,
            unfamiliarity=stored_classes.unfamiliarity,
            reading=record.reading,
            app=stored_classes.app,
            template=stored_classes.template,
        )

    def _redacted(self, record: Stored, classes: frozenset[str]) -> Redacted | None:
        """Joins the classes that the recorded redaction left, those not redacted here, and those redacted to."""
        names = classes & self._redactable
        if record.document.shape.redacted is None or not names:
            return None
        left = frozenset(record.document.shape.redacted).intersection(self._ranks)
        to = frozenset(self.config.sensitivity.redacted_to(name) for name in names)
        return Redacted(record.request, left | (classes - names) | to, {})


class Policies(NamedTuple):
    """The policy to try, and by hash the policies under which decisions may have been recorded."""

    new: PolicyReplay
    old: Mapping[str, PolicyReplay]


def same(before: Target | None, after: Target | None) -> bool:
    """Whether two targets are the same and have the same price; API keys and price versions are ignored."""
    if before is None or after is None:
        return before is after
    return before is after or _comparable(before) == _comparable(after)


def repriced(before: Target, after: Target) -> bool:
    """Whether the model or the price behind a target's name differs."""
    return _comparable(before).model != _comparable(after).model


@lru_cache(maxsize=4_096)
def same_rules(old: PolicyReplay, new: PolicyReplay, model: str) -> bool:
    """Whether both policies have the same rules for requests for `model`, so that their decisions can't differ."""
    before, after = old.rules.routes.get(model), new.rules.routes.get(model)
    if old is new or before is None or after is None:
        return old is new or before is after
    return (
        before[0] == after[0]
        and all(starmap(same, zip_longest(before[1], after[1])))
        and (model in old.config.routes) == (model in new.config.routes)
        and old.config.sensitivity == new.config.sensitivity
    )


def compared(config: Config, others: Iterable[Config], ledger: Ledger) -> Policies:
    """Returns the policies to compare, each with forecasts for the targets of all policies."""
    different = [other for other in others if other != config]
    targets = _joined([config, *different])
    prices = [target.model.price for policy in (config, *different) for target in policy.targets.values()]
    fresh = QUARTER_MS if any(price is not None and timed(price) for price in prices) else _ALWAYS_MS
    make = forecasters(ledger, targets)
    new = PolicyReplay(config, targets, make(targets, fresh))
    old: dict[str, PolicyReplay] = {}
    for other in different:
        all_targets = _joined([other, config, *different])
        old.setdefault(other.in_force.hash, PolicyReplay(other, all_targets, make(all_targets, fresh)))
    old.setdefault(new.hash, new)
    return Policies(new, old)


def _comparable(target: Target) -> Target:
    price = target.model.price
    unnamed = None if price is None else structs.replace(price, version="")
    provider = structs.replace(target.provider, prices={})  # prices of models that may answer in place of others
    return structs.replace(target, api_key=None, provider=provider, model=structs.replace(target.model, price=unnamed))


def _joined(configs: Iterable[Config]) -> tuple[Target, ...]:
    """Merges targets; of those with the same name the first is used."""
    targets: dict[str, Target] = {}
    for config in configs:
        for name, target in config.targets.items():
            targets.setdefault(name, target)
    return tuple(targets.values())


def _asks(record: Stored) -> QueueReader | None:
    """Returns the recorded state of queues, if any; the load of engines is not simulated."""
    document = record.document
    down = [dropped.target for dropped in document.dropped if dropped.reason == _ENGINE_DOWN]
    if not (document.queued or down):
        return None
    busy = {each.target: Queue(wait_ms=each.wait_ms, waiting=each.waiting, full=each.full) for each in document.queued}
    queues = busy | dict.fromkeys(down, Queue(down="down"))
    return lambda target, _: queues.get(target.id)
