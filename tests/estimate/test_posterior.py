"""Learning on top of a prior: exact, additive over workers, forgetful, and finite whatever it is told."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.estimate.posterior import HALF_LIFE_MS, Posterior, Prior, noise

NAMES = ("a", "b", "c")
K = 4
PRIOR = Prior(np.array([0.01, 0.02, 0.03, 0.01]), np.linspace(0.02, 0.2, 3 * K).reshape(3, K))
PHI = np.array([1.0, 0.3, -1.0, 0.5])
Outcome = tuple[int, list[float], float]
outcomes = st.lists(
    st.tuples(st.integers(0, 2), st.lists(st.floats(-3, 3), min_size=K, max_size=K), st.floats(-1, 1)), max_size=20
)


def posterior(**fields: object) -> Posterior:
    return Posterior(NAMES, PRIOR, **fields)  # type: ignore[arg-type]


def taught(told: list[Outcome], **fields: object) -> Posterior:
    learner = posterior(**fields)
    for target, phi, residual in told:
        learner.update(target, np.array(phi), residual, 0.2)
    return learner


def drawn(n: int, seed: int = 0) -> list[Outcome]:
    rng = np.random.default_rng(seed)
    return [(int(rng.integers(3)), rng.normal(size=K).tolist(), float(rng.uniform(-1, 1))) for _ in range(n)]


def joint(told: list[Outcome]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd at PHI by one dense regression on (common, own of a, own of b, own of c)."""
    precision, pull = np.diag(1 / np.concatenate([PRIOR.common, PRIOR.own.ravel()])), np.zeros(4 * K)
    rows = np.zeros((3, 4 * K))
    for target in range(3):
        rows[target, :K] = rows[target, (target + 1) * K : (target + 2) * K] = PHI
    for target, phi, residual in told:
        row = np.zeros(4 * K)
        row[:K] = row[(target + 1) * K : (target + 2) * K] = phi
        precision += np.outer(row, row) / 0.2
        pull += row * residual / 0.2
    covariance = np.linalg.inv(precision)
    return rows @ covariance @ pull, np.sqrt(np.einsum("tk,kl,tl->t", rows, covariance, rows))


@settings(max_examples=40)
@given(outcomes)
def test_it_is_the_exact_regression_with_a_common_part(told: list[Outcome]) -> None:
    mean, sd = joint(told)
    learner = taught(told)
    assert learner.mean(PHI) == pytest.approx(mean, abs=1e-9)
    assert learner.sd(PHI) == pytest.approx(sd, abs=1e-9)
    many = learner.belief(np.array([PHI, -PHI]))
    assert many.mean[1] == pytest.approx(-mean, abs=1e-9)
    assert many.sd[1] == pytest.approx(sd, abs=1e-9)


def test_before_any_outcome_it_adds_nothing_and_is_as_unsure_as_its_prior() -> None:
    learner = posterior()
    assert (learner.mean(PHI) == 0).all()
    assert learner.sd(PHI) == pytest.approx(np.sqrt(PHI**2 @ (PRIOR.common + PRIOR.own).T))
    assert learner.belief(np.empty((0, K))).sd.shape == (0, 3)


def test_what_is_unknown_of_all_says_nothing_of_who_is_better() -> None:
    prior = Prior(np.full(K, 100.0), np.full((3, K), 0.01))
    learner = Posterior(NAMES, prior)
    for target, phi, residual in drawn(20):
        learner.update(target, np.array(phi), residual, 0.2)
    apart = learner.apart(PHI, 1)
    assert apart[1] == 0
    assert (np.delete(apart, 1) < 0.3).all()
    assert Posterior(NAMES, prior).apart(PHI, 0)[1] == pytest.approx(np.sqrt(2 * PHI @ PHI * 0.01))
    assert Posterior(NAMES, prior).sd(PHI)[1] > 10


def test_what_one_target_shows_moves_the_others_by_the_common_part_only() -> None:
    learner = posterior()
    for _ in range(50):
        learner.update(0, PHI, -0.5, 0.2)
    mean = learner.mean(PHI)
    assert mean[0] < -0.4
    assert mean[0] < mean[1] < 0
    assert learner.sd(PHI)[0] < learner.sd(PHI)[1] < posterior().sd(PHI)[1]


def test_a_residual_that_hangs_on_a_feature_is_learned() -> None:
    rng, learner, weights = np.random.default_rng(0), posterior(), np.array([0.1, -0.2, 0.0, 0.3])
    for _ in range(3_000):
        phi = rng.normal(size=K)
        learner.update(1, phi, float(phi @ weights + rng.normal(0, 0.3)), 0.09)
    assert learner.mean(PHI)[1] == pytest.approx(PHI @ weights, abs=0.03)


def test_the_spread_is_honest() -> None:
    """Truths drawn from the prior lie within two standard deviations as often as they should."""
    rng, inside = np.random.default_rng(1), []
    for _ in range(200):
        weights = rng.normal(0, np.sqrt(PRIOR.common)) + rng.normal(0, np.sqrt(PRIOR.own))
        learner = posterior()
        for _ in range(30):
            target, phi = int(rng.integers(3)), rng.normal(size=K)
            learner.update(target, phi, float(phi @ weights[target] + rng.normal(0, 0.4)), 0.16)
        belief = learner.belief(PHI)
        inside.append(np.abs(belief.mean - weights @ PHI) < 2 * belief.sd)
    assert 0.92 < np.mean(inside) < 0.98


def test_an_outcome_that_is_taken_back_was_never_there() -> None:
    told = drawn(30)
    told[7] = (0, PHI.tolist(), 1.0)
    learner, other = posterior(half_life_ms=10_000.0), posterior(half_life_ms=10_000.0)
    for at, (target, phi, residual) in enumerate(told):
        learner.update(target, np.array(phi), residual, 0.2, at_ms=1_000_000 + 100 * at)
        if at != 7:
            other.update(target, np.array(phi), residual, 0.2, at_ms=1_000_000 + 100 * at)
    target, phi, residual = told[7]
    assert not np.allclose(learner.mean(PHI), other.mean(PHI), atol=1e-3)
    learner.take()
    learner.update(target, np.array(phi), residual, -0.2, at_ms=1_000_700)
    assert learner.mean(PHI) == pytest.approx(other.mean(PHI), abs=1e-3)
    assert learner.count == pytest.approx(other.count, abs=0.01)
    worker = taught([], half_life_ms=10_000.0)
    assert worker.add(learner.state())
    assert worker.mean(PHI) == pytest.approx(other.mean(PHI), abs=1e-3)


def test_a_late_outcome_counts_as_much_as_if_it_had_come_in_time() -> None:
    late, early = (posterior(half_life_ms=10_000.0) for _ in range(2))
    for learner, order in ((late, (1, 0)), (early, (0, 1))):
        for at in order:
            learner.update(at, PHI, 0.5, 0.2, at_ms=1_000_000 + 20_000 * at)
    assert late.count == pytest.approx([0.25, 1, 0])
    assert late.mean(PHI) == pytest.approx(early.mean(PHI))


def test_without_news_the_prior_comes_back() -> None:
    learner, fresh = taught([], half_life_ms=1_000.0), posterior()
    for _ in range(100):
        learner.update(0, PHI, 0.8, 0.2, at_ms=1_000_000)
    far = learner.mean(PHI)[0]
    distances = []
    for seconds in (1, 5, 10, 60):
        learner.advance(1_000_000 + 1_000 * seconds)
        distances.append(learner.mean(PHI)[0])
    assert [far, *distances] == sorted([far, *distances], reverse=True)
    assert distances[-1] == pytest.approx(0, abs=1e-6)
    assert learner.sd(PHI) == pytest.approx(fresh.sd(PHI))
    assert learner.count[0] < 1e-6


def test_a_half_life_halves_what_was_seen_and_a_clock_set_back_does_nothing() -> None:
    learner = posterior()
    learner.update(0, PHI, 0.5, 0.2, at_ms=10**12)
    learner.advance(10**12 - 10**9)
    assert learner.count[0] == 1
    for day in range(1, 31):
        learner.advance(10**12 + day * 86_400_000)
    assert learner.count[0] == pytest.approx(0.5)
    assert HALF_LIFE_MS == 30 * 86_400_000


def test_a_widened_target_forgets_and_the_others_do_not() -> None:
    learner = taught(drawn(300))
    before = learner.belief(PHI)
    learner.widen(0, 30)
    after = learner.belief(PHI)
    assert after.sd[0] > 2 * before.sd[0]
    assert after.sd[2] < 1.1 * before.sd[2]
    assert learner.count[0] == pytest.approx(taught(drawn(300)).count[0] / 30)


def test_workers_that_exchange_what_they_saw_know_what_one_would_know() -> None:
    told = drawn(90)
    workers = [taught(told[start::3]) for start in range(3)]
    for _ in range(2):
        taken = [worker.take() for worker in workers]
        for index, worker in enumerate(workers):
            assert all(worker.add(each) for other, each in enumerate(taken) if other != index)
    whole = taught(told).belief(PHI)
    for worker in workers:
        assert worker.belief(PHI).mean == pytest.approx(whole.mean)
        assert worker.belief(PHI).sd == pytest.approx(whole.sd)


def test_what_a_worker_took_long_ago_counts_less() -> None:
    old, now = posterior(), posterior()
    old.update(0, PHI, 0.5, 0.2, at_ms=10**12)
    now.advance(10**12 + HALF_LIFE_MS)
    assert now.add(old.take())
    assert now.count[0] == pytest.approx(0.5)
    ahead, behind = posterior(), posterior()
    ahead.advance(10**12 + HALF_LIFE_MS)
    ahead.update(1, PHI, 0.5, 0.2)
    behind.update(0, PHI, 0.5, 0.2, at_ms=10**12)
    assert behind.add(ahead.take())
    assert behind.count == pytest.approx([0.5, 1, 0])


def test_it_survives_a_restart() -> None:
    learner, other = taught(drawn(50)), posterior()
    learner.advance(10**12)
    assert other.restore(learner.state())
    assert other.mean(PHI) == pytest.approx(learner.mean(PHI))
    assert other.sd(PHI) == pytest.approx(learner.sd(PHI))
    assert (other.count == learner.count).all()
    assert other.at_ms == learner.at_ms


def test_targets_that_come_and_go_keep_what_was_seen_of_the_others() -> None:
    learner, changed = taught(drawn(50)), Posterior(("c", "new", "a"), PRIOR)
    assert changed.restore(learner.state())
    assert list(changed.count) == [learner.count[2], 0, learner.count[0]]


def test_nothing_seen_takes_no_room() -> None:
    assert len(posterior().state()) < 40
    learner = posterior()
    learner.update(1, PHI, 0.1, 0.2)
    assert len(learner.take()) < 200
    assert len(learner.take()) < 40


def _negative() -> bytes:
    learner = posterior()
    learner._all.precision[0] = -1_000 * np.eye(K)
    learner._all.count[0] = 1
    return learner.state()


def _infinite() -> bytes:
    learner = taught(drawn(5))
    learner._all.pull[:] = np.inf
    return learner.state()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\x00 nothing",
        taught(drawn(9)).state()[:-1],
        taught(drawn(9), basis="other").state(),
        Posterior(("a",), Prior.usual(1, K + 1)).state(),
        taught(drawn(9)).state().replace(b"\x98\x01", b"\x98\x02", 1),
        _negative(),
        _infinite(),
    ],
    ids=["empty", "noise", "cut", "basis", "features", "version", "negative", "infinite"],
)
def test_a_state_that_does_not_fit_brings_back_the_prior(data: bytes) -> None:
    learner = taught(drawn(20))
    known = learner.mean(PHI)
    assert not learner.add(data)
    assert (learner.mean(PHI) == known).all()
    assert not learner.restore(data)
    assert (learner.mean(PHI) == 0).all()


@pytest.mark.parametrize(
    ("target", "phi", "residual", "noise"),
    [
        (0, PHI, float("nan"), 0.2),
        (0, PHI, float("inf"), 0.2),
        (0, PHI * np.nan, 0.1, 0.2),
        (0, PHI * np.inf, 0.1, 0.2),
        (0, PHI * 1e200, 0.1, 0.2),
        (0, PHI, 0.1, float("nan")),
        (0, PHI, 0.1, float("inf")),
        (0, PHI, 0.1, 0.0),
        (0, PHI, 0.1, -1e-3),
        (0, PHI, 0.1, 1e-300),
        (0, PHI[:2], 0.1, 0.2),
        (3, PHI, 0.1, 0.2),
        (-1, PHI, 0.1, 0.2),
    ],
)
def test_an_outcome_that_is_no_number_is_refused_and_leaves_no_trace(
    target: int, phi: np.ndarray, residual: float, noise: float
) -> None:
    learner = taught(drawn(5))
    before = learner.state()
    with pytest.raises(ValueError, match=r"finite|known are|taken back"):
        learner.update(target, phi, residual, noise)
    assert learner.state() == before


@pytest.mark.parametrize("factor", [0.5, float("nan"), float("inf")])
def test_it_cannot_be_widened_by_less_than_nothing(factor: float) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        posterior().widen(0, factor)


@pytest.mark.parametrize(
    "prior",
    [
        Prior(PRIOR.common, PRIOR.own[:2]),
        Prior(PRIOR.common[:2], PRIOR.own),
        Prior(-PRIOR.common, PRIOR.own),
        Prior(PRIOR.common, PRIOR.own * np.nan),
    ],
)
def test_a_prior_that_does_not_fit_is_refused(prior: Prior) -> None:
    with pytest.raises(ValueError, match="prior"):
        Posterior(NAMES, prior)


def test_a_million_contradictory_outcomes_end_in_a_number() -> None:
    learner = posterior()
    for index in range(1_000):
        learner.update(0, PHI, 1.0 if index % 2 else -1.0, 0.03)
    for _ in range(10):
        assert learner.add(learner.state())
    belief = learner.belief(np.array([PHI, 100 * PHI, np.zeros(K)]))
    assert learner.count[0] > 1_000_000
    assert np.isfinite(belief.mean).all()
    assert np.isfinite(belief.sd).all()
    assert abs(belief.mean[0, 0]) < 0.01


def test_a_feature_that_has_no_variance_learns_nothing() -> None:
    learner = Posterior(NAMES, Prior(PRIOR.common * 0, PRIOR.own * [0, 1, 1, 1]))
    for _ in range(100):
        learner.update(0, np.array([1.0, 0, 0, 0]), 0.9, 0.2)
    assert learner.mean(np.array([1.0, 0, 0, 0])) == pytest.approx([0, 0, 0], abs=1e-4)


def test_nobody_is_so_sure_that_one_surprise_overturns_everything() -> None:
    assert noise(0.5) > noise(1.0) > 0.01
