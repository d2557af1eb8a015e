"""Reads a stretch of the ledger and decides each of its requests under both policies."""

import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import isnan, nan
from typing import Any, NamedTuple

import numpy as np

from router.budget.budget import Charged
from router.choose import named
from router.decide.plan import weighs
from router.decide.strategies import Cascade, Strategy
from router.estimate.estimate import per_choice
from router.ledger.query import Row
from router.replay.part import CHARGE, MOVE, ROW, SERVED, TRIAL, UNANSWERED, Flow, Labels, Move, Part, Seen
from router.replay.part import REFUSED as PART_REFUSED
from router.replay.sides import REFUSED, Choice, Compared, Decided, Side, Stored, alike, same, stored, trial
from router.types.account import Account, Unit
from router.types.decision import Dropped, Hedge, Plan, Vector, Vote, Weighed
from router.types.request import Caller
from router.types.target import Target
from router.worth import PERFECT, RHO, Check, Value, cascade_value, sample_value

# What a choice is expected to cost, target by target, and how likely it ends in a right answer.

_FREE = np.array([1.0, 0.0])


class Expected(NamedTuple):
    """Expected nano-USD of the first target and of the second, and the pass rate of what is given in the end."""

    first: float
    second: float
    p: float


_UNKNOWN, _NOTHING = Expected(nan, nan, nan), Expected(0.0, 0.0, 0.0)


def alone(side: Side, one: Stored, target: Target, weighed: Sequence[Weighed] = ()) -> Expected:
    """Expected nano-USD and pass rate of a target that is asked alone. `weighed`: what the decision has worked out."""
    for each in weighed:
        if each.target == target.id:
            return Expected(each.cost_nano, 0.0, each.p)
    seen = side.seen(one)
    cap = per_choice(one.request, side.rules.screen.guard.demands(seen.classes).thinking_cap)
    forecast = side.forecaster.forecast((target,), one.request, seen, one.at_ms, cap)
    return Expected(float(forecast.cost[0]), 0.0, float(forecast.p[0]))


def expected(side: Side, one: Stored, choice: Choice, weighed: Sequence[Weighed] = ()) -> Expected:
    """As the strategy itself values it: a pair by the chance that its second is asked. A hedge's second is taken to be
    asked by nobody, as it mostly is. A refusal costs nothing, and is never right."""
    if not choice.target:
        return _NOTHING
    first, second = side.targets.get(choice.target), side.targets.get(choice.second)
    if first is None or (second is None and choice.second):
        return _UNKNOWN
    if second is None or isinstance(choice.tactic, Hedge):
        return alone(side, one, first, weighed)
    strategy = (side.rules.routes.get(side.named(one)) or next(iter(side.rules.routes.values())))[0].strategy
    each = (alone(side, one, first, weighed), alone(side, one, second, weighed))
    cost, p = np.array([part.first for part in each]), np.array([part.p for part in each])
    both, without = (_pair(choice, strategy, some, p) for some in (cost, cost * _FREE))
    return Expected(*map(float, (without.cost[0, 1], both.cost[0, 1] - without.cost[0, 1], both.p[0, 1])))


def _pair(choice: Choice, strategy: Strategy, cost: Vector, p: Vector) -> Value:
    if isinstance(choice.tactic, Vote):
        return sample_value(cost, p, 0.0, choice.tactic.samples)
    check = Check(strategy.accepts_right, strategy.accepts_wrong) if isinstance(strategy, Cascade) else PERFECT
    return cascade_value(cost, p, 0.0, check, RHO)


# Why a decision changes, in the words that decisions have anyway.

_TOLD = frozenset({"not_allowed", "evidence_expired", "data_class", "region", "capability", "unpriced"})
"""Reasons whose detail is of the policy alone: others have numbers of the request in it."""


def why(one: Stored, decided: Decided, new: Side) -> str:
    """`decided` is another choice than the stored one."""
    before, after, decision = one.choice, decided.choice, decided.decision
    if decision is None:
        return "the policy has no such route, or the key may not name it"
    plan = decision.plan
    if after == REFUSED:
        return _told(next((each for each in plan.dropped if each.target == before.target), None) or plan.dropped[0])
    if before == REFUSED:
        return "a target may serve it"
    if before.target != after.target:
        return _left(before.target, plan, new)
    if before.tactic != after.tactic or before.second != after.second:
        how = "alone" if after.tactic is None else type(after.tactic).__name__.lower()
        return f"{plan.strategy}: {how}"
    return "sees placeholders" if after.redacted else "sees all of it"


def _left(target: str, plan: Plan, new: Side) -> str:
    """Why `target` is not first any more."""
    dropped = next((each for each in plan.dropped if each.target == target), None)
    if dropped is not None:
        return _told(dropped)
    found = new.rules.routes.get(plan.route)
    if found is None or target not in (each.id for each in found[1]):
        return f"{target} is no target of the route"
    weighed = next((each.why for each in plan.weighed if each.target == target), "")
    if plan.explored:
        return f"an experiment ({plan.explored})"
    return f"{plan.strategy}: {target} is {weighed}" if weighs(found[0].strategy) and weighed else plan.strategy


def _told(dropped: Dropped) -> str:
    detail = f": {dropped.detail}" if dropped.reason in _TOLD else ""
    return f"{dropped.target} {dropped.reason}{detail}"


# One stretch of the ledger, request by request: what was done, and what the new policy would do.

BUCKETS = 4_096
"""Clusters that intervals are made of: sessions, and hours of requests without one, thrown together at random."""
MOST_SEEN = 128
"""Answers of a target, in one stretch, that its expected cost is compared with."""
JUDGED = "judge"
"""What a judge's requests are called in place of their route."""
_HOUR_MS = 3_600_000
Wanted = Callable[[Stored], bool]
Scores = Callable[[str], float | None]


class Reader:
    """`take` each request, then the `part`. `scores`: how good an answer was, by its request's id."""

    def __init__(self, compared: Compared, callers: Mapping[str, Caller], wanted: Wanted, scores: Scores) -> None:
        self._compared, self._new = compared, compared.new
        self._callers, self._wanted, self._scores = callers, wanted, scores
        self._same: dict[tuple[int, str], bool] = {}
        self._routes, self._targets = Labels[str](), Labels[str]()
        self._moves, self._accounts = Labels[Move](), Labels[Account]()
        self._read = 0
        self._rows: list[Any] = []
        self._changed: list[Any] = []
        self._trials: list[Any] = []
        self._charges: list[Any] = []
        self._seen: dict[str, Seen] = {}
        self._before, self._after, self._unknown = Counter[Flow](), Counter[Flow](), Counter[str]()
        budgets = self._new.config.budgets
        self._limited = any(one.unit is Unit.USD and not one.soft for one in budgets)

    def part(self) -> Part:
        return Part(
            rows=np.array(self._rows, ROW),
            changed=np.array(self._changed, MOVE),
            trials=np.array(self._trials, TRIAL),
            charges=np.array(self._charges, CHARGE),
            routes=self._routes.labels,
            targets=self._targets.labels,
            moves=self._moves.labels,
            accounts=self._accounts.labels,
            seen=self._seen,
            before=self._before,
            after=self._after,
            unknown=self._unknown,
            read=self._read,
        )

    def take(self, rows: Sequence[Row]) -> None:
        self._read += len(rows)
        found = [one for row in rows if (one := self._replayable(row)) is not None]
        for side in {id(side): side for side in (self._new, *self._compared.old.values())}.values():
            side.look(found)
        for one in found:
            self._decide(one)

    def _replayable(self, row: Row) -> Stored | None:
        one = stored(row, self._callers)
        if isinstance(one, str):
            self._unknown[one] += 1
            return None
        if one.route == JUDGED and JUDGED not in self._new.config.routes:
            self._unknown["judges"] += 1
            return None
        return one if self._wanted(one) else None

    def _decide(self, one: Stored) -> None:
        old, decided = self._compared.old.get(one.document.policy), None
        if old is None:
            self._unknown["other_policy"] += 1
        if old is None or not self._alike(old, one):
            decided = self._new.decide(one)
            for code in self._new.unknown(one):
                self._unknown[code] += 1
            self._try(one, decided)
        changed = decided is not None and decided.choice != one.choice and not self._learned(one, old, decided)
        self._line(one, decided if changed else None)
        if changed and decided is not None:
            self._change(one, old, decided)
        elif self._limited:
            self._charge(one, one.route, tuple(each.target for each in one.document.considered))
        self._compare(one, old)

    def _alike(self, old: Side, one: Stored) -> bool:
        """Both have the same rules for it: then what is known today can't tell them apart."""
        key = (id(old), self._new.named(one))
        if key not in self._same:
            self._same[key] = alike(old, self._new, key[1])
        return self._same[key]

    def _learned(self, one: Stored, old: Side | None, decided: Decided) -> bool:
        """Its own policy would decide so too by now: that is no merit of the new one, which would still let it be."""
        if old is None or decided.decision is None or not _may(decided.decision.plan, one.choice):
            return False
        if old.decide(one).choice != decided.choice:
            return False
        self._unknown["learned"] += 1
        return True

    def _line(self, one: Stored, decided: Decided | None) -> None:
        """`decided`: where it changes."""
        before = PART_REFUSED if not one.choice.target else SERVED if one.answered else UNANSWERED
        after = before
        choice = one.choice if decided is None else decided.choice
        if decided is not None:
            after = PART_REFUSED if not choice.target else before if before == UNANSWERED else SERVED
        self._rows.append((self._routes.at(one.route), _bucket(one), one.spent, before, after))
        if one.sent:
            _flow(self._before, one, one.document.policy, one.choice)
        if one.sent or before == PART_REFUSED:
            _flow(self._after, one, self._new.hash, choice)

    def _change(self, one: Stored, old: Side | None, decided: Decided) -> None:
        choice, decision = decided.choice, decided.decision
        if not one.answered and one.choice.target:
            self._unknown["unanswered"] += 1
            if choice.target:
                return
        weighed = () if decision is None else decision.plan.weighed
        new, before = expected(self._new, one, choice, weighed), self._p_before(one, old, weighed)
        if decision is not None and choice.target:
            self._charge(one, decision.plan.route, tuple(step.target.id for step in decision.plan.steps))
        move = Move(one.route, _who(one.choice), _who(choice), why(one, decided, self._new))
        failure = None if decision is None else decision.stakes.failure_nano
        first, second = (self._targets.at(name) if name else -1 for name in (choice.target, choice.second))
        self._changed.append(
            (
                *(len(self._rows) - 1, self._moves.at(move), one.id.encode(), one.at_ms),
                *(new.first, new.second, first, second, new.p, before),
                *(failure or 0, decision is not None and trial(one, decision.plan).supported),
            )
        )

    def _p_before(self, one: Stored, old: Side | None, weighed: Sequence[Weighed]) -> float:
        """By what is known today; where the target is gone, by what was known then."""
        name = one.choice.target
        if old is None or same(old.targets.get(name), self._new.targets.get(name)):
            p = expected(self._new, one, one.choice, weighed).p
        else:
            p = expected(old, one, one.choice).p
        return next((each.p for each in one.document.weighed if each.target == name), p) if isnan(p) else p

    def _compare(self, one: Stored, old: Side | None) -> None:
        """What an answer cost, with what it is expected to cost."""
        name = one.choice.target
        known = self._seen.get(name, Seen())
        if not one.answered or one.sent != 1 or one.choice.tactic is not None or known.answers >= MOST_SEEN:
            return
        target = self._new.targets.get(name)
        if target is None or (old is not None and not same(old.targets.get(name), target)):
            return
        self._seen[name] = known.plus(Seen(1, one.spent, alone(self._new, one, target).first))

    def _try(self, one: Stored, decided: Decided) -> None:
        """An experiment that asked whom the new policy would choose."""
        if not one.document.explored or decided.decision is None or not one.answered:
            return
        found = trial(one, decided.decision.plan)
        target = self._new.targets.get(found.target)
        if target is None:
            return
        likely, score = alone(self._new, one, target), self._scores(one.id)
        self._trials.append(
            (
                *(self._routes.at(one.route), _bucket(one), self._targets.at(found.target)),
                *(1 / one.document.propensity, one.spent, likely.first, likely.p, nan if score is None else score),
            )
        )

    def _charge(self, one: Stored, route: str, targets: tuple[str, ...]) -> None:
        """The pots of the new policy that it would be charged to. Whoever was not sent then is not charged now."""
        if not self._limited or not targets or not (one.sent or not one.choice.target):
            return
        rules = self._new.rules
        charged = Charged(
            request_id=one.id,
            route=route,
            caller=one.caller,
            session=one.session,
            tags=one.request.limits.tags,
            targets=targets,
        )
        binds = rules.pots.binding(charged, named(rules, one.request, one.caller))
        for account in rules.pots.accounts(charged, binds, one.at_ms):
            if account.hard and account.unit is Unit.USD and (not account.targets or targets[0] in account.targets):
                place = (len(self._rows) - 1, self._accounts.at(account))
                self._charges.append((*place, one.id.encode(), one.at_ms))


def _may(plan: Plan, choice: Choice) -> bool:
    """What was chosen then might still be."""
    able = {each.target for each in plan.weighed} or {step.target.id for step in plan.steps}
    return {choice.target, choice.second} - {""} <= able


def _bucket(one: Stored) -> int:
    return zlib.crc32((one.session or str(one.at_ms // _HOUR_MS)).encode()) % BUCKETS


def _flow(flows: Counter[Flow], one: Stored, policy: str, choice: Choice) -> None:
    for target in (choice.target, choice.second):
        if target:
            flows[Flow(one.data_class, policy, target, choice.redacted)] += 1


def _who(choice: Choice) -> str:
    """Empty: nobody."""
    return f"{choice.target} + {choice.second}" if choice.second else choice.target
