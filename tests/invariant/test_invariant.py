"""Random requests under random policies, and not one byte where it may not be; and the same without the door.

`LOWPASS_INVARIANT_RUNS` says how many the long run has.
"""

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from router import app, pipeline
from router.decide.eligibility import ClassGuard
from router.dispatch import dispatch, egress
from router.dispatch.egress import EgressFilter
from tests.invariant.runs import PLANNERS, Found, Planner, runs

RUNS = int(os.environ.get("LOWPASS_INVARIANT_RUNS", "12000"))
SEEDS = (20_261_121, 7, 1_000_003)
"""A long run is shared among them."""
MUTANT_RUNS, MUTANT_ROUNDS = 50, 48
"""A part of the door is missed within so many runs a round, and so many rounds."""
_NOTHING: frozenset[str] = frozenset()


@pytest.fixture(autouse=True)
def _quick_and_quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Retries come at once, so that more of them fit into a second; every failure is wanted, so none is logged."""
    monkeypatch.setattr(dispatch, "BACKOFF_S", 0.005)
    monkeypatch.setattr(app, "Pipeline", Planner)
    monkeypatch.setattr(pipeline, "run_plan", lambda to, job: PLANNERS[job.request.id].ask(to, job))
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("count", [300, pytest.param(RUNS, marks=pytest.mark.nightly, id="all")])
def test_nothing_reaches_a_place_that_its_policy_forbids(tmp_path: Path, count: int) -> None:
    seeds = SEEDS if count > 1_000 else SEEDS[:1]
    for seed in seeds:
        result = runs(tmp_path / str(seed), seed, count // len(seeds))
        assert result.violations == [], f"seed {seed}"
        _worth_it(result)


def _worth_it(result: Found) -> None:
    """A proof over requests that were all refused would prove nothing."""
    happened = result.outcomes
    ways = ("honest served", "honest 403", "careless served", "careless 403", "stray sent", "stray 403")
    for outcome in (*ways, "webhook told", "asked as cascade", "asked as vote", "asked as hedge"):
        assert happened[outcome] > 0, outcome
    assert happened["bodies judged"] > sum(happened.values()) // 4


# What is taken from the door → what must come of it.
MUTANTS: dict[str, tuple[object, str, Callable[..., Any], str]] = {
    "the guard is not asked again": (ClassGuard, "refusal", lambda *_, **__: "", "it can read"),
    "the bytes are not looked at": (ClassGuard, "unseen", lambda *_: _NOTHING, "it can read"),
    "the time is not looked at": (egress, "now_ms", lambda: 0, "its evidence had expired"),
    "the caller's region is not asked for": (egress, "narrowed", lambda *_: "", "another region"),
    "tools of the provider are no place": (ClassGuard, "of", lambda guard, _: guard, "it was sent something of"),
    "webhooks are told everything": (EgressFilter, "withheld", lambda *_: _NOTHING, "a webhook was told"),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_without_this_part_of_the_door_something_gets_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutant: str
) -> None:
    """Otherwise the proof would prove nothing of it."""
    where, name, instead, violation = MUTANTS[mutant]
    monkeypatch.setattr(where, name, instead)
    rounds = (runs(tmp_path / str(seed), seed, MUTANT_RUNS) for seed in range(MUTANT_ROUNDS))
    assert any(violation in line for result in rounds for line in result.violations)
