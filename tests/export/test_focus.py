"""The FOCUS export: every column as the specification demands, in both formats; every nano-dollar of the ledger."""

import csv
import re
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

from router.export.focus import VERSION, Directory, dataset, write_csv, write_parquet
from router.export.focus.charges import charges, shared
from router.export.focus.columns import NAMES
from router.ledger.attempt_row import BUCKETS
from router.ledger.facts.attempts import GROUPINGS, HOUR_MS, TABLE
from router.ledger.facts.query import Query
from router.ledger.facts.read import sums
from router.ledger.ledger import Ledger
from router.ledger.packed.expire import expire
from router.ledger.packed.pack import pack
from router.types.money import NANO_PER_USD
from router.types.price import Price, Rule
from router.types.usage import Usage
from tests.export.focus_rules import COLUMNS, OURS, Row, breaches
from tests.report.filled import DAY_MS, MONDAY_MS, Happened, Tried, fill, thinking
from tests.stores import Make

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
        connection.execute("BEGIN")
        records = dataset(connection, DIRECTORY, since_ms, until_ms)
        count = (write_parquet if path.suffix == ".parquet" else write_csv)(path, records)
    rows = read_parquet(path) if path.suffix == ".parquet" else read_csv(path)
    assert len(rows) == count
    return rows


def read_parquet(path: Path) -> list[Row]:
    found: list[Row] = parquet.read_table(path).to_pylist()
    return found


def read_csv(path: Path) -> list[Row]:
    """As a reader of the specification takes it: nothing of ours says what is a number or a time."""
    with path.open(encoding="utf-8", newline="") as file:
        return [{name: _cell(name, text) for name, text in row.items()} for row in csv.DictReader(file)]


def _cell(name: str, text: str) -> Any:
    kind = COLUMNS[name].type if name in COLUMNS else ""
    if text == "":
        return None
    if kind == "Decimal" and re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", text):
        return Decimal(text)
    if kind == "Date/Time" and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z", text):
        return datetime.fromisoformat(text)
    return text


@pytest.fixture(scope="module", params=["parquet", "csv"])
def rows(request: pytest.FixtureRequest, new_ledger: Make, tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    ledger = fill(new_ledger(), WEEK)
    with ledger.writing() as connection:
        # As a gateway since this version writes it.
        connection.execute(
            "UPDATE attempts SET thinking_cost = ?, cache_saved = ? WHERE request_id = 'a'", (1_200_000, 900_000)
        )
        connection.execute("UPDATE keys SET organisation = 'acme', team = 'search' WHERE name = 'web'")
    return exported(ledger, tmp_path_factory.mktemp("focus") / f"week.{request.param}")


def test_the_version_has_its_65_columns() -> None:
    assert (VERSION, len(COLUMNS)) == ("1.4", 65)


@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_is_as_the_specification_demands(column: str, rows: list[Row]) -> None:
    demand = COLUMNS[column]
    if column not in rows[0]:
        assert demand.level != "mandatory"
        assert demand.condition not in OURS
        return
    assert breaches(column, rows) == []


def test_own_columns_follow_with_their_prefix() -> None:
    ours = [name for name in NAMES if name not in COLUMNS]
    assert list(NAMES[-len(ours) :]) == ours
    assert all(re.fullmatch(r"x_([A-Z][a-z]+)+", name) and len(name) <= 50 for name in ours)


def test_every_nano_dollar_of_the_ledger_is_in_one_record(rows: list[Row]) -> None:
    assert sum(row["BilledCost"] for row in rows) * NANO_PER_USD == TOTAL


def test_tokens_of_each_kind_stand_at_their_own_price(rows: list[Row]) -> None:
    found = {row["SkuMeter"]: row for row in rows if row["x_KeyName"] == "web" and row["ResourceId"] == "mini"}
    assert {meter: (row["ConsumedQuantity"], row["ListUnitPrice"]) for meter, row in found.items()} == {
        "Input Tokens": (1_000, Decimal("0.5")),
        "Cached Input Tokens": (2_000, Decimal("0.05")),
        "Output Tokens": (100, 4),
        "Reasoning Tokens": (300, 4),
    }
    thought = found["Reasoning Tokens"]
    assert [Decimal(thought[name]) for name in ("x_ThinkingCost", "x_ThinkingTokens")] == [
        Decimal("0.0012"),
        Decimal(300),
    ]
    assert thought["BilledCost"] == Decimal("0.0012")
    assert sum(Decimal(row["x_CacheSaved"] or 0) for row in found.values()) == Decimal("0.0009")


def test_a_charge_says_who_and_what_for(rows: list[Row]) -> None:
    row = next(row for row in rows if row["SkuMeter"] == "Reasoning Tokens")
    assert (row["BillingAccountId"], row["SubAccountId"], row["x_RouteName"]) == ("acme", "search", "auto")
    assert row["Tags"] == (
        '{"blue":true,"lowpass/key":"web","lowpass/organisation":"acme","lowpass/route":"auto",'
        '"lowpass/task":"chat","lowpass/team":"search","red":true}'
    )
    assert (row["ServiceProviderName"], row["ServiceName"]) == ("House of Models", "Local Inference")


def test_periods_are_hours_and_months(rows: list[Row]) -> None:
    late = next(row for row in rows if row["SkuMeter"] == "Requests")
    assert late["ChargePeriodStart"] == datetime(2026, 12, 2, tzinfo=UTC)
    assert late["ChargePeriodEnd"] == datetime(2026, 12, 2, 1, tzinfo=UTC)
    assert (late["BillingPeriodStart"], late["BillingPeriodEnd"]) == (
        datetime(2026, 12, 1, tzinfo=UTC),
        datetime(2027, 1, 1, tzinfo=UTC),
    )


def test_what_died_with_its_gateway_is_an_adjustment(rows: list[Row]) -> None:
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


def test_it_is_answered_from_one_grouping() -> None:
    """So it can be exported also when the rows are gone."""
    from router.export.focus.dataset import BY

    assert tuple(BY) in GROUPINGS


def test_packed_and_expired_requests_are_exported_as_before(new_sqlite: Ledger, tmp_path: Path) -> None:
    ledger = fill(new_sqlite, WEEK)
    before = exported(ledger, tmp_path / "fresh.csv")
    now = MONDAY_MS + 400 * DAY_MS
    assert pack(ledger, now)
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
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]
    assert out.read_text() == "before"


@given(total=st.integers(0, 10**15), weights=st.lists(st.integers(0, 10**12), min_size=1, max_size=15))
def test_shares_are_whole_and_complete(total: int, weights: list[int]) -> None:
    shares = list(shared(total, weights))
    assert sum(shares) == total
    assert all(share >= 0 for share in shares)


def test_what_is_not_counted_in_tokens_stands_apart() -> None:
    """A search at a cent beside 1,000 tokens at half a dollar per million."""
    measured = dict.fromkeys((*BUCKETS, "thinking_cost"), 0) | {"input_uncached": 1_000, "attempts": 1}
    paid = 1_000 * 500 + 10_000_000
    found = charges(measured | {"cost": paid, "own_cost": paid}, PRICE, "priced")
    assert {one.bucket: one.cost for one in found} == {"units": 10_000_000, "input_uncached": 500_000}


def test_a_provider_s_own_figure_stands_beside_the_list_s() -> None:
    measured = dict.fromkeys((*BUCKETS, "thinking_cost"), 0) | {"input_uncached": 1_000, "attempts": 1}
    (only,) = charges(measured | {"cost": 400_000, "own_cost": 500_000}, PRICE, "provider")
    assert (only.cost, only.listed) == (400_000, 500_000)


_COUNT = st.integers(0, 5_000)
_USAGE = st.builds(
    Usage,
    input_uncached=_COUNT,
    cache_read=_COUNT,
    cache_write_1h=_COUNT,
    output_visible=_COUNT,
    output_reasoning=st.none() | _COUNT,
)
_TRIED = st.builds(
    Tried,
    target=st.sampled_from(["mini", "local"]),
    cost=st.integers(0, 10**12),
    usage=st.none() | _USAGE,
    model=st.sampled_from(["lab/mini", "house/model"]),
)


@st.composite
def _ledgers(draw: st.DrawFn) -> list[Happened]:
    return [
        Happened(
            id=f"{number:04}",
            tried=tuple(draw(st.lists(_TRIED, max_size=3))),
            ends=draw(st.sampled_from(["settled", "settled", "held", "recovered"])),
            held=draw(st.integers(0, 10**9)),
            at_ms=MONDAY_MS + draw(st.integers(0, 5)) * HOUR_MS // 2,
            key=draw(st.sampled_from(["", "web"])),
            tags=draw(st.sampled_from([(), ("red",), ("lowpass/team", "-2+3")])),
        )
        for number in range(draw(st.integers(1, 8)))
    ]


@settings(deadline=None, max_examples=25)
@given(happened=_ledgers(), ruled=st.booleans())
def test_any_ledger_adds_up_and_obeys(
    new_ledger: Make, tmp_path_factory: pytest.TempPathFactory, happened: list[Happened], ruled: bool
) -> None:
    ledger = fill(new_ledger(), happened)
    price = Price(input=333_333_333, output=1, version=PRICE.version, rules=(Rule(above=9),) if ruled else ())
    directory = Directory({"lab/mini": {PRICE.version: price}})
    path = tmp_path_factory.mktemp("any") / "any.parquet"
    with ledger.reading() as connection:
        query = Query(table=TABLE, by=(), measures=("cost", "recovered"))
        expected = sum(sums(connection, query).get((), (0,)))
        write_parquet(path, dataset(connection, directory))
    found = read_parquet(path)
    assert sum(row["BilledCost"] for row in found) * NANO_PER_USD == expected
    assert not [breach for column in COLUMNS if column in NAMES for breach in breaches(column, found)]
