"""To the nano-dollar: what the ledger has charged is what every report shows, in every form, wherever the rows are."""

from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from router.ledger import rows
from router.ledger.ledger import Ledger
from router.report.catalog import REPORTS
from router.report.render import written
from router.report.report import Column, Kind, Report, Row
from router.report.spend import BY
from tests.ledger.drawn import fill as fill_drawn
from tests.ledger.drawn import kept, requests
from tests.ledger.plain import move
from tests.report import parsed
from tests.report.asking import AFTER_MS, below, cells, nano, reported
from tests.report.filled import DAY_MS, MONDAY_MS, Happened, fill, target
from tests.report.ledgers import HISTORY
from tests.report.parsed import PATIENT
from tests.stores import Make

AMOUNT = st.none() | st.decimals(-(10**15), 10**15, places=9)
SMALL = st.none() | st.integers(-(10**12), 10**12)
NAME = st.none() | st.text(max_size=20)


@st.composite
def reports(draw: st.DrawFn) -> Report:
    money = tuple(Column(f"m{n}_usd", Kind.USD, rare=draw(st.booleans())) for n in range(draw(st.integers(1, 4))))
    columns = (Column("name", Kind.LABEL), Column("count", Kind.COUNT), *money)
    line = st.tuples(NAME, SMALL, *(AMOUNT for _ in money))
    lines: list[Row] = draw(st.lists(line, max_size=8))
    total: Row | None = draw(st.none() | line)
    return Report(name="r", title=draw(st.text(max_size=20)), columns=columns, rows=tuple(lines), totals=total)


@settings(PATIENT, max_examples=60)
@given(report=reports())
def test_every_form_of_any_report_has_its_exact_amounts(report: Report) -> None:
    _is_exact_in_every_form(report)


def _is_exact_in_every_form(report: Report) -> None:
    """A column that people do not see, as there is nothing in it, reads as 0."""
    shown = {column.name for column in written(report).columns}
    names = [column.name for column in report.columns if column.kind is Kind.USD]
    amounts = parsed.amounts(report)
    seen = [[cell if name in shown else Decimal(0) for name, cell in zip(names, row, strict=True)] for row in amounts]
    for form in parsed.FORMS:
        everything = form in (parsed.of_json, parsed.of_csv)
        assert form(report) == (amounts if everything else seen), form.__name__


@settings(PATIENT, max_examples=12)
@given(
    happened=HISTORY,
    day=st.integers(0, 3),
    by=st.lists(st.sampled_from(BY), min_size=1, max_size=3, unique=True),
    zone=st.sampled_from(["", "Europe/Berlin", "Asia/Kathmandu"]),
)
def test_spend_adds_up_to_the_ledger_and_moving_changes_no_report(
    new_ledger: Make, happened: list[Happened], day: int, by: list[str], zone: str
) -> None:
    ledger = fill(new_ledger(), happened)
    since_ms = MONDAY_MS + day * DAY_MS
    charged = _charged(ledger, since_ms)
    names = [name for name, one in REPORTS.items() if not (one.needs_subject or one.needs_pots)]
    before = [reported(ledger, name) for name in names]
    for moved in (False, True):
        if moved:
            assert move(ledger, AFTER_MS) == sum(one.ends != "held" for one in happened)
        report = reported(ledger, "spend", by=",".join(by), since=f"2026-11-{2 + day:02}T00:00Z", zone=zone)
        assert _charged(ledger, since_ms) == charged
        assert {name: nano(report.total(name)) for name in charged} == charged
        for form in parsed.FORMS if "tag" not in by else ():
            assert _sums(form(report), report) == charged, form.__name__
    assert [reported(ledger, name) for name in names] == before
    for one in before:
        _is_exact_in_every_form(one)


def _charged(ledger: Ledger, since_ms: int) -> dict[str, int]:
    """Row by row, as the ledger has them: nano-USD that are spent, charged after a crash, and held."""
    found = {"cost_usd": 0, "recovered_usd": 0, "held_usd": 0}
    spent = ("cost_usd", "cost")
    columns = {"settled": spent, "released": spent, "recovered": ("recovered_usd", "cost")}
    with ledger.reading() as connection:
        connection.execute("BEGIN")
        for kept in rows.every(connection, since_ms):
            name, column = columns.get(str(kept.request["state"]), ("held_usd", "held"))
            amount = kept.request[column]
            assert isinstance(amount, int)
            found[name] += amount
    return found


def _sums(amounts: parsed.Amounts, report: Report) -> dict[str, int]:
    names = [column.name for column in report.columns if column.kind is Kind.USD]
    columns = dict(zip(names, zip(*amounts, strict=True), strict=True)) if amounts else {}
    return {name: sum(map(nano, columns.get(name, ()))) for name in ("cost_usd", "recovered_usd", "held_usd")}


POLICY = [target(name) for name in ("gpu", "mini", "sonnet")]


@settings(PATIENT, max_examples=5)
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
        found = reported(ledger, name, POLICY, by=by)
        costs = sum(cost or 0 for (cost,) in cells(found, "cost_usd"))
        assert costs == nano(found.total("cost_usd")) == nano(spend.total("cost_usd"))
    spent = nano(spend.total("cost_usd")) + nano(spend.total("recovered_usd"))
    for groups in ("", "route", "day", "task"):
        found = reported(ledger, "savings", POLICY, by=groups, baseline="sonnet")
        paid: dict[str, int] = {}
        for against, cost, other, saved in cells(found, "against", "spent_usd", "baseline_usd", "saved_usd"):
            paid[against] = paid.get(against, 0) + cost
            assert saved == other - cost
        assert set(paid.values()) <= {spent}
        assert nano(below(found, "outlay").total("spent_usd")) == spent
    reported(ledger, "price-reversal", POLICY)
