"""To the nano-dollar: what the ledger has charged is what every report shows, in every form, wherever the rows are."""

from collections.abc import Iterator
from decimal import Decimal
from itertools import takewhile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from router.errors import ClientError
from router.ledger import rows
from router.ledger.ledger import Ledger
from router.ledger.packed.expire import expire
from router.ledger.packed.pack import pack
from router.report.asked import Question
from router.report.catalog import REPORTS
from router.report.read import answer
from router.report.render import written
from router.report.report import Column, Kind, Report, Row
from router.report.spend import BY
from router.types.money import NANO_PER_USD
from tests.report import parsed
from tests.report.filled import DAY_MS, MONDAY_MS, Happened, Tried, fill
from tests.report.random_ledger import HISTORY
from tests.stores import Make

AFTER_MS = MONDAY_MS + 40 * DAY_MS
LONG_AGO = [
    Happened(id=str(n), tried=(Tried("mini", n),), key="a", tags=("red",), at_ms=MONDAY_MS + n * DAY_MS // 2 - 1)
    for n in range(6)
] + [Happened(id="6", at_ms=MONDAY_MS + 3 * DAY_MS - 1)]
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


@settings(max_examples=60, deadline=None)
@given(report=reports())
def test_every_form_of_any_report_has_its_exact_amounts(report: Report) -> None:
    for form in parsed.FORMS:
        assert form(report) == _where_shown(form, report), form.__name__


def _where_shown(form: object, report: Report) -> parsed.Amounts:
    """A column that people do not see, as there is nothing in it, reads as 0."""
    seen = {column.name for column in written(report).columns}
    names = [column.name for column in report.columns if column.kind is Kind.USD]
    everything = form in (parsed.of_json, parsed.of_csv)
    return [
        [value if everything or name in seen else Decimal(0) for name, value in zip(names, row, strict=True)]
        for row in parsed.amounts(report)
    ]


@settings(max_examples=12, deadline=None)
@given(
    happened=HISTORY,
    day=st.integers(0, 3),
    by=st.lists(st.sampled_from(BY), min_size=1, max_size=3, unique=True),
    zone=st.sampled_from(["", "Europe/Berlin", "Asia/Kathmandu"]),
)
def test_spend_adds_up_to_the_ledger(
    new_ledger: Make, happened: list[Happened], day: int, by: list[str], zone: str
) -> None:
    ledger = fill(new_ledger(), happened)
    since = f"2026-11-{2 + day:02}T00:00Z"
    charged = _charged(ledger, MONDAY_MS + day * DAY_MS)
    for _ in _before_and_after_packing(ledger, happened):
        report = _read(ledger, "spend", Question(by=",".join(by), since=since, zone=zone))
        assert _charged(ledger, MONDAY_MS + day * DAY_MS) == charged
        assert {name: _nano(report.total(name)) for name in charged} == charged
        for form in parsed.FORMS if "tag" not in by else ():
            assert _sums(form(report), report) == charged, form.__name__


@settings(max_examples=5, deadline=None)
@given(happened=HISTORY)
def test_packing_changes_no_report(new_ledger: Make, happened: list[Happened]) -> None:
    ledger = fill(new_ledger(), happened)
    names = [name for name, one in REPORTS.items() if not (one.needs_subject or one.needs_pots)]
    before, after = (
        [_read(ledger, name, Question()) for name in names] for _ in _before_and_after_packing(ledger, happened)
    )
    for one, other in zip(before, after, strict=True):
        assert one == other
        for form in parsed.FORMS:
            assert form(one) == _where_shown(form, one), form.__name__


def test_spend_outlives_its_rows(ledger: Ledger) -> None:
    fill(ledger, LONG_AGO)
    asked = [Question(by=by, since="60d") for by in ("target", "team,tag,model", "day", "class", "hour,route")]
    before = [_read(ledger, "spend", question) for question in asked]
    _expire(ledger)
    assert [_read(ledger, "spend", question) for question in asked] == before
    assert {_nano(report.total("cost_usd")) for report in before} == {15}


def test_what_has_expired_says_what_can_still_be_asked(ledger: Ledger) -> None:
    fill(ledger, LONG_AGO)
    _expire(ledger)
    for question in (Question(by="session"), Question(by="team,class"), Question(by="class", where=("key=a",))):
        with pytest.raises(ClientError, match="Rows before 2026-11-05T00:00:00Z have expired") as refused:
            _read(ledger, "spend", question)
        assert (refused.value.status, refused.value.param) == (400, "since")
        assert "session," not in refused.value.message
        recent = structs.replace(question, since="2026-11-05", where=())
        assert _read(ledger, "spend", recent).total("requests") == 0


def _expire(ledger: Ledger) -> None:
    assert pack(ledger, AFTER_MS) == len(LONG_AGO)
    assert expire(ledger, AFTER_MS, DAY_MS) == 1


def _before_and_after_packing(ledger: Ledger, happened: list[Happened]) -> Iterator[None]:
    """What is held, and all after it, is not packed."""
    yield
    ordered = sorted(happened, key=lambda one: one.id)
    assert pack(ledger, AFTER_MS) == len(list(takewhile(lambda one: one.ends != "held", ordered)))
    yield


def _read(ledger: Ledger, name: str, question: Question) -> Report:
    with ledger.reading() as connection:
        connection.execute("BEGIN")
        return answer(connection, name, question, at_ms=AFTER_MS)


def _charged(ledger: Ledger, since_ms: int) -> dict[str, int]:
    """Row by row, as the ledger has them: nano-USD that are spent, charged after a crash, and held."""
    found = {"cost_usd": 0, "recovered_usd": 0, "held_usd": 0}
    columns = {
        "settled": ("cost_usd", "cost"),
        "released": ("cost_usd", "cost"),
        "recovered": ("recovered_usd", "cost"),
    }
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
    return {name: sum(map(_nano, columns.get(name, ()))) for name in ("cost_usd", "recovered_usd", "held_usd")}


def _nano(amount: object) -> int:
    assert isinstance(amount, Decimal)
    nano = amount * NANO_PER_USD
    assert nano == int(nano)
    return int(nano)
