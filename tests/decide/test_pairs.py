"""Cascades and votes: the pair wins only if it pays, and what it is worth is what happens."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.decide.situation import Ranked, Situation
from router.decide.strategies import Cascade, SelfConsistency
from router.decide.strategies.self_consistency import COMPARABLE
from router.types.money import NANO_PER_USD
from router.types.plan import Cascade as Levels
from router.types.plan import Vote
from router.types.task import Task
from router.worth import RHO
from tests.decide.situations import NAMES, names, situation, stakes, why

PAYS: dict[str, Any] = {"p": [0.6, 0.9], "cost": [0.001, 0.1], "stakes": stakes(1.0)}
DRAWS = 40_000


def cascade(seen: Situation, **fields: Any) -> Ranked:
    return Cascade(kind="cascade", targets=tuple(one.id for one in seen.targets) * 2, **fields).rank(seen)


def vote(seen: Situation, **fields: Any) -> Ranked:
    return SelfConsistency(kind="self_consistency", targets=("a", "b"), **fields).rank(seen)


def test_a_cheap_answer_that_can_be_checked_comes_first() -> None:
    ranked = cascade(situation(**PAYS, verified=True))
    assert (names(ranked), ranked.tactic) == ("ab", Levels(2))
    assert why(ranked) == {"a": "first", "b": "second"}


def test_the_best_alone_is_no_longer_said_to_be_chosen() -> None:
    seen = situation([0.6, 0.9, 0.91], [0.001, 0.1, 0.12], stakes=stakes(3.0), verified=True)
    ranked = cascade(seen)
    assert [row.why for row in ranked.weighed].count("chosen") == 0
    assert sorted(why(ranked).values())[-2:] == ["first", "second"]


@pytest.mark.parametrize(
    "more",
    [
        {"verified": False},
        {"p": [0.01, 0.9]},
        {"p": [0.6, 0.0]},
        {"stakes": stakes(0.01)},
        {"cost": [0.6, 0.7]},
        {"stakes": stakes(1.0, 0.1)},
        {"stakes": stakes(1.0, deadline_ms=3_900)},
        {"sd": [0.9, 0.01]},
    ],
    ids=[
        "no verifiers",
        "never right",
        "never rescued",
        "failures are cheap",
        "not cheap",
        "cap",
        "deadline",
        "unknown",
    ],
)
def test_else_the_single_targets_by_their_value(more: dict[str, Any]) -> None:
    ranked = cascade(situation(**(PAYS | {"verified": True} | more)), caution=2)
    assert ranked.tactic is None
    assert "chosen" in why(ranked).values()


def test_verifiers_that_accept_anything_make_no_cascade() -> None:
    assert cascade(situation(**PAYS, verified=True), accepts_wrong=1).tactic is None
    assert cascade(situation(**PAYS, verified=True), accepts_wrong=0.05).tactic is not None


def test_one_target_is_no_pair() -> None:
    for ranked in (cascade(situation([0.5], [0.1], verified=True)), vote(situation([0.5], [0.1]))):
        assert (names(ranked), ranked.tactic) == ("a", None)


def test_a_pair_that_reaches_the_floor_wins_over_singles_that_do_not() -> None:
    """Though it costs more than the likeliest alone."""
    seen = situation([0.6, 0.8], [0.09, 0.1], verified=True, stakes=stakes(0.01, min_pass_rate=0.82))
    assert cascade(seen).tactic == Levels(2)


def test_a_target_of_which_nothing_is_known_keeps_no_others_from_a_pair() -> None:
    seen = situation([0.6, 0.9, np.nan], [0.001, 0.1, 0.0001], stakes=stakes(1.0), verified=True)
    ranked = cascade(seen)
    assert (names(ranked), ranked.tactic) == ("abc", Levels(2))


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.floats(0.05, 0.95), st.floats(0.001, 0.5)), min_size=2, max_size=4),
    st.floats(0.5, 1),
    st.floats(0, 0.5),
)
def test_no_single_target_and_no_other_pair_does_better(
    rows: list[tuple[float, float]], right: float, wrong: float
) -> None:
    """Played with the same luck: every pair and every target alone, against what is chosen."""
    p, cost = map(np.array, zip(*rows, strict=True))
    seen = situation(p.tolist(), cost.tolist(), stakes=stakes(1.0), verified=True)
    ranked = cascade(seen, accepts_right=right, accepts_wrong=wrong)
    chance = np.random.default_rng(0)
    luck = np.where(chance.random((DRAWS, 1)) < RHO, chance.random((DRAWS, 1)), chance.random((DRAWS, len(p))))
    passes, check = luck < p, chance.random(DRAWS)
    accepted = np.where(passes, (check < right)[:, None], (check < wrong)[:, None])

    def played(first: int, second: int | None) -> float:
        again = np.zeros(DRAWS, dtype=bool) if second is None else ~accepted[:, first]
        given = passes[:, first] if second is None else np.where(again, passes[:, second], passes[:, first])
        more = 0.0 if second is None else again.mean() * cost[second]
        return float(cost[first] + more + 1 - given.mean())

    courses = [(at, None) for at in range(len(p))] + list(permutations(range(len(p)), 2))
    chosen = (ranked.order[0], ranked.order[1] if ranked.tactic else None)
    assert played(*chosen) <= min(played(*course) for course in courses) + 0.02


def test_samples_that_agree_are_believed_where_that_pays() -> None:
    seen = situation([0.7, 0.95], [0.001, 0.2], stakes=stakes(1.0))
    ranked = vote(seen, samples=5)
    assert names(ranked) == "ab"
    assert isinstance(ranked.tactic, Vote)


@pytest.mark.parametrize("task", Task)
def test_only_answers_that_can_be_compared_are_counted(task: Task) -> None:
    seen = situation([0.7, 0.95], [0.001, 0.2], task=task, stakes=stakes(1.0))
    assert (vote(seen).tactic is not None) is (task in COMPARABLE)


def test_nobody_is_asked_twice_who_would_say_the_same() -> None:
    seen = situation([0.7, 0.95], [0.001, 0.2], stakes=stakes(1.0), samples_differ=False)
    assert (names(vote(seen)), vote(seen).tactic) == ("ba", None)


def test_a_further_sample_is_drawn_only_where_it_pays() -> None:
    """The dearer a sample, the fewer; none where one answer of the better is cheaper."""
    counts = []
    for cheap in (0.0001, 0.01, 0.03, 0.3):
        tactic = vote(situation([0.7, 0.95], [cheap, 0.2], stakes=stakes(1.0)), samples=8).tactic
        counts.append(tactic.samples if isinstance(tactic, Vote) else 1)
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1] == 1


@pytest.mark.parametrize("limits", [{"most": 0.201}, {"deadline_ms": 5_000}])
def test_votes_keep_within_limits_even_if_all_of_it_is_asked(limits: dict[str, Any]) -> None:
    """Two samples and the other target: 0.202 USD, and six seconds."""
    seen = situation([0.7, 0.95], [0.001, 0.2], stakes=stakes(1.0, **limits))
    assert vote(seen, samples=2).tactic is None


def test_what_a_target_costs_alone_is_still_told() -> None:
    ranked = cascade(situation(**PAYS, verified=True))
    assert [row.cost_nano for row in ranked.weighed] == [round(cost * NANO_PER_USD) for cost in (0.001, 0.1)]
    assert set(NAMES[:2]) == {row.target for row in ranked.weighed}
