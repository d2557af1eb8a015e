"""Single requests and sessions; and reports that are exact, whatever happened."""

from collections.abc import Sequence
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from router.errors import ClientError
from router.ledger import rows
from router.ledger.ledger import Ledger
from router.report import request
from router.report.catalog import REPORTS
from router.report.report import Kind, Report
from router.types.attempt import Usage, Verdict
from router.types.target import Task
from tests.ledger.drawn import fill as fill_drawn
from tests.ledger.drawn import kept, requests
from tests.ledger.plain import Row, booking, move, outcome, put
from tests.report.asking import AFTER_MS, below, cells, lines, nano, reported, totals
from tests.report.filled import DAY_MS, HOUR_MS, MONDAY_MS, Happened, Tried, fill, target
from tests.report.test_forms import FORMS, is_exact_in_every_form
from tests.stores import Make

CHECKED = {"role": "cascade", "passed_over": True, "verdicts": (Verdict("tests", 0.25), Verdict("judge", None))}
CASCADE = Happened(
    id="r1",
    session="build",
    key="ci",
    held=90_000,
    tried=(Tried("small", 1_500, more=CHECKED), Tried("large", 20_000)),
    weighed={"small": (0.5, 1_000), "large": (0.9, 30_000)},
)


def filled(ledger: Ledger, *more: Happened) -> Ledger:
    fill(ledger, [CASCADE, *more])
    monthly: Row = {"window_start_ms": MONDAY_MS, "held": 90_000, "charged": 21_500, "state": "settled"}
    put(ledger, "bookings", **booking("r1", "monthly|ci", **monthly))
    put(ledger, "bookings", **booking("r1", "thoughts", window_start_ms=0, held=500))
    put(ledger, "bookings", **booking("r1", "gone", **monthly | {"held": 7, "charged": 7}))
    put(ledger, "outcomes", **outcome("r1", attempt=2, target="large", given_ms=MONDAY_MS + 5))
    return ledger


def facts(report: Report) -> dict[str, object]:
    return {str(name): value for name, value in report.rows}


def test_a_request_with_its_attempts_candidates_charges_and_outcomes(ledger: Ledger) -> None:
    report = reported(filled(ledger), "request", subject="r1")
    shown = {"state": "settled", "target": "large", "started": "2026-11-02T00:00:00Z", "cost_usd": "0.0000215"}
    assert facts(report).items() >= {**shown, "held_usd": "0.00009"}.items()
    small, large = lines(below(report, "attempts"))
    verdicts = {"role": "cascade", "passed_over": "yes", "verdict": 0.25, "verdicts": "tests 0.25, judge –"}
    assert small.items() >= verdicts.items()
    assert (large["cost_usd"], large["answered"], large.get("passed_over")) == (Decimal("0.00002"), "yes", None)
    assert facts(below(report, "decision"))["chosen"] == "small"
    assert cells(below(report, "weighed"), "cost_usd", "cost_p90_usd", "p", "why") == [
        (1_000, 2_000, 0.5, "chosen"),
        (30_000, 60_000, 0.9, "dearer"),
    ]
    charges = below(report, "charges")
    names = ("account", "unit", "window_start", "requests", "held", "charged", "state")
    assert sorted(zip(*map(charges.column, names), strict=True)) == [
        ("gone", None, MONDAY_MS, 1, 7, 7, "settled"),
        ("monthly|ci", "usd", MONDAY_MS, 1, Decimal("0.00009"), Decimal("0.0000215"), "settled"),
        ("thoughts", None, None, 1, 500, None, "held"),
    ]
    assert "Where no unit stands" in charges.note
    outcome = {"time": MONDAY_MS + 5, "attempt": 2, "target": "large", "source": "client"}
    assert lines(below(report, "outcomes")) == [{**outcome, "score": 1, "weight": 1, "decides": "yes"}]
    # Without the store the amounts tell their unit.
    charges = below(reported(ledger, "request", subject="r1"), "charges")
    assert charges.column("unit") == (None, "usd", None)
    assert charges.column("charged") == (7, Decimal("0.0000215"), None)


def test_what_was_only_decided_and_what_is_not_there(ledger: Ledger) -> None:
    fill(ledger, [CASCADE])
    with ledger.writing() as connection:
        connection.execute("INSERT INTO live_decisions SELECT 'd1', decided_ms, policy, document FROM live_decisions")
    only = reported(ledger, "request", subject="d1")
    assert "Decided only" in only.note
    assert "weighed" in [part.name for part in only.below]
    for name, subject in (("request", "r2"), ("session", "other")):
        with pytest.raises(ClientError, match=subject) as caught:
            reported(ledger, name, subject=subject)
        assert (caught.value.status, caught.value.param) == (404, "subject")


def test_a_decision_of_any_shape_can_be_shown() -> None:
    plain, listed = request.decision(
        b'{"strategy": "x", "stakes": {"failure_nano": 5, "ok": true}, "causes": [{"by": "a", "count": 2}], "odd":'
        b' [1, 2.5], "names": ["a", "b"], "none": null, "weighed": [{"p": 1, "cost_nano": "much"}, {"first_ms": 3}]}'
    )[:2]
    stakes = {"stakes.failure_usd": "0.000000005", "stakes.ok": "yes"}
    assert facts(plain) == {"strategy": "x", **stakes, "names": "a, b", "none": None}
    assert lines(listed) == [{"by": "a", "count": 2}]


def test_a_session_has_its_requests_in_order_and_adds_up(ledger: Ledger) -> None:
    filled(
        ledger,
        Happened(id="r2", tried=(Tried("small", 7),), session="build", key="ci", at_ms=MONDAY_MS + 9 * HOUR_MS),
        Happened(id="r3", tried=(Tried("small", 5),), session="other", key="ci"),
        Happened(id="r4", status=402, error="budget_exceeded", session="build", key="web", at_ms=MONDAY_MS + HOUR_MS),
    )
    report = reported(ledger, "session", subject="build")
    assert cells(report, "id", "key", "target", "status", "cost_usd") == [
        ("r1", "ci", "large", "200", 21_500),
        ("r4", "web", None, "budget_exceeded", 0),
        ("r2", "ci", "small", "200", 7),
    ]
    assert totals(reported(ledger, "spend", where=("session=build",)), "cost_usd") == (21_507,)
    assert totals(report, "cost_usd", "input", "output") == (21_507, 300, 60)
    targets = cells(below(report, "targets"), "target", "cost_usd")
    assert [name for name, _ in targets[:2]] == ["large", "small"]
    assert sum(cost or 0 for _, cost in targets) == 21_507
    assert "charges" in [part.name for part in report.below]
    assert reported(ledger, "session", subject="build", until="2026-11-02T00:00:01").column("id") == ("r1",)


def test_the_latest_come_newest_first_with_the_state_of_what_is_not_settled(ledger: Ledger) -> None:
    happened = [Happened(id=f"r{number}", tried=(Tried("x", 3),), at_ms=MONDAY_MS + number) for number in range(5)]
    fill(ledger, [*happened, Happened(id="r5", ends="held", at_ms=MONDAY_MS + 5)])
    with ledger.reading() as connection:
        newest = cells(request.latest(connection, 3), "id", "status", "cost_usd")
        assert newest == [("r5", "held", None), ("r4", "200", 3), ("r3", "200", 3)]
        assert len(request.latest(connection, 9).rows) == 6


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
