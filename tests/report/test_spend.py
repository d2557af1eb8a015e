"""What was spent on what, where thinking goes, and prices that reverse: every nano-dollar of a ledger in one row."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from msgspec import convert, structs

from router.errors import ClientError
from router.ledger.ledger import Ledger
from router.report import spend
from router.report.catalog import REPORTS, read
from router.report.query import Parameters
from router.report.report import Report, Shape, parse_time
from router.types.attempt import Usage
from router.types.clock import iso
from router.types.price import Price
from router.types.target import Contract, Target, Task, Thinking
from tests.report.asking import cells, nano, reported, totals
from tests.report.filled import DAY_MS, HOUR_MS, MONDAY_MS, USD, Happened, Tried, fill, target, thinking
from tests.stores import Make
from tests.tables import data, each_row

# One of everything: served, retried elsewhere, failed, turned away, in progress, and lost in a crash.
MINI = Tried("mini", 1_500, thinking(30), "lab/mini")
TUESDAY = MONDAY_MS + DAY_MS
WEEK = (
    Happened(id="a", tried=(MINI,), key="web", tags=("red", "blue"), task=Task.CODE),
    Happened(
        id="b",
        tried=(Tried("mini", 0, None, "lab/mini"), Tried("local", 7, thinking(None))),
        at_ms=TUESDAY,
        tags=("red", "red"),
        data_class="pii",
    ),
    Happened(id="c", tried=(Tried("mini", 2_000, thinking(0), "lab/mini"),), at_ms=TUESDAY - 1, key="batch"),
    Happened(id="d", at_ms=TUESDAY, route="code"),
    Happened(id="e", ends="held", held=40_000, at_ms=TUESDAY + DAY_MS),
    Happened(id="f", ends="recovered", held=90_000, at_ms=TUESDAY + DAY_MS, key="web"),
)
COLUMNS = (
    *("requests", "attempts", "errors", "failed_attempts", "input_tokens", "output_tokens", "reasoning_tokens"),
    *("reasoning_unknown", "unpriced", "cost_usd", "recovered_usd", "held_usd"),
)


def report(past: Ledger | Sequence[Happened], by: str, since: str = "", until: str = "", **question: Any) -> Report:
    return reported(past, "spend", by=by, since=since, until=until, **question)


def change(ledger: Ledger, statement: str, *values: object) -> None:
    with ledger.writing() as connection:
        connection.execute(statement, values)


def filled(ledger: Ledger) -> Ledger:
    change(fill(ledger, WEEK), "UPDATE keys SET team = 'shop', organisation = 'acme' WHERE name = 'web'")
    return ledger


@pytest.fixture(scope="module")
def week(new_ledger: Make) -> Ledger:
    return filled(new_ledger())


BY_HAND = data(__file__, "spend.yaml")
ALL = (6, 4, 2, 1, 300, 90, 30, 1, 0, 3_507, 90_000, 40_000)


@each_row("by", REPORTS["spend"].by)
def test_rows_are_what_one_adds_up_by_hand(week: Ledger, by: str) -> None:
    answer = report(week, by)
    assert cells(answer, by, *COLUMNS) == [tuple(row) for row in BY_HAND["by"][by]]
    assert totals(answer, *COLUMNS) == ALL
    assert totals(report(week, by, "2026-11-03", "2026-11-04"), "requests", "cost_usd") == (2, 7)


def test_several_groupings_at_once(week: Ledger) -> None:
    answer = report(week, "key,day")
    assert answer.title == "Spend by key and day"
    assert cells(answer, "key", "day", "cost_usd") == [tuple(row) for row in BY_HAND["by_key_and_day"]]
    assert (answer.totals or ())[:2] == ("total", None)


def test_tokens_stand_in_disjoint_buckets() -> None:
    parts: dict[str, Any] = {
        **{"input_uncached": 100, "cache_read": 40, "cache_write": 30, "cache_write_1h": 3, "input_image": 2},
        **{"output_visible": 20, "output_audio": 5},
    }
    answer = report([Happened(tried=(Tried("mini", 3, Usage(output_reasoning=60, **parts)),))], "target")
    names = [column.name for column in answer.columns if column.name.startswith(("input_", "cache_", "output_"))]
    sizes = {name: answer.total(name) for name in names if not name.endswith(("_tokens", "_usd"))}
    assert {name: size for name, size in sizes.items() if size} == parts
    assert totals(answer, "input_tokens", "output_tokens", "reasoning_tokens") == (175, 85, 60)
    assert answer.total("thinking_share") == pytest.approx(60 / 85)


def test_the_thinking_share_is_of_what_tells_thinking_apart(week: Ledger) -> None:
    shares = cells(report(week, "target"), "target", "thinking_share")
    assert shares == [("mini", pytest.approx(30 / 70)), ("local", None), (None, None)]


def test_what_caches_saved(ledger: Ledger) -> None:
    change(filled(ledger), "UPDATE live_attempts SET cache_saved = CASE target WHEN 'mini' THEN 11 ELSE -4 END")
    answer = report(ledger, "target")
    assert cells(answer, "cache_saved_usd") == [(33,), (-4,), (0,)]
    assert nano(answer.total("cache_saved_usd")) == 29
    assert "Cache saved" in answer.note


def test_an_attempt_belongs_to_the_window_of_its_request(ledger: Ledger) -> None:
    """Else a report by target and one by day would not agree about midnight."""
    fill(ledger, [Happened(tried=(Tried("local", 5),), at_ms=MONDAY_MS - 1)])
    change(ledger, "UPDATE live_attempts SET started_ms = ?", MONDAY_MS)
    for by in REPORTS["spend"].by:
        assert report(ledger, by, "2026-11-02").total("requests") == 0
        assert nano(report(ledger, by, "", "2026-11-02").total("cost_usd")) == 5


def test_a_request_settled_after_its_recovery_is_charged_what_it_cost() -> None:
    happened = [Happened(ends="recovered", held=900, tried=(Tried("mini", 5, None), Tried("local", 20)))]
    for by in REPORTS["spend"].by:
        answer = report(happened, by)
        assert totals(answer, "cost_usd", "recovered_usd") == (25, 0)
        assert sum(map(nano, answer.column("cost_usd"))) == 25


def test_a_window_without_requests_says_so(week: Ledger) -> None:
    answer = report(week, "target,day", "2026-12-01", "2026-12-02", where=("target=mini",))
    assert (answer.rows, answer.plots, *totals(answer, "cost_usd", "input_tokens")) == ((), (), 0, None)
    assert "Nothing to show in this window with these filters. Ask for a longer time or with" in answer.note


@each_row("name", [name for name, one in REPORTS.items() if not one.needs_subject])
def test_of_an_empty_ledger_every_report_is_empty(name: str) -> None:
    answer = reported((), name)
    assert (answer.rows, answer.plots) == ((), ())
    assert name != "spend" or totals(answer, *COLUMNS) == (0, 0, 0, 0, None, None, None, 0, 0, 0, 0, 0)


def test_attempts_without_a_price_are_counted_and_explained(ledger: Ledger) -> None:
    fill(ledger, [Happened(tried=(Tried("free", 0, None), Tried("local", 3)))])
    assert "Unpriced" not in report(ledger, "target").note
    change(ledger, "UPDATE live_attempts SET cost_source = 'unpriced' WHERE number = 1")
    for by in REPORTS["spend"].by:
        answer = report(ledger, by)
        assert answer.total("unpriced") == sum(n for n in answer.column("unpriced") if isinstance(n, int)) == 1
        assert "worst case" in answer.note


def test_a_key_that_was_replaced_under_its_name_is_one_row(ledger: Ledger) -> None:
    fill(ledger, [Happened(tried=(Tried("local", 3),), key=name) for name in "ab"])
    change(ledger, "UPDATE keys SET name = 'web'")
    assert cells(report(ledger, "key"), "key", "requests") == [("web", 2)]


def test_of_many_rows_the_least_are_one(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(ledger, [Happened(tried=(Tried(f"t{n:02}", n + 1),)) for n in range(20)])
    (plot,) = report(ledger, "target").plots
    assert sum(mark.value for mark in plot.marks) == sum(range(1, 21))
    assert plot.marks[-1].label == "8 others"
    monkeypatch.setattr(spend, "MOST_ROWS", 3)
    for by, first in (("target", 0), ("day,target", 1)):
        answer = report(ledger, by)
        assert len(answer.rows) == 4
        assert answer.rows[-1][first] == "(17 others)"
        assert sum(map(nano, answer.column("cost_usd"))) == nano(answer.total("cost_usd")) == sum(range(1, 21))


@each_row("zone, day, hours", BY_HAND["days"])
def test_days_begin_at_midnight_in_their_zone(zone: str, day: str, hours: float) -> None:
    begins_ms = round(datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)
    ends_ms = begins_ms + round(hours * HOUR_MS)
    times = (begins_ms - 1, begins_ms, ends_ms - 1, ends_ms)
    happened = [Happened(tried=(Tried("local", 1),), at_ms=at_ms) for at_ms in times]
    answer = report(happened, "day", zone=zone)
    assert answer.column("requests") == (1, 2, 1)
    assert answer.column("day")[1] == day
    assert zone in answer.note
    until = datetime.fromtimestamp(ends_ms / 1000, ZoneInfo(zone)).isoformat()
    assert report(happened, "day", day, until, zone=zone).column("day") == (day,)


def test_an_hour_that_the_clock_shows_twice_is_two() -> None:
    first_ms = 1_792_886_400_000  # 2026-10-25T00:00Z, 02:00 in Berlin, and 02:00 again an hour later
    answer = report([Happened(at_ms=first_ms + n * HOUR_MS) for n in range(-1, 3)], "hour", zone="Europe/Berlin")
    hours = ("01:00+02:00", "02:00+02:00", "02:00+01:00", "03:00+01:00")
    assert answer.column("hour") == tuple(f"2026-10-25T{hour}" for hour in hours)


def test_the_chart_of_days_shows_days_without_spend() -> None:
    later = Happened(tried=(Tried("local", 9),), at_ms=MONDAY_MS + 4 * DAY_MS)
    (plot,) = report([*WEEK, later], "day").plots
    assert plot.shape is Shape.DAYS
    marks = [(mark.label[-2:], mark.value) for mark in plot.marks]
    assert marks == [("02", 3_500), ("03", 7), ("04", 90_000), ("05", 0), ("06", 9)]
    busy = [Happened(tried=(Tried(f"t{n % 5}", 9),), at_ms=MONDAY_MS + n // 5 * 2 * DAY_MS) for n in range(495)]
    assert len({mark.label for mark in report(busy, "day,target").plots[0].marks}) == 197


@each_row("where, cost, requests", BY_HAND["filters"])
def test_filters(week: Ledger, where: str, cost: int, requests: int) -> None:
    assert totals(report(week, "route", where=(where,)), "cost_usd", "requests") == (cost, requests)


def test_all_filters_hold_and_those_of_attempts_take_single_attempts(week: Ledger) -> None:
    answer = report(week, "target", where=("tag=red", "class!=pii"))
    assert cells(answer, "target", "cost_usd") == [("mini", 1_500)]
    assert nano(answer.total("cost_usd")) == 1_500
    assert "attempt by attempt" in report(week, "route", where=("target=mini",)).note
    assert "with all that they cost" in report(week, "route", where=("key=web",)).note


def test_strange_tags_are_kept_and_can_be_asked_for() -> None:
    strange = ('say "hi"', "back\\slash", "{}", "日本", "[1]", "<b>", "=1+1", "\u202eevil", "👩‍💻", "a=b", "x!")
    happened = [Happened(tags=strange), Happened()]
    assert set(report(happened, "tag").column("tag")) == {*strange, None}
    for tag in strange:
        assert report(happened, "route", where=(f"tag={tag}",)).total("requests") == 1
        assert report(happened, "route", where=(f"tag!={tag}",)).total("requests") == 1


NOW_MS = MONDAY_MS + DAY_MS // 2 + 1_234_567
THIS_HOUR_MS = NOW_MS - 1_234_567


@each_row(
    "text, expected",
    [
        *(("", None), ("2026-11-02", MONDAY_MS), ("2026-11-02T00:00", MONDAY_MS), ("2026-11-02T00:00:00Z", MONDAY_MS)),
        *(("2026-11-02T02:00+02:00", MONDAY_MS), ("2026-11-02 00:00:00.123", MONDAY_MS + 123)),
        *(("30m", NOW_MS - HOUR_MS // 2), ("0m", NOW_MS), ("24h", NOW_MS - DAY_MS)),
        # Days and weeks ago begin with their hour.
        *(("0d", THIS_HOUR_MS), ("1d", THIS_HOUR_MS - DAY_MS), ("7d", THIS_HOUR_MS - 7 * DAY_MS)),
        ("2w", THIS_HOUR_MS - 14 * DAY_MS),
    ],
)
def test_times_that_are_understood(text: str, expected: int | None) -> None:
    assert parse_time("since", text, NOW_MS) == expected


@each_row(
    "text, zone, expected",
    [
        ("2026-11-02", "Europe/Berlin", MONDAY_MS - HOUR_MS),
        ("2026-11-02T05:30", "Asia/Kolkata", MONDAY_MS),
        ("2026-11-02T00:00Z", "Asia/Kolkata", MONDAY_MS),
        ("1d", "Asia/Kolkata", MONDAY_MS - DAY_MS // 2),
    ],
)
def test_a_time_without_an_offset_is_the_zone_s(text: str, zone: str, expected: int) -> None:
    assert parse_time("since", text, MONDAY_MS + DAY_MS // 2, ZoneInfo(zone)) == expected


NO_TIMES = ("yesterday", "7", "d", "-7d", "7D", "7 d", "٧d", "9999999d", "2026-13-01", "2026-11-31", "12:00", " ")


@each_row("text", [*NO_TIMES, "7d\n", "\0"])
def test_times_that_are_refused(text: str) -> None:
    with pytest.raises(ClientError, match="Send a date") as caught:
        parse_time("until", text, NOW_MS)
    assert (caught.value.status, caught.value.param) == (400, "until")


def test_the_remotest_moments_can_be_written() -> None:
    assert iso(MONDAY_MS + 999) == "2026-11-02T00:00:00Z"
    assert iso(2**62) == "9999-12-31T23:59:59Z"
    oldest = parse_time("since", "999999w", NOW_MS)
    assert iso(-(2**62)) == iso(oldest or 0) == "0001-01-01T00:00:00Z"


@each_row("name, asked, param, says", BY_HAND["refused"])
def test_what_makes_no_sense_is_refused(week: Ledger, name: str, asked: Any, param: str, says: str) -> None:
    with pytest.raises(ClientError, match=re.escape(says)) as caught:
        read(week, name, convert(asked, Parameters))
    assert (caught.value.status, caught.value.param) == (404 if param == "name" else 400, param)


def priced(name: str, into: int, out: int, contract: Contract = Contract.LEVEL, model: str = "") -> Target:
    """USD for a million tokens."""
    made = target(name, model or f"house/{name}")
    price = Price(input=into * USD, output=out * USD, version="list")
    return structs.replace(made, model=structs.replace(made.model, price=price, thinking=Thinking(contract=contract)))


POLICY = (priced("deep", 1, 1), target("plain"))
WASTED = Usage(input_uncached=100, output_visible=0, output_reasoning=500)


def at_effort(effort: str, cost: int, for_thinking: int | None, usage: Usage, name: str = "deep", **more: Any) -> Tried:
    return Tried(name, cost, usage, thinking=for_thinking, more={"thinking": effort, **more})


# deep: thinks at two efforts and, asked by number, at budgets; plain never does; opaque does not say.
THOUGHT = (
    Happened(tried=(at_effort("effort=high", 1_000, 600, thinking(60)),)),
    Happened(tried=(at_effort("effort=low", 500, 100, thinking(10)),), task=Task.CODE),
    Happened(
        tried=(
            at_effort("effort=high", 900, 800, WASTED, finish_reason="length", answered=False),
            Tried("plain", 50, thinking(None)),
        ),
        lowered=("effort", "output"),
    ),
    *(Happened(tried=(at_effort(f"budget={number}", 10, 4, thinking(4)),)) for number in (7, 1_024, 1_025, 99_999)),
    Happened(tried=(at_effort("on", 70, None, thinking(None), "opaque", finish_reason="length"),), lowered=("output",)),
    Happened(tried=(Tried("opaque", usage=None, outcome="connect"),)),
    Happened(),
)
TOKENS = ("attempts", "output_tokens", "thinking_tokens", "unknown", "cost_usd", "thinking_usd")


def test_tokens_and_money_by_target_and_effort() -> None:
    result = reported(THOUGHT, "thinking", POLICY)
    assert [list(row) for row in cells(result, "target", "effort", *TOKENS)] == data(__file__, "thinking.yaml")
    assert totals(result, *TOKENS) == (10, 746, 586, 1, 2_560, 1_516)
    assert cells(result, "thinking_share", "thinking_cost_share")[0] == (560 / 580, 1_400 / 1_900)
    marks = [(mark.label, mark.value) for mark in result.plots[0].marks]
    assert marks[:2] == [("deep · effort=high", 1_400), ("deep · effort=low", 100)]


def test_what_lowered_it_and_what_it_was_for_nothing() -> None:
    result = reported(THOUGHT, "thinking", POLICY, by="target")
    names = ("target", "lowered", "lowered_effort", "cut", "wasted", "wasted_tokens", "wasted_usd")
    assert cells(result, *names) == [
        ("deep", 0, 0, 1, 1, 500, 900),
        ("opaque", 1, 0, 1, 0, 0, 0),
        ("plain", 1, 1, 0, 0, 0, 0),
    ]


def test_a_target_that_does_not_tell_is_named_as_unknown() -> None:
    """Only the policy knows that plain never thinks."""
    result = reported(THOUGHT, "thinking", by="target")
    assert cells(result, "target", "thinking_tokens", "thinking_usd", "unknown") == [
        ("deep", 586, 1_516, 0),
        ("opaque", None, None, 1),
        ("plain", None, None, 1),
    ]
    assert "Unknown: " in result.note
    assert "Unknown: " not in reported(THOUGHT, "thinking", by="target", where=("target=deep",)).note


def test_filters_hold_and_where_no_target_was_asked_there_is_no_row() -> None:
    result = reported(THOUGHT, "thinking", POLICY, by="task", where=("effort=effort=low,effort=high",))
    assert cells(result, "task", "thinking_tokens") == [("chat", 560), ("code", 10)]
    nowhere = reported([Happened()], "thinking")
    assert (nowhere.rows, nowhere.plots, totals(nowhere, "cost_usd", "thinking_usd")) == ((), (), (0, None))


CHEAP, DEAR = priced("cheap", 1, 2), priced("dear", 3, 6)
TARGETS = (CHEAP, DEAR, priced("mute", 2, 4, Contract.NONE))


def answers(name: str, number: int, cost: int, thinking: int | None, **about: Any) -> list[Happened]:
    """Each of 100 tokens in and 20 out."""
    return [Happened(tried=(Tried(name, cost, model=f"house/{name}", thinking=thinking),), **about)] * number


CODE: dict[str, Any] = {"task": Task.CODE, "difficulty": 0.5}
REVERSED = (
    *answers("cheap", 10, 20_000, 15_000),
    *answers("dear", 5, 8_000, 1_000),
    *answers("cheap", 5, 10_000, 5_000, **CODE),
    *answers("dear", 5, 8_000, 1_000, **CODE),
    # none to compare with, or too few
    *answers("cheap", 50, 1, 0, task=Task.MATHS),
    *answers("dear", 4, 1_000_000, 0, task=Task.MATHS),
    *answers("mute", 5, 30_000, None),
    *answers("dear", 9, 77, 0, route="judge"),
)


def test_reversals_are_what_one_works_out_by_hand() -> None:
    """Cells weigh by 10 × 5 ÷ 15 and 5 × 5 ÷ 10: cheap costs 15,714 an answer, 10,714 of that for thinking."""
    result = reported(REVERSED, "price-reversal", TARGETS)
    names = ("model", "than", "answers", "list_usd", "than_list_usd", "cost_usd", "than_cost_usd")
    lists = [round((price * 100 + 2 * price * 20) / 120 * USD) for price in (1, 2, 3)]
    assert cells(result, *names) == [
        ("house/mute", "house/dear", 10, lists[1], lists[2], 30_000, 8_000),
        ("house/cheap", "house/dear", 25, lists[0], lists[2], 15_714, 8_000),
    ]
    mute, cheap = cells(result, "dearer", "without_thinking", "thinking_part")
    assert mute == pytest.approx((30 / 8, 30 / 7, -1 / 22))
    assert cheap == pytest.approx((15_714.2857 / 8_000, 5 / 7, 9_714.2857 / 7_714.2857))
    # nothing varies
    assert cells(result, "dearer_low") == cells(result, "dearer") == cells(result, "dearer_high")
    [plot] = result.plots
    assert [mark.label for mark in plot.marks] == ["house/mute : house/dear", "house/cheap : house/dear"]
    assert plot.marks[0].value == plot.marks[0].high == 30 / 8
    assert result.note.startswith("2 of the 3 pairs of models that can be compared.")
    code = reported(REVERSED, "price-reversal", TARGETS, where=("task=code",))
    assert cells(code, "model", "cost_usd") == [("house/cheap", 10_000)]
    assert reported(REVERSED, "price-reversal", TARGETS, until="2026-11-01").rows == ()


def test_thinking_that_is_not_known_is_not_none() -> None:
    result = reported([*REVERSED, *answers("cheap", 1, 20_000, None)], "price-reversal", TARGETS)
    assert cells(result, "model", "without_thinking") == [("house/mute", pytest.approx(30 / 7)), ("house/cheap", None)]


@each_row(
    "targets, says",
    [
        ([], "has no list prices"),
        ([target("cheap", "house/cheap")], "has no list prices"),
        ([CHEAP], "0 of the 0 pairs"),
        ([CHEAP, priced("dear", 1, 2)], "0 of the 0 pairs"),
        ([priced("cheap", 3, 6), priced("dear", 1, 2)], "0 of the 1 pairs"),
        ([CHEAP, DEAR, priced("eu", 2, 2, model="house/cheap")], "house/cheap"),
    ],
)
def test_without_list_prices_nothing_is_compared(targets: Sequence[Target], says: str) -> None:
    result = reported(REVERSED, "price-reversal", targets)
    assert result.rows == ()
    assert says in result.note
