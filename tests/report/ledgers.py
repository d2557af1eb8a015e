"""One ledger with something for every report, all questions to it, and any ledger at all."""

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st
from msgspec import structs

from router.errors import ClientError
from router.ledger.engines import keep
from router.ledger.incident import EXHAUSTED
from router.ledger.ledger import Ledger
from router.report.catalog import REPORTS
from router.report.report import Report
from router.types.task import Task
from router.types.usage import Usage
from tests.ledger.plain import expire, move
from tests.report import test_engines as engines
from tests.report import test_price_reversal as price_reversal
from tests.report import test_spend as spend
from tests.report.asking import AFTER_MS, reported
from tests.report.filled import DAY_MS, MONDAY_MS, Happened, Judgement, Tried, at, fill, policy, thinking

TARGETS = (at("gpu", "", "", hourly=1_000_000), at("us", "Big Inc", "US"), at("cn", "Da Ltd", "CN"))
POLICY = policy(*TARGETS)
HAPPENED = [
    Happened(
        id=f"r{number:02}",
        tried=(
            Tried("gpu", 5, None, outcome="timeout"),
            Tried("us", number, thinking(number), first_ms=7, more={"thinking": "effort=high"}),
        )
        if number % 3
        else (Tried("gpu", number),),
        at_ms=MONDAY_MS + number * 1_000_000,
        session="build",
        stream=bool(number % 2),
        key="ci",
        tags=("red",),
        weighed={"gpu": (0.5, 100), "us": (0.9, 300_000)},
        judged=(Judgement(float(number % 2)),) if number % 5 else (),
        policy=POLICY.hash,
        overhead_us=100 + number,
    )
    for number in range(40)
]
ASKED_FOR = {"request": "r04", "session": "build"}
FILTERS = {
    **{"target": "us", "route": "auto", "class": "internal", "region": "(none)", "policy": POLICY.hash},
    **{"key": "ci", "tag": "red", "task": "chat", "session": "build", "effort": "effort=high"},
}


def filled(ledger: Ledger) -> Ledger:
    fill(ledger, HAPPENED, [POLICY], TARGETS)
    fill(ledger, (*spend.WEEK, *price_reversal.WEEK), targets=price_reversal.TARGETS)
    keep(ledger, [engines.WORKED], engines.PRICES)
    with ledger.writing() as connection:
        row = ("1", MONDAY_MS, EXHAUSTED, "budget", "monthly", "", MONDAY_MS)
        connection.execute("INSERT INTO incidents VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    return ledger


def aged(ledger: Ledger, *, expired: bool = False) -> Ledger:
    """All of it moved to the past: what was in progress never was; or `expired`, too."""
    with ledger.writing() as connection:
        connection.execute("DELETE FROM live_requests WHERE state = 'held'")
    move(ledger, AFTER_MS)
    if expired:
        assert expire(ledger, AFTER_MS, DAY_MS) > 0
    return ledger


def questions() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every report with each of its groupings, and with each of its filters that has something to find."""
    for name, one in REPORTS.items():
        subject = {"subject": ASKED_FOR[name]} if one.needs_subject else {}
        yield name, subject
        yield from ((name, {**subject, "by": by}) for by in one.by)
        yield from ((name, {**subject, "where": (f"{by}={FILTERS[by]}",)}) for by in one.where if by in FILTERS)


def answers(ledger: Ledger) -> dict[str, Report | str]:
    """To every question: a report, or what it is refused with. Facts of one request have no order."""
    found: dict[str, Report | str] = {}
    for name, question in questions():
        try:
            report = reported(ledger, name, (*TARGETS, *price_reversal.TARGETS), **question)
        except ClientError as refused:
            found[f"{name} {question}"] = refused.message
            continue
        if name == "request":
            rows = sorted((row for row in report.rows if row[0] != "owner"), key=str)
            report = structs.replace(report, rows=tuple(rows))
        found[f"{name} {question}"] = report
    return found


COUNT = st.integers(0, 5_000)
USAGE = st.none() | st.builds(
    Usage,
    input_uncached=COUNT,
    cache_read=COUNT,
    cache_write=COUNT,
    output_visible=COUNT,
    output_reasoning=st.none() | COUNT,
)
TRIED = st.builds(
    Tried,
    target=st.sampled_from(["local", "mini", "<i>"]),
    cost=st.integers(0, 10**15),
    usage=USAGE,
    model=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12),
)
ANY = st.builds(
    Happened,
    id=st.uuids().map(lambda one: one.hex),
    tried=st.lists(TRIED, max_size=3).map(tuple),
    ends=st.sampled_from(["settled", "settled", "held", "recovered"]),
    held=st.integers(0, 10**15),
    at_ms=st.integers(MONDAY_MS, MONDAY_MS + 3 * DAY_MS),
    route=st.sampled_from(["auto", "code"]),
    key=st.sampled_from(["", "web", "batch"]),
    tags=st.lists(st.sampled_from(["red", 'bl"ue', "gr\\een", "=1+1"]), max_size=3).map(tuple),
    data_class=st.sampled_from(["internal", "pii"]),
    task=st.sampled_from(list(Task)),
).map(lambda one: structs.replace(one, tried=()) if one.ends == "held" else one)
HISTORY = st.lists(ANY, max_size=12, unique_by=lambda one: one.id)
