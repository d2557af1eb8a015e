"""Cascades and votes: the pair wins only if it pays, and what it is worth is what happens."""

from itertools import permutations
from typing import Any

import numpy as np
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
from tests.decide.situations import names, situation, stakes, why
from tests.tables import each_row

PAYS: dict[str, Any] = {"p": [0.6, 0.9], "cost": [0.001, 0.1], "stakes": stakes(1.0), "verified": True}
DRAWS = 40_000


def cascade(state: Situation, **fields: Any) -> Ranked:
    return Cascade(kind="cascade", targets=tuple(place.id for place in state.targets) * 2, **fields).rank(state)


def vote(cheap: float = 0.001, samples: int = 5, limits: dict[str, Any] | None = None, **more: Any) -> Ranked:
    state = situation([0.7, 0.95], [cheap, 0.2], stakes=stakes(1.0, **(limits or {})), **more)
    return SelfConsistency(kind="self_consistency", targets=("a", "b"), samples=samples).rank(state)


def test_a_cheap_answer_that_can_be_checked_comes_first() -> None:
    ranked = cascade(situation(**PAYS))
    assert (names(ranked), ranked.tactic) == ("ab", Levels(2))
    assert why(ranked) == {"a": "first", "b": "second"}
    alone = [(row.target, row.cost_nano) for row in ranked.weighed]
    assert alone == [("a", round(0.001 * NANO_PER_USD)), ("b", round(0.1 * NANO_PER_USD))]


def test_the_best_alone_is_no_longer_said_to_be_chosen() -> None:
    ranked = cascade(situation([0.6, 0.9, 0.91], [0.001, 0.1, 0.12], stakes=stakes(3.0), verified=True))
    assert [row.why for row in ranked.weighed].count("chosen") == 0
    assert sorted(why(ranked).values())[-2:] == ["first", "second"]


@each_row(
    "reason, more",
    {
        "no verifiers": {"verified": False},
        "never right": {"p": [0.01, 0.9]},
        "never rescued": {"p": [0.6, 0.0]},
        "failures are cheap": {"stakes": stakes(0.01)},
        "not cheap": {"cost": [0.6, 0.7]},
        "cap": {"stakes": stakes(1.0, 0.1)},
        "deadline": {"stakes": stakes(1.0, deadline_ms=3_900)},
        "unknown": {"sd": [0.9, 0.01]},
    }.items(),
)
def test_else_the_single_targets_by_their_value(reason: str, more: dict[str, Any]) -> None:
    ranked = cascade(situation(**(PAYS | more)), caution=2)
    assert ranked.tactic is None, reason
    assert "chosen" in why(ranked).values()


def test_verifiers_that_accept_anything_make_no_cascade() -> None:
    assert cascade(situation(**PAYS), accepts_wrong=1).tactic is None
    assert cascade(situation(**PAYS), accepts_wrong=0.05).tactic is not None


def test_one_target_is_no_pair() -> None:
    state = situation([0.5], [0.1], verified=True)
    for ranked in (cascade(state), SelfConsistency(kind="self_consistency", targets=("a", "b")).rank(state)):
        assert (names(ranked), ranked.tactic) == ("a", None)


def test_a_pair_that_reaches_the_floor_wins_over_singles_that_do_not() -> None:
    """Though it costs more than the likeliest alone."""
    state = situation([0.6, 0.8], [0.09, 0.1], verified=True, stakes=stakes(0.01, min_pass_rate=0.82))
    assert cascade(state).tactic == Levels(2)


def test_a_target_of_which_nothing_is_known_keeps_no_others_from_a_pair() -> None:
    ranked = cascade(situation([0.6, 0.9, np.nan], [0.001, 0.1, 0.0001], stakes=stakes(1.0), verified=True))
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
    state = situation(p.tolist(), cost.tolist(), stakes=stakes(1.0), verified=True)
    ranked = cascade(state, accepts_right=right, accepts_wrong=wrong)
    chance = np.random.default_rng(0)
    luck = np.where(chance.random((DRAWS, 1)) < RHO, chance.random((DRAWS, 1)), chance.random((DRAWS, len(p))))
    passes, check = luck < p, chance.random(DRAWS)
    accepted = np.where(passes, (check < right)[:, None], (check < wrong)[:, None])

    def played(first: int, second: int | None) -> float:
        if second is None:
            return float(cost[first] + 1 - passes[:, first].mean())
        given = np.where(accepted[:, first], passes[:, first], passes[:, second])
        return float(cost[first] + (~accepted[:, first]).mean() * cost[second] + 1 - given.mean())

    courses = [(at, None) for at in range(len(p))] + list(permutations(range(len(p)), 2))
    chosen = (ranked.order[0], ranked.order[1] if ranked.tactic else None)
    assert played(*chosen) <= min(played(*course) for course in courses) + 0.02


def test_samples_that_agree_are_believed_where_that_pays_and_answers_can_be_compared() -> None:
    assert names(vote()) == "ab"
    assert {task for task in Task if isinstance(vote(task=task).tactic, Vote)} == set(COMPARABLE)
    same = vote(samples_differ=False)
    assert (names(same), same.tactic) == ("ba", None), "no target is asked twice that would say the same"


def test_a_further_sample_is_drawn_only_where_it_pays() -> None:
    """The dearer a sample, the fewer; none where one answer of the better is cheaper."""
    tactics = [vote(cheap, samples=8).tactic for cheap in (0.0001, 0.01, 0.03, 0.3)]
    counts = [tactic.samples if isinstance(tactic, Vote) else 1 for tactic in tactics]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1] == 1


def test_votes_keep_within_limits_even_if_all_of_it_is_asked() -> None:
    """Two samples and the other target: 0.202 USD, and six seconds."""
    assert vote(samples=2).tactic is not None
    for limits in ({"most": 0.201}, {"deadline_ms": 5_000}):
        assert vote(samples=2, limits=limits).tactic is None
