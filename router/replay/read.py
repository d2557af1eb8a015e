"""Reads a stretch of the ledger and decides each of its requests under both policies."""

import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import isnan, nan
from typing import Any, NamedTuple

import numpy as np

from router.budget.budget import ChargedTo
from router.decide.strategies import CascadeStrategy, Strategy
from router.decide.worth import PERFECT, RHO, CascadeValue, VerifierQuality, cascade_value, sample_value
from router.estimate.estimate import per_choice
from router.ledger.query import RequestRow
from router.replay.part import CHARGE, MOVE, ROW, SERVED, TRIAL, UNANSWERED, Flow, Labels, Move, Part, TargetTotals
from router.replay.part import REFUSED as PART_REFUSED
from router.replay.sides import (
    REFUSED,
    Choice,
    NewDecision,
    Policies,
    PolicyReplay,
    Stored,
    repriced,
    same,
    same_rules,
    stored,
    trial,
)
from router.types.account import Account, Unit
from router.types.decision import Dropped, Hedge, Plan, Vector, Vote, Weighed
from router.types.request import Caller
from router.types.target import Target

# What a choice is expected to cost, target by target, and how likely it ends in a right answer.

_FREE = np.array([1.0, 0.0])


class ExpectedValue(NamedTuple):
    """Expected nano-USD of the first target and of the second, and the pass rate of what is given in the end."""

    first: float
    second: float
    p: float


_UNKNOWN, _NOTHING = ExpectedValue(nan, nan, nan), ExpectedValue(0.0, 0.0, 0.0)


def alone(side: PolicyReplay, record: Stored, target: Target, weighed: Sequence[Weighed] = ()) -> ExpectedValue:
    """Expected nano-USD and pass rate of a target that is asked alone. `weighed`: what the decision has worked out."""
    for each in weighed:
        if each.target == target.id:
            return ExpectedValue(each.cost_nano, 0.0, each.p)
    classification = side.classified(record)
    cap = per_choice(record.request, side.rules.screen.guard.demands(classification.classes).thinking_cap)
    forecast = side.forecaster.forecast((target,), record.request, classification, record.row.started_ms, cap)
    return ExpectedValue(float(forecast.cost[0]), 0.0, float(forecast.p[0]))


def expected(side: PolicyReplay, record: Stored, choice: Choice, weighed: Sequence[Weighed] = ()) -> ExpectedValue:
    """As the strategy itself values it: a pair by the chance that its second is asked. A hedge's second is taken
    not to be asked, as is mostly so. A refusal costs nothing, and is never right."""
    if not choice.target:
        return _NOTHING
    first, second = side.targets.get(choice.target), side.targets.get(choice.second)
    if first is None or (second is None and choice.second):
        return _UNKNOWN
    if second is None or isinstance(choice.tactic, Hedge):
        return alone(side, record, first, weighed)
    strategy = (side.rules.routes.get(side.named(record)) or next(iter(side.rules.routes.values())))[0].strategy
    each = (alone(side, record, first, weighed), alone(side, record, second, weighed))
    cost, p = np.array([part.first for part in each]), np.array([part.p for part in each])
    both, without = (_pair(choice, strategy, some, p) for some in (cost, cost * _FREE))
    return ExpectedValue(*map(float, (without.cost[0, 1], both.cost[0, 1] - without.cost[0, 1], both.p[0, 1])))


def _pair(choice: Choice, strategy: Strategy, cost: Vector, p: Vector) -> CascadeValue:
    if isinstance(choice.tactic, Vote):
        return sample_value(cost, p, choice.tactic.samples)
    check = (
        VerifierQuality(strategy.accepts_right, strategy.accepts_wrong)
        if isinstance(strategy, CascadeStrategy)
        else PERFECT
    )
    return cascade_value(cost, p, check, RHO)


# Why a decision changes, in the words that decisions have anyway.

_POLICY_REASONS = frozenset({"not_allowed", "evidence_expired", "data_class", "region", "capability", "unpriced"})
"""Reasons whose detail is of the policy alone: others have numbers of the request in it."""


def why(record: Stored, decided: NewDecision, new: PolicyReplay) -> str:
    """`decided` is another choice than the stored one."""
    before, after, decision = record.choice, decided.choice, decided.decision
    if decision is None:
        return "the policy has no such route, or the key may not name it"
    plan = decision.plan
    if after == REFUSED:
        return _reason(next((each for each in plan.dropped if each.target == before.target), None) or plan.dropped[0])
    if before == REFUSED:
        return "a target may serve it"
    if before.target != after.target:
        return _left(before.target, plan, new)
    if before.tactic != after.tactic or before.second != after.second:
        how = "alone" if after.tactic is None else type(after.tactic).__name__.lower()
        return f"{plan.strategy}: {how}"
    return "sees placeholders" if after.redacted else "sees all of it"


def _left(target: str, plan: Plan, new: PolicyReplay) -> str:
    """Why `target` is not first any more."""
    dropped = next((each for each in plan.dropped if each.target == target), None)
    if dropped is not None:
        return _reason(dropped)
    route = new.rules.routes.get(plan.route)
    if route is None or target not in (each.id for each in route[1]):
        return f"{target} is no target of the route"
    weighed = next((each.why for each in plan.weigh() if each.target == target), "")
    if plan.explored:
        return f"an experiment ({plan.explored})"
    return f"{plan.strategy}: {target} is {weighed}" if weighed else plan.strategy


def _reason(dropped: Dropped) -> str:
    detail = f": {dropped.detail}" if dropped.reason in _POLICY_REASONS else ""
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


class ReplayReader:
    """`take` each request, then the `part`. `scores`: how good an answer was, by its request's id."""

    def __init__(self, compared: Policies, callers: Mapping[str, Caller], wanted: Wanted, scores: Scores) -> None:
        self._compared, self._new = compared, compared.new
        self._callers, self._wanted, self._scores = callers, wanted, scores
        self._same: dict[tuple[int, str], bool] = {}
        self._terms: dict[tuple[int, str], bool] = {}
        self._routes, self._targets = Labels[str](), Labels[str]()
        self._moves, self._accounts = Labels[Move](), Labels[Account]()
        self._read = 0
        self._rows: list[Any] = []
        self._changed: list[Any] = []
        self._trials: list[Any] = []
        self._charges: list[Any] = []
        self._totals: dict[str, TargetTotals] = {}
        self._before, self._after, self._unknown = Counter[Flow](), Counter[Flow](), Counter[str]()
        budgets = self._new.config.budgets
        self._limited = any(budget.unit is Unit.USD and not budget.soft for budget in budgets)

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
            totals=self._totals,
            before=self._before,
            after=self._after,
            unknown=self._unknown,
            read=self._read,
        )

    def take(self, rows: Sequence[RequestRow]) -> None:
        self._read += len(rows)
        records = [record for row in rows if (record := self._replayable(row)) is not None]
        for side in {id(side): side for side in (self._new, *self._compared.old.values())}.values():
            side.look(records)
        for record in records:
            self._decide(record)

    def _replayable(self, row: RequestRow) -> Stored | None:
        record = stored(row, self._callers)
        if isinstance(record, str):
            self._unknown[record] += 1
            return None
        if record.row.route == JUDGED and JUDGED not in self._new.config.routes:
            self._unknown["judges"] += 1
            return None
        return record if self._wanted(record) else None

    def _decide(self, record: Stored) -> None:
        old, decided = self._compared.old.get(record.document.policy), None
        if old is None:
            self._unknown["other_policy"] += 1
        if old is None or not self._alike(old, record):
            decided = self._new.decide(record)
            for code in self._new.unknown(record):
                self._unknown[code] += 1
            self._try(record, decided)
        changed = decided is not None and decided.choice != record.choice and not self._learned(record, old, decided)
        self._line(record, decided if changed else None)
        if changed and decided is not None:
            self._change(record, old, decided)
        else:
            self._unknown["repriced"] += self._repriced(record, old)
            if self._limited:
                self._charge(record, record.row.route, tuple(each.target for each in record.document.considered))
        self._compare(record, old)

    def _alike(self, old: PolicyReplay, record: Stored) -> bool:
        """Both have the same rules for it: then what is known today can't tell them apart."""
        key = (id(old), self._new.named(record))
        if key not in self._same:
            self._same[key] = same_rules(old, self._new, key[1])
        return self._same[key]

    def _repriced(self, record: Stored, old: PolicyReplay | None) -> bool:
        """The new policy has another model or price behind the target that it stays with; without the old policy the
        decision tells the model."""
        name = record.choice.target
        target, before = self._new.config.targets.get(name), old.config.targets.get(name) if old else None
        if target is None or before is None:
            model = next((each.model for each in record.document.considered if each.target == name), "")
            return target is not None and bool(model) and model != target.model.id
        if (id(old), name) not in self._terms:
            self._terms[id(old), name] = repriced(before, target)
        return self._terms[id(old), name]

    def _learned(self, record: Stored, old: PolicyReplay | None, decided: NewDecision) -> bool:
        """Its own policy would decide so too by now: that is no merit of the new one, which would still let it be."""
        if old is None or decided.decision is None:
            return False
        plan = decided.decision.plan
        able = {each.target for each in plan.weigh()} or {step.target.id for step in plan.steps}
        if (
            not {record.choice.target, record.choice.second} - {""} <= able
            or old.decide(record).choice != decided.choice
        ):
            return False
        self._unknown["learned"] += 1
        return True

    def _line(self, record: Stored, decided: NewDecision | None) -> None:
        """`decided`: where it changes."""
        before = PART_REFUSED if not record.choice.target else SERVED if record.answered else UNANSWERED
        after = before
        choice = record.choice if decided is None else decided.choice
        if decided is not None:
            after = PART_REFUSED if not choice.target else before if before == UNANSWERED else SERVED
        self._rows.append((self._routes.at(record.row.route), _bucket(record), record.spent, before, after))
        if record.row.attempts:
            _flow(self._before, record, record.document.policy, record.choice)
        if record.row.attempts or before == PART_REFUSED:
            _flow(self._after, record, self._new.hash, choice)

    def _change(self, record: Stored, old: PolicyReplay | None, decided: NewDecision) -> None:
        choice, decision = decided.choice, decided.decision
        if not record.answered and record.choice.target:
            self._unknown["unanswered"] += 1
            if choice.target:
                return
        weighed = () if decision is None else decision.plan.weigh()
        new, before = expected(self._new, record, choice, weighed), self._p_before(record, old, weighed)
        if decision is not None and choice.target:
            self._charge(record, decision.plan.route, tuple(step.target.id for step in decision.plan.steps))
        move = Move(record.row.route, _who(record.choice), _who(choice), why(record, decided, self._new))
        failure = None if decision is None else decision.stakes.failure_nano
        first, second = (self._targets.at(name) if name else -1 for name in (choice.target, choice.second))
        self._changed.append(
            (
                *(len(self._rows) - 1, self._moves.at(move), record.row.id.encode(), record.row.started_ms),
                *(new.first, new.second, first, second, new.p, before),
                *(failure or 0, decision is not None and trial(record, decision.plan).supported),
            )
        )

    def _p_before(self, record: Stored, old: PolicyReplay | None, weighed: Sequence[Weighed]) -> float:
        """By what is known today; where the target is gone, by what was known then."""
        name = record.choice.target
        if old is None or same(old.targets.get(name), self._new.targets.get(name)):
            p = expected(self._new, record, record.choice, weighed).p
        else:
            p = expected(old, record, record.choice).p
        return next((each.p for each in record.document.weighed if each.target == name), p) if isnan(p) else p

    def _compare(self, record: Stored, old: PolicyReplay | None) -> None:
        """What an answer cost, with what it is expected to cost."""
        name = record.choice.target
        known = self._totals.get(name, TargetTotals())
        if (
            not record.answered
            or record.row.attempts != 1
            or record.choice.tactic is not None
            or known.answers >= MOST_SEEN
        ):
            return
        target = self._new.targets.get(name)
        if target is None or (old is not None and not same(old.targets.get(name), target)):
            return
        self._totals[name] = known.plus(TargetTotals(1, record.spent, alone(self._new, record, target).first))

    def _try(self, record: Stored, decided: NewDecision) -> None:
        """An experiment that asked whom the new policy would choose."""
        if not record.document.explored or decided.decision is None or not record.answered:
            return
        tried = trial(record, decided.decision.plan)
        target = self._new.targets.get(tried.target)
        if target is None:
            return
        likely, score = alone(self._new, record, target), self._scores(record.row.id)
        self._trials.append(
            (
                *(self._routes.at(record.row.route), _bucket(record), self._targets.at(tried.target)),
                *(1 / record.document.propensity, record.spent, likely.first, likely.p),
                nan if score is None else score,
            )
        )

    def _charge(self, record: Stored, route: str, targets: tuple[str, ...]) -> None:
        """The pots of the new policy that it would be charged to; what was not sent then is not charged now."""
        if not self._limited or not targets or not (record.row.attempts or not record.choice.target):
            return
        rules = self._new.rules
        row, tags = record.row, record.request.limits.tags
        charged = ChargedTo(row.id, route, record.caller, row.session, tags, targets)
        binds = rules.accounts.binding(charged, rules.accounts.named(record.request, record.caller))
        for account in rules.accounts.accounts(charged, binds, record.row.started_ms):
            if account.hard and account.unit is Unit.USD and (not account.targets or targets[0] in account.targets):
                place = (len(self._rows) - 1, self._accounts.at(account))
                self._charges.append((*place, record.row.id.encode(), record.row.started_ms))


def _bucket(record: Stored) -> int:
    return zlib.crc32((record.row.session or str(record.row.started_ms // _HOUR_MS)).encode()) % BUCKETS


def _flow(flows: Counter[Flow], record: Stored, policy: str, choice: Choice) -> None:
    for target in (choice.target, choice.second):
        if target:
            flows[Flow(record.row.data_class, policy, target, choice.redacted)] += 1


def _who(choice: Choice) -> str:
    """Empty: it was refused."""
    return f"{choice.target} + {choice.second}" if choice.second else choice.target
