"""Experiments of the past as trials of another policy."""

from typing import Any

import pytest
from msgspec import structs

from router.replay.stored import Choice, Document, Stored, Weighed
from router.replay.trial import Trial, trial
from router.types.plan import Plan
from router.types.plan import Weighed as Planned
from tests.decide.values import candidate

OLD = (
    Weighed("cheap", 0.4, 1, "dearer"),
    Weighed("middle", 0.6, 5, "chosen"),
    Weighed("dear", 0.9, 9, "dearer"),
    Weighed("free", 0.5, 0, "too_slow"),
)


def stored(explored: str, target: str, propensity: float = 0.05) -> Any:
    document = Document("p", None, weighed=OLD, explored=explored, propensity=propensity)  # type: ignore[arg-type]
    blank: dict[str, Any] = dict.fromkeys(Stored.__struct_fields__)
    return Stored(**(blank | {"document": document, "choice": Choice(target)}))


def plan(chosen: str, why: str = "chosen", **more: Any) -> Plan:
    rows = tuple(Planned(each.target, each.p, 0, each.cost_nano, 0, 0, 0, 0, 0, "dearer") for each in OLD)
    rows = tuple(structs.replace(row, why=why) if row.target == chosen else row for row in rows)
    return Plan(route="auto", strategy="cost_of_pass", steps=(candidate(chosen),), weighed=rows, **more)


@pytest.mark.parametrize(
    ("one", "new", "expected"),
    [
        (stored("best", "dear"), plan("dear"), Trial("dear", True)),
        (stored("cheapest", "cheap"), plan("dear"), Trial("", True)),
        (stored("", "middle", 0.95), plan("dear"), Trial("", True)),
        (stored("", "middle", 0.95), plan("middle"), Trial()),
        (stored("", "middle", 1.0), plan("dear"), Trial()),
        # Nobody experiments with what is too slow, and a pair is never tried.
        (stored("cheapest", "cheap"), plan("free"), Trial("", False)),
        (stored("best", "dear"), plan("dear", "first"), Trial()),
        (stored("best", "dear"), plan("dear", explored="best"), Trial("dear", False)),
    ],
    ids=["asked", "another end", "might have been", "no other choice", "no experiments", "out", "pair", "own chance"],
)
def test_what_an_experiment_says(one: Any, new: Plan, expected: Trial) -> None:
    assert trial(one, new) == expected
