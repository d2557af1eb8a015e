"""How likely each target is right: by request and card first, then by what was observed of it."""

from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec import structs

from router.classify.reading import read
from router.estimate.pass_rate import PassRates
from router.priors import load
from router.priors.priors import STEPS, TRAITS
from router.types.classification import Classification
from router.types.outcome import Outcome
from router.types.request import Endpoint
from router.types.target import Benchmark, Capability
from router.types.task import Task
from tests.decide.values import request, target

HARD = "Let $a$ and $b$ be roots of $x^3 - 7x + 3$. Find the sum of all values of $\\frac{a^4}{b^2}$."
EASY = "What is the capital of France?"
STRANGE = "ゆうびんきょくはどこですか。いそいでいます。"
WEAK = target("weak", parameters_b=3, active_b=3, price=None, scores={Benchmark.MMLU_PRO: 0.25})
STRONG = target("strong", parameters_b=70, active_b=70, price=None, scores={Benchmark.MMLU_PRO: 0.75})
UNKNOWN = target("unknown", price=None)
ALL = np.arange(3)


def seen(text: str = EASY, **fields: Any) -> Classification:
    found = read(request(text=text, **fields))
    return Classification(
        data_class="internal",
        difficulty=found.difficulty,
        task=found.task,
        unfamiliarity=found.unfamiliarity,
        reading=found.reading,
    )


def rates() -> PassRates:
    return PassRates((WEAK, STRONG, UNKNOWN), load())


def outcome(name: str, score: float, text: str = EASY, **fields: Any) -> Outcome:
    reading = seen(text).reading
    assert reading is not None
    plain: dict[str, Any] = {
        "request_id": "r",
        "target": name,
        "source": "client",
        "score": score,
        "task": Task.FACTUAL,
        "traits": np.rint(reading.traits * STEPS).astype(np.int8).tobytes(),
        "expected": 0.5,
        "given_ms": 1_000,
    }
    return Outcome(**(plain | fields))


def test_the_stronger_target_and_the_easier_request_pass_more_often() -> None:
    easy, _ = rates().expect(seen(EASY), ALL)
    hard, _ = rates().expect(seen(HARD), ALL)
    assert easy[1] > easy[0] + 0.1
    assert hard[1] > hard[0] + 0.1
    assert (hard < easy).all()


def test_of_whom_more_is_known_that_is_surer() -> None:
    _, spread = rates().expect(seen(), ALL)
    assert spread[2] > spread[1]
    assert (spread < 0.5).all()


def test_what_is_not_familiar_is_less_sure_and_nearer_to_the_mean() -> None:
    asked = rates()
    usual = asked.usual(ALL)
    familiar, sure = asked.expect(seen(HARD), ALL)
    strange, unsure = asked.expect(seen(STRANGE), ALL)
    assert (unsure > sure).all()
    assert (np.abs(strange - usual) < np.abs(familiar - usual)).all()
    assert strange == pytest.approx(usual, abs=0.02)


def test_a_subset_of_targets_comes_in_its_own_order() -> None:
    asked = rates()
    p, spread = asked.expect(seen(), ALL)
    at = np.array([2, 0])
    some, some_spread = asked.expect(seen(), at)
    assert some.tolist() == p[at].tolist()
    assert some_spread.tolist() == spread[at].tolist()
    assert asked.usual(at).shape == (2,)


def test_outcomes_move_the_target_that_they_are_of_and_make_it_surer() -> None:
    asked = rates()
    before, sure = asked.expect(seen(), ALL)
    for _ in range(30):
        assert asked.observe(outcome("weak", 1.0))
    after, surer = asked.expect(seen(), ALL)
    assert after[0] > before[0] + 0.15
    assert after[0] - before[0] > after[2] - before[2] > 0
    assert surer[0] < 0.7 * sure[0]


def test_an_outcome_that_is_taken_back_never_was() -> None:
    asked = rates()
    before, _ = asked.expect(seen(), ALL)
    assert asked.observe(outcome("weak", 1.0))
    assert asked.observe(outcome("weak", 1.0, weight=-1.0))
    after, _ = asked.expect(seen(), ALL)
    assert after == pytest.approx(before, abs=1e-9)


@pytest.mark.parametrize(
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
def test_an_outcome_that_is_not_understood_changes_nothing(strange: Outcome) -> None:
    asked = rates()
    before, _ = asked.expect(seen(), ALL)
    assert not asked.observe(strange)
    after, _ = asked.expect(seen(), ALL)
    assert after.tolist() == before.tolist()


def test_a_target_that_drifts_is_less_sure() -> None:
    asked = rates()
    for _ in range(30):
        asked.observe(outcome("weak", 1.0))
    _, sure = asked.expect(seen(), ALL)
    asked.widen("weak")
    asked.widen("nobody")
    _, unsure = asked.expect(seen(), ALL)
    assert unsure[0] > sure[0]


def test_what_was_observed_goes_by_name_into_the_next_policy() -> None:
    asked = rates()
    for _ in range(30):
        asked.observe(outcome("weak", 1.0))
    following = PassRates((UNKNOWN, WEAK), load())
    assert following.posterior.restore(asked.posterior.state())
    learned, _ = following.expect(seen(), np.array([1]))
    assert learned[0] == pytest.approx(asked.expect(seen(), np.array([0]))[0][0], abs=0.05)


def test_requests_that_nobody_reads_have_the_usual_rates() -> None:
    asked = rates()
    p, _ = asked.expect(seen(endpoint=Endpoint.EMBEDDINGS), ALL)
    assert p == pytest.approx(asked.usual(ALL))


def test_a_target_that_only_embeds_is_no_mistake() -> None:
    embeds = target("embeds", max_output=0, capabilities=frozenset({Capability.EMBEDDINGS}))
    p, _ = PassRates((embeds,), load()).expect(seen(), np.array([0]))
    assert 0 < p[0] < 1


def test_priors_of_other_features_are_not_mixed_with_what_was_learned() -> None:
    other = msgspec.structs.replace(load(), version="other")
    asked = rates()
    asked.observe(outcome("weak", 1.0))
    assert not PassRates((WEAK,), other).posterior.restore(asked.posterior.state())


def test_a_specialist_begins_with_what_its_policy_says_of_it_and_outcomes_correct_that() -> None:
    said = structs.replace(WEAK, id="said", tasks=frozenset({Task.TRANSLATION}), pass_rate=0.8)
    plain = structs.replace(said, id="plain", pass_rate=None)
    known = PassRates((said, plain), load())
    texts = ("Translate to French: Good morning, my friend.", "Translate this into German: It is raining.", STRANGE)
    for text in texts:
        assert known.expect(seen(text), np.arange(2))[0][0] == pytest.approx(0.8)
    assert known.usual(np.arange(2))[0] == pytest.approx(0.8)
    p, sd = known.expect(seen(texts[0]), np.arange(2))
    assert p[1] != pytest.approx(0.8)
    assert sd[0] < sd[1]
    for _ in range(20):
        known.observe(outcome("said", 0.0, texts[0]))
    assert known.expect(seen(texts[1]), np.arange(2))[0][0] < 0.5
