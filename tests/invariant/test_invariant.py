"""Ten thousand requests under random policies, and not one byte where it may not be; and the same without the door.

`LOWPASS_INVARIANT_RUNS` says how many: `make invariant` does all of them, `make test` a share.
"""

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from router.dispatch import ask, door
from router.dispatch.door import Door
from tests.invariant.runs import Found, runs

RUNS = int(os.environ.get("LOWPASS_INVARIANT_RUNS", "1500"))
SEEDS = (20_261_121, 7, 1_000_003)
"""The runs are shared among them."""
MUTANT_RUNS, MUTANT_ROUNDS = 200, 12
"""A part of the door is missed within so many runs a round, and so many rounds."""
_NOTHING: frozenset[str] = frozenset()


@pytest.fixture(autouse=True)
def _quick_and_quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Retries come at once, so that more of them fit into a second; every failure is wanted, so none is logged."""
    monkeypatch.setattr(ask, "BACKOFF_S", 0.005)
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_reaches_a_place_that_its_policy_forbids(tmp_path: Path, seed: int) -> None:
    found = runs(tmp_path, seed, RUNS // len(SEEDS))
    assert found.violations == [], f"seed {seed}"
    _worth_it(found)


def _worth_it(found: Found) -> None:
    """A proof over requests that were all refused would prove nothing."""
    happened = found.outcomes
    for what in ("honest served", "honest 403", "careless served", "careless 403", "stray sent", "stray 403"):
        assert happened[what] > 0, what
    assert happened["bodies judged"] > sum(happened.values()) // 4
    assert happened["webhook told"] > 0
    for role in ("cascade", "vote", "hedge"):
        assert happened[f"asked as {role}"] > 0, role


def _unasked(*_: object) -> str:
    return ""


async def _unscanned(*_: object) -> frozenset[str]:
    return _NOTHING


def _by_hearsay(self: Door, parcel: Any, unseen: frozenset[str]) -> str:
    """The door asks about what it was told, whatever the scan has found."""
    return str(parcel.guard.refusal(parcel.target, parcel.classes, 0, redacted=parcel.redacted))


# What is taken from the door → what must come of it.
MUTANTS: dict[str, tuple[object, str, Callable[..., Any], str]] = {
    "the guard is not asked again": (Door, "_refusal", _unasked, "it can read"),
    "what the bytes show does not count": (Door, "_refusal", _by_hearsay, "it can read"),
    "the bytes are not looked at": (Door, "_unseen", _unscanned, "it can read"),
    "the time is not looked at": (door, "now_ms", lambda: 0, "its evidence had expired"),
    "the caller's region is not asked for": (door, "narrowed", _unasked, "another region"),
    "webhooks are told everything": (Door, "withheld", lambda *_: _NOTHING, "a webhook was told"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_without_this_part_of_the_door_something_gets_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutant: str
) -> None:
    """Otherwise the proof would prove nothing of it."""
    where, name, instead, violation = MUTANTS[mutant]
    monkeypatch.setattr(where, name, instead)
    homes = [tmp_path / str(seed) for seed in range(MUTANT_ROUNDS)]
    rounds = (runs(home, seed, MUTANT_RUNS) for seed, home in enumerate(homes))
    assert any(violation in one for found in rounds for one in found.violations)
