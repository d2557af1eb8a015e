"""Whatever a ledger holds, in whatever form: reports that split its money give back all of it, to the nano-dollar."""

from hypothesis import given, settings
from hypothesis import strategies as st

from router.ledger.ledger import Ledger
from router.ledger.packed.pack import pack
from router.report.report import Report
from tests.ledger.packed.drawn import fill, kept, requests
from tests.report.answers import AFTER_MS, below, cells, nano, reported
from tests.report.filled import target
from tests.stores import Make

POLICY = {name: target(name) for name in ("gpu", "mini", "sonnet")}


def amount(report: Report, name: str) -> int:
    """Of the total, which is what the rows add up to."""
    whole = nano(report.total(name))
    assert whole == sum(cell or 0 for (cell,) in cells(report, name))
    return whole


def holds(ledger: Ledger, by: str) -> None:
    spend = reported(ledger, "spend", by="target")
    for name in ("cost-of-pass", "thinking"):
        found = reported(ledger, name, POLICY, by=by)
        assert amount(found, "cost_usd") == nano(spend.total("cost_usd"))
    spent = nano(spend.total("cost_usd")) + nano(spend.total("recovered_usd"))
    for groups in ("", "route", "day", "task"):
        found = reported(ledger, "savings", POLICY, by=groups, baseline="sonnet")
        against = [name for (name,) in cells(found, "against")]
        for name in set(against):
            rows = [
                row
                for one, row in zip(against, cells(found, "spent_usd", "baseline_usd", "saved_usd"), strict=True)
                if one == name
            ]
            assert sum(paid for paid, *_ in rows) == spent
            assert all(saved == other - paid for paid, other, saved in rows)
        assert nano(below(found, "outlay").total("spent_usd")) == spent
    reported(ledger, "price-reversal", POLICY)


@settings(max_examples=5, deadline=None)
@given(seeds=requests, by=st.sampled_from(["", "target", "task"]))
def test_no_nano_dollar_is_lost(new_ledger: Make, seeds: list[int], by: str) -> None:
    ledger = new_ledger()
    fill(ledger, kept(seeds, open_too=True))
    holds(ledger, by)
    while pack(ledger, AFTER_MS):
        pass
    holds(ledger, by)
