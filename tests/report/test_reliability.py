"""What each target's failures, stand-ins and times add up to, against sums by hand."""

from functools import partial

import pytest

from router.ledger.ledger import Ledger
from router.report.wilson import wilson
from tests.report.asking import below, lines, reported, totals
from tests.report.filled import Happened, Tried, fill
from tests.stores import Make

Was = partial(Happened, overhead_us=200)
X, Y = (partial(Tried, name, total_ms=100, first_ms=None) for name in "xy")
HAPPENED = (
    Was(tried=(X(outcome="timeout"), X(outcome="timeout"), Y())),
    Was(tried=(X(),), stream=True, overhead_us=300),
    Was(tried=(X(outcome="circuit_open"), Y(total_ms=200)), overhead_us=None),
    Was(tried=(X(outcome="client_gone"),), status=499, error="client_gone"),
    Was(tried=(X(outcome="bad_request"),), status=400, error="bad_request"),
    Was(tried=(X(outcome="outrun"), Y(first_ms=10, more={"role": "hedge"})), stream=True),
    Was(tried=(Y(outcome="server_error"),), status=502, error="server_error"),
    Was(status=402, error="budget_exceeded"),
)


@pytest.fixture(scope="module")
def week(new_ledger: Make) -> Ledger:
    return fill(new_ledger(), HAPPENED)


def test_each_target_has_its_failures_and_those_that_stood_in_for_it(week: Ledger) -> None:
    report = reported(week, "reliability")
    x, y = ({name: line[name] for name in line if "ms" not in name and "_us" not in name} for line in lines(report))
    low, high = wilson(2, 3) or (0, 0)
    assert x == {
        **{"target": "x", "attempts": 6, "answered": 1, "failed": 2},
        **{"error_rate": 2 / 3, "error_low": low, "error_high": high},
        **{"refused": 1, "given_up": 2, "skipped": 1, "retries": 1},
    }
    assert (y["attempts"], y["answered"], y["failed"], y["error_rate"]) == (4, 3, 1, 0.25)
    assert (y["fallbacks"], y["hedge"]) == (3, 1)
    assert totals(report, "attempts", "answered", "failed", "fallbacks") == (10, 4, 3, 3)
    assert below(report, "outcomes").rows[:2] == (("x", "timeout", 2, 2 / 6), ("x", "bad_request", 1, 1 / 6))
    assert ("x", "circuit_open", 1, None) in below(report, "outcomes").rows
    assert [mark.label for mark in report.plots[0].marks] == ["x", "y"]


def test_times_are_of_what_was_answered_and_first_bytes_of_streams(week: Ledger) -> None:
    x, y = lines(reported(week, "reliability"))
    assert [x["p50_ms"], x["overhead_p99_us"]] == pytest.approx([100, 300], rel=0.12)
    assert [y["p99_ms"], y["first_p50_ms"], y["overhead_p50_us"]] == pytest.approx([200, 10, 200], rel=0.12)
    assert "first_p50_ms" not in x


def test_of_one_target_in_a_window_and_of_nothing(week: Ledger) -> None:
    assert reported(week, "reliability", where=("target=y",)).column("target") == ("y",)
    later = reported(week, "reliability", since="2026-11-02T00:00:01")
    assert (later.rows, later.totals, later.below, later.plots) == ((), None, (), ())
