"""The shipped facts are complete, consistent and dated; where price lists differ; how they are written anew."""

import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adapters.catalog import in_force, read, read_tables, shipped
from router.testing import lowpass
from router.types.price import RATES
from router.types.target import EFFORTS, Capability, Contract, Licence, Provider, Terms, Wire
from tests.tables import data, each_row
from tools.catalog import compare
from tools.catalog.compare import OFF_PEAK, Cell, from_row
from tools.catalog.regenerate import regenerate, to_row

CATALOG = shipped()
MODELS = [model for model, _ in CATALOG.models.values()]
PROVIDERS = list(CATALOG.providers.values())


def test_there_are_enough_models_and_their_ids_are_unique() -> None:
    """Of two equal keys the last is kept in silence. What is written by hand is not listed again."""
    assert len(MODELS) >= 1_400
    served = Counter((provider, model.name) for model, provider in CATALOG.models.values() if provider != "vllm")
    assert [model for model, count in served.items() if count > 1] == []
    assert {provider for _, provider in CATALOG.models.values()} <= set(CATALOG.providers)
    files = [*(compare.FOLDER / "models").iterdir(), *(compare.FOLDER / "prices").iterdir()]
    for path in (compare.FOLDER / "providers.yaml", compare.FOLDER / "licences.yaml", *files):
        named = r"^(\"[^\"]+\"): \[" if path.suffix == ".json" else r"^(?:  )?([A-Za-z0-9][\w.-]*):"
        keys = re.findall(named, path.read_text("utf-8"), re.MULTILINE)
        keys = [key for key in keys if key not in (*Provider.__struct_fields__, "strict", "knows")]
        assert len(keys) == len(set(keys)), path.name


def test_a_model_s_facts_fit_together() -> None:
    for model in MODELS:
        assert model.name
        assert 0 <= model.max_output <= model.context
        assert model.capabilities & {Capability.CHAT, Capability.COMPLETIONS, Capability.EMBEDDINGS}
        assert Capability.RESPONSES not in model.capabilities, "stated by the provider's quirks"
        assert (model.max_output > 0) == bool(model.capabilities & {Capability.CHAT, Capability.COMPLETIONS})
        assert model.licence.id
        assert (model.parameters_b or 0) >= (model.active_b or 0) >= 0
        thinking = model.thinking
        assert len(thinking.levels) == len(thinking.tokens) == len(set(thinking.levels))
        assert bool(thinking.levels) == (thinking.contract is not Contract.NONE)
        assert set(thinking.levels) <= set(EFFORTS)
        assert all(less <= more for less, more in pairwise(thinking.tokens))
        assert sorted(thinking.levels, key=EFFORTS.index) == list(thinking.levels)


def test_a_price_is_whole_and_its_cache_cheaper() -> None:
    for model in MODELS:
        price = model.price
        assert price is not None
        rates = {field: getattr(price, field) for field in RATES}
        if Capability.CHAT not in model.capabilities:
            rates.pop("output")
        stated = [rate for rate in rates.values() if rate is not None]
        assert all(type(rate) is int and rate > 0 for rate in stated)
        assert price.cache_read is None or price.cache_read <= price.input
        assert all(rate > 0 for rule in price.rules for rate in rule.rates.values())
        assert all(rule.rates or rule.each or rule.times != (1, 1) for rule in price.rules)


@each_row("identifier", CATALOG.prices)
def test_every_table_has_a_source_and_a_date(identifier: str) -> None:
    versions = list(CATALOG.prices[identifier])
    assert len(versions) == len(set(versions))
    for version in versions:
        source, _, day = version.rpartition(" ")
        assert source
        assert date(2025, 11, 21) <= date.fromisoformat(day[:10]) <= date(2026, 11, 26)


def test_prices_are_exact_and_superseded_ones_stay() -> None:
    """Rows of older ledgers name them."""
    superseded = CATALOG.prices["openai/gpt-6.1-sol"]["litellm 1.109.1 and genai-prices 0.2.3 2026-11-21"]
    assert (superseded.input, superseded.cache_read, superseded.rules) == (2_000_000_000, 100_000_000, ())
    assert CATALOG.models["openai/gpt-6.1-sol"][0].price != superseded
    (exact, *_) = CATALOG.prices["bedrock/nova-micro"].values()
    assert exact.cache_read == 8_750_000, "0.00875 USD per million tokens, not a neighbour of it"


def test_where_a_size_tier_begins_the_context_goes_on() -> None:
    rules = [(model, rule) for model in MODELS for rule in (model.price.rules if model.price else ())]
    crossed = [(model, rule.above) for model, rule in rules if rule.above and not rule.service_tier]
    assert len({model.id for model, _ in crossed}) >= 23
    assert all(model.context >= above for model, above in crossed)


def test_a_provider_has_an_address_and_its_promises_an_evidence_and_a_day() -> None:
    """What is promised at all; nothing is, of those who run here."""
    for provider in PROVIDERS:
        assert provider.entity
        assert provider.local or provider.wire is Wire.LITELLM or provider.base_url.startswith("https://")
        assert not provider.base_url.endswith("/")
        assert re.fullmatch(r"|[A-Z]{2}", provider.jurisdiction)
        assert not (provider.local and (provider.key_env or provider.jurisdiction))
        assert re.fullmatch(r"|[A-Z][A-Z0-9_]+", provider.key_env)
        terms = provider.terms
        promised = terms.training is False or terms.retention_days is not None
        assert bool(terms.evidence) == promised
        assert not promised or re.search(r"as of 20\d\d-\d\d", terms.evidence)
        assert not (provider.local and terms != Terms())
        assert not terms.baa, "an agreement that the operator signs"


def test_facts_that_decide() -> None:
    """Read with the providers' own pages at hand; what no page states for every account stays unstated."""
    terms = {provider.id: provider.terms for provider in PROVIDERS}
    assert (terms["openai"].training, terms["openai"].retention_days) == (False, 30)
    assert (terms["anthropic"].training, terms["anthropic"].retention_days) == (False, 730)
    assert terms["anthropic"].verify == "usage.inference_geo"
    unstated = {"xai", "openrouter", "deepseek", "moonshot", "minimax", "dashscope", "gemini", "mistral"}
    assert all(terms[provider] == Terms() for provider in unstated)


def test_a_score_is_known_wherever_the_model_is_served() -> None:
    names = "anthropic/claude-opus-4-5", "openrouter/anthropic/claude-opus-4.5", "mistral/ministral-3b-2512"
    bedrock = "bedrock/eu.anthropic.claude-opus-4-5-20251101-v1:0"
    direct, router, smaller, cloud = (CATALOG.models[name][0].scores for name in (*names, bedrock))
    assert direct == router == cloud != smaller == {}


def test_licences() -> None:
    assert {licence.id for licence in CATALOG.licences.values()} == set(CATALOG.licences)
    assert {model.licence.id for model in MODELS} - set(CATALOG.licences) == {"proprietary", "unknown"}
    permits = CATALOG.licences
    assert all(model.licence == permits.get(model.licence.id, Licence(id=model.licence.id)) for model in MODELS)
    assert (permits["MIT"].commercial, permits["MIT"].train_on_outputs, permits["MIT"].users_max) == (True, True, None)
    assert permits["Llama-3.3-Community"].users_max == 700_000_000
    assert permits["OpenAI-Services-Agreement"].train_on_outputs is False
    assert CATALOG.models["anthropic/claude-haiku-4-5"][0].licence == permits["Anthropic-Commercial-Terms"]


def test_what_the_local_engine_promises() -> None:
    model, provider = CATALOG.models["local/smollm2-135m-instruct"]
    quirks = CATALOG.providers[provider].quirks
    assert model.capabilities == set(Capability) - {Capability.VISION, Capability.AUDIO, Capability.RESPONSES}
    assert (CATALOG.providers[provider].local, quirks.grammar_tools, quirks.usage_counts_one_choice) == (True,) * 3
    assert model.price is not None
    assert (model.price.input, model.price.output) == (22_000_000, 222_000_000)


SOUND = {
    "licences.yaml": "{MIT: {source: x}}",
    **dict.fromkeys(("foreign.yaml", "scores.yaml"), "{}"),
    "encodings.yaml": "{providers: [], encodings: {}}",
    "providers.yaml": "x: {wire: openai_compatible, base_url: https://x.example/v1, entity: X}",
    "models/x.yaml": "{provider: x, models: {m: {context: 9, max_output: 9, capabilities: [chat]}}}",
    "prices/x.json": '{"m":[{"version": "v 2026-11-21", "checked": "2026-11-21", "rates": {"input": 1, "output": 1}}]}',
}


@each_row("file, text, problem", data(__file__, "misspelt.yaml"))
def test_misspelt_and_missing_facts_are_refused(file: str, text: str, problem: str, tmp_path: Path) -> None:
    for name, sound in SOUND.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(sound)
    assert set(read(tmp_path).models) == {"x/m"}
    (tmp_path / file).write_text(text)
    with pytest.raises(ValueError, match=f"{file}: .*{problem}"):
        read(tmp_path)


Install = Callable[[str, Mapping[str, Any]], None]
TODAY = date(2026, 11, 26)
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
    assert all(difference.ours != difference.theirs for difference in found.disagreements)


def test_a_list_that_differs_without_a_reason_is_unexplained(install: Install) -> None:
    install("9.9.9", {"gpt-5-mini": GPT | {"output_cost_per_token": 3e-06, "cache_creation_input_token_cost": 3e-07}})
    unexplained = {difference.cell: difference for difference in compare.compare(TODAY).unexplained}
    assert set(unexplained) == {"output", "cache_write"}
    assert str(unexplained["output"]) == "openai/gpt-5-mini: output is 2, 3 in litellm 9.9.9: UNEXPLAINED"
    assert unexplained["cache_write"].ours is None


def test_an_older_list_explains_itself(install: Install) -> None:
    install("1.2.3", {"gpt-5-mini": GPT | {"output_cost_per_token": 3e-06}})
    [older] = [found for found in compare.compare(TODAY).disagreements if found.source == "litellm 1.2.3"]
    assert older.why == "the price was read from litellm 1.109.1, which is newer"


def test_every_known_difference_still_exists() -> None:
    """One that is settled is removed. LiteLLM's side can be seen only where its package is installed."""
    cells = [(name, cell) for name, table in in_force().items() for cell in from_row(table.row())]
    cells += [(name, Cell("", "", 200_000, "input")) for name in CATALOG.models if name.startswith("xai/")]
    for known in compare.differences():
        assert any(known.covers(name, cell) for name, cell in cells), known


def test_what_no_list_confirms_is_stale(install: Install) -> None:
    assert len({stale.model for stale in compare.compare(TODAY + timedelta(days=91)).stale}) == len(CATALOG.models)
    entries = {"gpt-5-mini": GPT | {"deprecation_date": "2026-11-01"}, "gpt-5": {"deprecation_date": "2026-12-01"}}
    install("9.9.9", entries)
    stale = {stale.model: stale.why for stale in compare.compare(TODAY).stale}
    assert stale["openai/gpt-5-mini"] == "retired according to litellm 9.9.9 on 2026-11-01"
    assert "openai/gpt-5" not in stale


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The prices in a folder that may be written, beside the cards."""
    folder = tmp_path / "catalog"
    for part in ("prices", "listed"):
        shutil.copytree(compare.FOLDER / part, folder / part)
    return folder / "prices"


def test_a_changed_price_becomes_a_new_table_before_the_old_one(copied: Path, install: Install) -> None:
    before = read_tables(copied / "openai.json")["gpt-5-mini"]
    install("9.9.9", {"gpt-5-mini": GPT | {"output_cost_per_token": 3e-06, "output_cost_per_token_batches": 1.5e-06}})
    assert "openai/gpt-5-mini" in regenerate(copied.parent, date(2027, 2, 1)).changed
    new, *old = read_tables(copied / "openai.json")["gpt-5-mini"]
    assert old == before
    assert re.fullmatch(r"litellm 9\.9\.9, genai-prices \S+, 2027-02-01", new.version)
    assert new.rates.output == Decimal("3")


def test_a_price_that_is_confirmed_gets_a_new_date_only_and_what_no_list_has_stays(
    copied: Path, install: Install
) -> None:
    names = ("input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost")
    windows = [{"hours_utc": "00:00-01:00", "weekdays": [1]}]
    off_peak = {**dict(zip(names, (6.6e-07, 1.98e-06, 2.2e-08), strict=True)), "windows": windows}
    entry = {**dict(zip(names, (1.32e-06, 3.96e-06, 4.4e-08), strict=True)), "off_peak_pricing": off_peak}
    install("9.9.9", {"deepseek/deepseek-v4-pro": entry})
    before, local = read_tables(copied / "deepseek.json")["deepseek-v4-pro"], (copied / "local.json").read_text()
    assert "deepseek/deepseek-v4-pro" not in regenerate(copied.parent, date(2027, 2, 1)).changed
    after = read_tables(copied / "deepseek.json")["deepseek-v4-pro"]
    assert after == [msgspec.structs.replace(before[0], checked=date(2027, 2, 1)), *before[1:]]
    assert (copied / "local.json").read_text() == local


NEW = GPT | {"mode": "chat", "litellm_provider": "openai", "max_input_tokens": 9_000, "max_output_tokens": 900}
ABSENT = data(__file__, "absent.yaml")


def test_a_model_that_the_lists_know_gets_a_card_and_a_price_or_is_counted_by_what_it_lacks(
    copied: Path, install: Install
) -> None:
    thinks = NEW | {"supports_reasoning": True, "supports_none_reasoning_effort": True}
    entries = {f"absent-{row}": NEW | change for row, (change, _) in enumerate(ABSENT)}
    entries |= {"ft:gpt-9": NEW, "azure/eu/gpt-9": NEW | {"litellm_provider": "azure"}, "gpt-5": NEW}
    entries |= {"gpt-9": thinks, "azure/gpt-9": NEW | {"litellm_provider": "azure", "supports_vision": True}}
    install("9.9.9", entries | {"embed-9": NEW | {"mode": "embedding", "output_cost_per_token": 0}})
    regenerated = regenerate(copied.parent, date(2027, 2, 1))
    assert regenerated.added == ("openai/gpt-9", "azure/gpt-9", "openai/embed-9")
    others = ("a template of fine-tuned models", "the price of a region or a commitment, not of a model")
    absent = Counter([*(reason for _, reason in ABSENT), *others, "written by hand"])
    assert all(regenerated.absent[reason] >= count for reason, count in absent.items())
    for file in ("providers.yaml", "licences.yaml", "foreign.yaml", "encodings.yaml", "scores.yaml", "models"):
        (copied.parent / file).symlink_to(compare.FOLDER / file)
    models = read(copied.parent).models
    (thinking, _), (azure, provider), (embedding, _) = (models[name] for name in regenerated.added)
    assert (thinking.name, thinking.context, thinking.max_output) == ("gpt-9", 9_000, 900)
    assert (thinking.thinking.contract, thinking.thinking.levels) == ("level", ("none", "low", "medium", "high"))
    assert thinking.price is not None
    assert (thinking.price.input, thinking.price.output) == (250_000_000, 2_000_000_000)
    assert (provider, azure.name, Capability.VISION in azure.capabilities) == ("azure", "gpt-9", True)
    assert (*embedding.capabilities, embedding.max_output) == (Capability.EMBEDDINGS, 0)
    assert models.keys() >= CATALOG.models.keys(), "a model is never taken away"
    assert regenerate(copied.parent, date(2027, 2, 2)).added == ()


def test_litellm_s_names_of_rates() -> None:
    entry: dict[str, Any] = {"input_cost_per_token": 2e-06, "input_cost_per_token_batches": 1e-06}
    entry |= {"output_cost_per_token": 1e-05, "output_cost_per_reasoning_token": 1e-05}
    entry |= {"cache_creation_input_token_cost": 0.0, "max_input_tokens": 9, "provider_specific_entry": {"us": 1.1}}
    entry["cache_creation_input_token_cost_above_1hr_above_200k_tokens"] = 8e-06
    entry["cache_creation_input_token_cost_above_12hr_above_272k_tokens_flex"] = 5.000000000000001e-06
    entry["search_context_cost_per_query"] = {"search_context_size_low": 0.01, "search_context_size_high": 0.02}
    entries = msgspec.json.Decoder(float_hook=Decimal).decode(msgspec.json.encode({"gpt-5": entry}))
    sheet = compare.litellm_map_sheet(entries, *CATALOG.models["openai/gpt-5"])
    assert sheet is not None
    assert sheet.cells == {
        Cell("", "", 0, "input"): 2,
        Cell("", "", 0, "output"): 10,
        Cell("", "", 200_000, "cache_write_1h"): 8,
        Cell("", "flex", 272_000, "cache_write_12h"): 5,
        Cell("", "batch", 0, "input"): 1,
        Cell("", "", 0, "each web_search"): Decimal("0.02"),
        Cell("", "", 0, "region us"): Decimal("1.1"),
    }


@each_row("row", [table.row() for table in in_force().values()])
def test_a_table_survives_the_way_to_cells_and_back(row: dict[str, Any]) -> None:
    cells = from_row(row)
    windows = [rule for rule in row.get("rules", ()) if "hours" in rule]
    kept = [{key: value for key, value in rule.items() if key not in RATES} for rule in windows]
    assert from_row(to_row(cells, kept)) == cells
    assert bool(windows) == any(cell.when == OFF_PEAK for cell in cells)


def test_the_command_names_what_is_unconfirmed(tmp_path: Path) -> None:
    done = lowpass(tmp_path, "check", "--prices", "--days", "100000")
    assert (done.status, done.out) == (0, "0 prices of the catalog are unconfirmed for 100000 days\n"), done.error
    assert "openai/gpt-5-mini: last confirmed " in lowpass(tmp_path, "check", "--prices", "--days", "0").out
