"""What is shown in words, and what others named: safe in a spreadsheet, on a page, in a terminal."""

import csv
import json
import unicodedata
from decimal import Decimal
from io import StringIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.errors import ClientError
from router.report.csv_ import as_csv
from router.report.html import page
from router.report.render import as_json, written
from router.report.report import Column, Kind, Report, Row, Value
from router.report.table import as_text
from router.report.tell import shown
from tests.report.parsed import Cells

OURS = {
    "html",
    "head",
    "meta",
    "link",
    "title",
    "style",
    "body",
    "section",
    "h1",
    "h2",
    "div",
    "table",
    "thead",
    "tbody",
} | {
    *("tfoot", "tr", "th", "td", "bdi", "p"),
}


def about(*names: Value, kind: Kind = Kind.LABEL) -> Report:
    return Report(name="r", title="R", columns=(Column("name", kind),), rows=tuple((name,) for name in names))


def in_csv(report: Report, table: str = "") -> list[list[str]]:
    return list(csv.reader(StringIO(as_csv(report, table).decode(), newline="")))


@pytest.mark.parametrize(
    ("kind", "value", "text", "json_text"),
    [
        (Kind.SHARE, 1 / 3, "33.3 %", "0.333333"),
        (Kind.SHARE, -0.5, "-50.0 %", "-0.5"),
        (Kind.RATE, 2 / 3, "0.667", "0.666667"),
        (Kind.FACTOR, 1234.5678, "1,234.57 ×", "1234.57"),
        (Kind.COUNT, 1_234_567, "1,234,567", "1234567"),
        (Kind.MS, 12.3456789, "12.3457", "12.3457"),
        (Kind.AMOUNT, 1_000, "1,000", "1000"),
        (Kind.AMOUNT, Decimal("0.5"), "0.50", "0.5"),
        (Kind.USD, Decimal("-1234.000000001"), "-1,234.000000001", "-1234.000000001"),
        (Kind.USD, Decimal("1E+3"), "1,000.00", "1000"),
        (Kind.TIME, 1_793_577_600_000, "2026-11-02T00:00:00Z", '"2026-11-02T00:00:00Z"'),
        (Kind.TEXT, "x", "x", '"x"'),
        (Kind.TEXT, None, "–", "null"),
        (Kind.LABEL, None, "(none)", "null"),
    ],
)
def test_every_kind_in_words_and_in_json(kind: Kind, value: Value, text: str, json_text: str) -> None:
    report = about(value, kind=kind)
    assert written(report).rows == ((text,),)
    assert f'"rows":[{{"name":{json_text}}}]' in as_json(report).decode()
    assert in_csv(report)[1:] == ([[json_text.strip('"')]] if value is not None else [[""]])


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "＝", "＋", "－", "＠"])
def test_no_cell_is_a_formula(start: str) -> None:
    assert in_csv(about(f"{start}cmd|'/c calc'!A1"))[1] == [f"'{start}cmd|'/c calc'!A1"]


@pytest.mark.parametrize("start", ["\t", "\r", "\n"])
def test_no_cell_begins_with_a_break(start: str) -> None:
    (cell,) = in_csv(about(f"{start}=1+1"))[1]
    assert cell[0] == "'"
    assert start not in cell


def test_negative_numbers_stay_numbers() -> None:
    columns = (Column("cost_usd", Kind.USD), Column("n", Kind.COUNT), Column("f", Kind.SHARE))
    report = Report(name="r", title="R", columns=columns, rows=((Decimal("-0.000000001"), -7, -0.25),))
    assert as_csv(report) == b"cost_usd,n,f\r\n-0.000000001,-7,-0.25\r\n"


@pytest.mark.parametrize("name", ['a"b', "a,b", "a;=1", "a\r\nb", "", " ", "日本", "👩‍💻", "'"])
def test_every_name_is_one_cell(name: str) -> None:
    (cell,) = in_csv(about(name, "end"))[1]
    assert cell == name.replace("\r\n", "\\r\\n")


def test_one_table_at_a_time() -> None:
    below = Report(name="violations", title="V", columns=(Column("rule"),), rows=(("r",),))
    report = Report(name="egress", title="E", columns=(Column("class"),), rows=(("c",),), below=(below,))
    assert in_csv(report) == in_csv(report, "egress") == [["class"], ["c"]]
    assert in_csv(report, "violations") == [["rule"], ["r"]]
    with pytest.raises(ClientError, match=r"egress has no table 'other'\. Known: egress, violations"):
        as_csv(report, "other")


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("plain", "plain"),
        ("日本 שלום 👩‍💻 🏳️‍🌈 é", "日本 שלום 👩‍💻 🏳️‍🌈 é"),
        ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"),
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("a\u202ecod.exe", "a\\u202ecod.exe"),
        ("a\u2066b\u2069\u200f\u061c", "a\\u2066b\\u2069\\u200f\\u061c"),
        ("a\x00\x85\u2028\ufeff\u00ad", "a\\x00\\x85\\u2028\\ufeff\\xad"),
        ("tag\U000e0041\U000e007f", "tag\\U000e0041\\U000e007f"),
        ("\ue000\ud800", "\\ue000\\ud800"),
    ],
)
def test_what_would_not_be_seen_is_spelt_out(name: str, seen: str) -> None:
    assert shown(name) == seen


@settings(max_examples=100, deadline=None)
@given(name=st.text(), title=st.text(), note=st.text())
def test_no_name_breaks_out(name: str, title: str, note: str) -> None:
    report = Report(name="r", title=title, columns=(Column("t"), Column("n", Kind.COUNT)), rows=((name, 1),), note=note)
    drawn = Cells.read(page(report))
    assert drawn.tags <= OURS
    assert [row[1] for row in drawn.rows] == ["1"]
    text = as_text(report, 20_000)
    assert not {one for one in text if unicodedata.category(one) in ("Cc", "Cf", "Zl", "Zp")} - set("\n\u200c\u200d")
    assert len([line for line in text.splitlines() if line.startswith("│")]) == 1
    assert [len(row) for row in in_csv(report)] == [2, 2]
    assert json.loads(as_json(about(name)))["rows"] == [{"name": name}] if name.isprintable() else True


@pytest.mark.parametrize(
    "markup", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{ 7 * 7 }}", "[red]x[/red]"]
)
def test_markup_is_text(markup: str) -> None:
    report = Report(name="r", title=markup, columns=(Column("t", Kind.LABEL),), rows=((markup,),), note=markup)
    drawn = Cells.read(page(report))
    assert drawn.tags <= OURS
    assert drawn.rows == [[markup]]
    assert markup in as_text(report)


def test_a_page_needs_nothing_else() -> None:
    text = page(about("x"))
    assert "default-src 'none'" in text
    for loads in ("src=", "url(", "@import", "http://", "https://", "<script"):
        assert loads not in text


def test_a_total_has_no_label_that_rows_could_have() -> None:
    columns = (Column("team", Kind.LABEL), Column("day", Kind.LABEL), Column("n", Kind.COUNT))
    report = Report(name="r", title="R", columns=columns, rows=((None, "d", 1),), totals=("total", None, 1))
    assert written(report).rows == (("(none)", "d", "1"),)
    assert written(report).totals == ("total", "", "1")


@pytest.mark.parametrize("width", [30, 60, 90, 200])
def test_columns_without_room_stand_below_with_their_labels(width: int) -> None:
    columns = (Column("team", Kind.LABEL), *(Column(f"number_{n}", Kind.COUNT) for n in range(9)))
    rows: tuple[Row, ...] = tuple(
        (team, *(1_000_000 * scale + n for n in range(9))) for scale, team in enumerate(("web", "shop"), 1)
    )
    report = Report(name="r", title="R", columns=columns, rows=rows, totals=("total", *range(9)))
    text = as_text(report, width)
    assert max(map(len, text.splitlines())) <= width
    for row in rows:
        for number in row[1:]:
            assert f"{number:,}" in text
    assert text.count("web") == text.count("total") == text.count("┏")
    assert text.count("R\n") + text.count("R ") == 1
