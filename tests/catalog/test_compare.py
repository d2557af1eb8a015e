"""Where the catalog and the maintained price lists differ, and how the catalog is written anew from them."""

import re
import shutil
import sys
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adapters.catalog import compare, litellm_map, regenerate, shipped
from adapters.catalog.sheet import OFF_PEAK, Cell, from_row, to_row
from adapters.catalog.tables import read_tables
from router.testing.cli import lowpass
from router.types.pricelist import RATES
from tests.tables import each_row

Install = Callable[[str, Mapping[str, Any]], None]
TODAY = date(2026, 11, 21)
GPT = {"input_cost_per_token": 2.5e-07, "output_cost_per_token": 2e-06, "cache_read_input_token_cost": 2.5e-08}


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a list of LiteLLM's form as a package would be: a version, and its entries."""

    def installed(version: str, entries: Mapping[str, Any]) -> None:
        package, facts = tmp_path / "site" / "litellm", tmp_path / "site" / f"litellm-{version}.dist-info"
        package.mkdir(parents=True)
        facts.mkdir()
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: litellm\nVersion: {version}\n")
        (package / "model_prices_and_context_window_backup.json").write_bytes(msgspec.json.encode(entries))
        monkeypatch.setattr(sys, "path", [str(package.parent), *sys.path])

    return installed


def test_no_difference_from_the_list_that_the_tests_install_is_unexplained() -> None:
    found = compare.compare(TODAY)
    assert any(source.startswith("genai-prices ") for source in found.sources)
    assert found.unexplained == ()
    assert found.disagreements
    assert all(one.ours != one.theirs for one in found.disagreements)


def test_a_list_that_differs_without_a_reason_is_unexplained(install: Install) -> None:
    entries = {"gpt-5-mini": GPT | {"output_cost_per_token": 3e-06, "cache_creation_input_token_cost": 3e-07}}
    install("9.9.9", entries)
    unexplained = {one.cell: one for one in compare.compare(TODAY).unexplained}
    assert set(unexplained) == {"output", "cache_write"}
    assert str(unexplained["output"]) == "openai/gpt-5-mini: output is 2, 3 in litellm 9.9.9: UNEXPLAINED"
    assert unexplained["cache_write"].ours is None


def test_an_older_list_explains_itself(install: Install) -> None:
    install("1.2.3", {"gpt-5-mini": GPT | {"output_cost_per_token": 3e-06}})
    [older] = [one for one in compare.compare(TODAY).disagreements if one.source == "litellm 1.2.3"]
    assert older.why == "the price was read from litellm 1.109.1, which is newer"


def test_every_known_difference_still_exists() -> None:
    """One that is settled is removed. LiteLLM's side can be seen only where its package is installed."""
    for known in compare.differences():
        assert any(known.covers(name, cell) for name, cell in _cells()), known


def _cells() -> list[tuple[str, Cell]]:
    above = {(name, Cell("", "", 200_000, "input")) for name in shipped().models if name.startswith("xai/")}
    return [(name, cell) for name, table in compare.in_force().items() for cell in from_row(table.row())] + list(above)


def test_what_no_list_confirms_is_stale(install: Install) -> None:
    old = {one.model for one in compare.compare(TODAY + timedelta(days=91)).stale}
    assert len(old) == len(shipped().models)
    entries = {"gpt-5-mini": GPT | {"deprecation_date": "2026-11-01"}, "gpt-5": {"deprecation_date": "2026-12-01"}}
    install("9.9.9", entries)
    stale = {one.model: one.why for one in compare.compare(TODAY).stale}
    assert stale["openai/gpt-5-mini"] == "retired according to litellm 9.9.9 on 2026-11-01"
    assert "openai/gpt-5" not in stale


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The prices in a folder that may be written."""
    folder = tmp_path / "catalog"
    shutil.copytree(compare.FOLDER / "prices", folder / "prices")
    monkeypatch.setattr(regenerate, "FOLDER", folder)
    return folder / "prices"


def test_a_changed_price_becomes_a_new_table_before_the_old_one(copied: Path, install: Install) -> None:
    before = read_tables(copied / "openai.yaml")["gpt-5-mini"]
    entries = {"gpt-5-mini": GPT | {"output_cost_per_token": 3e-06, "output_cost_per_token_batches": 1.5e-06}}
    install("9.9.9", entries)
    assert "openai/gpt-5-mini" in regenerate.regenerate(date(2027, 2, 1))
    new, *old = read_tables(copied / "openai.yaml")["gpt-5-mini"]
    assert old == before
    assert re.fullmatch(r"litellm 9\.9\.9, genai-prices \S+, 2027-02-01", new.version)
    assert new.rates.output == Decimal("3")


def test_a_price_that_is_confirmed_gets_a_new_date_only(copied: Path, install: Install) -> None:
    names = ("input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost")
    windows = [{"hours_utc": "00:00-01:00", "weekdays": [1]}]
    off_peak = {**dict(zip(names, (6.6e-07, 1.98e-06, 2.2e-08), strict=True)), "windows": windows}
    entry = {**dict(zip(names, (1.32e-06, 3.96e-06, 4.4e-08), strict=True)), "off_peak_pricing": off_peak}
    install("9.9.9", {"deepseek/deepseek-v4-pro": entry})
    before = read_tables(copied / "deepseek.yaml")["deepseek-v4-pro"]
    assert "deepseek/deepseek-v4-pro" not in regenerate.regenerate(date(2027, 2, 1))
    after = read_tables(copied / "deepseek.yaml")["deepseek-v4-pro"]
    assert after == [msgspec.structs.replace(before[0], checked=date(2027, 2, 1)), *before[1:]]


def test_what_no_list_has_stays(copied: Path) -> None:
    before = (copied / "local.yaml").read_text()
    regenerate.regenerate(date(2027, 2, 1))
    assert (copied / "local.yaml").read_text() == before


def test_litellm_s_names_of_rates() -> None:
    entry = {
        "input_cost_per_token": 2e-06,
        "output_cost_per_token": 1e-05,
        "output_cost_per_reasoning_token": 1e-05,
        "cache_creation_input_token_cost": 0.0,
        "cache_creation_input_token_cost_above_1hr_above_200k_tokens": 8e-06,
        "cache_creation_input_token_cost_above_12hr_above_272k_tokens_flex": 5.000000000000001e-06,
        "input_cost_per_token_batches": 1e-06,
        "search_context_cost_per_query": {"search_context_size_low": 0.01, "search_context_size_high": 0.02},
        "provider_specific_entry": {"us": 1.1},
        "max_input_tokens": 9,
    }
    model, provider = shipped().models["openai/gpt-5"]
    found = litellm_map.sheet(
        msgspec.json.Decoder(float_hook=Decimal).decode(msgspec.json.encode({"gpt-5": entry})), model, provider
    )
    assert found is not None
    assert found.cells == {
        Cell("", "", 0, "input"): 2,
        Cell("", "", 0, "output"): 10,
        Cell("", "", 200_000, "cache_write_1h"): 8,
        Cell("", "flex", 272_000, "cache_write_12h"): 5,
        Cell("", "batch", 0, "input"): 1,
        Cell("", "", 0, "each web_search"): Decimal("0.02"),
        Cell("", "", 0, "region us"): Decimal("1.1"),
    }


@each_row("row", [table.row() for table in compare.in_force().values()])
def test_a_table_survives_the_way_to_cells_and_back(row: dict[str, Any]) -> None:
    cells = from_row(row)
    windows = [rule for rule in row["rules"] if "hours" in rule]
    kept = [{key: value for key, value in rule.items() if key not in RATES} for rule in windows]
    assert from_row(to_row(cells, kept)) == cells
    assert bool(windows) == any(cell.when == OFF_PEAK for cell in cells)


def test_the_command_says_how_many(tmp_path: Path) -> None:
    done = lowpass(tmp_path, "check", "--prices", "--days", "100000")
    assert done.status == 0, done.error
    assert "0 of them unexplained" in done.out.splitlines()[-1]
