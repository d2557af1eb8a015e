"""What cascades would have paid, on outcomes that are known by heart."""

import numpy as np
import pytest

from bench.routing.cascades import ALONE, Pairs, cascaded, choose, paid
from bench.routing.metrics import Truth

COST = np.tile([0.001, 0.1], (4, 1))
TRUTH = Truth(np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), COST)
CHEAP, DEAR = 0, 1


def test_the_second_is_paid_only_where_the_first_failed() -> None:
    pairs = Pairs(np.full(4, CHEAP), np.full(4, DEAR))
    spent, score = paid(TRUTH, pairs, 1.0)
    assert spent == pytest.approx([0.001, 0.001, 0.101, 1.101])
    assert list(score) == [1, 1, 1, 0]


def test_a_target_alone_is_paid_once() -> None:
    spent, score = paid(TRUTH, Pairs(np.full(4, DEAR), np.full(4, ALONE)), 1.0)
    assert spent == pytest.approx([0.1, 1.1, 0.1, 1.1])
    assert list(score) == [1, 0, 1, 0]


@pytest.mark.parametrize(
    ("p", "price", "first", "second"),
    [
        ([0.6, 0.9], 1.0, CHEAP, DEAR),
        ([0.6, 0.9], 0.01, CHEAP, ALONE),
        ([0.01, 0.9], 0.3, CHEAP, DEAR),
        ([0.9, 0.01], 0.05, CHEAP, ALONE),
    ],
)
def test_a_pair_is_asked_where_it_pays(p: list[float], price: float, first: int, second: int) -> None:
    chosen = choose(np.array([p]), COST[:1], price)
    assert (chosen.first[0], chosen.second[0]) == (first, second)


def test_a_verifier_saves_what_the_dear_model_would_have_cost() -> None:
    rng, n = np.random.default_rng(0), 2_000
    p = np.tile([0.7, 0.9], (n, 1))
    truth = Truth((rng.random((n, 2)) < p).astype(float), np.tile([0.001, 0.1], (n, 1)))
    found = cascaded(truth, p, truth.cost, ("cheap", "dear"), price=1.0, rho=0.0)
    assert found.best == "dear"
    # cheap first: 0.001 + 0.3 · (0.1 + 0.1 · 1), against 0.1 + 0.1 · 1
    assert found.router.value == pytest.approx(0.061 / 0.2 - 1, abs=0.05)
    low, value, high = found.router.low, found.router.value, found.router.high
    assert low is not None
    assert value is not None
    assert high is not None
    assert low < value < high
    assert found.fixed == pytest.approx(found.router.value)
    assert found.paired == 1
    assert found.right > found.right_single
