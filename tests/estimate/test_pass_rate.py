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
from router.types.target import Benchmark, Capability, Target
from router.types.task import Task
from tests.decide.values import request, target
from tests.tables import each_row

HARD = "Let $a$ and $b$ be roots of $x^3 - 7x + 3$. Find the sum of all values of $\\frac{a^4}{b^2}$."
EASY = "What is the capital of France?"
STRANGE = "ゆうびんきょくはどこですか。いそいでいます。"
WEAK = target("weak", parameters_b=3, active_b=3, price=None, scores={Benchmark.MMLU_PRO: 0.25})
STRONG = target("strong", parameters_b=70, active_b=70, price=None, scores={Benchmark.MMLU_PRO: 0.75})
UNKNOWN = target("unknown", price=None)


def classified(text: str = EASY, **fields: Any) -> Classification:
    reading = read(request(text=text, **fields))
    names = ("difficulty", "task", "unfamiliarity")
    return Classification(
        data_class="internal", reading=reading.reading, **{name: getattr(reading, name) for name in names}
    )


def outcome(name: str, score: float, text: str = EASY, **fields: Any) -> Outcome:
    reading = classified(text).reading
    assert reading is not None
    plain: dict[str, Any] = {"request_id": "r", "target": name, "source": "client", "score": score}
    plain |= {"traits": np.rint(reading.traits * STEPS).astype(np.int8).tobytes()}
    return Outcome(**(plain | {"task": Task.FACTUAL, "expected": 0.5, "given_ms": 1_000} | fields))


class Rates:
    """Of a policy's targets."""

    def __init__(self, *targets: Target) -> None:
        self.all = np.arange(len(targets))
        self.rates = PassRates(targets, load())

    def expect(self, text: str = EASY, **fields: Any) -> tuple[np.ndarray, np.ndarray]:
        return self.rates.expect(classified(text, **fields), self.all)

    def observe(self, times: int, name: str, score: float, text: str = EASY) -> "Rates":
        for _ in range(times):
            assert self.rates.observe(outcome(name, score, text))
        return self


@pytest.fixture
def known() -> Rates:
    return Rates(WEAK, STRONG, UNKNOWN)


def test_the_stronger_target_and_the_easier_request_pass_more_often(known: Rates) -> None:
    (easy, spread), (hard, _) = known.expect(EASY), known.expect(HARD)
    assert easy[1] > easy[0] + 0.1
    assert hard[1] > hard[0] + 0.1
    assert (hard < easy).all()
    assert spread[1] < spread[2] < 0.5, "the more is known of a target, the surer"


def test_what_is_not_familiar_is_less_sure_and_nearer_to_the_mean(known: Rates) -> None:
    usual = known.rates.usual(known.all)
    (familiar, sure), (strange, unsure) = known.expect(HARD), known.expect(STRANGE)
    assert (unsure > sure).all()
    assert (np.abs(strange - usual) < np.abs(familiar - usual)).all()
    assert strange == pytest.approx(usual, abs=0.02)


def test_a_subset_of_targets_comes_in_its_own_order(known: Rates) -> None:
    p, spread = known.expect()
    at = np.array([2, 0])
    some, some_spread = known.rates.expect(classified(), at)
    assert (some.tolist(), some_spread.tolist()) == (p[at].tolist(), spread[at].tolist())
    assert known.rates.usual(at).shape == (2,)


def test_outcomes_move_the_target_that_they_are_of_and_make_it_surer_until_it_drifts(known: Rates) -> None:
    before, sure = known.expect()
    after, surer = known.observe(30, "weak", 1.0).expect()
    assert after[0] > before[0] + 0.15
    assert after[0] - before[0] > after[2] - before[2] > 0
    assert surer[0] < 0.7 * sure[0]
    known.rates.widen("weak")
    known.rates.widen("nobody")
    assert known.expect()[1][0] > surer[0]


def test_an_outcome_that_is_taken_back_never_was(known: Rates) -> None:
    before, _ = known.expect()
    known.observe(1, "weak", 1.0)
    assert known.rates.observe(outcome("weak", 1.0, weight=-1.0))
    assert known.expect()[0] == pytest.approx(before, abs=1e-9)


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
def test_an_outcome_that_is_not_understood_changes_nothing(known: Rates, strange: Outcome) -> None:
    before = known.expect()[0].tolist()
    assert not known.rates.observe(strange)
    assert known.expect()[0].tolist() == before


def test_what_was_observed_goes_by_name_into_the_next_policy_unless_its_priors_have_other_features(
    known: Rates,
) -> None:
    following, state = Rates(UNKNOWN, WEAK), known.observe(30, "weak", 1.0).rates.posterior.state()
    assert following.rates.posterior.restore(state)
    assert following.expect()[0][1] == pytest.approx(known.expect()[0][0], abs=0.05)
    assert not PassRates((WEAK,), msgspec.structs.replace(load(), version="other")).posterior.restore(state)


def test_requests_without_a_text_have_the_usual_rates_also_those_of_a_target_that_only_embeds(known: Rates) -> None:
    assert known.expect(endpoint=Endpoint.EMBEDDINGS)[0] == pytest.approx(known.rates.usual(known.all))
    embeds = target("embeds", max_output=0, capabilities=frozenset({Capability.EMBEDDINGS}))
    assert 0 < Rates(embeds).expect()[0][0] < 1


def test_a_specialist_begins_with_what_its_policy_says_of_it_and_outcomes_correct_that() -> None:
    stated = structs.replace(WEAK, id="stated", tasks=frozenset({Task.TRANSLATION}), pass_rate=0.8)
    known = Rates(stated, structs.replace(stated, id="plain", pass_rate=None))
    texts = ("Translate to French: Good morning, my friend.", "Translate this into German: It is raining.", STRANGE)
    assert [known.expect(text)[0][0] for text in texts] == pytest.approx([0.8] * 3)
    assert known.rates.usual(known.all)[0] == pytest.approx(0.8)
    p, sd = known.expect(texts[0])
    assert p[1] != pytest.approx(0.8)
    assert sd[0] < sd[1]
    assert known.observe(20, "stated", 0.0, texts[0]).expect(texts[1])[0][0] < 0.5
