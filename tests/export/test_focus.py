"""The FOCUS export: every column as the specification demands, in both formats; every nano-dollar of the ledger."""

import csv
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from pyarrow import types as arrow

from router.export.focus import BY, NAMES, VERSION, Directory, charges, dataset, write_csv, write_parquet
from router.ledger.facts import ATTEMPTS, GROUPINGS, HOUR_MS, Query
from router.ledger.ledger import Ledger, SqliteLedger
from router.ledger.rollups import sums
from router.ledger.write import BUCKETS
from router.testing import Done, lowpass
from router.types.attempt import Usage
from router.types.price import NANO_PER_USD, Price, Rule, shared
from tests.docs.gateway import environment
from tests.export.focus_rules import COLUMNS, OURS, Row, breaches
from tests.ledger.plain import expire, move
from tests.report.filled import DAY_MS, MONDAY_MS, Happened, Tried, fill, thinking
from tests.report.test_request import histories
from tests.stores import Make
from tests.tables import data, each_row

PRICE = Price(input=500_000_000, output=4_000_000_000, cache_read=50_000_000, version="list 2026-11-01")
"""0.50 and 4 USD per million; a cached token a tenth."""
DIRECTORY = Directory({"lab/mini": {PRICE.version: PRICE}}, {"house": "House of Models"}, frozenset({"house"}))
CACHED = Usage(input_uncached=1_000, cache_read=2_000, output_visible=100, output_reasoning=300)
WORTH = 1_000 * 500 + 2_000 * 50 + 400 * 4_000
WEEK = (
    Happened(id="a", tried=(Tried("mini", WORTH, CACHED, "lab/mini"),), key="web", tags=("red", "blue")),
    Happened(id="b", tried=(Tried("mini", 0, None, "lab/mini"), Tried("local", 7, thinking(None)))),
    Happened(id="c", tried=(Tried("mini", 70_000, thinking(0), "lab/mini"),), at_ms=MONDAY_MS + DAY_MS - 1),
    Happened(id="d", at_ms=MONDAY_MS + DAY_MS, route="code"),
    Happened(id="e", ends="held", held=40_000, at_ms=MONDAY_MS + 2 * DAY_MS),
    Happened(id="f", ends="recovered", held=90_000, at_ms=MONDAY_MS + 2 * DAY_MS, key="web"),
    Happened(id="g", tried=(Tried("local", 12, None),), at_ms=MONDAY_MS + 30 * DAY_MS, key='=1+"1"'),
)
"""Cached and thought, tried twice, turned away, in progress, lost in a crash, charged though its usage is not known."""
TOTAL = WORTH + 7 + 70_000 + 90_000 + 12


def exported(ledger: Ledger, path: Path, since_ms: int | None = None, until_ms: int | None = None) -> list[Row]:
    with ledger.reading() as connection:
        records = dataset(connection, DIRECTORY, since_ms, until_ms)
        count = (write_parquet if path.suffix == ".parquet" else write_csv)(path, records)
    rows = list(parquet.read_table(path).to_pylist()) if path.suffix == ".parquet" else read_csv(path)
    assert len(rows) == count
    return rows


def read_csv(path: Path) -> list[Row]:
    """As a reader of the specification takes it: nothing of ours says what is a number or a time."""
    with path.open(encoding="utf-8", newline="") as file:
        return [{name: _cell(name, text) for name, text in row.items()} for row in csv.DictReader(file)]


def _cell(name: str, text: str) -> Any:
    kind = COLUMNS[name].type if name in COLUMNS else ""
    if kind == "Decimal" and re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", text):
        return Decimal(text)
    if kind == "Date/Time" and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z", text):
        return datetime.fromisoformat(text)
    return text or None


@pytest.fixture(scope="module")
def week(new_ledger: Make, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Row]]:
    """The week's rows in both formats."""
    ledger, folder = fill(new_ledger(), WEEK), tmp_path_factory.mktemp("focus")
    with ledger.writing() as connection:
        # As a gateway since this version writes it.
        told = "UPDATE live_attempts SET thinking_cost = 1200000, cache_saved = 900000 WHERE request_id = 'a'"
        connection.execute(told)
        connection.execute("UPDATE keys SET organisation = 'acme', team = 'search' WHERE name = 'web'")
    return {suffix: exported(ledger, folder / f"week.{suffix}") for suffix in ("parquet", "csv")}


def test_the_version_has_its_65_columns_and_own_ones_follow_with_their_prefix() -> None:
    assert (VERSION, len(COLUMNS)) == ("1.4", 65)
    ours = [name for name in NAMES if name not in COLUMNS]
    assert list(NAMES[-len(ours) :]) == ours
    assert all(re.fullmatch(r"x_([A-Z][a-z]+)+", name) and len(name) <= 50 for name in ours)


@each_row("column", COLUMNS)
def test_a_column_is_as_the_specification_demands(column: str, week: dict[str, list[Row]]) -> None:
    demand = COLUMNS[column]
    for rows in week.values():
        if column in rows[0]:
            assert breaches(column, rows) == []
        else:
            assert demand.level != "mandatory"
            assert demand.condition not in OURS


@each_row("suffix", ["parquet", "csv"])
def test_what_happened_in_a_week(week: dict[str, list[Row]], suffix: str) -> None:
    rows = week[suffix]
    assert sum(row["BilledCost"] for row in rows) * NANO_PER_USD == TOTAL, "every nano-dollar is in one record"

    # Tokens of each kind stand at their own price.
    meters = {row["SkuMeter"]: row for row in rows if row["x_KeyName"] == "web" and row["ResourceId"] == "mini"}
    assert {meter: (row["ConsumedQuantity"], row["ListUnitPrice"]) for meter, row in meters.items()} == {
        "Input Tokens": (1_000, Decimal("0.5")),
        "Cached Input Tokens": (2_000, Decimal("0.05")),
        "Output Tokens": (100, 4),
        "Reasoning Tokens": (300, 4),
    }
    thought = meters["Reasoning Tokens"]
    amounts = [Decimal(thought[name]) for name in ("x_ThinkingCost", "x_ThinkingTokens", "BilledCost")]
    assert amounts == [Decimal("0.0012"), 300, Decimal("0.0012")]
    assert sum(Decimal(row["x_CacheSaved"] or 0) for row in meters.values()) == Decimal("0.0009")

    # A charge says who it was and what for.
    assert (thought["BillingAccountId"], thought["SubAccountId"], thought["x_RouteName"]) == ("acme", "search", "auto")
    assert thought["Tags"] == (
        '{"blue":true,"lowpass/key":"web","lowpass/organisation":"acme","lowpass/route":"auto",'
        '"lowpass/task":"chat","lowpass/team":"search","red":true}'
    )
    assert (thought["ServiceProviderName"], thought["ServiceName"]) == ("House of Models", "Local Inference")

    # Periods are hours and months.
    late = next(row for row in rows if row["SkuMeter"] == "Requests")
    periods = [late[f"{kind}Period{end}"] for kind in ("Charge", "Billing") for end in ("Start", "End")]
    december = datetime(2026, 12, 1, tzinfo=UTC)
    assert periods == [december.replace(day=2), december.replace(day=2, hour=1), december, december.replace(2027, 1)]

    # What died with its gateway is an adjustment.
    (lost,) = [row for row in rows if row["ChargeCategory"] == "Adjustment"]
    assert (lost["BilledCost"], lost["SkuId"], lost["x_KeyName"]) == (Decimal("0.00009"), None, "web")


def test_parquet_has_types(new_sqlite: Ledger, tmp_path: Path) -> None:
    exported(fill(new_sqlite, WEEK), tmp_path / "typed.parquet")
    schema = parquet.read_schema(tmp_path / "typed.parquet")
    for column in (name for name in NAMES if name in COLUMNS):
        kind, demand = schema.field(column).type, COLUMNS[column].type
        assert arrow.is_decimal(kind) == (demand == "Decimal"), column
        assert (arrow.is_timestamp(kind) and kind.tz == "UTC") == (demand == "Date/Time"), column
    assert schema.metadata[b"FocusVersion"] == b"1.4"
    assert schema.field("BilledCost").type.scale == 9


def test_no_cell_of_the_csv_is_a_formula(new_sqlite: Ledger, tmp_path: Path) -> None:
    exported(fill(new_sqlite, WEEK), tmp_path / "safe.csv")
    with (tmp_path / "safe.csv").open(newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert '\'=1+"1"' in cells
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@")) or re.match(r"-(?!\d+(\.\d+)?$)", cell)]


def test_a_window_is_widened_to_whole_hours(new_sqlite: Ledger, tmp_path: Path) -> None:
    ledger = fill(new_sqlite, WEEK)
    inside = exported(ledger, tmp_path / "hour.csv", MONDAY_MS + HOUR_MS - 1, MONDAY_MS + HOUR_MS)
    assert {row["ChargePeriodStart"] for row in inside} == {datetime(2026, 11, 2, tzinfo=UTC)}
    assert sum(row["BilledCost"] for row in inside) * NANO_PER_USD == WORTH + 7
    assert not exported(ledger, tmp_path / "none.csv", MONDAY_MS + HOUR_MS, MONDAY_MS + 2 * HOUR_MS)


def test_packed_and_expired_requests_are_exported_as_before(new_sqlite: Ledger, tmp_path: Path) -> None:
    """It is answered from one grouping, so it can be exported also when the rows are gone."""
    assert tuple(BY) in [grouping.by for grouping in GROUPINGS]
    ledger, now = fill(new_sqlite, WEEK), MONDAY_MS + 400 * DAY_MS
    before = exported(ledger, tmp_path / "fresh.csv")
    assert move(ledger, now)
    assert exported(ledger, tmp_path / "packed.csv") == before
    assert expire(ledger, now, DAY_MS)
    assert exported(ledger, tmp_path / "expired.csv") == before


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    def broken() -> Iterator[Any]:
        yield (None,) * len(NAMES)
        raise OSError(28, "No space left on device")

    out = tmp_path / "out.csv"
    out.write_text("before")
    with pytest.raises(OSError, match="No space"):
        write_csv(out, broken())
    assert [(file, file.read_text()) for file in tmp_path.iterdir()] == [(out, "before")]


@given(total=st.integers(0, 10**15), weights=st.lists(st.integers(0, 10**12), min_size=1, max_size=15))
def test_shares_are_whole_and_complete(total: int, weights: list[int]) -> None:
    shares = list(shared(total, weights))
    assert sum(shares) == total
    assert all(share >= 0 for share in shares)


def test_what_is_not_counted_in_tokens_and_a_provider_s_own_figure_stand_apart() -> None:
    """A search at a cent beside 1,000 tokens at half a dollar per million; a charge of 0.4 beside the list's 0.5."""
    measured = dict.fromkeys((*BUCKETS, "thinking_cost"), 0) | {"input_uncached": 1_000, "attempts": 1}
    paid = 1_000 * 500 + 10_000_000
    both = charges(measured | {"cost": paid, "own_cost": paid}, PRICE, "priced")
    assert {charge.bucket: charge.cost for charge in both} == {"units": 10_000_000, "input_uncached": 500_000}
    (only,) = charges(measured | {"cost": 400_000, "own_cost": 500_000}, PRICE, "provider")
    assert (only.cost, only.listed) == (400_000, 500_000)


@settings(max_examples=25)
@given(
    histories(
        st.sampled_from(["lab/mini", "house/model"]),
        ("red", "lowpass/team", "-2+3"),
        st.integers(0, 5).map(lambda half: MONDAY_MS + half * HOUR_MS // 2),
    ).filter(bool),
    st.booleans(),
)
def test_any_ledger_adds_up_and_obeys(
    tmp_path_factory: pytest.TempPathFactory, happened: list[Happened], ruled: bool
) -> None:
    folder = tmp_path_factory.mktemp("any")
    ledger = fill(SqliteLedger(folder / "lowpass.db"), happened)
    price = Price(input=333_333_333, output=1, version=PRICE.version, rules=(Rule(above=9),) if ruled else ())
    with ledger.reading() as connection:
        query = Query(table=ATTEMPTS, by=(), measures=("cost", "recovered"))
        expected = sum(sums(connection, query).get((), (0,)))
        write_parquet(folder / "any.parquet", dataset(connection, Directory({"lab/mini": {PRICE.version: price}})))
    rows = parquet.read_table(folder / "any.parquet").to_pylist()
    assert sum(row["BilledCost"] for row in rows) * NANO_PER_USD == expected
    assert not [breach for column in COLUMNS if column in NAMES for breach in breaches(column, rows)]


FOCUS = ("export", "focus", "--out")


def test_the_command_writes_and_says_how_much(new_sqlite: SqliteLedger) -> None:
    fill(new_sqlite, [Happened(id="a", tried=(Tried("mini", 1_500),), at_ms=MONDAY_MS)])
    out = new_sqlite.path.with_name("november.csv")
    done = blind(out, "--format", "csv", "--since", "2026-11-01", "--until", "2026-12-01")
    assert (done.status, done.error) == (0, "")
    assert done.out.endswith("november.csv: 1 records\n")
    assert out.read_text().count("\n") == 2
    assert_refused(blind(out.with_name("a.parquet")), "Parquet needs pyarrow: pip install 'lowpass-gateway[export]'")
    assert not out.with_name("a.parquet").exists()


def blind(out: Path, *options: str) -> Done:
    """In a process where `lowpass-gateway[export]` is not installed."""
    code = "import sys; sys.modules['pyarrow'] = None; from router.cli import main; main()"
    command, environ = [sys.executable, "-c", code, *FOCUS, str(out), *options], environment(out.parent)
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    return Done(done.returncode, done.stdout, done.stderr, "")


def assert_refused(done: Done, says: str) -> None:
    assert (done.status, done.out, done.error.count("\n")) == (1, "", 1)
    assert done.error.startswith("lowpass: ")
    assert says in done.error


@each_row("out, options, says", data(__file__, "export_mistakes.yaml"))
def test_what_is_wrong_is_one_line(
    new_sqlite: SqliteLedger, tmp_path: Path, out: str, options: tuple[str, ...], says: str
) -> None:
    home = new_sqlite.path.parent
    assert_refused(lowpass(home, *FOCUS, str(tmp_path / out), "--format", "csv", *options), says)
    assert list(tmp_path.iterdir()) == []
