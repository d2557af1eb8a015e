"""What was seen tightens the bounds, and widens them again; few observations change little, old ones are forgotten."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.estimate.estimate import estimate
from router.estimate.learn import MOST_CELLS, MOST_MARGIN, Learned, Seen
from router.estimate.thinking import fits_thinking
from router.estimate.window import SIZE, Window
from router.types.plan import Estimate
from router.types.request import Request
from router.types.target import Contract, Target, Thinking
from router.types.task import Task
from tests.decide.values import reading, request, target

PLACE = target(max_output=100_000)
LARGE = target(context=10**6)
THINKS = Thinking(contract=Contract.LEVEL, levels=("none", "high"), tokens=(0, 5_000))
NEW = Learned()


class Pupil(Learned):
    """Of `PLACE` and its like."""

    def see(self, *outputs: int, **fields: object) -> "Pupil":
        for output in outputs:
            self.observe(Seen(target=PLACE.id, output=output, **fields))  # type: ignore[arg-type]
        return self

    def figures(self, task: Task = Task.CHAT, place: Target = PLACE) -> Estimate:
        return estimate(place, request(), self, task)

    def count(self, asked: Request, tokens: int) -> Estimate:
        """The prompt took so many tokens, often."""
        before = estimate(LARGE, asked, self)
        for _ in range(SIZE):
            self.observe(Seen(target=LARGE.id, script=before.script, input=tokens, expected_input=before.input_rough))
        return estimate(LARGE, asked, self)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=3 * SIZE), st.floats(0, 0.999))
def test_a_window_is_the_quantile_of_the_last_values(values: list[int], share: float) -> None:
    window = Window()
    for value in values:
        window.add(value)
    last = sorted(values[-SIZE:])
    assert (len(window), window.sum) == (len(last), sum(last))
    least = min(share * (len(last) + 1), len(last))
    upper, lower = window.upper(share), window.lower(share)
    assert sum(value <= upper for value in last) >= least
    assert sum(value >= lower for value in last) >= least


@given(st.lists(st.integers(1, 50_000), max_size=200))
def test_whatever_was_seen_the_hold_starts_within_its_bounds(outputs: list[int]) -> None:
    figures = Pupil().see(*outputs).figures()
    assert max(figures.least.usd, figures.tight.usd) <= figures.whole.usd


def test_short_answers_tighten_the_hold_and_long_ones_widen_it_again() -> None:
    learned = Pupil()
    cold = learned.figures().tight.usd
    tight = learned.see(*[100] * SIZE).figures()
    assert tight.tight.usd < cold / 3
    assert 100 <= tight.output_tokens < 110
    assert learned.see(*[20_000] * SIZE).figures().tight.usd > 4 * cold


def test_one_answer_says_little_of_the_next() -> None:
    cold, once, often = (Pupil().see(*[100] * times).figures().tight.usd for times in (0, 1, 50))
    assert 3 * often < once < cold


def test_a_kind_of_work_that_was_not_seen_leans_on_the_target_s_others() -> None:
    learned = Pupil().see(*[5_000] * 100, task=Task.CODE)
    for task in (Task.CODE, Task.CHAT):
        assert learned.figures(task).output_tokens == pytest.approx(5_000, rel=0.05)
    learned.see(*[50] * 20)
    assert learned.figures(Task.CHAT).output_tokens < 1_000
    assert learned.figures(Task.CODE).output_tokens == pytest.approx(5_000, rel=0.05)


def test_of_a_wordy_target_more_is_expected_and_of_one_that_thinks_little_less_whatever_is_asked_for() -> None:
    """Against what was read in each request, not as so many tokens."""
    place, asked = target(thinking=THINKS, max_output=100_000), request(effort="high")
    learned = Pupil().see(*[450] * 100, effort="high", thinking=50, read_output=200.0, read_thinking=0.1)
    for output, thinking in ((20, 0.03), (2_000, 1.2)):
        usual, found = (estimate(place, asked, each, reading=reading(output, thinking)) for each in (NEW, learned))
        assert usual.output_tokens - usual.thinking_tokens == pytest.approx(output, abs=1)
        assert usual.thinking_tokens == pytest.approx(2_500 * thinking, abs=1)
        assert found.output_tokens - found.thinking_tokens == pytest.approx(2 * output, rel=0.05)
        assert found.thinking_tokens == pytest.approx(500 * thinking, rel=0.1)


def test_targets_and_efforts_are_learned_apart() -> None:
    other = target("other", max_output=100_000)
    learned = Pupil().see(*[9_000] * 50).see(9_000, effort="high")
    assert learned.figures(place=other) == Pupil().figures(place=other)


def test_an_answer_that_was_cut_short_teaches_nothing_one_that_was_long_even_so_does() -> None:
    learned = Pupil().see(*[1_000] * 100)
    before = learned.figures()
    assert learned.see(*[10] * 50, cut=True).figures() == before
    assert learned.see(*[30_000] * 90, cut=True).figures().tight.usd > before.tight.usd


def test_an_overrun_widens_every_bound_of_its_target_for_a_while() -> None:
    learned = Pupil().see(*[1_000] * 100)
    calm = learned.figures()
    learned.overrun(PLACE.id)
    wide = learned.figures()
    assert wide.tight.usd > 1.3 * calm.tight.usd
    assert wide.input_bound > calm.input_bound
    for _ in range(10):
        learned.overrun(PLACE.id)
    assert (learned.margin("other"), learned.margin(PLACE.id)) == (1, MOST_MARGIN)
    assert learned.see(*[1_000] * 300).figures().tight.usd == pytest.approx(calm.tight.usd, rel=0.01)


def test_counted_prompts_tighten_the_bound_and_dearer_ones_widen_it() -> None:
    learned, asked = Pupil(), request(prompt_bytes=40_000, dense_bytes=4_000)
    cold = estimate(LARGE, asked, learned).input_bound
    few = learned.count(asked, 9_000)
    assert 9_000 < few.input_bound < 9_000 * 1.2 < cold
    assert few.input_tokens == pytest.approx(9_000, rel=0.02)
    assert 15_000 < learned.count(asked, 15_000).input_bound < 15_000 * 1.2


def test_small_images_do_not_make_the_next_one_small() -> None:
    asked = request(images=1)
    cold, warm = estimate(LARGE, asked, Learned()), Pupil().count(asked, 100)
    assert warm.input_bound == cold.input_bound
    assert warm.input_tokens < cold.input_tokens / 10


def test_thinking_that_is_not_told_apart_is_at_most_the_output() -> None:
    always = Thinking(contract=Contract.ALWAYS_ON, levels=("high",), tokens=(24_576,))
    place = target(thinking=always, max_output=100_000)
    learned = Pupil().see(*[1_000] * 100)
    assert (fits_thinking(place, 2_000, learned), fits_thinking(place, 900, learned)) == (True, False)
    assert learned.figures(place=place).output_tokens == pytest.approx(1_000, rel=0.1), "and not counted twice"


def test_a_stream_is_metered_by_the_fewest_bytes_that_a_token_had() -> None:
    learned = Pupil()
    cold = learned.output_bytes(PLACE.id)
    for size in range(400, 500):
        learned.see(100, output_bytes=size)
    assert cold < learned.output_bytes(PLACE.id) <= 4.0


def test_memory_is_bounded_and_keeps_what_is_in_use() -> None:
    learned = Pupil()
    for number in range(2 * MOST_CELLS):
        learned.observe(Seen(target=f"t{number}", output=5))
        learned.see(7_000)
    assert len(learned._cells) == MOST_CELLS
    assert learned.figures().output_tokens == pytest.approx(7_000, rel=0.05)
