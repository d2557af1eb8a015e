"""What was seen of a target: its answers tighten bounds and widen them again, its caches, its times."""

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from router.decide.weigh import DecisionInput, expected_loss, for_later
from router.estimate import caches
from router.estimate.caches import LIFETIME_MS, LONG_LIFETIME_MS, CachedPrompt, Caches
from router.estimate.forecast import Forecaster, ForecastInput
from router.estimate.latency import PRIOR_FIRST_MS, Pace
from router.estimate.learn import MOST_MARGIN, STALE, TargetStats
from router.estimate.lengths import MOST_CELLS
from router.estimate.pass_rate import PassRateModel
from router.estimate.posterior import BEYOND, RECENT, SIZE, QuantileWindow
from router.estimate.tokens import fits_thinking
from router.types.attempt import AttemptSample, TextBytes, Usage
from router.types.decision import CachePrefix, Estimate, Objective
from router.types.request import Classification, Request, TokensRead, template
from router.types.target import Contract, Target, Task, Thinking, Wire
from tests.decide.values import PRICE, REMOTE, estimate, reading, request, target

PLACE = target(max_output=100_000)
LARGE = target(context=10**6)
THINKS = Thinking(contract=Contract.LEVEL, levels=("none", "high"), tokens=(0, 5_000))
THINKER = target("other", max_output=100_000, thinking=THINKS)
NEW = TargetStats()
SEEN = Classification(data_class="internal", difficulty=0.5, task=Task.CHAT, reading=reading())
PLAIN = template(structs.replace(request(), body={}), "auto", "")
"""Of requests with neither instructions nor tools."""


class Pupil(TargetStats):
    """Of `PLACE` and its like."""

    def see(self, *outputs: int, read: float = 500.0, need: float = 0.46, stated: bool = False, **more: Any) -> "Pupil":
        for output in outputs:
            self.observe(AttemptSample(target=PLACE.id, output=output, read=TokensRead(read, need, stated), **more))
        return self

    def figures(self, task: Task = Task.CHAT, place: Target = PLACE) -> Estimate:
        return estimate(place, request(), self, task)

    def count(self, asked: Request, tokens: int) -> Estimate:
        """The prompt took so many tokens, often."""
        before = estimate(LARGE, asked, self)
        for _ in range(SIZE):
            self.observe(
                AttemptSample(target=LARGE.id, script=before.script, input=tokens, expected_input=before.input_rough)
            )
        return estimate(LARGE, asked, self)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=3 * SIZE), st.floats(0, 0.999))
def test_a_window_is_the_quantile_of_the_last_values(values: list[int], share: float) -> None:
    window = QuantileWindow()
    for value in values:
        window.add(value)
    last = sorted(values[-SIZE:])
    assert (window.count, window.sum) == (len(last), sum(last))
    least = min(share * (len(last) + 1), len(last))
    upper, lower = window.upper(share), window.lower(share)
    assert min(sum(value <= upper for value in last), sum(value >= lower for value in last)) >= least
    assert max(values[-RECENT:]) <= window.tail(share) <= BEYOND * max(last)


def test_short_answers_tighten_the_hold_long_ones_widen_it_again_and_one_says_little() -> None:
    learned = Pupil()
    cold, once = learned.figures().tight.usd, Pupil().see(100).figures().tight.usd
    tight = learned.see(*[100] * SIZE).figures()
    assert 3 * tight.tight.usd < once < cold > 3 * estimate(PLACE, request(), Pupil(), Task.CHAT, reading(20)).tight.usd
    assert 100 <= tight.output_tokens < 110
    assert learned.see(*[20_000] * SIZE).figures().tight.usd > 4 * cold


def test_a_template_that_is_new_answers_as_long_as_its_application_does() -> None:
    """The first 14 digits stand for tenant and application: a name in the instructions makes the others differ."""
    learned = Pupil().see(*[500] * 200, read=500.0, template="7" * 24)
    for at in range(60):
        learned.see(5_000, read=500.0, template=f"{'5' * 14}{at:010}")
    tokens = [
        estimate(PLACE, request(), learned, Task.CHAT, reading(), template=name).output_tokens
        for name in ("5" * 14 + "9" * 10, "5" * 13 + "6" + "9" * 10)
    ]
    assert tokens[0] > 1.5 * tokens[1]
    alone, places = Pupil().see(*[600] * 49, read=46.0, template="7" * 24), (PLACE, structs.replace(PLACE, id="other"))
    same = [estimate(each, request(), alone, Task.CHAT, reading(46), template="7" * 24) for each in places]
    assert 500 < same[0].output_tokens == pytest.approx(same[1].output_tokens, rel=0.1)


def test_answers_of_a_template_far_from_all_others_of_its_target_are_expected_there() -> None:
    learned = Pupil()
    for at, (read, tokens) in enumerate([(800.0, 900), (1_500.0, 1_200), (3_000.0, 2_200)]):
        learned.see(*[tokens] * 40, read=read, template=f"{at}" * 24)
    learned.see(*[200] * 64, read=30.0, template="9" * 24)
    size = estimate(PLACE, request(), learned, Task.CHAT, reading(30), template="9" * 24).output_tokens
    assert size == pytest.approx(200, rel=0.15)


ANSWERS = st.lists(
    st.builds(
        AttemptSample,
        target=st.sampled_from(("t", "other")),
        task=st.sampled_from((Task.CHAT, Task.CODE)),
        template=st.sampled_from((PLAIN, "7" * 24, "8" * 24, "5" * 24)),
        read=st.floats(1, 3_000).map(TokensRead),
        output=st.integers(1, 5_000),
        thinking=st.none() | st.integers(0, 1_000),
        ended_ms=st.integers(10**12, 10**12 + 10**9),
    ),
    max_size=30,
)


@given(ANSWERS, st.randoms(use_true_random=False))
def test_all_gateways_expect_the_same_of_the_same_answers_in_any_order(
    answers: list[AttemptSample], chance: Random
) -> None:
    first_long = [3_000] * 5 + [20] * 100
    answers += [AttemptSample(target="t", template="7" * 24, output=size, ended_ms=10**12) for size in first_long]
    shuffled, places, costs = chance.sample(answers, len(answers)), (PLACE, THINKER), []
    for learned, order in ((Pupil(), answers), (Pupil(), shuffled)):
        for answer in order:
            learned.observe(answer)
            if chance.random() < 0.2:  # several teach together what they teach one by one
                learned.learn()
        forecaster = Forecaster(places, learned, PassRateModel(places))
        seen = [structs.replace(SEEN, template=name) for name in ("", PLAIN, "7" * 24, "5" * 14 + "9" * 10, "9" * 24)]
        costs += [[forecaster.forecast(places, ForecastInput(request(), each)).cost.tolist() for each in seen]]
    assert np.array(costs[0]) == pytest.approx(np.array(costs[1]))


def test_each_of_the_first_answers_of_a_template_is_news_however_much_its_target_was_asked_before() -> None:
    learned = Pupil().see(*[500] * 2_000)
    forecaster, outputs = Forecaster((PLACE,), learned, PassRateModel((PLACE,))), []
    template = structs.replace(SEEN, template="7" * 24)
    for tokens in (3_000, *[20] * 6):
        learned.see(tokens, template="7" * 24)
        outputs.append(float(forecaster.forecast((PLACE,), ForecastInput(request(), template)).foretold[1][0]))
    assert outputs == sorted(outputs, reverse=True)
    assert outputs[0] > 1_000 > 2 * outputs[-1]
    # What others' answers say of it is concluded anew at times, so that a restart changes little.
    expected = []
    for often in (True, False):
        stats = Pupil().see(3_000, template="7" * 24)
        for _ in range(STALE - 1):
            if often:
                estimate(THINKER, request(), stats, template="7" * 24)
            stats.see(3_000, template="8" * 24)
        expected.append(estimate(THINKER, request(), stats, template="7" * 24).output_tokens)
    assert expected[0] == expected[1]
    assert estimate(PLACE, request(), learned.see(*[50] * 40, template="7" * 24), template="7" * 24).output_tokens < 150


def test_a_kind_of_work_that_was_not_seen_leans_on_the_target_s_others() -> None:
    learned = Pupil().see(*[5_000] * 100, task=Task.CODE)
    for task in (Task.CODE, Task.CHAT):
        assert learned.figures(task).output_tokens == pytest.approx(5_000, rel=0.05)
    learned.see(*[50] * 20)
    assert learned.figures(Task.CHAT).output_tokens < 1_000
    assert learned.figures(Task.CODE).output_tokens == pytest.approx(5_000, rel=0.05)


def test_of_a_wordy_target_more_is_expected_and_of_one_that_thinks_little_less_whatever_is_asked_for() -> None:
    """Against what was read in each request, and a few tokens whatever was read."""
    place, asked = target(thinking=THINKS, max_output=100_000), request(effort="high")
    learned = Pupil().see(*[450] * 100, effort="high", thinking=50, read=200.0, need=0.1)
    alike = estimate(place, asked, learned, reading=reading(200, 0.0)).output_tokens
    assert alike == pytest.approx(400, rel=0.05)
    for output, thinking, least, most in ((20, 0.03, 40, 90), (2_000, 1.2, 2_500, 4_000)):
        usual, found = (estimate(place, asked, each, reading=reading(output, thinking)) for each in (NEW, learned))
        assert usual.output_tokens - usual.thinking_tokens == pytest.approx(output, abs=1)
        assert usual.thinking_tokens == pytest.approx(2_500 * thinking, abs=2)
        assert least < found.output_tokens - found.thinking_tokens < most
        assert found.thinking_tokens == pytest.approx(500 * thinking, rel=0.2)
    lively = Pupil().see(*[3_025] * 20, effort="high", thinking=3_000, read=20.0, need=0.016)
    assert estimate(place, asked, lively, reading=reading(600, 1.2)).thinking_tokens < 3.1 * 3_000
    idle = Pupil().see(*[8] * 50, effort="high", thinking=0, read=8.0, need=0.016)
    idle.see(*[5_800] * 12, effort="high", thinking=4_800, read=1_000.0, need=1.0)
    assert estimate(place, asked, idle, reading=reading(1_000, 1.0)).output_tokens == pytest.approx(5_800, rel=0.2)


def test_short_answers_say_little_of_long_ones_whoever_asked_for_them() -> None:
    """Three look-ups of one plain template, and then thirty of one with instructions."""
    essay = [
        estimate(PLACE, request(), learned, Task.CHAT, reading(2_000), template=name).output_tokens
        for learned in (NEW, Pupil().see(*[20] * 3, read=3.0, template=PLAIN))
        for name in (PLAIN, "8" * 24)
    ]
    assert max(essay) < 1.2 * min(essay)
    wordy = Pupil()
    for digit in "123":
        wordy.see(*[300] * 17, read=30.0, template=digit * 24)
    look_up, poem = (estimate(PLACE, request(), wordy, Task.CHAT, reading(size)).output_tokens for size in (30, 500))
    assert (look_up > 200, poem < 1_250) == (True, True)
    brief = Pupil().see(*[20] * 60, read=10.0, template=PLAIN)
    for task, least, most in ((Task.CHAT, 1_000, 8_000), (Task.CODE, 1_000, 8_000)):  # what caps pay for
        essay_usd = estimate(PLACE, request(), brief, task, reading(2_000), template=PLAIN).tight.usd
        assert least < essay_usd / (PRICE.output / 1e6) < most
    release = Pupil().see(3_000, read=190.0, template="7" * 24)  # one unusual answer
    for size, name in ((5, "8" * 24), (4_800, "8" * 24), (4_800, "7" * 14 + "8" * 10)):
        expected = estimate(PLACE, request(), release, Task.CHAT, reading(size), template=name).output_tokens
        assert expected < (150 if size == 5 else 3 * size)
    curt = Pupil().see(*[20] * 30, read=300.0, template="7" * 24)
    other = estimate(PLACE, request(), curt, Task.CHAT, reading(2_000), template="8" * 24).output_tokens
    assert other > essay[0] / 3
    poems = [Pupil().see(*[3_000] * 40, read=4_500.0 if known else 220.0, stated=known) for known in (False, True)]
    lengths = [estimate(PLACE, request(), each, Task.CHAT, reading(4_500, stated=True)).output_tokens for each in poems]
    assert lengths == pytest.approx([4_500, 3_000], rel=0.05)  # what others do without being told says nothing of it


def test_an_answer_that_never_ended_says_little_and_what_was_read_of_a_narrow_kind_little_of_all_others() -> None:
    def expected(learned: Pupil, read: float, name: str = "7" * 24) -> int:
        return estimate(PLACE, request(), learned, Task.CHAT, reading(read), template=name).output_tokens

    endless, narrow, steep = Pupil().see(100_000, read=250.0, template="7" * 24), Pupil(), Pupil()
    assert expected(endless, 250) < 4 * 250
    assert expected(endless, 11) < 4 * 11
    assert expected(endless.see(*[250] * 60, read=250.0, template="7" * 24), 250) < 1.3 * 250
    assert expected(Pupil().see(*[2_500] * 8, read=250.0, template="7" * 24), 250) > 2_000  # eight say what they are
    for read in (100.0, 200.0, 300.0, 400.0) * 12:
        narrow.see(250, read=read, template="7" * 24)
    for name in ("7" * 24, "8" * 24):
        assert (expected(narrow, 11, name) < 30, expected(narrow, 3_600, name) > 1_000) == (True, True)
    for read, output in ((20.0, 4), (260.0, 3_000)) * 20:
        steep.see(output, read=read, template="7" * 24)
    assert (expected(steep, 260) > 2_000, expected(steep, 3_600) < 4 * 3_600) == (True, True)


@given(st.lists(st.tuples(st.sampled_from((3.0, 30.0, 500.0)), st.integers(0, 4_000)), min_size=1, max_size=40))
def test_of_a_longer_request_no_less_is_expected_whatever_was_learned(seen: list[tuple[float, int]]) -> None:
    """Also where answers of a template are as long whatever is asked, and small talk says nothing against its poems."""
    learned = Pupil()
    for read, tokens in seen:
        learned.see(tokens, read=read, template="7" * 24)
    for name in ("7" * 24, "8" * 24, ""):
        sizes = [
            estimate(PLACE, request(), learned, Task.CHAT, reading(size), template=name).output_tokens
            for size in (3, 30, 500, 2_000)
        ]
        assert sizes == sorted(sizes)
    mixed = Pupil().see(*[8] * 54, read=15.0, template="7" * 24)
    mixed.see(*[1_500] * 6, read=284.0, template="7" * 24)
    hello, poem = (
        estimate(PLACE, request(), mixed, Task.CHAT, reading(size), template="7" * 24).output_tokens
        for size in (15, 284)
    )
    assert [hello, poem / 10] == pytest.approx([8, 150], abs=10)


def test_an_answer_that_was_cut_short_or_is_of_another_target_teaches_nothing_one_that_was_long_even_so_does() -> None:
    other, learned = target("other", max_output=100_000), Pupil().see(*[1_000] * 100)
    before = learned.figures()
    assert learned.figures(place=other) == Pupil().figures(place=other)
    assert learned.see(*[10] * 50, cut=True).figures() == before
    assert learned.see(*[30_000] * 90, cut=True).figures().tight.usd > before.tight.usd


def test_an_overrun_widens_every_bound_of_its_target_for_a_while() -> None:
    learned = Pupil().see(*[1_000] * SIZE)
    calm = learned.figures()
    learned.overrun(PLACE.id)
    wide = learned.figures()
    assert wide.tight.usd > 1.3 * calm.tight.usd
    assert wide.input_bound > calm.input_bound
    for _ in range(10):
        learned.overrun(PLACE.id)
    assert (learned.margin("other"), learned.margin(PLACE.id)) == (1, MOST_MARGIN)
    calm = Pupil().see(*[1_000] * (SIZE + 300)).figures()
    assert learned.see(*[1_000] * 300).figures().tight.usd == pytest.approx(calm.tight.usd, rel=0.01)


def test_counted_prompts_tighten_the_bound_dearer_ones_widen_it_and_small_images_say_nothing_of_others() -> None:
    learned, asked = Pupil(), request(prompt_bytes=40_000, dense_bytes=4_000)
    cold = estimate(LARGE, asked, learned).input_bound
    few = learned.count(asked, 9_000)
    assert 9_000 < few.input_bound < 9_000 * 1.2 < cold
    assert few.input_tokens == pytest.approx(9_000, rel=0.02)
    assert 15_000 < learned.count(asked, 15_000).input_bound < 15_000 * 1.2
    fixed = Pupil()
    for rough in (*[2] * 15, *[15] * 15):
        fixed.observe(AttemptSample(target=LARGE.id, script="text", input=rough + 60, expected_input=rough))
    assert estimate(LARGE, request(prompt_bytes=8, dense_bytes=0), fixed).input_tokens == pytest.approx(60, abs=5)
    usual, picture = estimate(LARGE, asked, NEW).input_tokens, request(images=1)
    assert estimate(LARGE, asked, fixed).input_tokens == pytest.approx(usual, rel=0.2)
    unseen, small = estimate(LARGE, picture, NEW), Pupil().count(picture, 60)
    assert small.input_bound == unseen.input_bound
    assert small.input_tokens < unseen.input_tokens / 10


def test_a_model_that_always_thinks_fits_once_it_was_seen_to() -> None:
    """Thinking that is not told apart is at most the output, and not counted twice."""
    always = Thinking(contract=Contract.ALWAYS_ON, levels=("high",), tokens=(24_576,))
    place = target(thinking=always, max_output=100_000)
    for output, thinking, fits, less in ((1_000, None, 2_000, 900), (900, 800, 1_500, 700)):
        learned = Pupil().see(*[output] * 100, thinking=thinking)
        assert (fits_thinking(place, fits, learned), fits_thinking(place, less, learned)) == (True, False)
        assert learned.figures(place=place).output_tokens == pytest.approx(output, rel=0.1)


def test_a_stream_is_metered_by_the_fewest_bytes_that_a_token_of_its_kind_had() -> None:
    learned, prose, table = Pupil(), TextBytes(words=1_000, dense=50), TextBytes(words=20, dense=1_000)
    for size in range(400, 500):
        learned.see(100, text=TextBytes(words=size, dense=size // 20))
    before = learned.most_tokens(PLACE.id, prose)
    assert 250 <= before < NEW.most_tokens(PLACE.id, prose)
    assert learned.most_tokens(PLACE.id, table) >= 1_000, "its digits may be a token each"
    learned.see(*[500] * 100, text=table)
    assert 500 <= learned.most_tokens(PLACE.id, table) < 520
    assert learned.most_tokens(PLACE.id, prose) == before


def test_memory_is_bounded_and_keeps_what_is_in_use() -> None:
    learned = Pupil()
    for number in range(2 * MOST_CELLS):
        learned.observe(AttemptSample(target=f"t{number}", output=5))
        learned.see(7_000)
    learned.learn()
    assert len(learned._latest) == MOST_CELLS
    assert learned.figures().output_tokens == pytest.approx(7_000, rel=0.05)


# What is expected to be in a target's cache, and what that makes of its price.

TURN, STAKES = CachePrefix(7, "0a", 0.25), Objective(failure_nano=200_000_000)
KEPT = structs.replace(PRICE, cache_read=PRICE.input // 10, cache_write=PRICE.input * 5 // 4)
LONG = target(context=200_000, price=KEPT)
ANTHROPIC = structs.replace(LONG, provider=structs.replace(REMOTE, wire=Wire.ANTHROPIC))


def told(tokens: int = 20_000, read: int = 0, prefix: CachePrefix = TURN, times: int = 1) -> Caches:
    known = Caches()
    for _ in range(times):
        known.note(prefix, [("t", Usage(cache_read=read, cache_write=tokens - read))], 1_000)
    return known


def test_the_next_turn_finds_what_was_sent_and_another_conversation_the_instructions_for_a_lifetime() -> None:
    known = told()
    assert 0.5 < known.expected(TURN, 21_000, 2_000).reads["t"] / 20_000 <= 1
    other = known.expected(structs.replace(TURN, conversation=8), 21_000, 2_000)
    assert 0.5 < other.reads["t"] / 5_000 <= 1
    assert known.expected(CachePrefix(8, "0b", 0.25), 21_000, 2_000).reads == {}
    for prefix, lifetime in ((TURN, LIFETIME_MS), (structs.replace(TURN, long=True), LONG_LIFETIME_MS)):
        known = told(prefix=prefix)
        assert known.expected(prefix, 21_000, 1_000 + lifetime).reads
        assert known.expected(prefix, 21_000, 1_001 + lifetime) == CachedPrompt({}, 0.25)
    assert told(1_000).expected(TURN, 21_000, 2_000).reads == {}


def test_how_much_is_really_read_is_learned_and_memory_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    never, always = told(times=60), told(read=20_000, times=60)
    assert never.expected(TURN, 21_000, 2_000).reads["t"] < 1_500
    assert always.expected(TURN, 21_000, 2_000).reads["t"] > 19_000
    monkeypatch.setattr(caches, "MOST", 10)
    known = Caches()
    for number in range(50):
        known.note(CachePrefix(number, f"{number}", 0.5), [("t", Usage(input_uncached=9_000))], 1_000)
    assert not known.expected(CachePrefix(0, "", 0.5), 21_000, 1_000).reads
    assert known.expected(CachePrefix(49, "", 0.5), 21_000, 1_000).reads


def test_a_cold_prompt_is_written_and_a_warm_one_read() -> None:
    """As shares of the price of other input."""
    rows = (LONG, False, (1.25, 0.1)), (ANTHROPIC, True, (1.25, 0.1)), (ANTHROPIC, False, (1.0, 1.0))
    for place, asks, shares in (*rows, (target(context=200_000), False, (1.0, 1.0))):
        asked, learned = request(prompt_bytes=80_000, caches=asks), TargetStats()
        plain = estimate(structs.replace(place, model=structs.replace(place.model, price=PRICE)), asked, learned)
        output = PRICE.output * plain.output_tokens / 1e6
        for cached, share in zip(({}, {"t": 1e9}), shares, strict=True):
            cost = estimate(place, asked, learned, cached=cached).cost
            assert cost - output == pytest.approx(share * (plain.cost - output), rel=0.01)


def test_a_conversation_leaves_a_warm_target_once_that_pays_over_the_turns_that_are_likely_to_follow() -> None:
    """So it does in the template of requests that begin alike; one request alone pays for nothing but itself, unless
    its template's conversations usually go on, and to a target that usual requests would not be sent to nothing."""
    dear = structs.replace(KEPT, input=3 * KEPT.input, cache_read=KEPT.input // 3, cache_write=4 * KEPT.input)
    places = target("t", context=200_000, price=dear), structs.replace(LONG, id="cheap")
    forecaster, asked = Forecaster(places, TargetStats(), PassRateModel(places)), request(prompt_bytes=80_000)
    template, other = structs.replace(TURN, shared=0.97), CachePrefix(8, "0a", 0.97)
    once, long, usual = (told(read=20_000, times=times) for times in (1, 9, 60))
    new, of_template = structs.replace(TURN, conversation=9), told(read=20_000, prefix=template, times=9)
    usual.note(new, [("t", Usage(cache_read=20_000))], 1_000)
    every = (TURN, once, 0.5, 0), (TURN, long, 0.5, 1), (TURN, long, 0, 0), (new, usual, 0.5, 1)
    for prefix, known, usual_p, chosen in (*every, (other, of_template, 0.5, 1)):
        forecast = forecaster.forecast(places, ForecastInput(asked, SEEN, 0, known.expected(prefix, 20_000, 2_000)))
        forecast = structs.replace(forecast, p=np.array([0.5, 0.5]), usual_p=np.array([0.5, usual_p]))
        forecast = for_later(forecast, STAKES)
        given = DecisionInput(targets=places, forecast=forecast, classification=SEEN, stakes=STAKES, draw=0.5)
        assert expected_loss(given, np.zeros(2, np.intp), 0.0).best == chosen, (prefix, usual_p)
    floor = structs.replace(STAKES, min_pass_rate=0.505)  # what may not be asked is no way to save
    forecast = structs.replace(forecast, p=np.array([0.5, 0.51]), usual_p=np.array([0.5, 0.51]))
    assert for_later(forecast, floor).weighed_cost[1] < for_later(forecast, STAKES).weighed_cost[1]


@given(st.floats(0, 1e6), st.integers(1, 400_000))
def test_what_is_in_a_cache_never_makes_a_prompt_dearer(cached: float, size: int) -> None:
    asked = request(prompt_bytes=size)
    assert 0 < estimate(LONG, asked, NEW, cached={"t": cached}).cost <= estimate(LONG, asked, NEW).cost


# How long targets take: what is forgotten, and how much they write at once.


def paced(times: int, *, pace: Pace | None = None, **seen: int | None) -> Pace:
    known, usual = pace or Pace(), {"first_ms": 500, "total_ms": 2_500, "output": 100}
    for number in range(times):
        known.observe(**usual | seen, ended_ms=(number + 1) * 10_000)  # type: ignore[arg-type]
    return known


def test_what_was_seen_often_is_expected_and_a_change_is_seen_within_some_dozen_requests() -> None:
    """The first byte's time is no part of what a token takes."""
    pace = paced(300)
    assert [pace.first_ms, pace.ms_per_token] == pytest.approx([500, 20], rel=0.06)
    assert pace.sd < 0.25
    assert paced(1, first_ms=50).first_ms == pytest.approx(PRIOR_FIRST_MS, rel=0.6)
    changed = paced(60, total_ms=20_500, pace=paced(500))
    assert (changed.ms_per_token > 100, changed.sd > 0.5) == (True, True)


def test_without_a_stream_nothing_is_learned_of_the_first_byte_and_odd_times_are_no_error() -> None:
    """Quicker than the usual first byte; no time at all, or nothing written, which says nothing."""
    pace = paced(300, first_ms=None)
    assert pace.first_ms == pytest.approx(PRIOR_FIRST_MS)
    assert pace.first_ms + 100 * pace.ms_per_token == pytest.approx(2_500, rel=0.06)
    assert 0 < paced(50, first_ms=None, total_ms=5).ms_per_token < 5
    for total_ms, output in ((0, 10), (10, 0), (-5, 10)):
        assert paced(5, total_ms=total_ms, output=output) == Pace()


def test_throughput_is_of_all_requests_at_once_and_idle_time_does_not_count() -> None:
    """Four at a time, of 100 tokens in a second each."""
    pace = Pace()
    for number in range(396):
        pace.observe(first_ms=None, total_ms=1_000, output=100, ended_ms=(number // 4 + 1) * 1_000)
    assert pace.throughput == pytest.approx(400, rel=0.05)
    assert paced(100, total_ms=1_000, output=100).throughput == pytest.approx(100, rel=0.01)


@given(st.lists(st.tuples(st.integers(0, 100_000), st.integers(1, 20_000)), min_size=1, max_size=12))
def test_time_counts_once_in_any_order(spans: list[tuple[int, int]]) -> None:
    """But for what is forgotten: at most 3 % with every request."""
    pace, covered = Pace(), set[int]()
    for began, length in spans:
        pace.observe(first_ms=None, total_ms=length, output=1, ended_ms=began + length)
        covered |= set(range(began, began + length))
    assert len(covered) * 0.97 ** len(spans) <= pace.busy_ms * (1 + 1e-9)
    assert pace.busy_ms <= len(covered) * (1 + 1e-9)
