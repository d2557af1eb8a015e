"""Every step of a store, in any order, under clocks that jump: it says what the model says, and nobody overspends."""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import ExitStack
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine
from msgspec import structs

from router.types.account import Account, Amount, Child, HoldRequest, Refused, Reservation, Unit
from tests.budget.conformance.desk import HOUR, NOW, ONLY_A, Desk, account, hourly, last_hour
from tests.budget.conformance.model import Model
from tests.budget.conformance.stores import empty

T = TypeVar("T")
AMOUNTS = st.integers(0, 1_500)
JUMPS = (1_000, 40_000, 20 * 60_000, HOUR, 30 * HOUR, -50_000, -HOUR, -30 * HOUR)
PARALLEL = "key.parallel|a"
NAMES = ("forever", "hour", "rolling", "thoughts", "soft", "target", "rate", PARALLEL)


def accounts(now: int) -> dict[str, Account]:
    forever, hour = account("forever", 40_000), hourly(now, "hour", 3_000)
    thoughts = structs.replace(hourly(now, "thoughts", 2_000), unit=Unit.THINKING)
    soft, target = hourly(now, "soft", 500, hard=False), hourly(now, "target", 800, **ONLY_A)
    rate = structs.replace(hourly(now, "rate", 10), unit=Unit.REQUESTS, size=3)
    parallel = account(PARALLEL, 3, unit=Unit.PARALLEL, size=1)
    every = (forever, hour, last_hour(now, "rolling", 3_000), thoughts, soft, target, rate, parallel)
    return {one.id: one for one in every}


@st.composite
def asks(draw: st.DrawFn) -> HoldRequest:
    steps = [sorted(draw(st.tuples(AMOUNTS, AMOUNTS, AMOUNTS))) for _ in range(2)]
    least, tight, whole = zip(*steps, strict=True)
    spare = draw(st.dictionaries(st.sampled_from(NAMES), AMOUNTS, max_size=2))
    return HoldRequest(least=Amount(*least), tight=Amount(*tight), whole=Amount(*whole), spare=spare)


class Orders(RuleBasedStateMachine):
    kind: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.loop, self.model = asyncio.new_event_loop(), Model()
        self.now = self.latest = NOW
        self.open: dict[str, Reservation] = {}
        self.ended: dict[str, Reservation] = {}
        self.orphans: dict[str, Reservation] = {}
        self.number = 0
        self.place = ExitStack()

    @initialize()
    def start(self) -> None:
        self.desk = Desk(self.place.enter_context(empty(self.kind)))
        self.do(self.desk.__aenter__())

    def do(self, step: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(step)

    def live(self) -> dict[str, Account]:
        """Accounts of the policy and of the children, as they are now."""
        return accounts(self.now) | {name: child.account() for name, child in self.model.children.items()}

    def bound(self, names: set[str], child: str | None) -> list[Account]:
        """A child stands for its ancestors."""
        known = self.live()
        if child is None:
            return [known[name] for name in sorted(names)]
        made = self.model.children[child]
        return [known[name] for name in sorted(names - set(made.replaces))] + [made.account()]

    @rule(names=st.sets(st.sampled_from(NAMES), min_size=1), wanted=asks(), data=st.data())
    def reserve(self, names: set[str], wanted: HoldRequest, data: st.DataObject) -> None:
        child = data.draw(st.none() | st.sampled_from(sorted(self.model.children))) if self.model.children else None
        chosen = self.bound(names, child)
        self.number += 1
        name = f"request-{self.number}"
        outcome = self.do(self.desk.reserve(chosen, wanted, self.now, name))
        short = next((one for one in chosen if self.model.refuses(one, wanted, self.now)), None)
        if short is not None:
            found = self.model.balance(short)
            needed = self.model.needed(short, wanted)
            assert outcome == Refused(account=short, spent=found.spent, held=found.held, needed=needed)
            self.do(self.desk.opened.ended(name))
            return
        assert isinstance(outcome, Reservation)
        assert outcome.granted == self.model.granted(chosen, wanted)
        self.check_holds(outcome, chosen, wanted)
        self.model.reserved(outcome)
        self.open[name] = outcome

    def check_holds(self, outcome: Reservation, chosen: Sequence[Account], wanted: HoldRequest) -> None:
        held = {hold.account: hold.amount for hold in outcome.holds}
        for at in chosen:
            whole, needed, left = at.needs(outcome.granted), self.model.needed(at, wanted), self.model.left(at)
            if at.targets and left < needed and wanted.least.of(at.unit):
                assert at.id not in held
            else:
                assert held[at.id] == max(0, min(whole, left if at.targets else whole))

    @precondition(lambda self: self.open)
    @rule(usd=AMOUNTS, thinking=AMOUNTS, data=st.data())
    def extend(self, usd: int, thinking: int, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.open)))
        before, known = self.open[name], self.live()
        chosen = [known[hold.account] for hold in before.holds if not known[hold.account].size]
        growing = {one.id for one in chosen}
        holds = [hold for hold in before.holds if hold.account in growing]
        extra = {}
        for kind, more in (("usd", usd), ("thinking_tokens", thinking)):
            rooms = [
                0 if self.model.shut(one, self.now) else self.model.left(_at(one, hold.window_start_ms))
                for one, hold in zip(chosen, holds, strict=True)
                if one.unit == kind and one.hard
            ]
            extra[kind] = max(0, min([more, *rooms]))
        after = self.do(self.desk.store.extend(before, chosen, Amount(usd, thinking), self.now))
        granted = before.granted
        assert after.granted == Amount(granted.usd + extra["usd"], granted.thinking + extra["thinking_tokens"])
        grown = [hold.amount + (extra[hold.unit] if hold.account in growing else 0) for hold in before.holds]
        assert [hold.amount for hold in after.holds] == grown
        self.open[name] = after
        self.model.reserved(after)

    @precondition(lambda self: self.open or self.orphans)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        """Of a process that lives, or that died and was recovered."""
        name = data.draw(st.sampled_from(sorted(self.open | self.orphans)))
        reservation = (self.open if name in self.open else self.orphans).pop(name)
        amounts = [
            st.just(0) if hold.account == PARALLEL else st.integers(0, hold.amount) | AMOUNTS
            for hold in reservation.holds
        ]
        charges = [data.draw(amount) for amount in amounts]
        self.do(self.desk.settle(reservation, *charges))
        self.model.charge(reservation.request_id, charges)
        self.ended[reservation.request_id] = reservation

    @precondition(lambda self: self.ended)
    @rule(data=st.data(), charge=AMOUNTS)
    def settle_again(self, data: st.DataObject, charge: int) -> None:
        reservation = self.ended[data.draw(st.sampled_from(sorted(self.ended)))]
        self.do(self.desk.settle(reservation, *[charge] * len(reservation.holds)))

    @rule()
    def sweep(self) -> None:
        """By a process that lives: none of its own requests is charged."""
        assert self.do(self.desk.store.recover(self.now)) == 0
        self.fold()

    def fold(self) -> None:
        known, model = self.model.children, self.model
        while due := {
            name
            for name in known.keys() - model.closed
            if model.shut(known[name].account(), self.now) and not model.sums(name, 0)[1]
        }:
            model.closed |= due

    @rule()
    def crash(self) -> None:
        """And another process starts, sees to it, and sees to it again when every lease is over."""
        self.do(self.desk.killed())
        first = self.do(self.desk.store.recover(self.now))
        self.now = self.do(self.desk.leases_end(self.now))
        assert first + self.do(self.desk.store.recover(self.now)) == len(self.open)
        for name, reservation in self.open.items():
            self.model.charge(name, [0 if hold.account == PARALLEL else hold.amount for hold in reservation.holds])
            self.orphans[name] = reservation
        self.open.clear()
        self.fold()

    @rule(by=st.sampled_from(JUMPS))
    def jump(self, by: int) -> None:
        self.now += by

    @rule(data=st.data(), limit=st.integers(1, 1_500), minutes=st.sampled_from((1, 30, 90)) | st.none())
    def split(self, data: st.DataObject, limit: int, minutes: int | None) -> None:
        known = {name: one for name, one in self.live().items() if not one.size}
        parent = known[data.draw(st.sampled_from(sorted(known)))]
        name = f"child-{len(self.model.children)}"
        above = self.model.children.get(parent.id)
        replaces = (*(above.replaces if above is not None else ()), parent.id)
        expires = None if minutes is None else self.now + minutes * 60_000
        times = {"created_ms": self.now, "expires_at_ms": expires}
        outcome = self.do(self.desk.child(parent, limit, name, self.now, replaces=replaces, **times))
        outlives = parent.resets_at_ms is not None and (expires or 2**62) > parent.resets_at_ms
        if outlives or self.model.shut(parent, self.now) or self.model.left(parent) < limit:
            found = self.model.balance(parent)
            assert outcome == Refused(account=parent, spent=found.spent, held=found.held, needed=limit)
        else:
            assert isinstance(outcome, Child)
            self.model.children[name] = outcome

    @precondition(lambda self: self.model.children)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.children)))
        outcome = self.do(self.desk.store.close(name, self.now))
        self.model.closed |= self.model.below(name)
        assert outcome is not None
        assert outcome.closed_ms is not None

    @precondition(lambda self: self.number)
    @invariant()
    def every_account_is_the_sum_of_its_rows(self) -> None:
        known = list(self.live().values())
        assert self.do(self.desk.store.balances(known)) == [self.model.balance(one) for one in known]
        sums = self.do(self.desk.opened.sums())
        for window in self.model.windows():
            if window[0] != PARALLEL:
                assert sums.get(window, (0, 0)) == self.model.sums(*window)

    @invariant()
    def nothing_is_overspent(self) -> None:
        """But by charges above their holds. A rolling window is looked at from the latest moment that ever was: from
        an earlier one it shows what had slid out of it before the rest was spent."""
        self.latest = max(self.now, self.latest)
        for one in self.live().values():
            if one.hard and (one.id != "rolling" or self.now == self.latest):
                assert self.model.left(one) >= -self.model.overrun(one.id)

    def teardown(self) -> None:
        self.do(self.desk.__aexit__())
        self.place.close()
        self.loop.close()


def _at(one: Account, window_start_ms: int) -> Account:
    """In the window that a hold was made in."""
    if one.since_ms != one.window_start_ms:
        return one
    return structs.replace(one, window_start_ms=window_start_ms, since_ms=window_start_ms)


@pytest.mark.parametrize("examples", [8, pytest.param(100, marks=[pytest.mark.nightly, pytest.mark.timeout(900)])])
def test_any_order_of_steps(kind: str, examples: int) -> None:
    machine = type("OrdersAt", (Orders,), {"kind": kind})
    limits = settings(max_examples=examples, stateful_step_count=40, deadline=None)
    run_machine(machine, settings=limits)
