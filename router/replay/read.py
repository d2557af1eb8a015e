"""Reads a range of the ledger, decides its requests under both policies, and collects the results."""

import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import groupby
from math import isnan, nan
from operator import add, itemgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from router.budget.budget import ChargedTo
from router.decide.strategies import CascadeStrategy, Strategy
from router.decide.worth import CascadeValue, VerifierQuality, cascade_value, sample_value
from router.estimate.estimate import per_choice
from router.estimate.forecast import ForecastInput
from router.ledger.facts import HOUR_MS, JUDGE
from router.ledger.query import RequestRow
from router.replay.sides import Choice, NewDecision, Policies, PolicyReplay, Stored, repriced, same, same_rules, stored
from router.types.account import Account, Unit
from router.types.decision import Dropped, FittedRequest, Hedge, Plan, Vector, Vote, Weighed
from router.types.request import Caller
from router.types.target import Target

# Results of a range of the ledger: a line per request, and further lines for those whose decision changes.

K = TypeVar("K", bound=Hashable)
Lines = NDArray[np.void]
"""Structured array with one value per line."""

SERVED, REFUSED, UNANSWERED = range(3)
"""Outcomes of requests. Unanswered: its target failed, a budget was exhausted, it looped or its client left."""
ROW = np.dtype([("route", "i4"), ("bucket", "i4"), ("spent", "i8"), ("before", "i1"), ("after", "i1")])
MOVE = np.dtype(
    [
        *(("row", "i8"), ("move", "i4"), ("id", "S32"), ("at_ms", "i8")),
        *(("first", "f8"), ("second", "f8"), ("to", "i2"), ("then", "i2")),
        *(("p", "f4"), ("p_before", "f4"), ("failure", "f4"), ("supported", "?")),
    ]
)
"""A changed decision. `first`, `second`: expected nano-USD of the new targets `to` and `then`; NaN if unknown."""
TRIAL = np.dtype(
    [
        *(("route", "i4"), ("bucket", "i4"), ("to", "i4"), ("weight", "f8")),
        *(("paid", "f8"), ("expected", "f8"), ("p", "f8"), ("score", "f8")),
    ]
)
"""An experiment that asked the new policy's choice: its cost and outcome."""
CHARGE = np.dtype([("row", "i8"), ("account", "i4"), ("id", "S32"), ("at_ms", "i8")])
LINES = {"rows": ROW, "changed": MOVE, "trials": TRIAL, "charges": CHARGE}
NO_TARGET = "(refused)"
NUMBERED = {"route": "routes", "to": "targets", "then": "targets", "move": "moves", "account": "accounts"}
"""Fields of lines that are numbers of labels, with the field of `Part` that has the labels."""

Move = tuple[str, str, str, str]
"""A kind of change: route, old choice, new choice and reason."""


class Flow(NamedTuple):
    """Destination of a class: a target under a policy, and whether it sees placeholders."""

    data_class: str
    policy: str
    target: str
    redacted: bool


class TargetTotals(NamedTuple):
    """Totals of a target's answers without another target: count, and actual and expected nano-USD."""

    answers: int = 0
    observed: int = 0
    expected: float = 0.0

    def plus(self, other: "TargetTotals") -> "TargetTotals":
        return TargetTotals._make(map(add, self, other))


def number_of(numbers: dict[K, int], label: K) -> int:
    """Returns the number of a label, which is added if it is new."""
    return numbers.setdefault(label, len(numbers))


class Part(Struct, frozen=True, kw_only=True):
    """Results of a range. Lines (`LINES`) refer to labels by number (`NUMBERED`)."""

    rows: Lines
    changed: Lines
    trials: Lines
    charges: Lines
    routes: tuple[str, ...]
    targets: tuple[str, ...]
    moves: tuple[Move, ...]
    accounts: tuple[Account, ...]
    totals: dict[str, TargetTotals]
    before: Counter[Flow]
    after: Counter[Flow]
    unknown: Counter[str]


def joined(parts: Sequence[Part]) -> Part:
    """Joins parts in the order of time, and renumbers their labels; numbers below 0 stand for no label."""
    labels: dict[str, dict[Any, int]] = {name: {} for name in NUMBERED.values()}
    lines = {name: [np.zeros(0, kind)] for name, kind in LINES.items()}
    totals: dict[str, TargetTotals] = {}
    first = 0
    for part in parts:
        numbers = {
            name: np.array([number_of(known, label) for label in getattr(part, name)], np.int32)
            for name, known in labels.items()
        }
        for name, kind in LINES.items():
            moved = getattr(part, name).copy()
            for field in NUMBERED.keys() & {*(kind.names or ())}:
                has_label = moved[field] >= 0
                moved[field][has_label] = numbers[NUMBERED[field]][moved[field][has_label]]
            if "row" in (kind.names or ()):
                moved["row"] += first
            lines[name].append(moved)
        first += len(part.rows)
        for name, counts in part.totals.items():
            totals[name] = totals.get(name, TargetTotals()).plus(counts)
    arrays: dict[str, Any] = {name: np.concatenate(arrays_of_kind) for name, arrays_of_kind in lines.items()}
    return Part(
        **arrays | {name: tuple(known) for name, known in labels.items()},
        totals=totals,
        before=sum((part.before for part in parts), Counter[Flow]()),
        after=sum((part.after for part in parts), Counter[Flow]()),
        unknown=sum((part.unknown for part in parts), Counter[str]()),
    )


# The new policy's budgets in the order of time, to find the requests that they would stop.


def stopped(charges: Lines, accounts: Sequence[Account], paid: Vector) -> NDArray[np.intp]:
    """Returns [rows]: the account that stops a request, or −1. `charges` are by row, `paid` [rows] in nano-USD.

    An account stops every request once its limit is reached; all of them begin empty. Holds and parallel requests are
    not simulated: each request is charged before the next one comes.
    """
    stopped_by = np.full(len(paid), -1, np.intp)
    booked: dict[str, dict[int, float]] = defaultdict(dict)
    costs = paid.tolist()
    for row, lines in groupby(zip(charges["row"].tolist(), charges["account"].tolist(), strict=True), itemgetter(0)):
        numbers = [number for _, number in lines]
        exhausted = (n for n in numbers if _spent(booked[accounts[n].id], accounts[n]) >= accounts[n].limit)
        stopped_by[row] = next(exhausted, -1)
        for account in (accounts[number] for number in numbers if stopped_by[row] < 0):
            window = booked[account.id]
            window[account.window_start_ms] = window.get(account.window_start_ms, 0.0) + costs[row]
    return stopped_by


def _spent(booked: dict[int, float], account: Account) -> float:
    """Returns the amount in the account's window, and removes older amounts."""
    if account.since_ms == account.window_start_ms:
        return booked.get(account.window_start_ms, 0.0)
    for start in [start for start in booked if start < account.since_ms]:
        del booked[start]
    return sum(booked.values())


# Expected cost of a choice, by target, and its pass rate.

_FREE = np.array([1.0, 0.0])


class ExpectedValue(NamedTuple):
    """Expected nano-USD of the first and second target, and the pass rate of the final answer."""

    first: float
    second: float
    p: float


_UNKNOWN, _NOTHING = ExpectedValue(nan, nan, nan), ExpectedValue(0.0, 0.0, 0.0)


def alone(side: PolicyReplay, record: Stored, target: Target, weighed: Sequence[Weighed] = ()) -> ExpectedValue:
    """Returns the value of asking one target; `weighed` are values that the decision has computed already."""
    for each in weighed:
        if each.target == target.id:
            return ExpectedValue(each.cost_nano, 0.0, each.p)
    classification = side.classified(record)
    cap = per_choice(record.request, side.rules.screen.guard.demands(classification.classes).thinking_cap)
    about = ForecastInput(record.request, classification, record.row.started_ms)
    forecast = side.forecaster.forecast((target,), about, fits=(FittedRequest(thinking_budget=cap),))
    return ExpectedValue(float(forecast.cost[0]), 0.0, float(forecast.p[0]))


def expected(side: PolicyReplay, record: Stored, choice: Choice, weighed: Sequence[Weighed] = ()) -> ExpectedValue:
    """Returns the value of a choice as its strategy computes it: of a pair, by the probability that the second target
    is asked. A hedge counts as its first target only. A refusal costs nothing and never passes."""
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
    accepts = (strategy.accepts_right, strategy.accepts_wrong) if isinstance(strategy, CascadeStrategy) else ()
    return cascade_value(cost, p, VerifierQuality(*accepts))


# Reasons for changed decisions, in the words of decisions.

_POLICY_REASONS = frozenset({"not_allowed", "evidence_expired", "data_class", "region", "capability", "unpriced"})
"""Reasons whose detail depends only on the policy; details of others contain numbers of the request."""


def why(record: Stored, decided: NewDecision, new: PolicyReplay) -> str:
    """Returns why a decision changes; its new choice must differ from the recorded one."""
    before, after, decision = record.choice, decided.choice, decided.decision
    if decision is None:
        return "the policy has no such route, or the key may not name it"
    plan = decision.plan
    if not after.target:
        return _reason(next((each for each in plan.dropped if each.target == before.target), None) or plan.dropped[0])
    if not before.target:
        return "a target may serve it"
    if before.target != after.target:
        return _why_left(before.target, plan, new)
    if before.tactic != after.tactic or before.second != after.second:
        how = "alone" if after.tactic is None else type(after.tactic).__name__.lower()
        return f"{plan.strategy}: {how}"
    return "sees placeholders" if after.redacted else "sees all of it"


def _why_left(target: str, plan: Plan, new: PolicyReplay) -> str:
    """Returns why `target` is not the first choice any more."""
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


# Reading a range of the ledger: what was done for each request, and what the new policy would do.

BUCKETS = 4_096
"""Number of clusters for intervals: sessions, or hours of requests without one, assigned by hash."""
MAX_COMPARED_ANSWERS = 128
"""Maximum number of a target's answers, per range, that are compared with its expected cost."""
Wanted = Callable[[Stored], bool]
Scores = Callable[[str], float | None]


class ReplayReader:
    """Collects requests with `take`; `part` returns the results. `scores` returns an answer's score by request id."""

    def __init__(self, compared: Policies, callers: Mapping[str, Caller], wanted: Wanted, scores: Scores) -> None:
        self._compared, self._new = compared, compared.new
        self._callers, self._wanted, self._scores = callers, wanted, scores
        self._terms: dict[tuple[int, str], bool] = {}
        self._labels: dict[str, dict[Any, int]] = {name: {} for name in NUMBERED.values()}
        self._lines: dict[str, list[Any]] = {name: [] for name in LINES}
        self._totals: dict[str, TargetTotals] = {}
        self._before, self._after, self._unknown = Counter[Flow](), Counter[Flow](), Counter[str]()
        self._limited = any(budget.unit is Unit.USD and not budget.soft for budget in self._new.config.budgets)

    def part(self) -> Part:
        arrays: dict[str, Any] = {name: np.array(lines, LINES[name]) for name, lines in self._lines.items()}
        return Part(
            **arrays | {name: tuple(known) for name, known in self._labels.items()},
            totals=self._totals,
            before=self._before,
            after=self._after,
            unknown=self._unknown,
        )

    def take(self, row: RequestRow) -> None:
        record = stored(row, self._callers)
        if isinstance(record, str):
            self._unknown[record] += 1
            return
        if record.row.route == JUDGE and JUDGE not in self._new.config.routes:
            self._unknown["judges"] += 1
            return
        if not self._wanted(record):
            return
        old, decided = self._compared.old.get(record.document.policy), None
        if old is None:
            self._unknown["other_policy"] += 1
        if old is None or not same_rules(old, self._new, self._new.named(record)):
            decided = self._new.decide(record)
            self._unknown.update(self._new.unknown(record))
            self._try(record, decided)
        if decided is not None and (decided.choice == record.choice or self._learned(record, old, decided)):
            decided = None
        self._line(record, decided)
        if decided is not None:
            self._change(record, old, decided)
        else:
            self._unknown["repriced"] += self._repriced(record, old)
            if self._limited:
                self._charge(record, record.row.route, tuple(each.target for each in record.document.considered))
        self._compare(record, old)

    def _number(self, field: str, label: Hashable) -> int:
        return number_of(self._labels[NUMBERED[field]], label)

    def _repriced(self, record: Stored, old: PolicyReplay | None) -> bool:
        """Whether the new policy has another model or price behind an unchanged target. Without the old policy, only
        the model is compared, with that of the decision."""
        name = record.choice.target
        target, before = self._new.config.targets.get(name), old.config.targets.get(name) if old else None
        if target is None or before is None:
            model = next((each.model for each in record.document.considered if each.target == name), "")
            return target is not None and bool(model) and model != target.model.id
        if (id(old), name) not in self._terms:
            self._terms[id(old), name] = repriced(before, target)
        return self._terms[id(old), name]

    def _learned(self, record: Stored, old: PolicyReplay | None, decided: NewDecision) -> bool:
        """Whether the old policy would decide the same by now, and the new one still allows the old choice."""
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
        """Adds the line of a request; `decided` is its new decision, if that is a change."""
        before = REFUSED if not record.choice.target else SERVED if record.answered else UNANSWERED
        after = before
        choice = record.choice if decided is None else decided.choice
        if decided is not None:
            after = REFUSED if not choice.target else before if before == UNANSWERED else SERVED
        route = self._number("route", record.row.route)
        self._lines["rows"].append((route, _bucket(record), record.spent, before, after))
        if record.row.attempts:
            _flow(self._before, record, record.document.policy, record.choice)
        if record.row.attempts or before == REFUSED:
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
        move = (record.row.route, _choice_text(record.choice), _choice_text(choice), why(record, decided, self._new))
        failure = None if decision is None else decision.stakes.failure_nano
        first, second = (self._number("to", name) if name else -1 for name in (choice.target, choice.second))
        self._lines["changed"].append(
            (
                *(
                    len(self._lines["rows"]) - 1,
                    self._number("move", move),
                    record.row.id.encode(),
                    record.row.started_ms,
                ),
                *(new.first, new.second, first, second, new.p, before),
                *(failure or 0, decision is not None and record.trial(decision.plan).supported),
            )
        )

    def _p_before(self, record: Stored, old: PolicyReplay | None, weighed: Sequence[Weighed]) -> float:
        """Returns the old choice's pass rate as known today, or as of then if its target no longer exists."""
        name = record.choice.target
        if old is None or same(old.targets.get(name), self._new.targets.get(name)):
            p = expected(self._new, record, record.choice, weighed).p
        else:
            p = expected(old, record, record.choice).p
        return next((each.p for each in record.document.weighed if each.target == name), p) if isnan(p) else p

    def _compare(self, record: Stored, old: PolicyReplay | None) -> None:
        """Adds an answer's actual and expected cost to the totals of its target."""
        name = record.choice.target
        known = self._totals.get(name, TargetTotals())
        if (
            not record.answered
            or record.row.attempts != 1
            or record.choice.tactic is not None
            or known.answers >= MAX_COMPARED_ANSWERS
        ):
            return
        target = self._new.targets.get(name)
        if target is None or (old is not None and not same(old.targets.get(name), target)):
            return
        self._totals[name] = known.plus(TargetTotals(1, record.spent, alone(self._new, record, target).first))

    def _try(self, record: Stored, decided: NewDecision) -> None:
        """Adds an experiment that asked the new policy's choice."""
        if not record.document.explored or decided.decision is None or not record.answered:
            return
        tried = record.trial(decided.decision.plan)
        target = self._new.targets.get(tried.target)
        if target is None:
            return
        likely, score = alone(self._new, record, target), self._scores(record.row.id)
        self._lines["trials"].append(
            (
                *(self._number("route", record.row.route), _bucket(record), self._number("to", tried.target)),
                *(1 / record.document.propensity, record.spent, likely.first, likely.p),
                nan if score is None else score,
            )
        )

    def _charge(self, record: Stored, route: str, targets: tuple[str, ...]) -> None:
        """Adds the new policy's accounts that a request is charged to; requests that were not sent are not charged."""
        if not self._limited or not targets or not (record.row.attempts or not record.choice.target):
            return
        rules = self._new.rules
        row, tags = record.row, record.request.limits.tags
        charged = ChargedTo(row.id, route, record.caller, row.session, tags, targets)
        binds = rules.accounts.binding(charged, rules.accounts.named(record.request, record.caller))
        for account in rules.accounts.accounts(charged, binds, record.row.started_ms):
            if account.hard and account.unit is Unit.USD and (not account.targets or targets[0] in account.targets):
                place = (len(self._lines["rows"]) - 1, self._number("account", account))
                self._lines["charges"].append((*place, record.row.id.encode(), record.row.started_ms))


def _bucket(record: Stored) -> int:
    return zlib.crc32((record.row.session or str(record.row.started_ms // HOUR_MS)).encode()) % BUCKETS


def _flow(flows: Counter[Flow], record: Stored, policy: str, choice: Choice) -> None:
    for target in (choice.target, choice.second):
        if target:
            flows[Flow(record.row.data_class, policy, target, choice.redacted)] += 1


def _choice_text(choice: Choice) -> str:
    return f"{choice.target} + {choice.second}" if choice.second else choice.target or NO_TARGET
