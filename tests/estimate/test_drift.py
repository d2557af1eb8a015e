"""A target that changes raises an alarm soon, one that does not hardly ever."""

import math

import numpy as np
import pytest

from router.estimate.drift import MOST_NAMES, SAME_NAME, SETTLED, Alarm, Drift
from router.estimate.posterior import Posterior, Prior
from tests.tables import each_row


def scored(
    drift: Drift, rate: float, n: int, *, expected: float | None = None, seed: int = 0
) -> list[tuple[int, Alarm]]:
    """Alarms with the number of observations before them."""
    rng = np.random.default_rng(seed)
    alarms = [
        drift.scored(0, rate if expected is None else expected, float(rng.random() < rate), at) for at in range(n)
    ]
    return [(at, alarm) for at, alarm in enumerate(alarms) if alarm is not None]


@each_row("rate", [0.02, 0.3, 0.5, 0.7, 0.9, 0.98])
@each_row("off", [-0.1, 0.0, 0.1])
def test_a_target_that_stays_as_it_is_hardly_ever_raises_an_alarm_even_if_misjudged(rate: float, off: float) -> None:
    assert len(scored(Drift(["a"]), rate, 20_000, expected=min(1.0, max(0.0, rate + off)))) <= 2


@each_row("before, after", [(0.9, 0.6), (0.95, 0.5), (0.6, 0.9), (0.5, 0.1)])
def test_a_change_is_found_soon_and_told_with_both_rates(before: float, after: float) -> None:
    drift = Drift(["a"])
    assert scored(drift, before, 500) == []
    ((at, alarm),) = scored(drift, after, 150, expected=before, seed=1)
    assert at < 100
    assert (alarm.target, alarm.kind, alarm.at_ms) == ("a", "pass_rate", at)
    assert alarm.before == pytest.approx(before, abs=0.1)
    assert alarm.after == pytest.approx(after, abs=0.2)


def test_a_changed_target_is_watched_anew() -> None:
    drift = Drift(["a"])
    scored(drift, 0.9, 500)
    assert len(scored(drift, 0.5, 100, expected=0.9, seed=1)) == 1
    assert scored(drift, 0.5, 500, expected=0.9, seed=2) == []
    assert len(scored(drift, 0.9, 100, expected=0.9, seed=3)) == 1


def test_the_first_observations_are_no_news_and_one_target_says_nothing_of_another() -> None:
    assert scored(Drift(["a"]), 0.0, SETTLED, expected=1.0) == []
    drift = Drift(["a", "b"])
    scored(drift, 0.9, 500)
    assert not any(drift.scored(1, 0.9, 0.0, at) for at in range(2 * SETTLED))


@each_row("expected, score", [(math.nan, 1.0), (0.5, math.nan), (0.5, 2.0), (-0.1, 0.5)])
def test_what_is_no_score_is_refused(expected: float, score: float) -> None:
    with pytest.raises(ValueError, match="within 0 to 1"):
        Drift(["a"]).scored(0, expected, score, 0)


@each_row("kind", ["fingerprint", "model"])
def test_a_new_name_after_many_answers_under_the_old_raises_an_alarm(kind: str) -> None:
    drift = Drift(["a"])
    assert not any(drift.served(0, kind, "fp_1", at) for at in range(SAME_NAME + 1))
    names = ("", "fp_2", "fp_2", "fp_1")
    alarms = [drift.served(0, kind, name, at) for at, name in enumerate(names, 98)]
    assert alarms == [None, Alarm("a", kind, "fp_1", "fp_2", 99), None, None]


def test_several_machines_behind_one_target_are_no_alarm() -> None:
    drift = Drift(["a"])
    assert not any(drift.served(0, "fingerprint", f"fp_{at % 7}", at) for at in range(1_000))
    assert drift.served(0, "fingerprint", "fp_new", 1_000) is not None


def test_a_target_that_has_a_new_name_each_time_takes_no_more_room() -> None:
    drift = Drift(["a"])
    assert not any(drift.served(0, "fingerprint", str(at), at) for at in range(10 * MOST_NAMES))
    assert len(drift._names[0, "fingerprint"]) == MOST_NAMES


def test_after_an_alarm_a_widened_posterior_follows_faster() -> None:
    """The reason for it all: 60 failures after 1,000 passes."""
    phi, learners = np.array([1.0]), [Posterior(["a"], Prior(np.array([0.01]), np.array([[0.04]]))) for _ in range(2)]
    for widened, learner in enumerate(learners):
        for _ in range(1_000):
            learner.update(0, phi, 0.2, 0.2)
        if widened:
            learner.widen(0, 20)
        for _ in range(60):
            learner.update(0, phi, -0.4, 0.2)
    slow, quick = (float(learner.mean(phi)[0]) for learner in learners)
    assert quick < -0.1 < 0.1 < slow
