"""Calibration by hand and by loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.routing import calibration
from bench.routing.bootstrap import draw

NAN = float("nan")


def test_by_hand() -> None:
    p, score = np.array([[0.1, 0.9], [0.1, NAN], [0.9, 0.9]]), np.array([[0, 1], [1, 1], [1, NAN]])
    assert calibration.ece(p, score).item() == pytest.approx((2 * abs(0.1 - 0.5) + 2 * abs(0.9 - 1)) / 4)
    assert calibration.ece_equal_mass(p, score).item() == pytest.approx((2 * 0.4 + 2 * 0.1) / 4)
    assert calibration.brier(p, score).item() == pytest.approx((0.01 + 0.01 + 0.81 + 0.01) / 4)


def test_costs_by_hand() -> None:
    said, true = np.array([[1.0, 2.0], [4.0, 1.0]]), np.array([[2.0, 2.0], [1.0, NAN]])
    assert calibration.total_bias(said, true).item() == pytest.approx(7 / 5 - 1)
    assert calibration.median_ratio(said, true).item() == 2
    assert calibration.coverage(said * 0.6, said, true).item() == pytest.approx(1 / 3)
    assert np.isnan(calibration.median_ratio(said, np.zeros((2, 2)))).all()


@given(st.integers(0, 2**32), st.integers(1, 20))
@settings(max_examples=40, deadline=None)
def test_ece_bin_after_bin(seed: int, bins: int) -> None:
    rng = np.random.default_rng(seed)
    p, score = rng.random((30, 3)), rng.integers(0, 2, (30, 3)).astype(float)
    score[rng.random((30, 3)) < 0.2] = NAN
    cells = [(a, b) for a, b in zip(p.ravel(), score.ravel(), strict=True) if b == b]
    wide = [[cell for cell in cells if int(cell[0] * bins) == k] for k in range(bins)]
    expected = sum(abs(sum(a for a, _ in each) - sum(b for _, b in each)) for each in wide) / len(cells)
    assert calibration.ece(p, score, bins=bins).item() == pytest.approx(expected)


@given(st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_weights_are_repeated_prompts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p, cost, said = rng.random((12, 3)), rng.lognormal(size=(12, 3)), rng.lognormal(size=(12, 3))
    score = rng.integers(0, 2, (12, 3)).astype(float)
    score[rng.random((12, 3)) < 0.2] = NAN
    drawn = draw(12, 1, seed=3)
    rows = np.repeat(np.arange(12), drawn[0].astype(int))
    assert calibration.ece(p, score, drawn) == pytest.approx(calibration.ece(p[rows], score[rows]))
    assert calibration.brier(p, score, drawn) == pytest.approx(calibration.brier(p[rows], score[rows]))
    inside = calibration.coverage(said[rows] / 2, said[rows] * 2, cost[rows])
    assert calibration.coverage(said / 2, said * 2, cost, drawn) == pytest.approx(inside)
    assert calibration.total_bias(said, cost, drawn) == pytest.approx(calibration.total_bias(said[rows], cost[rows]))
    off = calibration.median_ratio(said[rows], cost[rows])
    assert calibration.median_ratio(said, cost, drawn) == pytest.approx(off)
