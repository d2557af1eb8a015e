"""Shares of strong calls: by hand, and against one share after the other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.routing import pairs

WEAK, STRONG = np.array([1.0, 0, 0, 1]), np.array([1.0, 1, 1, 0])
"""The strong one wins two prompts and loses one: a gap of one."""


@pytest.mark.parametrize(
    ("merit", "apgr", "half", "most"),
    [
        ([0, 3, 2, -1], (0 + 1) / 2 / 4 + 1.5 / 4 + 2 / 4 + 1.5 / 4, 0.125, 0.2),
        ([0, 0, 0, 0], 0.5, 0.5, 0.8),
        ([0, 2, 2, -1], 1 / 2 + 2 / 4 + 1.5 / 4, 0.125, 0.2),
    ],
)
def test_by_hand(merit: list[float], apgr: float, half: float, most: float) -> None:
    curve = pairs.gain(np.array(merit, float), WEAK, STRONG)
    assert pairs.apgr(curve).item() == pytest.approx(apgr)
    assert pairs.cpt(curve, 0.5).item() == pytest.approx(half)
    assert pairs.cpt(curve, 0.8).item() == pytest.approx(most)


@given(st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_one_share_after_the_other(seed: int) -> None:
    rng = np.random.default_rng(seed)
    merit, weak, strong = rng.normal(size=9), rng.integers(0, 2, 9).astype(float), np.append(rng.integers(0, 2, 8), 1.0)
    weak[-1] = 0
    if strong.sum() <= weak.sum():
        return
    order = np.argsort(-merit)
    reached = [np.where(np.isin(np.arange(9), order[:k]), strong, weak).mean() for k in range(10)]
    recovered = (np.array(reached) - weak.mean()) / (strong.mean() - weak.mean())
    curve = pairs.gain(merit, weak, strong)
    assert curve.recovered[0] == pytest.approx(recovered)
    assert pairs.apgr(curve).item() == pytest.approx((recovered[1:] + recovered[:-1]).mean() / 2)
    fine = np.interp(np.linspace(0, 1, 9_001), np.arange(10) / 9, recovered)
    assert pairs.cpt(curve, 0.5).item() == pytest.approx(np.argmax(fine >= 0.5 - 1e-9) / 9_000, abs=2e-4)


def test_ranks_within_folds_ignore_the_level_of_a_fold() -> None:
    fold = np.array([0, 0, 0, 1, 1, 1])
    merit = np.array([0.1, 0.3, 0.3, 5.1, 5.0, 5.2])
    assert pairs.within(merit, fold) == pytest.approx([1 / 6, 4 / 6, 4 / 6, 3 / 6, 1 / 6, 5 / 6])
    assert (pairs.within(np.array([1.0, 1, 2, 2]), np.array([0, 0, 1, 1])) == 0.5).all()


def test_what_was_not_graded_does_not_count() -> None:
    curve = pairs.gain(np.array([9.0, 0, 3, 2, -1]), np.append(np.nan, WEAK), np.append(1, STRONG))
    assert pairs.apgr(curve).item() == pytest.approx(1.375)
