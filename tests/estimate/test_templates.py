"""What outcomes of a template teach of its next requests, and of no others."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from router.estimate import templates
from router.estimate.pass_rate import PassRateModel
from router.estimate.posterior import HALF_LIFE_MS
from tests.estimate.test_pass_rate import SEEN, STRONG, WEAK, outcome, reading
from tests.tables import each_row

EVERY = np.arange(2)
READ = reading()


def taught(*given: tuple[str, str, float]) -> PassRateModel:
    """By (template, target, score)."""
    model = PassRateModel((WEAK, STRONG))
    for template, target, score in given:
        assert model.observe(structs.replace(outcome(target, score, READ), template=template))
    return model


def rates(model: PassRateModel, template: str) -> list[float]:
    seen = structs.replace(SEEN, reading=READ, template=template)
    return [float(p) for p in model.expect(seen, EVERY).p]


def test_what_all_fail_is_hard_for_all_in_this_template_alone() -> None:
    model = taught(*[("a", "strong", 0.0)] * 8)
    (weak, strong), (weak_there, strong_there) = rates(model, "a"), rates(model, "b")
    assert strong < strong_there - 0.05
    assert weak < weak_there


def test_a_target_that_is_better_at_a_template_than_elsewhere_is_told_from_the_others() -> None:
    """Eight outcomes of each already help; after fifty it is about what happened."""
    pairs = [("a", "weak", 1.0), ("a", "strong", 0.0)]
    few, many = rates(taught(*pairs * 8), "a"), rates(taught(*pairs * 50), "a")
    before = rates(taught(), "a")
    assert before[0] < before[1]
    assert few[0] - few[1] > 0.25
    assert many[0] - many[1] > 0.7


def test_how_sure_a_rate_is_follows_the_evidence() -> None:
    seen = structs.replace(SEEN, reading=READ, template="a")
    sds = [taught(*[("a", "weak", 1.0)] * number).expect(seen, EVERY) for number in (0, 8, 50)]
    assert sds[2].own_sd[0] < sds[1].own_sd[0]
    assert sds[2].own_sd[0] < sds[0].own_sd[0]
    assert (np.ptp(sds[2].nodes[:, 0]) < np.ptp(sds[0].nodes[:, 0])).all()


GIVEN = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(("weak", "strong")), st.floats(0, 1)), max_size=30)


@given(GIVEN)
def test_the_order_does_not_matter_and_a_rate_is_a_rate(given: list[tuple[str, str, float]]) -> None:
    for template in ("a", "b", "c"):
        here, there = rates(taught(*given), template), rates(taught(*given[::-1]), template)
        assert here == pytest.approx(there, abs=1e-6)
        assert all(0 < p < 1 for p in here)


@given(GIVEN)
def test_what_is_taken_back_was_never_there(given: list[tuple[str, str, float]]) -> None:
    model = taught(("a", "weak", 0.0), *given)
    taken = structs.replace(outcome("weak", 0.0, READ), template="a", weight=-1.0)
    assert model.observe(taken)
    assert rates(model, "a") == pytest.approx(rates(taught(*given), "a"), abs=1e-6)


def test_what_is_known_survives_a_restart_and_another_policy() -> None:
    model = taught(*[("a", "weak", 1.0)] * 9, ("b", "strong", 0.0))
    other, usual = PassRateModel((WEAK, STRONG)), rates(model, "a")
    assert other.restore(model.state())
    assert rates(other, "a") == pytest.approx(usual, abs=1e-5)
    other.adopt((STRONG, WEAK))
    assert rates(other, "a")[::-1] == pytest.approx(usual, abs=1e-5)


@each_row("state", [b"", b"\x91", b"\xc0", b"\x92\xc4\x00\xc4\x01\xff"])
def test_a_state_that_cannot_be_read_is_refused(state: bytes) -> None:
    model = taught(("a", "weak", 1.0))
    assert not model.restore(state)


def test_memory_has_a_bound_and_the_template_without_news_for_longest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "MOST_TEMPLATES", 3)
    model = taught(*[(name, "weak", 0.0) for name in ("a", "b", "c", "a", "d")])
    assert [name in model.templates for name in "abcd"] == [True, False, True, True]


def test_old_outcomes_fade() -> None:
    long = HALF_LIFE_MS * 20
    old = structs.replace(outcome("weak", 0.0, READ, given_ms=1_000), template="a")
    model = PassRateModel((WEAK, STRONG))
    for _ in range(20):
        model.observe(old)
    hard = rates(model, "a")[0]
    model.observe(structs.replace(outcome("weak", 1.0, READ, given_ms=long), template="a"))
    assert rates(model, "a")[0] > hard + 0.2
