"""One stretch of the ledger, request by request: what was done, and what the new policy would do."""

import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import isnan, nan
from typing import Any

import numpy as np

from router.budget.budget import Charged
from router.choose import named
from router.ledger.decided import Row
from router.replay.expected import Asked, Expected, alone, expected
from router.replay.part import CHARGE, MOVE, REFUSED, ROW, SERVED, TRIAL, UNANSWERED, Flow, Labels, Move, Part, Seen
from router.replay.sides import Compared, Decided, Side, alike, same
from router.replay.stored import Choice, Stored, stored
from router.replay.trial import trial
from router.replay.why import why
from router.types.account import Account, Unit
from router.types.plan import Weighed
from router.types.request import Caller

BUCKETS = 4_096
"""Clusters that intervals are made of: sessions, and hours of requests without one, thrown together at random."""
MOST_SEEN = 128
"""Answers of a target, in one stretch, that its expected cost is compared with."""
JUDGED = "judge"
"""What a judge's requests are called in place of their route."""
_HOUR_MS = 3_600_000
_UNKNOWN = Expected(nan, nan, nan)
_NOTHING = Expected(0.0, 0.0, 0.0)
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
        found = self._same.get(key)
        if found is None:
            found = self._same[key] = alike(old, self._new, key[1])
        return found

    def _learned(self, one: Stored, old: Side | None, decided: Decided) -> bool:
        """Its own policy would decide so too by now: that is no merit of the new one, which would still let it be."""
        if old is None or not _may(decided, one.choice) or old.decide(one).choice != decided.choice:
            return False
        self._unknown["learned"] += 1
        return True

    def _line(self, one: Stored, decided: Decided | None) -> None:
        """`decided`: where it changes."""
        before = REFUSED if not one.choice.target else SERVED if one.answered else UNANSWERED
        after = before
        choice = one.choice if decided is None else decided.choice
        if decided is not None:
            after = REFUSED if not choice.target else before if before == UNANSWERED else SERVED
        self._rows.append((self._routes.at(one.route), _bucket(one), one.spent, before, after))
        if one.sent:
            _flow(self._before, one, one.document.policy, one.choice)
        if one.sent or before == REFUSED:
            _flow(self._after, one, self._new.hash, choice)

    def _change(self, one: Stored, old: Side | None, decided: Decided) -> None:
        choice, decision = decided.choice, decided.decision
        if not one.answered and one.choice.target:
            self._unknown["unanswered"] += 1
            if choice.target:
                return
        weighed = () if decision is None else decision.plan.weighed
        found = self._expected(one, self._new, choice, weighed)
        before = self._p_before(one, old, weighed)
        if decision is not None and choice.target:
            self._charge(one, decision.plan.route, tuple(step.target.id for step in decision.plan.steps))
        move = Move(one.route, _who(one.choice), _who(choice), why(one, decided, self._new))
        failure = None if decision is None else decision.stakes.failure_nano
        first, second = (self._targets.at(name) if name else -1 for name in (choice.target, choice.second))
        self._changed.append(
            (
                *(len(self._rows) - 1, self._moves.at(move), one.id.encode(), one.at_ms),
                *(found.first, found.second, first, second, found.p, before),
                *(failure or 0, decision is not None and trial(one, decision.plan).supported),
            )
        )

    def _expected(self, one: Stored, side: Side, choice: Choice, weighed: Sequence[Weighed] = ()) -> Expected:
        """A refusal costs nothing, and is never right."""
        if not choice.target:
            return _NOTHING
        first, second = side.targets.get(choice.target), side.targets.get(choice.second)
        if first is None or (second is None and choice.second):
            return _UNKNOWN
        found = side.rules.routes.get(side.named(one)) or next(iter(side.rules.routes.values()))
        return expected(self._asked(one, side, weighed), choice, found[0].strategy, first, second)

    def _p_before(self, one: Stored, old: Side | None, weighed: Sequence[Weighed]) -> float:
        """By what is known today; where the target is gone, by what was known then."""
        name = one.choice.target
        if old is None or same(old.targets.get(name), self._new.targets.get(name)):
            found = self._expected(one, self._new, one.choice, weighed).p
        else:
            found = self._expected(one, old, one.choice).p
        if isnan(found):
            found = next((each.p for each in one.document.weighed if each.target == one.choice.target), found)
        return found

    def _asked(self, one: Stored, side: Side, weighed: Sequence[Weighed] = ()) -> Asked:
        seen = side.seen(one)
        cap = side.rules.screen.guard.demands(seen.classes).thinking_cap
        return Asked(one, seen, side.forecaster, cap, weighed)

    def _compare(self, one: Stored, old: Side | None) -> None:
        """What an answer cost, with what it is expected to cost."""
        name = one.choice.target
        known = self._seen.get(name, Seen())
        if not one.answered or one.sent != 1 or one.choice.tactic is not None or known.answers >= MOST_SEEN:
            return
        target = self._new.targets.get(name)
        if target is None or (old is not None and not same(old.targets.get(name), target)):
            return
        found = alone(self._asked(one, self._new), target)
        self._seen[name] = known.plus(Seen(1, one.spent, found.first))

    def _try(self, one: Stored, decided: Decided) -> None:
        """An experiment that asked whom the new policy would choose."""
        if not one.document.explored or decided.decision is None or not one.answered:
            return
        found = trial(one, decided.decision.plan)
        target = self._new.targets.get(found.target)
        if target is None:
            return
        likely = alone(self._asked(one, self._new), target)
        score = self._scores(one.id)
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


def _may(decided: Decided, choice: Choice) -> bool:
    """What was chosen then might still be."""
    plan = None if decided.decision is None else decided.decision.plan
    if plan is None:
        return False
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
