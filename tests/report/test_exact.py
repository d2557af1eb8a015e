"""To the nano-dollar: what the ledger has charged is what every report shows, in every form, wherever the rows are."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from router.ledger import rows
from router.ledger.ledger import Ledger
from router.report.catalog import REPORTS
from router.report.report import Kind
from router.types.attempt import Usage
from router.types.target import Task
from tests.ledger.drawn import fill as fill_drawn
from tests.ledger.drawn import kept, requests
from tests.ledger.plain import move
from tests.report.asking import AFTER_MS, below, cells, nano, reported
from tests.report.filled import DAY_MS, MONDAY_MS, Happened, Tried, fill, target
from tests.report.test_forms import FORMS, is_exact_in_every_form
from tests.stores import Make

COUNT = st.integers(0, 5_000)
COUNTS = dict.fromkeys(("input_uncached", "cache_read", "cache_write", "cache_write_1h", "output_visible"), COUNT)
USAGE = st.none() | st.builds(Usage, **COUNTS, output_reasoning=st.none() | COUNT)
NAME = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
TAGS = ("red", 'bl"ue', "gr\\een", "=1+1")
POLICY = [target(name) for name in ("gpu", "mini", "sonnet")]


def histories(
    models: st.SearchStrategy[str], tags: Sequence[str], at_ms: st.SearchStrategy[int]
) -> st.SearchStrategy[list[Happened]]:
    names, cost = st.sampled_from(["local", "mini", "<i>"]), st.integers(0, 10**15)
    tried = st.lists(st.builds(Tried, target=names, cost=cost, usage=USAGE, model=models), max_size=3)
    happened = st.builds(
        Happened,
        id=st.uuids().map(lambda number: number.hex),
        tried=tried.map(tuple),
        ends=st.sampled_from(["settled", "settled", "held", "recovered"]),
        held=cost,
        at_ms=at_ms,
        route=st.sampled_from(["auto", "code"]),
        key=st.sampled_from(["", "web", "batch"]),
        tags=st.lists(st.sampled_from(tags), max_size=3).map(tuple),
        data_class=st.sampled_from(["internal", "pii"]),
        task=st.sampled_from(list(Task)),
    )
    untried = happened.map(lambda request: structs.replace(request, tried=()) if request.ends == "held" else request)
    return st.lists(untried, max_size=12, unique_by=lambda request: request.id)


@settings(max_examples=12)
@given(
    happened=histories(NAME, TAGS, st.integers(MONDAY_MS, MONDAY_MS + 3 * DAY_MS)),
    day=st.integers(0, 3),
    by=st.lists(st.sampled_from(REPORTS["spend"].by), min_size=1, max_size=3, unique=True),
    zone=st.sampled_from(["", "Europe/Berlin", "Asia/Kathmandu"]),
)
def test_spend_adds_up_to_the_ledger_and_moving_changes_no_report(
    new_ledger: Make, happened: list[Happened], day: int, by: list[str], zone: str
) -> None:
    ledger = fill(new_ledger(), happened)
    since_ms = MONDAY_MS + day * DAY_MS
    charged = _charged(ledger, since_ms)
    names = [name for name, report in REPORTS.items() if not (report.needs_subject or report.needs_pots)]
    before = [reported(ledger, name) for name in names]
    for moved in (False, True):
        if moved:
            assert move(ledger, AFTER_MS) == sum(request.ends != "held" for request in happened)
        report = reported(ledger, "spend", by=",".join(by), since=f"2026-11-{2 + day:02}T00:00Z", zone=zone)
        assert _charged(ledger, since_ms) == charged
        assert {name: nano(report.total(name)) for name in charged} == charged
        for form in FORMS if "tag" not in by else ():
            columns, amounts = [column.name for column in report.columns if column.kind is Kind.USD], form(report)
            by_name = dict(zip(columns, zip(*amounts, strict=True), strict=True)) if amounts else {}
            sums = {name: sum(map(nano, by_name.get(name, ()))) for name in ("cost_usd", "recovered_usd", "held_usd")}
            assert sums == charged, form.__name__
    assert [reported(ledger, name) for name in names] == before
    for report in before:
        is_exact_in_every_form(report)


def _charged(ledger: Ledger, since_ms: int) -> dict[str, int]:
    """Row by row, as the ledger has them: nano-USD that are spent, charged after a crash, and held."""
    answer = {"cost_usd": 0, "recovered_usd": 0, "held_usd": 0}
    spent = ("cost_usd", "cost")
    columns = {"settled": spent, "released": spent, "recovered": ("recovered_usd", "cost")}
    with ledger.reading() as connection:
        for kept in rows.every(connection, since_ms):
            name, column = columns.get(str(kept.request["state"]), ("held_usd", "held"))
            amount = kept.request[column]
            assert isinstance(amount, int)
            answer[name] += amount
    return answer


@settings(max_examples=5)
@given(seeds=requests, by=st.sampled_from(["", "target", "task"]))
def test_reports_that_split_money_give_back_all_of_it(new_ledger: Make, seeds: list[int], by: str) -> None:
    ledger = new_ledger()
    fill_drawn(ledger, kept(seeds, open_too=True))
    _gives_back_all(ledger, by)
    move(ledger, AFTER_MS)
    _gives_back_all(ledger, by)


def _gives_back_all(ledger: Ledger, by: str) -> None:
    spend = reported(ledger, "spend", by="target")
    for name in ("cost-of-pass", "thinking"):
        answer = reported(ledger, name, POLICY, by=by)
        costs = sum(cost or 0 for (cost,) in cells(answer, "cost_usd"))
        assert costs == nano(answer.total("cost_usd")) == nano(spend.total("cost_usd"))
        assert sum(attempts for (attempts,) in cells(answer, "attempts")) == answer.total("attempts")
    spent = nano(spend.total("cost_usd")) + nano(spend.total("recovered_usd"))
    for groups in ("", "route", "day", "task"):
        answer = reported(ledger, "savings", POLICY, by=groups, baseline="sonnet")
        paid: dict[str, int] = {}
        for against, cost, other, saved in cells(answer, "against", "spent_usd", "baseline_usd", "saved_usd"):
            paid[against] = paid.get(against, 0) + cost
            assert saved == other - cost
        assert set(paid.values()) <= {spent}
        assert nano(below(answer, "outlay").total("spent_usd")) == spent
    reported(ledger, "price-reversal", POLICY)
