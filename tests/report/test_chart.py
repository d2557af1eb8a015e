"""Bars stand on 0, keep their proportions and stay inside the picture."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.report.chart import WIDTH, brief, columns, lines
from router.types.money import NANO_PER_USD

POINTS = st.lists(st.tuples(st.text(max_size=5), st.integers(0, 10**18)), max_size=14)


@given(POINTS)
def test_upright_bars_stand_on_zero_below_the_highest_tick(points: list[tuple[str, int]]) -> None:
    chart = columns(points)
    assert chart.ticks[0].text == "$0"
    assert chart.ticks[0].y == chart.baseline
    assert len(chart.ticks) <= 5
    for bar in chart.bars:
        assert bar.y + bar.height == pytest.approx(chart.baseline, abs=0.02)
        assert bar.y >= chart.ticks[-1].y - 0.01
        assert chart.left <= bar.x <= bar.x + bar.width <= WIDTH + 0.01


@given(POINTS)
def test_lying_bars_start_at_zero_and_the_largest_fills_the_width(points: list[tuple[str, int]]) -> None:
    chart = lines(points)
    assert all(bar.x == 0 for bar in chart.bars)
    assert max((bar.width for bar in chart.bars), default=0) in (0, WIDTH)
    assert all(bar.y + bar.height <= chart.height for bar in chart.bars)


def test_bars_are_in_proportion() -> None:
    small, large = columns([("a", 250), ("b", 1_000)]).bars
    assert large.height == pytest.approx(4 * small.height, abs=0.05)
    assert (large.label, large.exact) == ("b", "$0.000001")


@pytest.mark.parametrize(
    ("largest", "ticks"),
    [
        (0, ["$0", "$0.000000001"]),
        (760_000_000, ["$0", "$0.20", "$0.40", "$0.60", "$0.80"]),
        (10 * NANO_PER_USD, ["$0", "$5.00", "$10.00"]),
        (1_234 * NANO_PER_USD, ["$0", "$500.00", "$1,000.00", "$1,500.00"]),
    ],
)
def test_ticks_are_round(largest: int, ticks: list[str]) -> None:
    assert [tick.text for tick in columns([("a", largest)]).ticks] == ticks


@pytest.mark.parametrize(
    ("nano", "text"),
    [
        (0, "$0"),
        (1, "$0.000000001"),
        (123_456, "$0.000123"),
        (500_000_000, "$0.50"),
        (999_999_999, "$1.00"),
        (1_239_000_000, "$1.24"),
        (-11_000_000, "-$0.011"),
        (1_234_567 * NANO_PER_USD, "$1,234,567.00"),
    ],
)
def test_brief(nano: int, text: str) -> None:
    assert brief(nano) == text
