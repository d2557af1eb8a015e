"""How sure a number is: intervals against published figures and simulations, the frontier, and percentiles."""

from collections import Counter
from math import ceil, exp, floor, nan
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.ledger.facts.attempts import EDGES_MS, EDGES_US
from router.report.cost_of_pass import JudgedSums, hull, pooled
from router.report.savings import Baseline, CostRatio, Offer, spread
from router.report.statistics import LEAST, Interval, drawn, percentile, quotient, skewed, weighted, wilson
from tests.tables import data, each_row


@each_row("hits, trials, low, high", data(__file__, "wilson.yaml"))
def test_intervals_are_wilson_s(hits: int, trials: int, low: float, high: float) -> None:
    """Newcombe 1998, Statistics in Medicine 17, 857, table I and method 3."""
    assert wilson(hits / trials, trials) == pytest.approx((hits / trials, low, high), abs=1e-4)
    assert wilson(0.5, 0) == Interval(0.5)


def test_what_is_below_the_line_bounds_a_quotient_the_other_way_and_a_mean_of_one_is_that_one() -> None:
    assert quotient(Interval(10, 8, 12), Interval(0)) is None
    assert quotient(Interval(0, 0, 0), Interval(0.5, 0.2, 0.8)) == Interval(0, 0, 0)
    assert quotient(Interval(10, 10, 10), Interval(0.5, 0.4, 0.8)) == pytest.approx(Interval(20, 12.5, 25))
    assert quotient(Interval(10), Interval(0.5, 0.4, 0.8)) == Interval(20)
    assert skewed(0, 5, 9) == Interval(0, 0, 0)
    assert skewed(7, 5, 1) == Interval(7)
    sure = Interval(0.5, 0.2, 0.9)
    assert weighted([(3, sure)]) == pytest.approx(sure)
    assert weighted([(1, sure), (1, Interval(0.5))]) == Interval(0.5)


@each_row("points, edge", data(__file__, "frontier.yaml"))
def test_nothing_on_the_frontier_is_beaten_by_a_mixture(
    points: list[tuple[float, float, str]], edge: list[str]
) -> None:
    assert hull(points) == edge


def facts(costs: list[int], answers: int, judged: int = 0, right: int = 0) -> JudgedSums:
    """Of attempts, the first of which were answered."""
    return JudgedSums(
        attempts=len(costs),
        answers=answers,
        cost=sum(costs),
        answers_cost=sum(costs[:answers]),
        cost_square=sum((-(-cost // 1_000)) ** 2 for cost in costs),
        judged=judged,
        weight_e6=judged * 10**6,
        passed_e6=right * 10**6,
    )


@each_row("p, judgements", [(0.9, 40), (0.5, 15), (0.7, 400)])
def test_a_cost_of_pass_is_in_its_interval_as_often_as_that_says(p: float, judgements: int) -> None:
    """Log-normal costs of a known mean, failed attempts, and judgements of a part of the answers."""
    chance, spread, held = Random(judgements), 0.9, 0  # noqa: S311
    true = 20_000 * exp(spread**2 / 2) * 1.2 / p
    for _ in range(600):
        costs = [round(20_000 * chance.lognormvariate(0, spread)) for _ in range(480)]
        right = sum(chance.random() < p for _ in range(judgements))
        found = pooled([facts(costs, 400, judgements, right)]).cost_of_pass
        held += found is not None and (found.low or nan) <= true <= (found.high or nan)
    assert 0.93 <= held / 600 <= 0.98


def test_a_price_factor_is_in_its_interval_as_often_as_that_says() -> None:
    """Of log-normal costs in two cells; the true factor is 3 in both."""
    chance, held, times = Random(3), 0, 500  # noqa: S311

    def mean(*cells: tuple[float, int]) -> Interval:
        parts = []
        for weight, (cost, number) in zip((24.0, 19.0), cells, strict=True):
            costs = [round(cost * chance.lognormvariate(-0.32, 0.8)) for _ in range(number)]
            price = facts(costs, number).price
            assert price is not None
            parts.append((weight, price))
        return weighted(parts)

    for _ in range(times):
        factor = quotient(mean((90_000, 60), (300_000, 25)), mean((30_000, 40), (100_000, 80)))
        assert factor is not None
        assert factor.low is not None
        assert factor.high is not None
        held += factor.low <= 3 <= factor.high
        assert factor.high / factor.low < 10
    assert 0.92 <= held / times <= 0.98


@each_row("hours, least", [(48, 0.86), (400, 0.92)])
def test_savings_are_in_their_interval_nearly_as_often_as_that_says(hours: int, least: float) -> None:
    """Hours are alike from one to the next; forecasts of the baseline are a third too low, and that is not known."""
    chance, held, times = Random(hours), 0, 100  # noqa: S311

    def costs(mean: float, number: int) -> int:
        return sum(round(mean * chance.lognormvariate(-0.18, 0.6)) for _ in range(number))

    for _ in range(times):
        found, busy = [], 0.0
        for hour in range(hours):
            busy = 0.6 * busy + chance.gauss(0, 0.3)
            number = max(1, round(20 + 8 * busy))
            found.append(Offer((hour,), "small", "big", "", 0, number * 9_000, 0, 0, costs(2_000, number)))
            found.append(Offer((hour,), "big", "big", "", 0, 3 * 9_000, 0, 0, costs(12_000, 3)))
        owns = [hour for hour in found if hour.alone]
        ratio = CostRatio(sum(own.actual for own in owns), sum(own.expected for own in owns), 3 * hours)
        bounds = spread(found, found, Baseline("always best", "big", ratio))
        assert bounds is not None
        held += bounds[0] <= hours * 20 * (12_000 - 2_000) <= bounds[1]
    assert least <= held / times <= 0.99


def test_of_few_hours_nothing_is_said() -> None:
    assert drawn(np.ones((LEAST - 1, 2))) is None
    some = drawn(np.ones((LEAST, 2)))
    assert some is not None
    assert np.allclose(some, LEAST)


def counted(values: list[int], edges: tuple[int, ...]) -> dict[int, int]:
    return Counter(max((edge for edge in edges if edge <= value), default=0) for value in values)


@given(st.lists(st.integers(0, 3_000_000), min_size=1, max_size=60), st.sampled_from([0.5, 0.9, 0.99]))
def test_a_percentile_is_right_within_its_bucket(values: list[int], share: float) -> None:
    ranked, place = sorted(values), share * (len(values) - 1)
    for edges in (EDGES_MS, EDGES_US):
        found = percentile(counted(values, edges), edges, share)
        low = max((edge for edge in edges if edge <= ranked[floor(place)]), default=0)
        high = next((edge for edge in edges if edge > ranked[ceil(place)]), edges[-1])
        assert found is not None
        assert low <= found <= high


def test_many_evenly_spread_times_have_their_own_percentiles() -> None:
    values = [round(10 ** Random(seed).uniform(1, 4)) for seed in range(5_000)]  # noqa: S311 - a sample
    for share in (0.1, 0.5, 0.9, 0.99):
        exact = sorted(values)[int(share * 5_000)]
        assert percentile(counted(values, EDGES_MS), EDGES_MS, share) == pytest.approx(exact, rel=0.03, abs=1)
    assert percentile({}, EDGES_MS, 0.5) is None
