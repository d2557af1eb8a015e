"""A policy as it decides with what is known today: the same knowledge for every policy that is compared."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import starmap, zip_longest
from typing import NamedTuple

from msgspec import structs

from router.choose import Rules, chance, choose, index
from router.config.config import Config
from router.decide.requirements import Redact
from router.errors import ClientError
from router.estimate.forecast import Forecaster
from router.estimate.terms import timed
from router.ledger.ledger import Ledger
from router.replay.ahead import Ahead
from router.replay.knowledge import Knowledge, known
from router.replay.stored import REFUSED, Choice, Stored, classification, progress
from router.screen import Screened
from router.types.classification import Classification
from router.types.ids import new_id
from router.types.plan import Decision, Plan
from router.types.queue import Queue, Queues
from router.types.redacted import Redacted
from router.types.secret import Secret
from router.types.target import Target

QUARTER_MS = 900_000
"""Prices that depend on the time are looked up so often."""
_ALWAYS_MS = 2**62
_MOST_SETS = 4_096
_RESTS, _DOWN = "circuit_open", "engine_down"
_DEFAULT = "default"


class Decided(NamedTuple):
    """`decision` is None where the policy has no such model, or the key may not name it."""

    choice: Choice
    decision: Decision | None


class _Health(NamedTuple):
    """Of targets, as it was then: failures of providers are not played anew."""

    rests: frozenset[str] = frozenset()
    degrades: frozenset[str] = frozenset()

    def resting(self, target: str) -> float:
        return 1.0 if target in self.rests else 0.0

    def degraded(self, target: str) -> bool:
        return target in self.degrades


class _Queued(NamedTuple):
    """As it was then: how busy engines were is not played anew."""

    queues: Queues

    def queue(self, target: Target, usual_ms: Callable[[Target], float]) -> Queue | None:
        return self.queues.get(target.id)


_HEALTHY = _Health()


class Side:
    """One policy."""

    def __init__(self, config: Config, knowledge: Knowledge, targets: Sequence[Target], fresh_ms: int) -> None:
        """`targets`: all that anything is known of."""
        self.rules: Rules = index(config, Secret(new_id()))
        self.targets = {target.id: target for target in targets}
        self._ahead = Ahead(knowledge.beliefs(targets), len(targets))
        self.forecaster = Forecaster(targets, knowledge.learned, self._ahead, fresh_ms)
        self._ranks = self.rules.screen.ranks
        classes = config.sensitivity.classes
        self._redactable = frozenset(name for name, row in classes.items() if row.redact is not Redact.NEVER)
        self._sets: dict[frozenset[str], tuple[frozenset[str], str]] = {}

    @property
    def hash(self) -> str:
        return self.rules.in_force.hash

    @property
    def config(self) -> Config:
        return self.rules.config

    def look(self, requests: Iterable[Stored]) -> None:
        """At those that are decided next: so it takes less time."""
        self._ahead.look(one.reading for one in requests if one.reading is not None)

    def decide(self, one: Stored) -> Decided:
        seen = self.seen(one)
        screened = Screened(seen, self._redacted(one, seen.classes))
        try:
            decision, _ = choose(
                *(self.rules, one.request, one.caller, screened, _health(one), self.forecaster),
                draw=chance(one.id),
                model=self.named(one) if one.lowered else "",
                progress=progress(one),
                at_ms=one.at_ms,
                asks=_asks(one),
            )
        except ClientError:
            return Decided(REFUSED, None)
        return Decided(_choice(decision.plan), decision)

    def named(self, one: Stored) -> str:
        """The route that it is decided by: a budget may have sent it to another one than it named."""
        return one.route if one.lowered and one.route in self.config.routes else one.request.model

    def unknown(self, one: Stored) -> list[str]:
        """What of a request this policy would have to know, and nobody does."""
        causes = one.document.classification.causes
        lacks = any(cause.data_class not in self._ranks and cause.by != _DEFAULT for cause in causes)
        unread = one.shape.redacted is None and any(cause.data_class in self._redactable for cause in causes)
        return [*(["class"] if lacks else ()), *(["redaction"] if unread else ())]

    def seen(self, one: Stored) -> Classification:
        """The request as this policy sees it."""
        found = _found(one)
        known = self._sets.get(found)
        if known is None:
            if len(self._sets) >= _MOST_SETS:
                self._sets.clear()
            known = self._sets[found] = self._classes(found)
        return classification(one, *known)

    def _classes(self, found: frozenset[str]) -> tuple[frozenset[str], str]:
        """A class that this policy lacks is every class, as with what sessions have seen."""
        default = frozenset({self.config.sensitivity.default})
        classes = (found if found <= self._ranks.keys() else frozenset(self._ranks)) | default
        return classes, max(classes, key=self._ranks.__getitem__)

    def _redacted(self, one: Stored, classes: frozenset[str]) -> Redacted | None:
        """What was left then, what this policy would not redact, and what it would leave."""
        names = classes & self._redactable
        if one.shape.redacted is None or not names:
            return None
        left = frozenset(one.shape.redacted).intersection(self._ranks)
        to = frozenset(self.config.sensitivity.redacted_to(name) for name in names)
        return Redacted(one.request, left | (classes - names) | to, {})


class Compared(NamedTuple):
    """The policy that is tried, and by their hashes those that decisions may be of."""

    new: Side
    old: Mapping[str, Side]


def same(one: Target | None, other: Target | None) -> bool:
    """The same target at the same price, whatever its key, and whichever file says so."""
    if one is None or other is None:
        return one is other
    return one is other or _bare(one) == _bare(other)


def alike(old: Side, new: Side, model: str) -> bool:
    """The same rules for whoever names `model`."""
    one, other = old.rules.routes.get(model), new.rules.routes.get(model)
    if old is new or one is None or other is None:
        return old is new or one is other
    return (
        one[0] == other[0]
        and all(starmap(same, zip_longest(one[1], other[1])))
        and (model in old.config.routes) == (model in new.config.routes)
        and old.config.sensitivity == new.config.sensitivity
    )


def compared(config: Config, others: Iterable[Config], ledger: Ledger) -> Compared:
    """Each side knows the targets of all: whatever was observed counts on both."""
    rest = [other for other in others if other != config]
    targets, fresh = _joined([config, *rest]), _fresh_ms([config, *rest])
    knowledge = known(ledger, targets)
    new = Side(config, knowledge, targets, fresh)
    old: dict[str, Side] = {}
    for other in rest:
        side = Side(other, knowledge, _joined([other, config, *rest]), fresh)
        old.setdefault(side.hash, side)
    old.setdefault(new.hash, new)
    return Compared(new, old)


def _bare(target: Target) -> Target:
    price = target.model.price
    unnamed = None if price is None else structs.replace(price, version="")
    return structs.replace(target, api_key=None, model=structs.replace(target.model, price=unnamed))


def _joined(configs: Iterable[Config]) -> tuple[Target, ...]:
    """Of targets of the same name the first."""
    found: dict[str, Target] = {}
    for config in configs:
        for name, target in config.targets.items():
            found.setdefault(name, target)
    return tuple(found.values())


def _fresh_ms(configs: Iterable[Config]) -> int:
    prices = [target.model.price for config in configs for target in config.targets.values()]
    return QUARTER_MS if any(price is not None and timed(price) for price in prices) else _ALWAYS_MS


def _found(one: Stored) -> frozenset[str]:
    """Without what every request has."""
    return frozenset([cause.data_class for cause in one.document.classification.causes if cause.by != _DEFAULT])


def _health(stored: Stored) -> _Health:
    rests = frozenset([dropped.target for dropped in stored.document.dropped if dropped.reason == _RESTS])
    degrades = frozenset([queued.target for queued in stored.document.queued if queued.degraded])
    return _Health(rests, degrades) if rests or degrades else _HEALTHY


def _asks(one: Stored) -> _Queued | None:
    document = one.document
    down = [dropped.target for dropped in document.dropped if dropped.reason == _DOWN]
    if not (document.queued or down):
        return None
    busy = {each.target: Queue(wait_ms=each.wait_ms, waiting=each.waiting, full=each.full) for each in document.queued}
    return _Queued(busy | dict.fromkeys(down, Queue(down="down")))


def _choice(plan: Plan) -> Choice:
    if not plan.steps:
        return REFUSED
    first, *rest = plan.steps
    second = rest[0].target.id if plan.tactic is not None and rest else ""
    return Choice(first.target.id, plan.tactic, second, first.redacted)
