"""From lines to changes: calibration, correction by experiments, intervals, budgets in the order of time."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.replay.estimate import MIN_ANSWERS, Effect, differences, effects
from router.replay.read import BUCKETS, CHARGE, MOVE, ROW, SERVED, TRIAL, Part, TargetTotals, joined, stopped
from router.types.account import Account
from tests.tables import each_row

NEW = ("auto", "old", "new", "dearer")


def part(rows: Sequence[Any], changed: Sequence[Any] = (), trials: Sequence[Any] = (), **more: Any) -> Part:
    named: dict[str, Any] = {"routes": ("auto",), "targets": ("new",), "moves": (NEW,), "accounts": (), "totals": {}}
    lines = (("rows", rows, ROW), ("changed", changed, MOVE), ("trials", trials, TRIAL), ("charges", (), CHARGE))
    named |= {name: np.array(list(some), kind) for name, some, kind in lines}
    return Part(**named | more, before=Counter(), after=Counter(), unknown=Counter())


def row(bucket: int = 0, spent: int = 100) -> tuple[int, ...]:
    return 0, bucket, spent, SERVED, SERVED


def change(at: int, cost: float = 40.0, p: float = 0.5, supported: bool = False) -> tuple[Any, ...]:
    return at, 0, b"%032d" % at, at, cost, 0.0, 0, -1, p, 0.8, 0.0, supported


def trial(bucket: int, paid: float, weight: float = 50.0) -> tuple[Any, ...]:
    return 0, bucket, 0, weight, paid, 40.0, 0.5, 1.0


def estimated(rows: Sequence[Any], changed: Sequence[Any], trials: Sequence[Any] = ()) -> Effect:
    """Of the only route, which is the total too."""
    whole = part(rows, changed, trials)
    (effect,), total = effects(whole, differences(whole))
    assert (effect.cost, effect.passes, effect.refusals) == (total.cost, total.passes, total.refusals)
    return effect


@each_row("answers, times", [(MIN_ANSWERS, 2.0), (MIN_ANSWERS - 1, 1.0)])
def test_expectations_are_compared_with_enough_answers_only(answers: int, times: float) -> None:
    whole = part([row()], [change(0)], totals={"new": TargetTotals(answers, 2_000, 1_000.0)})
    assert differences(whole).cost[0] == 40 * times - 100


def test_what_is_not_known_is_no_change() -> None:
    result = differences(part([row(), row()], [change(0, cost=np.nan), change(1, p=np.nan)]))
    assert (result.cost.tolist(), result.no_cost.tolist()) == ([0, -60], [True, False])
    assert (result.passes[1], result.no_passes.tolist()) == (0, [False, True])
    assert result.paid.tolist() == [100, 40]


ROWS, SUPPORTED = [row(at) for at in range(100)], [change(at, supported=True) for at in range(100)]
TRIALS = [trial(at, 50.0) for at in range(40)]


def test_experiments_correct_what_was_expected() -> None:
    """Forty experiments say that the new choice costs 10 more than expected, and is right more often by a half."""
    effect = estimated(ROWS, SUPPORTED, TRIALS)
    assert effect.corrected
    assert effect.sample == pytest.approx(40)
    assert effect.cost.value == pytest.approx(100 * (40 + 10 - 100))
    assert effect.passes.value == pytest.approx(100 * (0.5 + 0.5 - 0.8))


def test_too_few_experiments_correct_nothing() -> None:
    """Forty, but one of them weighs more than all others."""
    effect = estimated(ROWS, SUPPORTED, [trial(0, 90.0, weight=10_000.0), *TRIALS[:39]])
    assert (effect.corrected, effect.sample < 30, effect.cost.value) == (False, True, 100 * (40 - 100))


def test_choices_that_no_experiment_could_make_are_not_corrected() -> None:
    effect = estimated(ROWS, [change(at, supported=at < 10) for at in range(100)], TRIALS)
    assert effect.cost.value == pytest.approx(100 * (40 - 100) + 10 * 10)


def test_an_off_policy_estimate_meets_the_truth() -> None:
    """The model expects half of what the new target really costs; one request in twenty was an experiment."""
    chance, size, share = np.random.default_rng(7), 4_000, 0.05
    real = chance.lognormal(5, 0.5, size)
    explored = chance.random(size) < share
    rows = [row(at % BUCKETS, int(real[at]) if explored[at] else 10) for at in range(size)]
    changed = [change(at, cost=real[at] / 2, supported=True) for at in range(size) if not explored[at]]
    tried = [(at, int(real[at]), real[at] / 2) for at in np.flatnonzero(explored)]
    trials = [(0, at % BUCKETS, 0, 1 / share, paid, expected, 0.5, np.nan) for at, paid, expected in tried]
    effect, truth = estimated(rows, changed, trials), float((real[~explored] - 10).sum())
    assert effect.cost.low < truth < effect.cost.high
    assert effect.cost.value == pytest.approx(truth, rel=0.1)


def test_requests_of_a_session_are_drawn_together() -> None:
    """A hundred requests of one session say less than those of a hundred."""
    changed = [change(at) for at in range(0, 100, 2)]
    wide, narrow = (estimated([row(at % sessions) for at in range(100)], changed).cost for sessions in (4, 100))
    assert wide.high - wide.low > narrow.high - narrow.low > 0
    assert wide.value == narrow.value


@given(st.lists(st.tuples(st.integers(0, 10**12), st.sampled_from(["a", "b"])), max_size=30), st.integers(0, 30))
def test_parts_joined_are_the_whole(lines: list[tuple[int, str]], cut: int) -> None:
    """Amounts are exact, whatever each part calls its routes by."""

    def made(some: list[tuple[int, str]]) -> Part:
        routes = tuple(dict.fromkeys(route for _, route in some))
        rows = [(routes.index(route), 0, spent, SERVED, SERVED) for spent, route in some]
        return part(rows, [change(at) for at in range(0, len(rows), 3)], routes=routes)

    whole = joined([made(lines[:cut]), made(lines[cut:])])
    routes, total = effects(whole, differences(whole))
    assert total.spent == sum(spent for spent, _ in lines)
    for effect in routes:
        assert effect.spent == sum(spent for spent, route in lines if route == effect.route)
        assert effect.requests == sum(route == effect.route for _, route in lines)


def account(name: str = "a", limit: int = 100, start: int = 0, since: int = 0) -> Account:
    return Account(id=name, budget=name, scope="all", limit=limit, window_start_ms=start, since_ms=since)


LIMITS = [
    ([account()], [0, 0, 0], [-1, -1, 0]),
    ([account(limit=1)], [0, 0], [-1, 0]),
    ([account(), account(start=9, since=9)], [0, 0, 1, 0], [-1, -1, -1, 0]),
    # A rolling window of three steps: what is older does not count any more.
    ([account(start=at, since=at - 2) for at in range(4)], [0, 1, 2, 3], [-1, -1, 2, -1]),
]


@each_row("accounts, charges, expected", LIMITS, ["used up", "over it by one answer", "another window", "rolling"])
def test_a_budget_stops_what_comes_once_it_is_used_up(
    accounts: list[Account], charges: list[int], expected: list[int]
) -> None:
    lines = np.array([(at, number, b"", 0) for at, number in enumerate(charges)], CHARGE)
    assert stopped(lines, accounts, np.full(len(charges), 50.0)).tolist() == expected


def test_a_request_pays_into_all_its_pots_or_none() -> None:
    accounts = [account("a", 40), account("b", 90)]
    lines = np.array([(row, number, b"", 0) for row in range(3) for number in (0, 1)], CHARGE)
    assert stopped(lines, accounts, np.full(3, 50.0)).tolist() == [-1, 0, 0]
