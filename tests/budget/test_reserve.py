"""Money under any order of events: spent + held is the sum of the rows, and nobody spends what is not there."""

import asyncio
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from router.budget.budget import Budget, Charged, Window, window_bounds
from router.budget.embedded import EmbeddedBudgets
from router.ledger.journal import SqliteJournal
from router.ledger.write import LEASE_MS, Outcome, birth, renew, settle
from router.types.classification import Classification, Task
from router.types.money import usd_from_nano
from router.types.plan import Decision, Plan
from router.types.request import Caller
from router.types.reservation import Refused, Reservation
from tests.decide.values import candidate, request
from tests.ledger.books import rows, windows, with_journal

LIMITS = {"small": 1_000, "large": 5_000, "forever": 20_000}
WINDOWS: dict[str, Window] = {"small": "hour", "large": "day", "forever": "lifetime"}
BUDGETS = {
    name: Budget(id=name, limit_usd=usd_from_nano(limit), window=WINDOWS[name]) for name, limit in LIMITS.items()
}
START_MS = 1_790_000_000_000
PLAN = Plan(route="auto", strategy="pinned", steps=(candidate("t"),))
SEEN = Classification(data_class="internal", difficulty=0.1, task=Task.CHAT)
AMOUNTS = st.integers(0, 1_500)


def born(journal: SqliteJournal, number: int, held: int, now_ms: int) -> str:
    name = f"request-{number}"
    decision = Decision(id=name, requested="auto", policy="p", classification=SEEN, plan=PLAN)
    birth(journal, request(id=name), Caller(), decision, held, now_ms)
    return name


class Money(RuleBasedStateMachine):
    """Every reservation, settlement, second settlement and crash, over budgets with different windows."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.path = Path(self.folder.name) / "lowpass.db"
        self.loop = asyncio.new_event_loop()
        self.now = START_MS
        self.held: dict[str, Reservation] = {}
        self.settled: list[Reservation] = []
        self.crashed: dict[str, tuple[int, Reservation]] = {}
        self.bound: dict[str, Reservation] = {}
        self.over = 0
        self.number = 0

    @initialize()
    def open(self) -> None:
        self.journal = self.loop.run_until_complete(self._open())
        self.budgets = EmbeddedBudgets(self.journal)

    async def _open(self) -> SqliteJournal:
        return SqliteJournal(self.path)

    def commit(self) -> None:
        async def done() -> None:
            await self.journal.committed()

        self.loop.run_until_complete(done())

    @rule(names=st.sets(st.sampled_from(sorted(LIMITS)), min_size=1), wanted=AMOUNTS, least=AMOUNTS)
    def reserve(self, names: set[str], wanted: int, least: int) -> None:
        self.number += 1
        wanted = max(wanted, least)
        before = windows(self.path)
        chosen = [BUDGETS[name] for name in sorted(names)]
        name = born(self.journal, self.number, wanted, self.now)
        step = self.budgets.reserve(name, chosen, wanted, least, self.now)
        granted = self.loop.run_until_complete(step)
        left = {budget.id: self._left(budget, before) for budget in chosen}
        if isinstance(granted, Refused):
            assert left[granted.budget] < least
            assert granted.limit - granted.spent - granted.held == left[granted.budget]
            settle(self.journal, name, Outcome(402, "budget_exceeded", (), 0, 0, None))
            self.commit()
            assert windows(self.path) == before
        else:
            assert granted.amount == min(wanted, *left.values())
            assert granted.amount >= least
            self.held[name] = self.bound[name] = granted

    def _left(self, budget: Budget, before: dict[tuple[str, int], tuple[int, int]]) -> int:
        start, _ = window_bounds(budget.window_name, self.now)
        return budget.limit - sum(before.get((budget.id, start), (0, 0)))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), cost=AMOUNTS)
    def settle(self, data: st.DataObject, cost: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.held)))
        reservation = self.held.pop(name)
        self.over += max(0, cost - reservation.amount)
        self.budgets.settle(reservation, cost)
        settle(self.journal, name, Outcome(200, None, (), cost, 0, None))
        self.commit()
        self.settled.append(reservation)

    @precondition(lambda self: self.settled)
    @rule(data=st.data(), cost=AMOUNTS)
    def settle_again(self, data: st.DataObject, cost: int) -> None:
        before = windows(self.path)
        self.budgets.settle(data.draw(st.sampled_from(self.settled)), cost)
        self.commit()
        assert windows(self.path) == before

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """Its process dies: nobody will settle it."""
        name = data.draw(st.sampled_from(sorted(self.held)))
        (row,) = rows(self.path, "SELECT lease_until_ms FROM requests WHERE id = ?", name)
        self.crashed[name] = row["lease_until_ms"], self.held[name]
        del self.held[name]

    @rule()
    def recover(self) -> None:
        spent = sum(row[0] for row in windows(self.path).values())
        due = {name for name, (lease, _) in self.crashed.items() if lease < self.now}
        late = {name for name in self.held if self._lease(name) < self.now}
        recovered = self.loop.run_until_complete(self.budgets.recover(self.now))
        assert recovered == len(due | late)
        for name in due:
            self.settled.append(self.crashed.pop(name)[1])
        for name in late:
            self.settled.append(self.held.pop(name))
        assert self.loop.run_until_complete(self.budgets.recover(self.now)) == 0
        assert sum(row[0] for row in windows(self.path).values()) >= spent

    def _lease(self, name: str) -> int:
        (row,) = rows(self.path, "SELECT lease_until_ms FROM requests WHERE id = ?", name)
        return int(row["lease_until_ms"])

    @rule(minutes=st.sampled_from((1, 11, 45, 24 * 60)))
    def wait(self, minutes: int) -> None:
        self.now += minutes * 60_000

    @invariant()
    def spent_and_held_are_the_sum_of_the_rows(self) -> None:
        if not self.number:
            return
        found = rows(self.path, "SELECT id, state, held, cost FROM requests")
        sums: dict[tuple[str, int], tuple[int, int]] = dict.fromkeys(windows(self.path), (0, 0))
        for row in (row for row in found if row["id"] in self.bound):
            for window in self.bound[row["id"]].windows:
                spent, held = sums[window]
                sums[window] = spent + (row["cost"] or 0), held + row["held"] * (row["state"] == "held")
        assert sums == windows(self.path)
        assert all(spent + held <= LIMITS[budget] + self.over for (budget, _), (spent, held) in sums.items())

    def teardown(self) -> None:
        self.journal.close()
        self.loop.close()
        self.folder.cleanup()


Money.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestMoney = Money.TestCase


def test_recovered_rows_are_charged_at_their_hold_once(tmp_path: Path) -> None:
    ledger = tmp_path / "lowpass.db"
    budgets = [BUDGETS["small"], BUDGETS["forever"]]

    async def crash(journal: SqliteJournal) -> Reservation | Refused:
        name = born(journal, 1, 1_500, START_MS)
        return await EmbeddedBudgets(journal).reserve(name, budgets, 1_500, 10, START_MS)

    reservation = with_journal(ledger, crash)
    assert isinstance(reservation, Reservation)
    assert reservation.amount == LIMITS["small"]
    lease = START_MS + LEASE_MS

    async def sweep(journal: SqliteJournal) -> list[int]:
        again = EmbeddedBudgets(journal)
        counts = [await again.recover(now) for now in (lease, lease + 1, lease + 2)]
        again.settle(reservation, 3)
        settle(journal, reservation.request_id, Outcome(200, None, (), 3, 0, None))
        await journal.committed()
        return counts

    assert with_journal(ledger, sweep) == [0, 1, 0]
    (row,) = rows(ledger, "SELECT state, cost, held, error FROM requests")
    assert row == {"state": "recovered", "cost": 1_000, "held": 1_000, "error": "crashed"}
    assert set(windows(ledger).values()) == {(1_000, 0)}
    assert rows(ledger, "SELECT * FROM holds") == []


def test_a_process_that_lives_keeps_its_holds_and_one_that_died_loses_them(tmp_path: Path) -> None:
    ledger = tmp_path / "lowpass.db"

    async def die(journal: SqliteJournal) -> str:
        return born(journal, 1, 100, START_MS)

    async def live(journal: SqliteJournal) -> int:
        born(journal, 2, 100, START_MS)
        renew(journal, START_MS + LEASE_MS)
        return await EmbeddedBudgets(journal).recover(START_MS + LEASE_MS + 1)

    dead = with_journal(ledger, die)
    assert with_journal(ledger, live) == 1
    assert rows(ledger, "SELECT id FROM requests WHERE state = 'recovered'") == [{"id": dead}]


@pytest.mark.parametrize("parallel", [200])
def test_parallel_reservations_share_what_is_there(tmp_path: Path, parallel: int) -> None:
    """Everybody wants 7 of 1,000 at once: 142 get it whole, nobody gets the rest, and no cent is counted twice."""
    ledger = tmp_path / "lowpass.db"

    async def race(journal: SqliteJournal) -> list[Reservation | Refused]:
        budgets = EmbeddedBudgets(journal)
        names = [born(journal, number, 7, START_MS) for number in range(parallel)]
        tries = (budgets.reserve(name, [BUDGETS["small"]], 7, 7, START_MS) for name in names)
        return await asyncio.gather(*tries)

    outcomes = with_journal(ledger, race)
    granted = [outcome for outcome in outcomes if isinstance(outcome, Reservation)]
    assert len(granted) == LIMITS["small"] // 7
    assert set(windows(ledger).values()) == {(0, 7 * len(granted))}


def test_a_cost_above_the_hold_is_booked_in_full_and_shuts_the_budget(tmp_path: Path) -> None:
    ledger = tmp_path / "lowpass.db"

    async def overrun(journal: SqliteJournal) -> Reservation | Refused:
        budgets = EmbeddedBudgets(journal)
        first = await budgets.reserve(born(journal, 1, 900, START_MS), [BUDGETS["small"]], 900, 1, START_MS)
        assert isinstance(first, Reservation)
        budgets.settle(first, 1_200)
        return await budgets.reserve(born(journal, 2, 1, START_MS), [BUDGETS["small"]], 1, 1, START_MS)

    refused = with_journal(ledger, overrun)
    assert refused == Refused("small", "hour", 1_000, 1_200, 0, window_bounds("hour", START_MS)[1])


def test_a_new_window_starts_empty_and_old_holds_stay_in_theirs(tmp_path: Path) -> None:
    ledger = tmp_path / "lowpass.db"
    later = START_MS + 3_600_000

    async def across(journal: SqliteJournal) -> None:
        budgets = EmbeddedBudgets(journal)
        first = await budgets.reserve(born(journal, 1, 1_000, START_MS), [BUDGETS["small"]], 1_000, 1_000, START_MS)
        second = await budgets.reserve(born(journal, 2, 1_000, later), [BUDGETS["small"]], 1_000, 1_000, later)
        assert isinstance(first, Reservation)
        assert isinstance(second, Reservation)
        budgets.settle(first, 600)
        await journal.committed()

    with_journal(ledger, across)
    start, following = window_bounds("hour", START_MS)
    assert windows(ledger) == {("small", start): (600, 0), ("small", following): (0, 1_000)}


@pytest.mark.parametrize(
    ("filters", "binds"),
    [
        ({}, True),
        ({"routes": ("auto",)}, True),
        ({"routes": ("other",)}, False),
        ({"keys": ("alice",)}, True),
        ({"keys": ("bob",)}, False),
        ({"tags": ("x", "team-a")}, True),
        ({"tags": ("x",)}, False),
        ({"routes": ("auto",), "keys": ("alice",), "tags": ("team-a",)}, True),
        ({"routes": ("auto",), "keys": ("bob",), "tags": ("team-a",)}, False),
    ],
)
def test_whom_a_budget_binds(filters: dict[str, tuple[str, ...]], binds: bool) -> None:
    budget = Budget(id="b", limit_usd=Decimal(1), **filters)
    charged = Charged(
        request_id="r", route="auto", caller=Caller(name="alice"), session="", tags=("team-a",), targets=()
    )
    assert budget.binds(charged) is binds
