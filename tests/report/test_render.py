"""One report, three renderings: the same numbers in each, nothing rounded, nothing unknown shown as 0."""

import json
from decimal import Decimal
from io import StringIO

import pytest
from rich.console import Console

from router.report.render import as_json, written
from router.report.report import Column, Kind, Report
from router.report.table import table

SMALLEST, LARGEST = Decimal("0.000000001"), Decimal("9223372036.854775807")
REPORT = Report(
    name="spend",
    title="Spend by target",
    columns=(
        Column("target", Kind.LABEL),
        Column("tokens", Kind.COUNT),
        Column("cost_usd", Kind.USD),
        Column("held_usd", Kind.USD, rare=True),
        Column("at", Kind.TIME),
    ),
    rows=(("[red]local[/red]", 1_234_567, SMALLEST, Decimal(0), 1_793_577_600_000), (None, None, LARGEST, None, None)),
    totals=("total", 1_234_567, SMALLEST + LARGEST, Decimal(0), None),
    note="Read me.",
    since_ms=1_793_577_600_000,
)


def drawn(report: Report, width: int = 120) -> str:
    console = Console(file=StringIO(), width=width)
    console.print(table(report))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_amounts_are_exact_and_their_points_stand_below_each_other() -> None:
    assert written(REPORT).rows == (
        ("[red]local[/red]", "1,234,567", "0.000000001", "2026-11-02T00:00:00Z"),
        ("(none)", "–", "9,223,372,036.854775807", "–"),
    )
    assert written(REPORT).totals == ("total", "1,234,567", "9,223,372,036.854775808", "–")


def test_a_rare_column_appears_once_it_holds_something() -> None:
    assert "held_usd" not in [column.name for column in written(REPORT).columns]
    full = Report(name="", title="", columns=REPORT.columns, rows=(("a", 1, SMALLEST, SMALLEST, 0),))
    assert "held_usd" in [column.name for column in written(full).columns]


def test_amounts_have_cents_and_no_needless_zeros() -> None:
    report = Report(name="", title="", columns=(Column("cost_usd", Kind.USD),), rows=((Decimal("1.500000000"),),))
    assert written(report).rows == (("1.50",),)


def test_the_terminal_table_shows_title_window_rows_totals_and_note() -> None:
    text = drawn(REPORT)
    for part in ("Spend by target since 2026-11-02T00:00:00Z", "cost $", "[red]local[/red]", "9,223,372,036.854775808"):
        assert part in text
    assert text.rstrip().endswith("Read me.")


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_narrow_terminal_never_breaks_a_number(width: int) -> None:
    slim = Report(
        name="", title="", columns=(Column("target", Kind.LABEL), Column("n", Kind.COUNT)), rows=(("x" * 90, 12_345),)
    )
    assert "12,345" in drawn(slim, width)


def test_json_keeps_every_digit_and_leaves_unknown_null() -> None:
    text = as_json(REPORT)
    assert b'"cost_usd":0.000000001' in text
    document = json.loads(text, parse_float=Decimal)
    assert document["rows"] == [
        {
            "target": "[red]local[/red]",
            "tokens": 1_234_567,
            "cost_usd": SMALLEST,
            "held_usd": 0,
            "at": "2026-11-02T00:00:00Z",
        },
        {"target": None, "tokens": None, "cost_usd": LARGEST, "held_usd": None, "at": None},
    ]
    assert document["totals"]["cost_usd"] == SMALLEST + LARGEST
    assert (document["since"], document["until"]) == ("2026-11-02T00:00:00Z", None)
