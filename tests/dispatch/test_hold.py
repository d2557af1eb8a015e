"""What is held for a request while other requests teach what the target's answers take."""

import asyncio
from pathlib import Path
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from router.budget.sqlite import SqliteBudgets
from router.dispatch.hold import BudgetHold, BudgetRoom
from router.estimate.learn import TargetStats
from router.ledger.ledger import SqliteLedger
from router.types.account import LEASE_MS, Account, Amount, BudgetBound, Reservation, Unit
from router.types.attempt import Attempt, AttemptSample, TextBytes
from router.types.decision import Candidate
from router.types.price import Cost, CostSource
from tests.decide.values import estimate
from tests.dispatch.values import asking, at


def test_what_others_teach_while_more_is_held_takes_no_room_away(tmp_path: Path) -> None:
    """Answers of the target turn out longer and longer between an estimate and the attempt; the budget has room."""
    learned, place, asked = TargetStats(), at("http://127.0.0.1:9"), asking(stream=True, max_output=1_000)
    account = Account(id="b", budget="b", scope="all", unit=Unit.USD, limit=10**12)
    longer = iter(range(120, 1_000, 30))

    def teach(tokens: int) -> None:
        for _ in range(40):
            learned.observe(AttemptSample(target=place.id, output=tokens, text=TextBytes(words=4 * tokens), largest=8))

    class Store(SqliteBudgets):
        async def extend(self, *values: Any) -> Reservation:
            teach(next(longer))
            return await super().extend(*values)

    async def fits() -> None:
        ledger = SqliteLedger(tmp_path / "lowpass.db")
        ledger.migrate()
        store = Store(journal := ledger.open_journal(), LEASE_MS)
        for number in range(12):
            hold = BudgetHold(store, learned, BudgetRoom(), structs.replace(asked, id=f"{number:032x}"))
            hold.bound = BudgetBound(accounts=(account,))
            step = Candidate(place, estimate(place, asked, learned), False)
            assert await hold.open(hold.ask([step]), [step], 0, 0) is None
            teach(next(longer))
            assert hold.fit(step) or await hold.extended_fit(step, None)
        await journal.end()

    teach(40)
    asyncio.run(fits())


@given(charges=st.lists(st.tuples(st.integers(0, 500), st.integers(0, 2_000) | st.none()), max_size=6))
def test_what_late_answers_may_cost_is_left_to_nobody_else(charges: list[tuple[int, int | None]]) -> None:
    """`charges`: of each attempt its estimate, and where it is late what it may cost: all of them may."""

    place, pot = at("http://127.0.0.1:9"), Account(id="b", budget="b", scope="all", unit=Unit.USD, limit=10**12)

    async def left() -> int:
        hold = BudgetHold(cast(Any, None), TargetStats(), BudgetRoom(), asking(), bound=BudgetBound(accounts=(pot,)))
        hold.reservation = Reservation("r", Amount(10_000))
        for estimated, most in charges:
            cost = Cost(estimated, CostSource.ESTIMATED, "")
            hold.attempts.append(Attempt(target=place, outcome="timeout", started_ms=0, total_ms=0, cost=cost))
            if most is not None:
                hold.read_on(cast(Any, asyncio.sleep(60)), Amount(most))
        return hold.left(place.id).usd

    assert asyncio.run(left()) == 10_000 - sum(max(estimated, most or 0) for estimated, most in charges)
