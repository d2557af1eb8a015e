"""Every form of a report has its exact numbers; what others named is safe in a spreadsheet, a page and a terminal."""

import csv
import json
import unicodedata
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import partial
from io import StringIO
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from rich.console import Console

from router.cli.explain import explanation as explained
from router.decide.explain import PlacedExplanation, StoredClassification, with_reason
from router.errors import ClientError
from router.report.render import as_csv, as_json, as_text, page, table, written
from router.report.report import Column, Kind, Report, Row, Value, shown
from router.types.decision import Cascade, Dropped, Hedge, Objective, Vote, Weighed
from router.types.price import usd_about as three_digits
from router.types.target import Task
from tests.report.asking import Page
from tests.tables import data, each_row

Amounts = list[list[Decimal | None]]
"""A row: its amounts, column by column; None where there is none."""


def of_csv(report: Report) -> Amounts:
    rows = csv.DictReader(StringIO(as_csv(report).decode(), newline=""))
    return _amounts(report, ({name: cell or None for name, cell in row.items()} for row in rows))


FORMS = (lambda report: _amounts(report, json.loads(as_json(report), parse_float=Decimal)["rows"]), of_csv)


def _amounts(report: Report, rows: Iterable[Mapping[str, object]]) -> Amounts:
    names = [column.name for column in report.columns if column.kind is Kind.USD]
    cells = ([row.get(name, 0) for name in names] for row in rows)
    return [[None if cell is None else Decimal(str(cell)) for cell in row] for row in cells]


def is_exact_in_every_form(report: Report) -> None:
    rows = [dict(zip((column.name for column in report.columns), row, strict=True)) for row in report.rows]
    for form in FORMS:
        assert form(report) == _amounts(report, rows), form.__name__


@st.composite
def reports(draw: st.DrawFn) -> Report:
    money = tuple(Column(f"m{n}_usd", Kind.USD, rare=draw(st.booleans())) for n in range(draw(st.integers(1, 4))))
    columns = (Column("name", Kind.LABEL), Column("count", Kind.COUNT), *money)
    amounts = (st.none() | st.decimals(-(10**15), 10**15, places=9) for _ in money)
    line = st.tuples(st.none() | st.text(max_size=20), st.none() | st.integers(-(10**12), 10**12), *amounts)
    lines: list[Row] = draw(st.lists(line, max_size=8))
    total: Row | None = draw(st.none() | line)
    return Report(name="r", title=draw(st.text(max_size=20)), columns=columns, rows=tuple(lines), totals=total)


@settings(max_examples=60)
@given(report=reports())
def test_every_form_of_any_report_has_its_exact_amounts(report: Report) -> None:
    is_exact_in_every_form(report)


OURS = {"html", "head", "meta", "link", "title", "style", "body", "section", "h1", "h2", "div", "bdi", "p"}
OURS |= {"table", "thead", "tbody", "tfoot", "tr", "th", "td"}


def about(*names: Value, kind: Kind = Kind.LABEL) -> Report:
    return Report(name="r", title="R", columns=(Column("name", kind),), rows=tuple((name,) for name in names))


def in_csv(report: Report, table: str = "") -> list[list[str]]:
    return list(csv.reader(StringIO(as_csv(report, table).decode(), newline="")))


def on_terminal(drawn: object, width: int = 120) -> str:
    console = Console(file=StringIO(), width=width)
    console.print(drawn)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


SMALLEST, LARGEST = Decimal("0.000000001"), Decimal("9223372036.854775807")
SPEND = Report(
    name="spend",
    title="Spend by target",
    columns=(
        *(Column("target", Kind.LABEL), Column("tokens", Kind.COUNT), Column("cost_usd", Kind.USD)),
        *(Column("held_usd", Kind.USD, rare=True), Column("at", Kind.TIME)),
    ),
    rows=(("[red]local[/red]", 1_234_567, SMALLEST, Decimal(0), 1_793_577_600_000), (None, None, LARGEST, None, None)),
    totals=("total", 1_234_567, SMALLEST + LARGEST, Decimal(0), None),
    note="Read me.",
    since_ms=1_793_577_600_000,
)


def test_people_read_rounded_numbers_and_nothing_unknown_is_shown_as_0() -> None:
    assert written(SPEND).rows == (
        ("[red]local[/red]", "1.23 M", "$0.000000001", "2026-11-02T00:00:00Z"),
        ("(none)", "–", "$9,223,372,036.85", "–"),
    )
    assert written(SPEND).totals == ("total", "1.23 M", "$9,223,372,036.85", "–")
    now_ms = 1_793_577_600_000
    times = about(*(now_ms - age for age in (0, 150_000, 5 * 3_600_000, -7_200_000, 86_400_000)), kind=Kind.TIME)
    told = ["0 s ago", "2 min ago", "5 h ago", "in 2 h", "2026-11-01T00:00:00Z"]
    assert [row[0] for row in written(times, now_ms).rows] == told
    # A rare column appears once it holds something.
    assert "held_usd" not in [column.name for column in written(SPEND).columns]
    full = structs.replace(SPEND, rows=(("a", 1, SMALLEST, SMALLEST, 0),))
    assert "held_usd" in [column.name for column in written(full).columns]


def test_the_terminal_table_shows_title_window_rows_totals_and_note() -> None:
    text = on_terminal(table(SPEND))
    for part in ("Spend by target since 2026-11-02T00:00:00Z", "cost", "[red]local[/red]", "$9,223,372,036.85"):
        assert part in text
    assert text.rstrip().endswith("Read me.")
    columns = (Column("t", Kind.LABEL), Column("n", Kind.COUNT))
    slim = Report(name="", title="", columns=columns, rows=(("x" * 90, 12_345),))
    assert all("12.3 k" in on_terminal(table(slim), width) for width in (20, 40, 80))


def test_json_keeps_every_digit_and_leaves_unknown_null() -> None:
    assert b'"cost_usd":0.000000001' in as_json(SPEND)
    document = json.loads(as_json(SPEND), parse_float=Decimal)
    assert [tuple(row[column.name] for column in SPEND.columns) for row in document["rows"]] == [
        ("[red]local[/red]", 1_234_567, SMALLEST, 0, "2026-11-02T00:00:00Z"),
        (None, None, LARGEST, None, None),
    ]
    assert document["totals"]["cost_usd"] == SMALLEST + LARGEST
    assert (document["since"], document["until"]) == ("2026-11-02T00:00:00Z", None)


@each_row("kind, value, text, json_text", data(__file__, "kinds.yaml"))
def test_every_kind_in_words_and_in_json(kind: str, value: Value, text: str, json_text: str) -> None:
    """Money stands as text in the table, so that it is exact."""
    money = kind in ("usd", "amount") and isinstance(value, str)
    report = about(Decimal(str(value)) if money else value, kind=Kind(kind))
    assert written(report).rows == ((text,),)
    assert f'"rows":[{{"name":{json_text}}}]' in as_json(report).decode()
    assert in_csv(report)[1:] == ([[json_text.strip('"')]] if value is not None else [[""]])


@each_row("start", ["=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "\n"])
def test_no_cell_is_a_formula_or_begins_with_a_break(start: str) -> None:
    (cell,) = in_csv(about(f"{start}cmd|'/c calc'!A1"))[1]
    assert cell[0] == "'"
    assert (cell == f"'{start}cmd|'/c calc'!A1") is not start.isspace()
    assert (start in cell) is not start.isspace()


@each_row("name", ['a"b', "a,b", "a;=1", "a\r\nb", "", " ", "日本", "👩‍💻", "'"])
def test_every_name_is_one_cell_and_negative_numbers_stay_numbers(name: str) -> None:
    columns = (Column("name", Kind.LABEL), *(Column(kind, kind) for kind in (Kind.USD, Kind.COUNT, Kind.SHARE)))
    report = Report(name="r", title="R", columns=columns, rows=((name, Decimal("-0.000000001"), -7, -0.25),))
    assert in_csv(report)[1] == [name.replace("\r\n", "\\r\\n"), "-0.000000001", "-7", "-0.25"]


def test_one_table_at_a_time() -> None:
    below = Report(name="violations", title="V", columns=(Column("rule"),), rows=(("r",),))
    report = Report(name="egress", title="E", columns=(Column("class"),), rows=(("c",),), below=(below,))
    assert in_csv(report) == in_csv(report, "egress") == [["class"], ["c"]]
    assert in_csv(report, "violations") == [["rule"], ["r"]]
    with pytest.raises(ClientError, match=r"egress has no table 'other'\. Known: egress, violations"):
        as_csv(report, "other")


@each_row("name, seen", data(__file__, "unseen.yaml"))
def test_what_would_not_be_seen_is_spelt_out(name: str, seen: str) -> None:
    assert (shown(name), shown("\ue000\ud800")) == (seen, "\\ue000\\ud800")


@settings(max_examples=100)
@given(name=st.text(), title=st.text(), note=st.text())
def test_no_name_breaks_out(name: str, title: str, note: str) -> None:
    report = Report(name="r", title=title, columns=(Column("t"), Column("n", Kind.COUNT)), rows=((name, 1),), note=note)
    drawn = Page(page(report))
    assert {tag for tag, _ in drawn.tags} <= OURS
    assert [row[1] for row in drawn.rows[1:]] == ["1"]
    text = as_text(report, 20_000)
    assert not {one for one in text if unicodedata.category(one) in ("Cc", "Cf", "Zl", "Zp")} - set("\n\u200c\u200d")
    assert len([line for line in text.splitlines() if line.startswith("│")]) == 1
    assert [len(row) for row in in_csv(report)] == [2, 2]
    assert json.loads(as_json(about(name)))["rows"] == [{"name": name}] if name.isprintable() else True


@each_row("markup", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{ 7 * 7 }}", "[red]x[/red]"])
def test_markup_is_text_and_a_page_needs_nothing_else(markup: str) -> None:
    report = Report(name="r", title=markup, columns=(Column("t", Kind.LABEL),), rows=((markup,),), note=markup)
    drawn = Page(page(report))
    assert {tag for tag, _ in drawn.tags} <= OURS
    assert drawn.rows[1:] == [[markup]]
    assert markup in as_text(report)
    plain = page(about("x"))
    assert "default-src 'none'" in plain
    assert not [loads for loads in ("src=", "url(", "@import", "http://", "https://", "<script") if loads in plain]


def test_a_total_has_no_label_that_rows_could_have() -> None:
    columns = (Column("team", Kind.LABEL), Column("day", Kind.LABEL), Column("n", Kind.COUNT))
    report = Report(name="r", title="R", columns=columns, rows=((None, "d", 1),), totals=("total", None, 1))
    assert (written(report).rows, written(report).totals) == ((("(none)", "d", "1"),), ("total", "", "1"))
    assert as_text(structs.replace(report, rows=())) == "R: no rows\n"


@each_row("width", [30, 60, 90, 200])
def test_columns_without_room_stand_below_with_their_labels(width: int) -> None:
    columns = (Column("team", Kind.LABEL), *(Column(f"number_{n}", Kind.COUNT) for n in range(9)))
    rows: tuple[Row, ...] = (("web", *range(1_000_000, 1_000_009)), ("shop", *range(2_000_000, 2_000_009)))
    report = Report(name="r", title="R", columns=columns, rows=rows, totals=("total", *range(9)))
    text = as_text(report, width)
    assert max(map(len, text.splitlines())) <= width
    assert all(name in text for name in ("number 0", "number 8", "1 M", "2 M"))
    assert text.count("web") == text.count("total") == text.count("┏")
    assert text.startswith("R")


NAME = "anthropic/claude-haiku-4-5/us-east1"
WEIGHED = Weighed(NAME, 0.85, 0.21, 17_701_775, 3_994_607, 36_946_620, 799, 73_081, 55_858_370, "chosen")
CHEAPER = structs.replace(WEIGHED, target="local", p=0.5, cost_nano=5_000_000, why="dearer")
DEARER = structs.replace(WEIGHED, target="best", p=0.95, cost_nano=53 * 10**6, value_nano=5 * 10**7, why="not_evident")
UNLIKELY = structs.replace(WEIGHED, p=0.3, value_nano=0)
SEEN = partial(StoredClassification, data_class="internal", classes=("internal",), causes=(), task=Task.MATHS)
EXAMINED = PlacedExplanation(
    id="r",
    requested="auto",
    route="auto",
    strategy="cost_of_pass",
    policy="h",
    classification=SEEN(difficulty=0.4, unfamiliarity=0.1),
    chosen=NAME,
    considered=(),
    dropped=(),
    weighed=(WEIGHED, structs.replace(WEIGHED, target="local", why="below_floor")),
    stakes=Objective(failure_nano=250_000_000, min_pass_rate=0.3, max_nano=50_000_000, deadline_ms=90_000),
)


def test_a_decision_tells_what_is_at_stake_and_what_was_expected() -> None:
    text = on_terminal(explained(EXAMINED), 100)
    at_stake = "at stake: a failure costs $0.25, pass rate at least 0.3, at most $0.05, within 90 s"
    for part in (at_stake, "0.85 ± 0.21", "0.0177", "0.004–0.037", "0.8 / 73.1", "0.0559", "below_floor"):
        assert part in text
    assert max(map(len, text.splitlines())) <= 100
    assert "…" not in text
    assert "chance" not in text


@each_row(
    "changed, words",
    [
        ({"tactic": Cascade(2)}, "another is asked where verifiers turn its answer down"),
        ({"tactic": Vote(4)}, "asked up to 4 times"),
        ({"tactic": Hedge(2_500)}, "asked as well after 2.5 s"),
        ({"explored": "cheaper"}, f"tried in place of {NAME}, to keep the estimates honest"),
        ({}, f"hard maths: {NAME} passes .85 for $0.018; a wrong answer costs $0.25; no other is surely"),
        ({"alike": 0, "outcomes": 600}, f"hard maths, no answers like it yet, 600 unlike it: {NAME} passes .85"),
        ({"alike": 1}, f"hard maths, 1 answer like it: {NAME} passes .85"),
        ({"alike": 1_412, "alike_own": 0}, f"hard maths, 1,412 answers like it, none of {NAME}: {NAME} passes .85"),
        ({"weighed": (WEIGHED, CHEAPER)}, "local would save $0.013 and pass .35 less often"),
        ({"weighed": (WEIGHED, structs.replace(CHEAPER, p=WEIGHED.p - 0.0004))}, "save $0.013 and pass as often"),
        ({"weighed": (WEIGHED, structs.replace(CHEAPER, why="degraded"))}, "local was slow or failing"),
        ({"weighed": (WEIGHED, DEARER)}, "best would cost 3 times as much for +.10 (expected to save $0.0059 once"),
        ({"weighed": (UNLIKELY, structs.replace(DEARER, why="dearer"))}, "too little to pay for a likelier one; best"),
        ({"weighed": (), "strategy": "ordered"}, f"{NAME}: the first in the route's order that may serve it"),
        ({"chosen": None, "dropped": (Dropped("t", "region", "not in the EU"),)}, "no target may serve it: t (not in"),
    ],
)
def test_a_decision_tells_in_a_sentence_why(changed: dict[str, Any], words: str) -> None:
    document = structs.replace(EXAMINED, **changed)
    assert words in json.loads(with_reason(msgspec.json.encode(document)))["reason"]
    assert words in " ".join(on_terminal(explained(document), 400).split())


@each_row("nano, text", data(__file__, "three_digits.yaml"))
def test_three_digits_count(nano: int, text: str) -> None:
    assert three_digits(nano) == text
