"""`lowpass bench budgets`, as small as it gets: real gateways, real stores, and the document that it promises."""

import subprocess
import sys

import msgspec
import pytest

from bench.budgets.report import Report, render
from tests.gateway.running import ROOT


def bench(*options: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "router.cli", "bench", "budgets", *options]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=55)


@pytest.fixture(scope="module")
def report() -> Report:
    done = bench("--quick", "--json", "--only", "crowds,cost")
    assert done.returncode == 0, done.stderr
    return msgspec.json.decode(done.stdout, type=Report)


def test_crowds_overspend_nothing_and_their_books_are_right(report: Report) -> None:
    names = ["new-key", "delegation", "retries", "cut"]
    assert [(one.store, one.name) for one in report.crowds] == [
        (store, name) for store in ("sqlite", "redis") for name in names
    ]
    for one in report.crowds:
        assert one.books_right
        assert (one.overshoot, one.false_refusals) == (0, 0)
        assert one.answered + one.refused + sum(one.others.values()) == one.requests
        # 402 here: refused at its target, which names no budget.
        assert one.others.keys() <= ({"200", "402"} if one.name == "cut" else {"402"})
        assert 0 < one.spent <= one.limit
    assert (report.max_overshoot, report.false_refusals) == (0, 0)


def test_what_a_hold_costs_is_told_for_both_stores(report: Report) -> None:
    assert [(one.store, one.accounts) for one in report.cost] == [("sqlite", 1), ("sqlite", 3), ("redis", 1)]
    assert all(0 < one.least_us <= one.cpu_us <= one.most_us for one in report.cost)


def test_the_tables_show_what_was_measured_and_nothing_else(report: Report) -> None:
    text = render(report)
    assert "| delegation | redis | 2 |" in text
    assert "Reserve and settle, 32 in flight" in text
    assert "kill -9" not in text
    assert report.machine.cores > 0


def test_an_unknown_part_is_refused() -> None:
    done = bench("--only", "kils")
    assert (done.returncode, done.stdout) == (1, "")
    assert "does not know kils: choose of overshoot, crowds, kills, holds, cost" in done.stderr
