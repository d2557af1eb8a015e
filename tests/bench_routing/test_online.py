"""Learning while serving finds the better model, and says what it paid for that; a cascade pays less."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bench.routing import cascades, online
from bench.routing.data import Data, load
from bench.routing.online import Learned
from tests.bench_routing.made import columns, written

MARKS = (60, 300)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    folder: Path = written(tmp_path_factory.mktemp("made"), *columns(480))
    return load([folder], [folder], "made")


@pytest.fixture(scope="module")
def learned(data: Data) -> list[Learned]:
    return online.run(data, values=(0.01, 1.0), orders=3, checkpoints=MARKS)


def test_each_price_has_its_best_model_and_its_room(learned: list[Learned]) -> None:
    assert [one.best for one in learned] == ["cheap", "dear"]
    assert all(0 < one.room < 1 for one in learned)


def test_it_ends_near_the_best_model_without_having_been_told(learned: list[Learned]) -> None:
    for one in learned:
        assert list(one.frozen) == list(one.paid) == list(one.regret_usd) == list(MARKS)
        assert one.frozen[300].value < 0.15


def test_what_learning_cost_is_seen_in_what_was_paid(learned: list[Learned]) -> None:
    dear = learned[1]
    assert dear.paid[60].value > dear.paid[300].value
    assert dear.regret_usd[60].value > 0


def test_the_same_seed_gives_the_same_run(data: Data) -> None:
    runs = [online.run(data, values=(1.0,), orders=2, checkpoints=(30,), seed=seed) for seed in (5, 5, 6)]
    assert runs[0] == runs[1] != runs[2]


def test_a_cascade_learns_too_and_pays_less(data: Data, learned: list[Learned]) -> None:
    pairs = cascades.run(data, price=1.0, orders=3, checkpoints=MARKS)
    assert pairs.best == "dear"
    assert pairs.paid[300].value < min(0.0, learned[1].paid[300].value)


@pytest.mark.parametrize("run", [online.run, cascades.run])
def test_progress_is_told_for_each_order(data: Data, run: Callable[..., object]) -> None:
    told: list[None] = []
    run(data, orders=2, checkpoints=(3,), advance=lambda: told.append(None))
    assert len(told) in (2, 8)


def test_an_interval_is_of_the_mean_over_orders() -> None:
    found = online.estimated([1.0, 3.0])
    assert (found.value, found.low, found.high) == pytest.approx((2, 2 - 12.71, 2 + 12.71))
    assert online.estimated([1.0]).high == float("inf")
