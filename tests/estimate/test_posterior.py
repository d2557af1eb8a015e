"""Learning on top of a prior: exact, additive over workers, forgetful, and finite whatever it is told."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from router.estimate.pass_rate import MOST_NAMES, SAME_NAME, SETTLED, Drift
from router.estimate.posterior import HALF_LIFE_MS, Posterior, State, noise, pack
from router.types.attempt import Alarm
from tests.estimate.test_pass_rate import outcome
from tests.tables import each_row

NAMES = ("a", "b", "c")
K = 4
COMMON, OWN = np.array([0.01, 0.02, 0.03, 0.01]), np.linspace(0.02, 0.2, 3 * K).reshape(3, K)
PHI = np.array([1.0, 0.3, -1.0, 0.5])
NAN, INF = float("nan"), float("inf")
NOW = 10**12
Observed = tuple[int, list[float], float]
OUTCOMES = st.lists(
    st.tuples(st.integers(0, 2), st.lists(st.floats(-3, 3), min_size=K, max_size=K), st.floats(-1, 1)), max_size=20
)


def posterior(half_life_ms: float = HALF_LIFE_MS) -> Posterior:
    return Posterior(NAMES, COMMON, OWN, half_life_ms=half_life_ms)


def taught(outcomes: list[Observed]) -> Posterior:
    learner = posterior()
    for target, phi, residual in outcomes:
        learner.update(target, np.array(phi), residual, 0.2)
    return learner


def drawn(n: int) -> list[Observed]:
    rng = np.random.default_rng(0)
    return [(int(rng.integers(3)), rng.normal(size=K).tolist(), float(rng.uniform(-1, 1))) for _ in range(n)]


def joint(outcomes: list[Observed]) -> np.ndarray:
    """Mean at PHI by one dense regression on (common, own of a, own of b, own of c)."""

    def row(target: int, phi: np.ndarray | list[float]) -> np.ndarray:
        filled = np.zeros((4, K))
        filled[0] = filled[target + 1] = phi
        return filled.ravel()

    precision, pull = np.diag(1 / np.concatenate([COMMON, OWN.ravel()])), np.zeros(4 * K)
    for target, phi, residual in outcomes:
        precision += np.outer(row(target, phi), row(target, phi)) / 0.2
        pull += row(target, phi) * residual / 0.2
    rows = np.array([row(target, PHI) for target in range(3)])
    return np.asarray(rows @ np.linalg.solve(precision, pull))


@settings(max_examples=40)
@example([])
@given(OUTCOMES)
def test_it_is_the_exact_regression_with_a_common_part(outcomes: list[Observed]) -> None:
    mean, learner = joint(outcomes), taught(outcomes)
    assert learner.about(PHI)[0] == pytest.approx(mean, abs=1e-9)


def test_what_is_unknown_of_all_says_nothing_of_which_is_better_and_without_variance_nothing_is_learned() -> None:
    learner = Posterior(NAMES, np.full(K, 100.0), np.full((3, K), 0.01))
    assert learner.about(PHI)[1] == pytest.approx([np.sqrt(PHI @ PHI * 0.01)] * 3)
    for _ in range(20):
        learner.update(1, PHI, 0.1, 0.2)
    before, seen, other = learner.about(PHI)[1]
    assert seen < 0.6 * before == 0.6 * other
    learner, first = Posterior(NAMES, COMMON * 0, OWN * [0, 1, 1, 1]), np.array([1.0, 0, 0, 0])
    for _ in range(100):
        learner.update(0, first, 0.9, 0.2)
    assert learner.about(first)[0] == pytest.approx([0, 0, 0], abs=1e-4)


def test_an_outcome_that_is_taken_back_was_never_there() -> None:
    outcomes = drawn(30)
    outcomes[7] = (0, PHI.tolist(), 1.0)
    learner, other, worker = (posterior(half_life_ms=10_000.0) for _ in range(3))
    for at, (target, phi, residual) in enumerate(outcomes):
        for each in (learner,) if at == 7 else (learner, other):
            each.update(target, np.array(phi), residual, 0.2, at_ms=1_000_000 + 100 * at)
    assert not np.allclose(learner.about(PHI)[0], other.about(PHI)[0], atol=1e-3)
    learner.update(0, PHI, 1.0, -0.2, at_ms=1_000_700)
    assert learner.count == pytest.approx(other.count, abs=0.01)
    worker.restore(pack("", learner.seen, NAMES))
    for each in (learner, worker):
        assert each.about(PHI)[0] == pytest.approx(other.about(PHI)[0], abs=1e-3)


def test_a_late_outcome_counts_as_much_as_if_it_had_come_in_time() -> None:
    late, early = (posterior(half_life_ms=10_000.0) for _ in range(2))
    for learner, order in ((late, (1, 0)), (early, (0, 1))):
        for at in order:
            learner.update(at, PHI, 0.5, 0.2, at_ms=1_000_000 + 20_000 * at)
    assert late.count == pytest.approx([0.25, 1, 0])
    assert late.about(PHI)[0] == pytest.approx(early.about(PHI)[0])


def passes(learner: Posterior, at_ms: int) -> None:
    learner.update(2, np.zeros(K), 0.0, 0.2, at_ms, 0.0)


def test_a_half_life_halves_what_was_seen_until_the_prior_is_back_and_a_clock_set_back_does_nothing() -> None:
    learner, means = posterior(), list[float]()
    learner.update(0, PHI, 0.8, 0.2, at_ms=NOW)
    passes(learner, NOW - 10**9)
    assert learner.count[0] == 1
    for day in range(31):
        passes(learner, NOW + day * 86_400_000)
        means.append(learner.about(PHI)[0][0])
    assert learner.count[0] == pytest.approx(0.5)
    assert means == sorted(means, reverse=True)
    passes(learner, NOW + 60 * HALF_LIFE_MS)
    assert np.concatenate(learner.about(PHI)[:2]) == pytest.approx([0, 0, 0, *posterior().about(PHI)[1]], abs=1e-6)


def test_a_widened_target_forgets_and_the_others_do_not() -> None:
    learner = taught(drawn(300))
    before, count = learner.about(PHI)[1], learner.count[0]
    learner.widen(0, 30)
    after = learner.about(PHI)[1]
    assert after[0] > 2 * before[0]
    assert after[2] < 1.1 * before[2]
    assert learner.count[0] == pytest.approx(count / 30)


def test_it_survives_a_restart_and_targets_that_come_and_go_and_nothing_seen_takes_no_room() -> None:
    learner, other, changed = taught(drawn(50)), posterior(), Posterior(("c", "new", "a"), COMMON, OWN)
    assert pack("", other.seen, NAMES) == ("", 0, (), b"")
    passes(learner, NOW)
    state = pack("", learner.seen, NAMES)
    other.restore(state)
    assert np.concatenate(other.about(PHI)) == pytest.approx(np.concatenate(learner.about(PHI)))
    assert (other.count.tolist(), other.seen.at_ms) == (learner.count.tolist(), NOW)
    changed.restore(state)
    assert list(changed.count) == [learner.count[2], 0, learner.count[0]]


def broken(sums: float, features: int = K) -> State:
    learner = Posterior(NAMES, np.ones(features), np.ones((3, features)))
    learner.seen.sums += sums
    return pack("", learner.seen, NAMES)


def test_a_state_that_does_not_fit_is_refused() -> None:
    cut = (*broken(1.0)[:3], broken(1.0)[3][:-8])
    for state in (cut, broken(1.0, K + 1), broken(-1_000.0), broken(INF)):
        with pytest.raises(ValueError, match=r"reshape|finite|nothing"):
            posterior().restore(state)


def test_an_outcome_that_is_no_number_leaves_no_trace() -> None:
    learner = taught(drawn(5))
    before = learner.seen.sums.tolist()
    odd = [(0, PHI, residual, 0.2) for residual in (NAN, INF)]
    odd += [(0, PHI * factor, 0.1, 0.2) for factor in (NAN, INF, 1e200)]
    odd += [(0, PHI, 0.1, noise) for noise in (NAN, INF, 0.0, -1e-3, 1e-300)]
    for target, phi, residual, variance in (*odd, (0, PHI[:2], 0.1, 0.2), (3, PHI, 0.1, 0.2), (-1, PHI, 0.1, 0.2)):
        with pytest.raises(ValueError, match=r"finite|known are|taken back"):
            learner.update(target, phi, residual, variance)
        assert learner.seen.sums.tolist() == before


def test_a_million_contradictory_outcomes_end_in_a_number_that_one_surprise_does_not_overturn() -> None:
    learner = posterior()
    for index in range(1_000):
        learner.update(0, PHI, 1.0 if index % 2 else -1.0, 0.03)
    learner.widen(0, 1 / 1_024)
    mean = np.array([learner.about(phi)[0] for phi in (PHI, 100 * PHI, np.zeros(K))])
    assert learner.count[0] > 1_000_000
    assert np.isfinite(mean).all()
    assert abs(mean[0, 0]) < 0.01
    assert noise(0.5) > noise(1.0) > 0.01


# Drift: a target that changes raises an alarm soon, one that does not hardly ever.


def scored(drift: Drift, rate: float, n: int, expected: float | None = None, seed: int = 0) -> list[tuple[int, Alarm]]:
    """Alarms with the number of observations before them."""
    rng, expected = np.random.default_rng(seed), rate if expected is None else expected
    alarms = [drift.scored(outcome("a", float(rng.random() < rate), expected=expected, given_ms=at)) for at in range(n)]
    return [(at, alarm) for at, alarm in enumerate(alarms) if alarm is not None]


@each_row("rate", [0.02, 0.3, 0.5, 0.7, 0.9, 0.98])
@each_row("off", [-0.1, 0.0, 0.1])
def test_a_target_that_stays_as_it_is_hardly_ever_raises_an_alarm_even_if_misjudged(rate: float, off: float) -> None:
    assert len(scored(Drift(["a"]), rate, 20_000, expected=min(1.0, max(0.0, rate + off)))) <= 2


@each_row("before, after", [(0.9, 0.6), (0.95, 0.5), (0.6, 0.9), (0.5, 0.1)])
def test_a_change_is_found_soon_and_told_with_both_rates(before: float, after: float) -> None:
    drift = Drift("a")
    assert scored(drift, before, 500) == []
    ((at, alarm),) = scored(drift, after, 150, expected=before, seed=1)
    assert at < 100
    assert (alarm.target, alarm.kind, alarm.at_ms) == ("a", "pass_rate", at)
    assert alarm.before == pytest.approx(before, abs=0.1)
    assert alarm.after == pytest.approx(after, abs=0.2)


def test_a_changed_target_is_watched_anew_first_observations_are_no_news_and_say_nothing_of_another_target() -> None:
    drift = Drift(["a"])
    courses = ((0.9, 500), (0.5, 100), (0.5, 500), (0.9, 100))
    alarms = [len(scored(drift, rate, n, 0.9, seed)) for seed, (rate, n) in enumerate(courses)]
    assert alarms == [0, 1, 0, 1]
    assert scored(Drift(["a"]), 0.0, SETTLED, expected=1.0) == []
    drift = Drift(["a", "b"])
    scored(drift, 0.9, 500)
    assert not any(drift.scored(outcome("b", 0.0, expected=0.9)) for _ in range(2 * SETTLED))


def test_templates_of_other_rates_that_come_and_go_are_no_alarm_and_a_change_in_all_of_them_is() -> None:
    """What was expected in each follows its first outcomes."""
    drift, rng, alarms = Drift(["a"]), np.random.default_rng(3), list[Alarm]()
    for batch, rate in enumerate((0.6, 0.97, 0.02, 0.5, 0.6, 1.0, 0.0)):
        right, times = 16.0 * 0.9, 16.0
        for _ in range(150):
            score = float(rng.random() < rate)
            told = outcome("a", score, expected=right / times, template=f"{batch}")
            alarms += filter(None, [drift.scored(told)])
            right, times = right + score, times + 1
    for at in range(400):  # what is expected of it moves, and not what it does
        half = outcome("a", at % 2, expected=0.5 if at < 200 else 0.1, template="half")
        alarms += filter(None, [drift.scored(half)])
    assert alarms == []
    for at in range(200):
        failed = outcome("a", 0.0, expected=0.6 if at % 2 else 0.95, template="4" if at % 2 else "1")
        alarms += filter(None, [drift.scored(failed)])
    assert [alarm.kind for alarm in alarms[:1]] == ["pass_rate"]


def test_what_is_no_score_is_refused() -> None:
    for expected, score in ((math.nan, 1.0), (0.5, math.nan), (0.5, 2.0), (-0.1, 0.5)):
        with pytest.raises(ValueError, match="within 0 to 1"):
            Drift(["a"]).scored(outcome("a", score, expected=expected))


def test_a_new_name_after_many_answers_under_the_old_raises_an_alarm() -> None:
    drift = Drift(["a"])
    for kind in ("fingerprint", "model"):
        assert not any(drift.served("a", kind, "fp_1", at) for at in range(SAME_NAME + 1))
        alarms = [drift.served("a", kind, name, at) for at, name in enumerate(("", "fp_2", "fp_2", "fp_1"), 98)]
        assert alarms == [None, Alarm("a", kind, "fp_1", "fp_2", 99), None, None]


def test_several_machines_behind_one_target_are_no_alarm_nor_is_a_new_name_each_time() -> None:
    drift = Drift(["a", "b"])
    assert not any(drift.served("a", "fingerprint", f"fp_{at % 7}", at) for at in range(1_000))
    assert drift.served("a", "fingerprint", "fp_new", 1_000) is not None
    assert not any(drift.served("b", "fingerprint", str(at), at) for at in range(10 * MOST_NAMES))
    assert len(drift._names["b", "fingerprint"]) == MOST_NAMES
