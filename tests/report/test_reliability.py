"""What each target's failures, stand-ins and times add up to, against sums by hand."""

import random
from math import ceil, floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.ledger.facts.attempts import EDGES_MS, EDGES_US
from router.ledger.ledger import Ledger
from router.report.histogram import percentile
from router.report.reliability import REPORT
from router.report.wilson import wilson
from tests.report.asking import below, lines, made
from tests.report.filled import MONDAY_MS
from tests.report.happenings import Asked, Was, write

HAPPENED = (
    Was(id="a", asked=(Asked(target="x", outcome="timeout"), Asked(target="x", outcome="timeout"), Asked(target="y"))),
    Was(id="b", asked=(Asked(target="x"),), stream=True, overhead_us=300),
    Was(id="c", asked=(Asked(target="x", outcome="circuit_open"), Asked(target="y", total_ms=200)), overhead_us=None),
    Was(id="d", asked=(Asked(target="x", outcome="client_gone"),), status=499, error="client_gone"),
    Was(id="e", asked=(Asked(target="x", outcome="bad_request"),), status=400, error="bad_request"),
    Was(
        id="f",
        asked=(Asked(target="x", outcome="outrun"), Asked(target="y", first_ms=10, more={"role": "hedge"})),
        stream=True,
    ),
    Was(id="g", asked=(Asked(target="y", outcome="server_error"),), status=502, error="server_error"),
    Was(id="h", status=402, error="budget_exceeded"),
)


def test_each_target_has_its_failures_and_those_that_stood_in_for_it(ledger: Ledger) -> None:
    report = made(write(ledger, HAPPENED), REPORT)
    x, y = ({name: line[name] for name in line if "ms" not in name and "_us" not in name} for line in lines(report))
    low, high = wilson(2, 3) or (0, 0)
    assert x == {
        "target": "x",
        "attempts": 6,
        "answered": 1,
        "failed": 2,
        "error_rate": 2 / 3,
        "error_low": low,
        "error_high": high,
        "refused": 1,
        "given_up": 2,
        "skipped": 1,
        "retries": 1,
    }
    assert (y["attempts"], y["answered"], y["failed"], y["error_rate"]) == (4, 3, 1, 0.25)
    assert (y["fallbacks"], y["hedge"]) == (3, 1)
    assert [report.total(name) for name in ("attempts", "answered", "failed", "fallbacks")] == [10, 4, 3, 3]
    assert below(report, "outcomes").rows[:2] == (("x", "timeout", 2, 2 / 6), ("x", "bad_request", 1, 1 / 6))
    assert ("x", "circuit_open", 1, None) in below(report, "outcomes").rows
    assert [mark.label for mark in report.plots[0].marks] == ["x", "y"]


def test_times_are_of_what_was_answered_and_first_bytes_of_streams(ledger: Ledger) -> None:
    x, y = lines(made(write(ledger, HAPPENED), REPORT))
    assert x["p50_ms"] == pytest.approx(100, rel=0.12)
    assert y["p99_ms"] == pytest.approx(200, rel=0.12)
    assert y["first_p50_ms"] == pytest.approx(10, rel=0.12)
    assert "first_p50_ms" not in x
    assert x["overhead_p99_us"] == pytest.approx(300, rel=0.12)
    assert y["overhead_p50_us"] == pytest.approx(200, rel=0.12)


def test_of_one_target_in_a_window_and_of_nothing(ledger: Ledger) -> None:
    write(ledger, HAPPENED)
    only = made(ledger, REPORT, where={"target": ["y"]})
    assert only.column("target") == ("y",)
    later = made(ledger, REPORT, since_ms=MONDAY_MS + 1)
    assert (later.rows, later.totals, later.below, later.plots) == ((), None, (), ())


@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"), [(0, 10, 0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1)]
)
def test_intervals_are_wilson_s(hits: int, trials: int, low: float, high: float) -> None:
    """Figures of Newcombe (1998), Statistics in Medicine 17, method 3."""
    found = wilson(hits, trials)
    assert found == pytest.approx((low, high), abs=1e-4)
    assert wilson(0, 0) is None


@given(st.lists(st.integers(0, 3_000_000), min_size=1, max_size=60), st.sampled_from([0.5, 0.9, 0.99]))
def test_a_percentile_is_right_within_its_bucket(values: list[int], share: float) -> None:
    for edges in (EDGES_MS, EDGES_US):
        counts: dict[int, int] = {}
        for value in values:
            edge = max((edge for edge in edges if edge <= value), default=0)
            counts[edge] = counts.get(edge, 0) + 1
        found = percentile(counts, edges, share)
        ranked, place = sorted(values), share * (len(values) - 1)
        low = max((edge for edge in edges if edge <= ranked[floor(place)]), default=0)
        high = next((edge for edge in edges if edge > ranked[ceil(place)]), edges[-1])
        found = percentile(counts, edges, share)
        assert found is not None
        assert low <= found <= high


def test_many_evenly_spread_times_have_their_own_percentiles() -> None:
    values = [round(10 ** random.Random(seed).uniform(1, 4)) for seed in range(5_000)]  # noqa: S311 - a sample
    counts: dict[int, int] = {}
    for value in values:
        edge = max(edge for edge in EDGES_MS if edge <= value)
        counts[edge] = counts.get(edge, 0) + 1
    for share in (0.1, 0.5, 0.9, 0.99):
        exact = sorted(values)[int(share * 5_000)]
        assert percentile(counts, EDGES_MS, share) == pytest.approx(exact, rel=0.03, abs=1)
    assert percentile({}, EDGES_MS, 0.5) is None
