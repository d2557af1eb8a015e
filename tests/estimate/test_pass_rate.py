"""How likely each target is right: by request and card first, then by what was observed of it."""

from math import log
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from router.estimate import pass_rate
from router.estimate.cards import load
from router.estimate.pass_rate import Expected, PassRateModel
from router.types.classification import (
    DIFFICULTY,
    DIFFICULTY_SD,
    SCALES,
    SHARE,
    STEPS,
    TASKS,
    TRAITS,
    UNFAMILIARITY,
    Classification,
    Reading,
)
from router.types.forecast import NODE_WEIGHTS
from router.types.outcome import Outcome
from router.types.target import Benchmark, Capability, Target
from router.types.task import Task
from tests.decide.values import target
from tests.tables import each_row

WEAK = target("weak", parameters_b=3, active_b=3, price=None, scores={Benchmark.MMLU_PRO: 0.25})
STRONG = target("strong", parameters_b=70, active_b=70, price=None, scores={Benchmark.MMLU_PRO: 0.75})
UNKNOWN = target("unknown", price=None)
EASY, MIDDLING, HARD = 0.1, 0.5, 0.8
SEEN = Classification(data_class="internal", difficulty=0.5, task=Task.FACTUAL)


def reading(failing: float = MIDDLING, sd: float = 0.5, task: Task = Task.FACTUAL) -> Reading:
    """Of a request that such a share of usual targets fails."""
    traits = np.zeros(TRAITS, np.float32)
    traits[[0, SHARE + TASKS.index(task), UNFAMILIARITY]] = 1, 1, 0.5
    traits[[DIFFICULTY, DIFFICULTY_SD]] = log(failing / (1 - failing)) / SCALES[DIFFICULTY], sd / SCALES[DIFFICULTY_SD]
    return Reading(np.round(traits * STEPS) / np.float32(STEPS))


def outcome(name: str, score: float, of: Reading | None = None, **fields: Any) -> Outcome:
    plain: dict[str, Any] = {"request_id": "r", "target": name, "source": "client", "score": score}
    plain |= {"task": Task.FACTUAL, "expected": 0.5, "given_ms": 1_000, "traits": (of or reading()).packed()}
    return Outcome(**(plain | fields))


class Model(PassRateModel):
    """Asked about all of its targets."""

    def __init__(self, *targets: Target) -> None:
        super().__init__(targets)
        self.all = np.arange(len(targets))

    def of(self, read: Reading | None = None, **how: Any) -> Expected:
        return self.about(read or reading(**how))

    def about(self, read: Reading | None) -> Expected:
        return self.expect(structs.replace(SEEN, reading=read), self.all)

    def see(self, times: int, name: str, score: float, of: Reading | None = None) -> "Model":
        for _ in range(times):
            assert self.observe(outcome(name, score, of))
        return self


@pytest.fixture
def known() -> Model:
    return Model(WEAK, STRONG, UNKNOWN)


@each_row("task", TASKS)
def test_the_harder_the_request_the_fewer_pass_and_the_stronger_target_the_more_often(task: Task) -> None:
    rates = np.array([Model(WEAK, STRONG).of(failing=hard, task=task).p for hard in (EASY, MIDDLING, HARD)])
    assert (np.diff(rates, axis=0) < -0.1).all()
    assert (rates[:, 1] > rates[:, 0]).all()
    assert rates[1, 1] > rates[1, 0] + 0.1


def test_the_more_is_known_of_a_target_the_surer(known: Model) -> None:
    own = known.of().own_sd
    assert own[1] < own[2]
    assert (known.of().sd >= own).all()
    assert (known.of(failing=0.002).own_sd < own / 2).all(), "what all pass leaves little room"


def test_how_hard_a_request_is_is_unsure_for_all_of_them_alike(known: Model) -> None:
    sure, unsure = known.of(sd=0.1), known.of(sd=2.0)
    easy, _, hard = unsure.nodes
    assert (easy > hard + 0.2).all()
    assert NODE_WEIGHTS @ unsure.nodes == pytest.approx(unsure.p)
    assert (unsure.sd > sure.sd).all()
    assert np.ptp(sure.nodes, axis=0).max() < 0.1


def test_a_subset_of_targets_comes_in_its_own_order_and_many_requests_as_each_by_itself(known: Model) -> None:
    asked = [reading(EASY), reading(HARD, task=Task.CODE)]
    known.see(9, "weak", 1.0)
    many = known.expect_each(np.array([each.traits for each in asked], np.float64))
    for row, each in enumerate(asked):
        for found, alone in zip(many, known.of(each)[:4], strict=True):
            assert found[row] == pytest.approx(alone)
    at = np.array([2, 0])
    for some, every in zip(known.expect(structs.replace(SEEN, reading=asked[1]), at), known.of(asked[1]), strict=True):
        assert some.tolist() == every[..., at].tolist()


def test_outcomes_move_the_target_that_they_are_of_and_make_it_surer_until_it_drifts(known: Model) -> None:
    before, after = known.of(), known.see(30, "weak", 1.0).of()
    own, _, other = after.p - before.p
    assert own > 0.15
    assert own > other > 0, "others by what they have in common: that it was easier than it looked"
    assert after.own_sd[0] < 0.7 * before.own_sd[0]
    for name in ("weak", "nobody"):
        known.widen(name)
    assert after.own_sd[0] < known.of().own_sd[0] < before.own_sd[0]


def test_what_is_learned_of_one_task_says_less_of_another(known: Model) -> None:
    tasks = (Task.CODE, Task.TRANSLATION)
    before = [known.of(task=task).p[0] for task in tasks]
    known.see(50, "weak", 1.0, reading(task=Task.CODE))
    code, other = (known.of(task=task).p[0] - old for task, old in zip(tasks, before, strict=True))
    assert code > other + 0.03


def test_an_outcome_that_is_taken_back_never_was(known: Model) -> None:
    before = known.of().p
    known.see(1, "weak", 1.0)
    assert known.observe(outcome("weak", 1.0, weight=-1.0))
    assert known.of().p == pytest.approx(before, abs=1e-9)


@each_row(
    "strange",
    [
        outcome("nobody", 1.0),
        outcome("weak", 1.0, traits=b""),
        outcome("weak", 1.0, traits=bytes(TRAITS + 1)),
        outcome("weak", float("nan")),
        outcome("weak", 2.0),
        outcome("weak", 1.0, weight=0.0),
    ],
)
def test_an_outcome_that_is_not_understood_changes_nothing(known: Model, strange: Outcome) -> None:
    before = known.of().p.tolist()
    assert not known.observe(strange)
    assert known.of().p.tolist() == before


def test_what_was_observed_goes_by_name_into_the_next_policy(known: Model) -> None:
    p = known.see(30, "weak", 1.0).of().p[0]
    following = Model(UNKNOWN, WEAK)
    assert following.restore(known.state())
    known.adopt((UNKNOWN, WEAK))
    known.all = following.all
    assert following.of().p[1] == known.of().p[1] == pytest.approx(p, abs=0.05)


def test_what_was_learned_with_other_data_means_nothing(known: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    state, cards = known.see(30, "weak", 1.0).state(), load()._replace(version="other")
    monkeypatch.setattr(pass_rate, "load", lambda: cards)
    changed = Model(WEAK)
    before = changed.of().p.tolist()
    assert not changed.restore(state)
    assert changed.of().p.tolist() == before


def test_requests_without_a_text_have_the_usual_rates_also_those_of_a_target_that_only_embeds(known: Model) -> None:
    nothing = known.about(None)
    assert nothing.p == pytest.approx(known.usual(known.all))
    assert nothing.nodes == pytest.approx(np.tile(nothing.p, (3, 1)))
    embeds = target("embeds", max_output=0, capabilities=frozenset({Capability.EMBEDDINGS}))
    assert 0 < Model(embeds).of().p[0] < 1


def test_a_specialist_begins_with_what_its_policy_says_of_it_and_outcomes_correct_that() -> None:
    stated = structs.replace(WEAK, id="stated", tasks=frozenset({Task.TRANSLATION}), pass_rate=0.8)
    known = Model(stated, structs.replace(stated, id="plain", pass_rate=None))
    rates = np.array([known.of(failing=hard, task=Task.TRANSLATION).p for hard in (EASY, MIDDLING, HARD)])
    assert rates[0, 0] > 0.9 > 0.6 > rates[2, 0]
    assert known.usual(known.all)[0] == pytest.approx(0.8)
    assert known.see(20, "stated", 0.0, reading(task=Task.TRANSLATION)).of(task=Task.TRANSLATION).p[0] < 0.5
