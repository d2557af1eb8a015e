"""Charts stand on 0, keep their proportions, stay inside the picture, and draw how sure they are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.report.charts import OTHERS, TONES, Drawing, draw, exact, format_short
from router.report.report import Kind, Mark, Plot, Shape
from tests.tables import data, each_row

MARKS = st.lists(
    st.builds(Mark, label=st.text(max_size=5), value=st.integers(-(10**18), 10**18), series=st.sampled_from("abc")),
    max_size=14,
)


def drawn(shape: Shape, *marks: Mark, unit: Kind | None = None) -> Drawing:
    usual = Kind.RATE if shape is Shape.POINTS else Kind.USD
    return draw(Plot(title="Spend", shape=shape, unit=unit or usual, marks=marks, x_unit=Kind.USD, x_title="cost"))


@given(MARKS)
def test_columns_stand_on_zero_and_inside_the_picture(marks: list[Mark]) -> None:
    chart = drawn(Shape.DAYS, *marks)
    assert chart.zero in {tick.at for tick in chart.up}
    for column in chart.items:
        assert -0.01 <= column.y <= column.y + column.height <= chart.height
        assert 0 <= column.x <= column.x + column.width <= 100.01
        assert column.y >= chart.zero or column.y + column.height <= chart.zero + 0.02


@given(MARKS)
def test_bars_begin_at_zero_and_stay_inside_in_proportion(marks: list[Mark]) -> None:
    chart = drawn(Shape.BARS, *marks)
    longest = (
        max((abs(mark.value), bar.width) for mark, bar in zip(marks, chart.items, strict=True)) if marks else (0, 0)
    )
    for bar, mark in zip(chart.items, marks, strict=True):
        start = bar.x if mark.value >= 0 else bar.x + bar.width
        assert start == pytest.approx(chart.zero, abs=0.01)
        assert -0.01 <= bar.x <= bar.x + bar.width <= 100.01
        assert bar.width * longest[0] == pytest.approx(longest[1] * abs(mark.value), abs=0.02 * longest[0])


def test_the_series_of_a_day_stand_on_each_other_and_a_loss_hangs_below_zero() -> None:
    stacked = (Mark(label="2026-11-01", value=value, series=f"{value}") for value in (30, 10))
    lower, upper = drawn(Shape.DAYS, *stacked).items
    assert upper.y + upper.height == pytest.approx(lower.y, abs=0.02)
    assert lower.height == pytest.approx(3 * upper.height, abs=0.05)
    assert (lower.x, lower.tone) == (upper.x, 0)
    gain, loss = drawn(Shape.DAYS, Mark(label="a", value=30), Mark(label="b", value=-30)).items
    assert gain.y + gain.height == pytest.approx(loss.y)
    assert gain.height == pytest.approx(loss.height)


def test_days_of_one_year_are_named_without_it_and_the_last_one_always() -> None:
    named = drawn(Shape.DAYS, *(Mark(label=f"2026-10-{number:02}", value=1) for number in range(1, 32))).across
    assert (named[-1].text, named[-1].wide) == ("10-31", False)
    assert len(named) <= 12
    assert len([label for label in named if not label.wide]) <= 5
    years = [f"{year}-12-31" for year in (2025, 2026)]
    assert [label.text for label in drawn(Shape.DAYS, *(Mark(label=label, value=1) for label in years)).across] == years


def test_intervals_are_drawn() -> None:
    mark = Mark(label="a", value=50, low=25, high=100)
    (bar,) = drawn(Shape.BARS, mark).items
    assert (bar.low, bar.x + bar.width, bar.high) == (25, 50, 100)
    assert bar.text == "$0.00000005 ($0.000000025 to $0.0000001)"
    (column,) = drawn(Shape.DAYS, mark).items
    assert (column.high or 1e9) < column.y < (column.low or 0.0)
    (dot,) = drawn(Shape.POINTS, Mark(label="a", value=0.5, low=0.25, high=1.0, x=7.0)).items
    assert (dot.high or 1e9) < dot.y < (dot.low or 0.0)


def test_a_rate_has_all_of_its_axis() -> None:
    chart = drawn(Shape.POINTS, Mark(label="a", value=0.9, x=1.0))
    assert [tick.text for tick in chart.up] == ["0", "0.2", "0.4", "0.6", "0.8", "1"]
    assert chart.up[0].at == chart.zero


def test_numbers_far_apart_stand_on_a_logarithmic_axis_that_says_so() -> None:
    near, far, free = (
        drawn(Shape.POINTS, Mark(label="a", value=0.5, x=low), Mark(label="b", value=0.5, x=high))
        for low, high in ((1e6, 4e6), (1e6, 1e9), (0.0, 1e9))
    )
    assert (near.x_title, far.x_title, free.x_title) == ("cost", "cost, logarithmic", "cost")
    assert [tick.text for tick in far.across] == ["$0.001", "$0.01", "$0.10", "$1.00"]
    assert [dot.x for dot in far.items] == pytest.approx([0, 100])
    assert free.items[0].x == 0


def test_a_frontier_leads_from_one_joined_mark_to_the_next() -> None:
    chart = drawn(Shape.POINTS, *(Mark(label=str(at), value=at / 4, x=at * 1e6, joined=at != 2) for at in range(1, 5)))
    first, _, third, fourth = (dot.x for dot in chart.items)
    assert [(line[0], line[2]) for line in chart.lines] == [(first, third), (third, fourth)]


def test_more_series_than_colours_share_the_last_one_and_what_has_nothing_needs_no_entry() -> None:
    marks = (Mark(label="a", value=100 - number, series=f"s{number:02}") for number in range(TONES + 3))
    legend = drawn(Shape.DAYS, *marks).legend
    assert [entry.tone for entry in legend] == list(range(TONES))
    assert (legend[0].text, legend[-1].text) == ("s00", OTHERS)
    spent = Mark(label="a", value=5, series="spent")
    assert drawn(Shape.DAYS, spent, Mark(label="b", value=0), Mark(label="c", value=0, series="x")).legend == ()


@each_row("largest, unit, ticks", data(__file__, "ticks.yaml"))
def test_ticks_are_round_and_none_is_between_whole_numbers(largest: int, unit: str, ticks: list[str]) -> None:
    assert [tick.text for tick in drawn(Shape.DAYS, Mark(label="a", value=largest), unit=Kind(unit)).up] == ticks


@each_row("value, kind, text", data(__file__, "numbers.yaml"))
def test_units_and_what_is_pointed_at_is_exact(value: float, kind: str, text: str) -> None:
    assert format_short(value, Kind(kind)) == text
    assert (exact(1_234_567_890, Kind.USD), exact(12_345, Kind.COUNT)) == ("$1.23456789", "12,345")
