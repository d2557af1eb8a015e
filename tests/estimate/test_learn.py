"""What was seen tightens the bounds, and widens them again; few observations change little, old ones are forgotten."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.estimate.estimate import estimate
from router.estimate.learn import EXTEND, MOST_CELLS, MOST_MARGIN, Learned, Seen
from router.estimate.thinking import fits_thinking
from router.estimate.window import SIZE, Window
from router.types.plan import Estimate
from router.types.target import Contract, Target, Thinking
from router.types.task import Task
from tests.decide.values import request, target

PLACE = target(max_output=100_000)


def seen(output: int, **fields: object) -> Seen:
    return Seen(target=PLACE.id, output=output, **fields)  # type: ignore[arg-type]


def taught(*outputs: int, task: Task = Task.CHAT) -> Learned:
    learned = Learned()
    for output in outputs:
        learned.observe(seen(output, task=task))
    return learned


def figures(learned: Learned, task: Task = Task.CHAT, place: Target = PLACE) -> Estimate:
    return estimate(place, request(), learned, task)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=3 * SIZE), st.floats(0, 0.999))
def test_a_window_is_the_quantile_of_the_last_values(values: list[int], share: float) -> None:
    window = Window()
    for value in values:
        window.add(value)
    last = sorted(values[-SIZE:])
    assert len(window) == len(last)
    assert window.sum == sum(last)
    upper, lower = window.upper(share), window.lower(share)
    assert sum(value <= upper for value in last) >= min(share * (len(last) + 1), len(last))
    assert sum(value >= lower for value in last) >= min(share * (len(last) + 1), len(last))


@given(st.lists(st.integers(1, 50_000), max_size=200))
def test_whatever_was_seen_the_hold_starts_within_its_bounds(outputs: list[int]) -> None:
    found = figures(taught(*outputs))
    assert max(found.least.usd, found.tight.usd) <= found.whole.usd


def test_short_answers_tighten_the_hold_and_long_ones_widen_it_again() -> None:
    learned = taught()
    cold = figures(learned).tight.usd
    for _ in range(SIZE):
        learned.observe(seen(100))
    tight = figures(learned)
    assert tight.tight.usd < cold / 3
    assert 100 <= tight.output_tokens < 110
    for _ in range(SIZE):
        learned.observe(seen(20_000))
    assert figures(learned).tight.usd > 5 * cold


def test_one_answer_says_little_of_the_next() -> None:
    cold, once, often = (figures(taught(*[100] * times)).tight.usd for times in (0, 1, 50))
    assert 3 * often < once < cold


def test_a_kind_of_work_that_was_not_seen_leans_on_the_target_s_others() -> None:
    learned = taught(*[5_000] * 100, task=Task.CODE)
    assert figures(learned, Task.CODE).output_tokens == pytest.approx(5_000, rel=0.05)
    assert figures(learned, Task.CHAT).output_tokens == pytest.approx(5_000, rel=0.05)
    for _ in range(20):
        learned.observe(seen(50))
    assert figures(learned, Task.CHAT).output_tokens < 1_000
    assert figures(learned, Task.CODE).output_tokens == pytest.approx(5_000, rel=0.05)


def test_targets_and_efforts_are_learned_apart() -> None:
    learned = taught(*[9_000] * 50)
    learned.observe(seen(9_000, effort="high"))
    assert figures(learned, place=target("other", max_output=100_000)) == figures(
        taught(), place=target("other", max_output=100_000)
    )


def test_an_answer_that_was_cut_short_teaches_nothing_one_that_was_long_even_so_does() -> None:
    learned = taught(*[1_000] * 100)
    before = figures(learned)
    for _ in range(50):
        learned.observe(seen(10, cut=True))
    assert figures(learned) == before
    for _ in range(90):
        learned.observe(seen(30_000, cut=True))
    assert figures(learned).tight.usd > before.tight.usd


def test_an_overrun_widens_every_bound_of_its_target_for_a_while() -> None:
    learned = taught(*[1_000] * 100)
    calm = figures(learned)
    learned.overrun(PLACE.id)
    wide = figures(learned)
    assert wide.tight.usd > 1.3 * calm.tight.usd
    assert wide.input_bound > calm.input_bound
    assert learned.margin("other") == 1
    for _ in range(10):
        learned.overrun(PLACE.id)
    assert learned.margin(PLACE.id) == MOST_MARGIN
    for _ in range(300):
        learned.observe(seen(1_000))
    assert figures(learned).tight.usd == pytest.approx(calm.tight.usd, rel=0.01)


def test_counted_prompts_tighten_the_bound_and_dearer_ones_widen_it() -> None:
    learned = Learned()
    asked = request(prompt_bytes=40_000, dense_bytes=4_000)
    place = target(context=10**6)

    def bound() -> int:
        return estimate(place, asked, learned).input_bound

    def count(tokens: int) -> None:
        found = estimate(place, asked, learned)
        for _ in range(SIZE):
            learned.observe(Seen(target=place.id, script=found.script, input=tokens, expected_input=found.input_rough))

    cold = bound()
    count(9_000)
    assert 9_000 < bound() < 9_000 * 1.2 < cold
    assert estimate(place, asked, learned).input_tokens == pytest.approx(9_000, rel=0.02)
    count(15_000)
    assert 15_000 < bound() < 15_000 * 1.2


def test_small_images_do_not_make_the_next_one_small() -> None:
    learned, place, asked = Learned(), target(context=10**6), request(images=1)
    cold = estimate(place, asked, learned)
    for _ in range(SIZE):
        learned.observe(Seen(target=place.id, script=cold.script, input=100, expected_input=cold.input_rough))
    warm = estimate(place, asked, learned)
    assert warm.input_bound == cold.input_bound
    assert warm.input_tokens < cold.input_tokens / 10


def test_thinking_that_is_not_told_apart_is_at_most_the_output() -> None:
    place = target(thinking=Thinking(contract=Contract.ALWAYS_ON, levels=("high",), tokens=(24_576,)))
    learned = taught(*[1_000] * 100)
    assert fits_thinking(place, 2_000, learned)
    assert not fits_thinking(place, 900, learned)


def test_a_stream_is_metered_by_the_fewest_bytes_that_a_token_had() -> None:
    learned = Learned()
    cold = learned.output_bytes(PLACE.id)
    for size in range(400, 500):
        learned.observe(seen(100, output_bytes=size))
    assert cold < learned.output_bytes(PLACE.id) <= 4.0
    assert 0 < EXTEND < 1


def test_memory_is_bounded_and_keeps_what_is_in_use() -> None:
    learned = taught()
    for number in range(2 * MOST_CELLS):
        learned.observe(Seen(target=f"t{number}", output=5))
        learned.observe(seen(7_000))
    assert len(learned._cells) == MOST_CELLS
    assert figures(learned).output_tokens == pytest.approx(7_000, rel=0.05)
