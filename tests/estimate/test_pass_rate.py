"""How likely each target is right: by request and card first, then by what was observed of it."""

from math import log, log2
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from adapters.catalog import shipped
from router.errors import DataError
from router.estimate import pass_rate, templates
from router.estimate.pass_rate import (
    ABILITIES,
    ARRAYS,
    FACTS,
    FOLDER,
    Card,
    CardAbility,
    ExpectedRates,
    PassRateModel,
    ability,
    card,
    deeper,
    load,
)
from router.estimate.posterior import HALF_LIFE_MS
from router.types import request as requests
from router.types.attempt import Outcome
from router.types.decision import NODE_WEIGHTS
from router.types.price import WORST_CASE
from router.types.request import TASKS, TRAITS, Classification, Reading
from router.types.request import template as template_of
from router.types.target import Benchmark, Capability, Contract, Target, Task, Thinking
from tests.decide.values import LOCAL, PRICE, request, target
from tests.tables import each_row

WEAK = target("weak", parameters_b=3, active_b=3, price=None, scores={Benchmark.MMLU_PRO: 0.3})
STRONG = target("strong", parameters_b=70, active_b=70, price=None, scores={Benchmark.MMLU_PRO: 0.7})
UNKNOWN = target("unknown", price=None)
THINKS = Thinking(contract=Contract.LEVEL, levels=("none", "low", "high"), tokens=(0, 1_024, 24_576))
EASY, MIDDLING, HARD = 0.1, 0.5, 0.8
SEEN = Classification(data_class="internal", difficulty=0.5, task=Task.FACTUAL)


def reading(failing: float = MIDDLING, sd: float = 0.5, task: Task = Task.FACTUAL) -> Reading:
    """Of a request that such a share of usual targets fails."""
    traits, hard, unsure = np.zeros(TRAITS, np.float32), requests.DIFFICULTY, requests.DIFFICULTY_SD
    traits[[0, requests.SHARE + TASKS.index(task), requests.UNFAMILIARITY]] = 1, 1, 0.5
    traits[[hard, unsure]] = log(failing / (1 - failing)) / requests.SCALES[hard], sd / requests.SCALES[unsure]
    return Reading(np.round(traits * requests.STEPS) / np.float32(requests.STEPS))


def outcome(name: str, score: float, of: Reading | None = None, **fields: Any) -> Outcome:
    plain: dict[str, Any] = {"request_id": "r", "target": name, "source": "client", "score": score}
    plain |= {"task": Task.FACTUAL, "expected": 0.5, "given_ms": 1_000, "traits": (of or reading()).packed()}
    return Outcome(**(plain | fields))


class Model(PassRateModel):
    def __init__(self, *targets: Target) -> None:
        super().__init__(targets)
        self.all = np.arange(len(targets))

    def of(self, read: Reading | None = None, **how: Any) -> ExpectedRates:
        return self.about(read or reading(**how))

    def about(self, read: Reading | None) -> ExpectedRates:
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


def test_the_more_is_known_of_a_target_the_surer_and_how_hard_a_request_is_concerns_all_alike(known: Model) -> None:
    own = known.of().own_sd
    assert own[1] < own[2]
    assert (known.of().sd() >= own).all()
    assert (known.of(failing=0.002).own_sd < own / 2).all(), "what all pass leaves little room"
    sure, unsure = known.of(sd=0.1), known.of(sd=2.0)
    easy, _, hard = unsure.nodes
    assert (easy > hard + 0.2).all()
    assert NODE_WEIGHTS @ unsure.nodes == pytest.approx(unsure.p)
    assert (unsure.sd() > sure.sd()).all()
    assert np.ptp(sure.nodes, axis=0).max() < 0.1


def test_a_subset_of_targets_comes_in_its_own_order_and_many_requests_as_each_by_itself(known: Model) -> None:
    asked = [reading(EASY), reading(HARD, task=Task.CODE)]
    known.see(9, "weak", 1.0)
    many = known.expect_each(np.array([each.traits for each in asked], np.float64))
    for row, each in enumerate(asked):
        alone = known.of(each)
        assert many[:, row] == pytest.approx(np.array((alone.p, alone.sd())))
    at = np.array([2, 0])
    *few, outcomes, alike, sd = known.expect(structs.replace(SEEN, reading=asked[1]), at)
    assert (outcomes, alike, known.alike(structs.replace(SEEN, task=Task.MATHS))) == (9.0, {"weak": 9.0}, {})
    whole = known.of(asked[1])
    for some, every in zip((*few, sd()), (*whole[:3], whole.sd()), strict=True):
        assert some == pytest.approx(every[..., at], rel=1e-12)


def test_outcomes_move_the_target_that_they_are_of_and_make_it_surer_until_it_drifts(known: Model) -> None:
    before, after = known.of(), known.see(30, "weak", 1.0).of()
    own, _, other = after.p - before.p
    assert own > 0.15
    assert own > other > 0, "others by what they have in common: that it was easier than it looked"
    assert after.own_sd[0] < 0.7 * before.own_sd[0]
    known.widen("nobody")
    known.widen("weak")
    assert after.own_sd[0] < known.of().own_sd[0] < before.own_sd[0]


def test_what_others_taught_makes_less_sure_of_a_target_that_was_never_asked(known: Model) -> None:
    before = known.of(failing=0.01)
    after = known.see(300, "weak", 0.0, reading(0.01)).see(300, "strong", 0.0, reading(0.01)).of(failing=0.01)
    assert after.own_sd[2] > before.own_sd[2] + (before.p[2] - after.p[2]) / 5 > before.own_sd[2] + 0.01


def test_what_is_learned_of_one_task_says_less_of_another(known: Model) -> None:
    tasks = (Task.CODE, Task.TRANSLATION)
    before = [known.of(task=task).p[0] for task in tasks]
    known.see(50, "weak", 1.0, reading(task=Task.CODE))
    code, other = (known.of(task=task).p[0] - old for task, old in zip(tasks, before, strict=True))
    assert code > other + 0.03


def test_an_outcome_that_is_not_understood_changes_nothing(known: Model) -> None:
    before, nothing = known.of().p.tolist(), outcome("weak", 1.0, weight=0.0)
    scores = outcome("nobody", 1.0), outcome("weak", float("nan")), outcome("weak", 2.0)
    traits = [outcome("weak", 1.0, traits=odd) for odd in (b"", bytes(TRAITS + 1))]
    for strange in (nothing, *scores, *traits):
        assert not known.observe(strange), strange
        assert known.of().p.tolist() == before


def test_what_was_observed_survives_a_restart_and_the_next_policy(
    known: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    (weak, _, unknown), following = known.see(30, "weak", 1.0).of().p, Model(UNKNOWN, WEAK)
    assert following.restore(known.state())
    known.adopt((UNKNOWN, WEAK))
    known.all = following.all
    assert following.of().p.tolist() == known.of().p.tolist() == pytest.approx([unknown, weak], abs=0.05)
    state, cards = known.state(), load()._replace(version="other")
    monkeypatch.setattr(pass_rate, "load", lambda: cards)
    changed = Model(WEAK)
    before = changed.of().p.tolist()
    assert not any(map(changed.restore, (state, b"", b"\x91", b"\xc0", b"\x93\xc4\x00\xc4\x01\xff\x90")))
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


# What outcomes of a template teach of its next requests, and of no others.

EVERY, READ = np.arange(2), reading()


def taught(*given: tuple[str, str, float]) -> PassRateModel:
    """By (template, target, score)."""
    model = PassRateModel((WEAK, STRONG))
    for template, name, score in given:
        assert model.observe(structs.replace(outcome(name, score, READ), template=template))
    return model


def rates(model: PassRateModel, template: str) -> list[float]:
    seen = structs.replace(SEEN, reading=READ, template=template)
    return [float(p) for p in model.expect(seen, EVERY).p]


def test_what_all_fail_is_hard_for_all_in_this_template_alone() -> None:
    model = taught(*[("a", "strong", 0.0)] * 8)
    (weak, strong), (weak_there, strong_there) = rates(model, "a"), rates(model, "b")
    assert (strong < strong_there - 0.05, weak < weak_there) == (True, True)


def test_after_failures_a_harder_request_of_the_template_is_less_likely_right_and_not_impossible() -> None:
    model, easy = PassRateModel((WEAK, STRONG)), structs.replace(outcome("strong", 0.0, reading(EASY)), template="a")
    assert all(model.observe(easy) for _ in range(8))
    asked = [structs.replace(SEEN, reading=reading(hard), template="a") for hard in (EASY, MIDDLING, HARD)]
    first, middling, last = (float(model.expect(each, EVERY).p[1]) for each in asked)
    assert 0.6 > first > 2 * middling > 4 * last > 0.04


def test_one_wrong_answer_to_what_nearly_all_get_right_changes_little_and_eight_much() -> None:
    read, plain, other = reading(0.002), template_of(request(), "auto", ""), "5" * 24
    easy, hard = (structs.replace(SEEN, reading=each, template=plain) for each in (read, reading(MIDDLING)))
    elsewhere = structs.replace(easy, template=other)
    model, wrong = PassRateModel((WEAK, STRONG)), structs.replace(outcome("strong", 0.0, read), template=plain)
    before = [float(model.expect(each, EVERY).p[1]) for each in (easy, hard, elsewhere)]
    assert model.observe(structs.replace(wrong, source="client"))
    once = [float(model.expect(each, EVERY).p[1]) for each in (easy, hard, elsewhere)]
    assert all(was - 0.02 < now <= was for was, now in zip(before, once, strict=True))
    assert all(model.observe(structs.replace(wrong, source="client")) for _ in range(7))
    assert model.expect(easy, EVERY).p[1] < 0.7


def test_a_target_that_is_better_at_a_template_than_elsewhere_is_told_from_the_others() -> None:
    """Eight outcomes of each already help; after fifty it is about what happened, and sure."""
    pairs = [("a", "weak", 1.0), ("a", "strong", 0.0)]
    models = [taught(*pairs * times) for times in (0, 8, 50)]
    before, few, many = (rates(model, "a") for model in models)
    assert (before[0] < before[1], few[0] - few[1] > 0.25, many[0] - many[1] > 0.7) == (True, True, True)
    none, some, sure = (model.expect(structs.replace(SEEN, reading=READ, template="a"), EVERY) for model in models)
    assert np.ptp(sure.nodes[:, 0]) < np.ptp(none.nodes[:, 0])
    assert sure.own_sd[0] < min(some.own_sd[0], none.own_sd[0])


def test_after_two_hundred_outcomes_a_template_passes_as_often_as_they_did() -> None:
    """Also where what was read says little of how hard its requests are; one that fails says little of its siblings."""
    for hard, sd in ((0.003, 0.5), (0.1, 2.0), (0.5, 1.0)):
        read, model, own = reading(hard, sd), PassRateModel((WEAK, STRONG)), "5" * 14 + "1" * 10
        asked = [structs.replace(SEEN, reading=read, template=name) for name in (own, "5" * 14 + "2" * 10)]
        before = model.expect(asked[1], EVERY).p[1]
        for score in (1.0, 0.0, 1.0, 0.0, 1.0) * 40:
            model.observe(structs.replace(outcome("strong", score, read), template=own))
        known, sibling = (model.expect(each, EVERY) for each in asked)
        assert known.p[1] == pytest.approx(0.6, abs=0.03)
        assert model.expect(structs.replace(asked[0], reading=reading(min(2 * hard, 0.6), sd)), EVERY).p[1] > 0.5
        assert 0.02 < known.own_sd[1] < 0.06
        assert abs(sibling.p[1] - before) < 0.7 * abs(0.6 - before) + 0.01


def test_how_requests_of_a_template_look_counts_as_far_as_those_that_look_harder_do_worse() -> None:
    for harder, least, most in ((1.0, 0.98, 0.97), (0.0, 0.9, 0.25)):
        looks, model = (reading(EASY), reading(MIDDLING)), PassRateModel((WEAK, STRONG))
        for read, score in zip(looks * 50, (1.0, harder) * 50, strict=True):
            model.observe(structs.replace(outcome("strong", score, read), template="a"))
        easy, hard = (model.expect(structs.replace(SEEN, reading=read, template="a"), EVERY).p[1] for read in looks)
        assert (easy > least, hard > most) == (True, bool(harder))
    # Wrong answers in an easy template don't make hard requests of its application's others look solved.
    model = PassRateModel((WEAK, STRONG))
    for score, last in ((1.0, "1"), (1.0, "1"), (1.0, "1"), (0.0, "2")) * 10:
        model.observe(structs.replace(outcome("strong", score, reading(0.02)), template="5" * 14 + last * 10))
    assert rates(model, "5" * 14 + "3" * 10)[1] < rates(model, "a")[1]


def test_a_template_that_is_another_under_its_name_is_learned_anew_of_all_targets() -> None:
    """Its application's others hear of it."""
    name, beside = f"{'5' * 14}{'0' * 10}", f"{'5' * 14}{'9' * 10}"
    new = rates(taught(), name)[0]
    for was, now in ((0.0, 1.0), (1.0, 0.0)):
        before, other = [(name, target, was) for target in ("weak", "strong") * 50], [(name, "strong", now)] * 20
        learned, anew = (taught(*before, *more) for more in ([], other))
        (weak, strong), (weak_now, strong_now) = (rates(model, name) for model in (learned, anew))
        assert abs(strong - was) + abs(weak - was) < 0.15
        assert abs(strong_now - now) < 0.35 > 2 * abs(weak_now - new)
        assert abs(rates(anew, beside)[1] - rates(learned, beside)[1]) > 0.2


def test_a_template_that_was_broken_for_all_targets_and_is_mended_is_as_before_for_all() -> None:
    """What came last counts in full: while it is broken no target looks better than before."""
    name = f"{'5' * 14}{'0' * 10}"
    whole = [(name, "weak", 1.0)] * 80
    broken = [(name, target, 0.0) for target in ("weak", "strong") for _ in range(14)]
    models = [taught(*rows) for rows in (whole, whole + broken[:14], whole + broken, [*whole, *broken, *whole[:40]])]
    weak, strong = zip(*(rates(model, name) for model in models), strict=True)
    assert (weak[0] > 0.9, weak[3] > 0.6) == (True, True)
    assert max(weak[1], weak[2], strong[2]) < 0.4
    assert strong[1] < strong[0]
    assert strong[3] > strong[2] + 0.3


def test_templates_that_differ_by_a_name_learn_from_each_other_and_one_alone_moves_the_others_by_little() -> None:
    """The first 14 digits stand for tenant and application."""
    many = taught(*[(f"{'5' * 14}{at:010}", "strong", 0.0) for at in range(50)])
    alone = taught(*[("5" * 14 + "0" * 10, "strong", 0.0)] * 50)
    new, elsewhere = "5" * 14 + "9" * 10, "5" * 13 + "6" + "9" * 10
    before = rates(taught(), new)[1]
    assert rates(many, new)[1] < rates(alone, new)[1] - 0.03
    assert rates(alone, new)[1] < rates(alone, elsewhere)[1] < before
    several = taught(*[(f"{'5' * 14}{at:010}", "strong", 0.0) for at in range(5)] * 40)
    usual = taught(*[(f"{'5' * 14}{at:010}", "strong", float(at % 3 > 0)) for at in range(51)])
    assert rates(several, new)[1] > before - 0.25
    assert rates(usual, new)[1] == pytest.approx(before, abs=0.03)
    for at in range(50):
        taken = structs.replace(outcome("strong", 0.0, READ), template=f"{'5' * 14}{at:010}", weight=-1.0)
        assert many.observe(taken)
    assert rates(many, new)[1] == pytest.approx(before, abs=1e-5)


def test_more_thinking_helps_at_maths_most_at_code_less_and_hardly_to_write_and_none_is_thought_unasked() -> None:
    place, asked = (target("t", price=None, thinking=structs.replace(THINKS, unasked=word)) for word in ("", "none"))
    model, shifts = Model(place), [deeper(place, effort) for effort in THINKS.levels]
    assert (deeper(place, ""), deeper(asked, "none")) == (0.0, 0.0)
    for task, least, most in ((Task.MATHS, 0.3, 0.6), (Task.CODE, 0.05, 0.2), (Task.CREATIVE, 0.0, 0.03)):
        hard = structs.replace(SEEN, reading=reading(HARD, task=task))
        none, low, high = (model.expect(hard, model.all, model.failing(model.all, shift)).p[0] for shift in shifts)
        assert (none < low < high, least < high - none < most) == (True, True)
        assert Model(asked).expect(hard, model.all).p[0] == pytest.approx(none)


POISONED, OTHER = (digit * 24 for digit in "12")  # templates of two tenants


@given(st.lists(st.floats(0, 1), min_size=20, max_size=120))
def test_what_one_tenant_says_moves_others_by_little_in_any_order_however_often_replaced(said: list[float]) -> None:
    before, worst = (rates(taught(*[(POISONED, "strong", 0.0)] * times), OTHER)[1] for times in (0, 300))
    model, other = (taught(*[(POISONED, "strong", score) for score in scores]) for scores in (said, sorted(said)))
    assert 0.8 * before < worst <= rates(model, OTHER)[1] == pytest.approx(rates(other, OTHER)[1])
    easy = PassRateModel((WEAK, STRONG))
    for name in ("weak", "strong") * 150:  # what nearly always passes, and fails there alone, says as little
        assert easy.observe(structs.replace(outcome(name, 0.0, reading(0.003)), template=POISONED))
    assert rates(easy, OTHER)[1] > 0.85 * before
    for _ in range(2):  # each time all that was said is taken back, and said again
        for score, weight in [pair for each in said for pair in ((each, -1.0), (each, 1.0))]:
            model.observe(structs.replace(outcome("strong", score, READ), template=POISONED, weight=weight))
    assert rates(model, OTHER) == pytest.approx(rates(other, OTHER), abs=1e-5)
    state = model.state()
    assert other.restore(state)
    assert other.state() == state


def test_what_was_saved_by_another_version_or_is_damaged_is_left_aside() -> None:
    model, version = taught(*[(POISONED, "strong", 0.0)] * 9), load().version.encode()
    state = model.state()
    newer, of_others = state.replace(b"\x05", b"\x06", 1), state.replace(version, version[::-1])
    for damaged in (b"", b"\xff\x00 nothing", state[:-1], newer, of_others):
        assert (model.restore(state), model.restore(damaged)) == (True, False)
        assert rates(model, POISONED) == rates(taught(), POISONED)


def test_all_that_is_said_counts_in_its_own_template_and_what_reviewers_say_everywhere() -> None:
    poisoned, trusted = taught(*[(POISONED, "strong", 0.0)] * 300), PassRateModel((WEAK, STRONG))
    for _ in range(300):
        trusted.observe(structs.replace(outcome("strong", 0.0, READ), template=POISONED, source="reviewer.qa"))
    assert max(rates(poisoned, POISONED)[1], rates(trusted, OTHER)[1]) < 0.25
    assert poisoned.posterior.count == pytest.approx(trusted.posterior.count)  # exploration asks for it
    poisoned.widen("strong")
    for policy in ((WEAK, STRONG), (WEAK,), (WEAK, STRONG)):
        poisoned.adopt(policy)
        assert poisoned.observe(structs.replace(outcome(policy[-1].id, 1.0, READ), template=POISONED))


@given(st.sampled_from((0.002, 0.05, 0.3, 0.5, 0.8)), st.sampled_from(TASKS), st.tuples(*[st.floats(0, 1)] * 3))
def test_what_comes_of_a_target_elsewhere_never_moves_its_rate_in_a_template_the_other_way(
    hard: float, task: Task, rights: tuple[float, ...]
) -> None:
    read, model = reading(hard, task=task), PassRateModel((WEAK, STRONG, UNKNOWN))
    asked = structs.replace(SEEN, reading=read, template=POISONED, task=task)
    for name, right, times in zip(("weak", "strong", "unknown"), rights, (1, 8, 50), strict=True):
        for at in range(times):
            score = float(int((at + 1) * right) > int(at * right))
            model.observe(outcome(name, score, read, template=POISONED, task=task))
    state = model.state()
    for template, source, score in ((OTHER, "client", 0.0), (OTHER, "client", 1.0), ("", "reviewer.qa", 0.0)):
        assert model.restore(state)
        rates = model.expect(asked, np.arange(3)).p
        for name, more in (("weak", 1.0), ("strong", 4.0), ("unknown", 15.0)) * 2:
            assert model.observe(outcome(name, score, read, source=source, template=template, task=task, weight=more))
            at, before, rates = model._at[name], rates, model.expect(asked, np.arange(3)).p
            assert (rates[at] - before[at]) * (2 * score - 1) > -0.005


NAMES = ["a", "5" * 24, "5" * 14 + "6" * 10, "0" * 24]
GIVEN = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(("weak", "strong")), st.floats(0, 1)), max_size=30)


@given(GIVEN)
def test_the_order_does_not_matter_and_what_is_taken_back_was_never_there(given: list[tuple[str, str, float]]) -> None:
    taken = structs.replace(outcome("weak", 0.0, READ), template="a", weight=-1.0)
    model, other, back = taught(*given), taught(*given[::-1]), taught(("a", "weak", 0.0), *given)
    assert back.observe(taken)
    for template in (*NAMES, "c"):
        here = rates(model, template)
        assert here * 2 == pytest.approx(rates(other, template) + rates(back, template), abs=1e-6)
        assert all(0 < p < 1 for p in here)


def test_old_outcomes_fade_and_the_template_without_news_for_longest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "MOST_TEMPLATES", 3)
    model = taught(*[(name, "weak", 0.0) for name in "abcad" + "a" * 18])
    assert [rates(model, name) != rates(model, "new") for name in "abcd"] == [True, False, True, True]
    hard, late = rates(model, "a")[0], outcome("weak", 1.0, READ, given_ms=HALF_LIFE_MS * 20)
    model.observe(structs.replace(late, template="a"))
    assert rates(model, "a")[0] > hard + 0.2


# What is expected of a target that was never seen, by the facts of its card.


def expected(**known: Any) -> CardAbility:
    return ability(load(), Card(**({"scores": {}} | known)))


def test_larger_dearer_and_better_scored_models_can_do_more() -> None:
    names = "openai/gpt-4o-mini", "anthropic/claude-opus-4-5"
    old, frontier = ({"scores": shipped().models[name][0].scores} for name in names)
    for weaker, stronger in (
        (old, frontier),
        ({"active_b": 3, "parameters_b": 3}, {"active_b": 70, "parameters_b": 70}),
        ({"rate": 300_000_000}, {"rate": 15_000_000_000}),
        ({"scores": {Benchmark.MMLU_PRO: 0.3}}, {"scores": {Benchmark.MMLU_PRO: 0.8}}),
        ({"scores": {Benchmark.SIMPLEQA: 0.1}}, {"scores": {Benchmark.SIMPLEQA: 0.6}}),
        ({"scores": {Benchmark.MMLU_PRO: 0.8}, "scored": 3.2}, {"scores": {Benchmark.MMLU_PRO: 0.8}}),
    ):
        assert expected(**weaker).mean.mean() < expected(**stronger).mean.mean()


def test_code_is_for_those_that_write_it_well_not_for_small_models_that_think() -> None:
    ranked = ("local/smollm2-135m-instruct", ""), ("openai/gpt-5-nano", "high"), ("anthropic/claude-sonnet-4-5", "none")
    targets = [structs.replace(target(name), model=shipped().models[name][0], effort=word) for name, word in ranked]
    assert (np.diff(Model(*targets).of(task=Task.CODE).p) > 0.02).all()


def test_each_fact_makes_it_surer_and_without_facts_the_mean_is_expected() -> None:
    size = {"active_b": 70, "parameters_b": 70}
    abilities = (expected(), expected(**size), expected(**size, scores={Benchmark.MMLU_PRO: 0.56}))
    nothing, sized, scored = (float(np.trace(ability.covariance)) for ability in abilities)
    assert nothing > sized > scored > 0
    assert load().mean.shape == (ABILITIES + len(FACTS),)
    assert expected().mean == pytest.approx(load().mean[:ABILITIES])
    assert all(np.isfinite(expected(scores={Benchmark.CRUX: score}).mean).all() for score in (0.0, 1.0))


def test_scores_are_without_the_thinking_that_can_be_left_and_a_price_that_is_no_price_says_nothing() -> None:
    always = structs.replace(THINKS, levels=("low", "high"), tokens=(1_024, 24_576))
    assert [card(target(thinking=known)).scored for known in (always, THINKS, Thinking())] == [log2(25.576), 0, 0]
    targets = (target(), target(provider=LOCAL), target(price=None), target(price=WORST_CASE))
    assert [card(place).rate for place in targets] == [PRICE.output, None, None, None]


SHIPPED = (FOLDER / ARRAYS).read_bytes()
MIDDLE = len(SHIPPED) // 2
FLIPPED = SHIPPED[:MIDDLE] + bytes([SHIPPED[MIDDLE] ^ 1]) + SHIPPED[MIDDLE + 1 :]


@each_row("data", [None, b"", SHIPPED[:MIDDLE], FLIPPED, b"no arrays"], ["lost", "empty", "cut", "flipped", "noise"])
def test_a_damaged_file_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes | None) -> None:
    if data is not None:
        (tmp_path / ARRAYS).write_bytes(data)
    monkeypatch.setattr(pass_rate, "FOLDER", tmp_path)
    with pytest.raises(DataError, match=rf"{ARRAYS} can't be read .* install lowpass again"):
        load.__wrapped__()
