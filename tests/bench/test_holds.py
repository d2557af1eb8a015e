"""The replay of holds, on answers as heavy-tailed as real ones: one in twenty is thirty times as long."""

import random
from pathlib import Path

import pytest

from bench.holds import COLD, MODELS, Row, figures, folder, replay, report, target

_CHANCE, _ORDER = random.Random(3), random.Random(1)  # noqa: S311 - the same answers each time


def answer() -> Row:
    thinking = int(_CHANCE.lognormvariate(6.5, 0.6)) * (30 if _CHANCE.random() < 0.05 else 1)
    return Row(prompt="Who was it, and when? " * 3, input=25, output=thinking + 60, thinking=thinking)


ANSWERS = [answer() for _ in range(400)]


@pytest.mark.parametrize("name", MODELS)
def test_metered_holds_are_tight_and_never_too_small(name: str) -> None:
    found = figures([replay(target(name, streamed=True), ANSWERS, _ORDER)])
    assert found.overshoots == 0
    assert found.cut_share == 0
    assert 1 < found.warm < 1.7
    assert 1 < found.cold < 3


def test_what_cannot_be_metered_is_capped_where_few_answers_end() -> None:
    run = replay(target("gpt-5-mini", streamed=False), ANSWERS, _ORDER)
    found = figures([run])
    assert all(one.spent <= one.held for one in run)
    assert len(run) > COLD
    assert 0 < found.cut_share < 0.03
    assert found.extensions == 0


def test_a_report_is_of_both_ways_and_every_model() -> None:
    found = report({"gpt-5-mini": ANSWERS[: COLD + 10]}, shuffles=1)
    assert found.metered.keys() == found.hidden.keys() == {"gpt-5-mini"}
    assert found.metered_warm_mean == found.metered["gpt-5-mini"].warm < found.hidden["gpt-5-mini"].warm


def test_data_that_is_not_there_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWPASS_DATA", str(tmp_path))
    assert folder() is None
