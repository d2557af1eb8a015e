"""The shipped facts are complete, consistent and dated."""

import re
from datetime import date
from itertools import pairwise
from pathlib import Path

import pytest

import adapters.catalog
from adapters.catalog import read, shipped
from adapters.thinking import WORDS
from router.types.pricelist import RATES
from router.types.target import Capability, Contract, Licence, Model, Provider, Terms, Wire
from tests.tables import each_row

CATALOG = shipped()
FOLDER = Path(adapters.catalog.__file__).parent
MODELS = [model for model, _ in CATALOG.models.values()]
PROVIDERS = list(CATALOG.providers.values())


def name(value: object) -> str:
    return value.id if isinstance(value, Model | Provider) else ""


def test_there_are_enough_models_and_each_has_a_provider() -> None:
    assert len(MODELS) >= 60
    assert {provider for _, provider in CATALOG.models.values()} <= set(CATALOG.providers)


def test_ids_are_unique() -> None:
    """YAML keeps the last of two equal keys in silence."""
    files = [*(FOLDER / "models").iterdir(), *(FOLDER / "prices").iterdir()]
    for path in (FOLDER / "providers.yaml", FOLDER / "licences.yaml", *files):
        indent = "" if path.parent.name == "prices" else "(?:  )?"
        keys = re.findall(rf"^{indent}([A-Za-z0-9][\w.-]*):", path.read_text("utf-8"), re.MULTILINE)
        keys = [key for key in keys if key not in Provider.__struct_fields__]
        assert len(keys) == len(set(keys)), path.name


@each_row("model", MODELS, ids=name)
def test_card(model: Model) -> None:
    assert model.name
    assert 0 <= model.max_output <= model.context
    assert model.capabilities & {Capability.CHAT, Capability.COMPLETIONS, Capability.EMBEDDINGS}
    assert Capability.RESPONSES not in model.capabilities, "stated by the provider's quirks"
    writes = model.capabilities & {Capability.CHAT, Capability.COMPLETIONS}
    assert (model.max_output > 0) == bool(writes)
    assert model.licence.id
    assert (model.parameters_b or 0) >= (model.active_b or 0) >= 0


@each_row("model", MODELS, ids=name)
def test_thinking(model: Model) -> None:
    thinking = model.thinking
    assert len(thinking.levels) == len(thinking.tokens) == len(set(thinking.levels))
    assert bool(thinking.levels) == (thinking.contract is not Contract.NONE)
    assert set(thinking.levels) <= set(WORDS)
    assert all(less <= more for less, more in pairwise(thinking.tokens))
    assert sorted(thinking.levels, key=WORDS.index) == list(thinking.levels)


@each_row("model", MODELS, ids=name)
def test_price(model: Model) -> None:
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
        assert date(2025, 11, 21) <= date.fromisoformat(day[:10]) <= date(2026, 11, 21)


def test_superseded_prices_stay() -> None:
    """Rows of older ledgers name them."""
    shipped = CATALOG.prices["openai/gpt-6.1-sol"]["litellm 1.109.1 and genai-prices 0.2.3 2026-11-21"]
    assert (shipped.input, shipped.cache_read, shipped.rules) == (2_000_000_000, 100_000_000, ())
    assert CATALOG.models["openai/gpt-6.1-sol"][0].price != shipped


def test_where_a_size_tier_begins_the_context_goes_on() -> None:
    crossed = [
        (model, rule.above)
        for model in MODELS
        for rule in (model.price.rules if model.price else ())
        if rule.above and not rule.service_tier
    ]
    assert len({model.id for model, _ in crossed}) >= 23
    assert all(model.context >= above for model, above in crossed)


@each_row("provider", PROVIDERS, ids=name)
def test_provider(provider: Provider) -> None:
    assert provider.entity
    assert provider.local or provider.wire is Wire.LITELLM or provider.base_url.startswith("https://")
    assert not provider.base_url.endswith("/")
    assert re.fullmatch(r"|[A-Z]{2}", provider.jurisdiction)
    assert not (provider.local and (provider.key_env or provider.jurisdiction))
    assert re.fullmatch(r"|[A-Z][A-Z0-9_]+", provider.key_env)


@each_row("provider", PROVIDERS, ids=name)
def test_a_promise_names_its_evidence_and_its_day(provider: Provider) -> None:
    """What is promised at all; nothing is, of those who run here."""
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


def test_licences() -> None:
    assert {licence.id for licence in CATALOG.licences.values()} == set(CATALOG.licences)
    assert {model.licence.id for model in MODELS} - set(CATALOG.licences) == {"proprietary", "unknown"}
    assert all(
        model.licence == CATALOG.licences.get(model.licence.id, Licence(id=model.licence.id)) for model in MODELS
    )
    permits = CATALOG.licences
    assert (permits["MIT"].commercial, permits["MIT"].train_on_outputs, permits["MIT"].users_max) == (True, True, None)
    assert permits["Llama-3.3-Community"].users_max == 700_000_000
    assert permits["OpenAI-Services-Agreement"].train_on_outputs is False
    assert CATALOG.models["anthropic/claude-haiku-4-5"][0].licence == permits["Anthropic-Commercial-Terms"]


def test_what_the_local_engine_promises() -> None:
    model, provider = CATALOG.models["local/smollm2-135m-instruct"]
    quirks = CATALOG.providers[provider].quirks
    assert model.capabilities == set(Capability) - {Capability.VISION, Capability.AUDIO, Capability.RESPONSES}
    assert CATALOG.providers[provider].local
    assert quirks.grammar_tools
    assert quirks.usage_counts_one_choice
    assert model.price is not None
    assert (model.price.input, model.price.output) == (22_000_000, 222_000_000)


def test_a_price_from_yaml_is_exact() -> None:
    """0.00875 USD per million tokens (Nova Micro, cache read) is 8,750,000 nano-USD, not a neighbour."""
    price = CATALOG.models["bedrock/nova-micro"][0].price
    assert price is not None
    assert price.cache_read == 8_750_000


X = "x: {wire: openai_compatible, base_url: https://x.example/v1, entity: X"
CARD = "context: 9, max_output: 9, capabilities: [chat]"
TABLE = "{version: v 2026-11-21, checked: 2026-11-21, rates: {input: 1, output: 1}"
SOUND = {
    "licences.yaml": "{MIT: {source: x}}",
    "providers.yaml": X + "}",
    "models/x.yaml": "{provider: x, models: {m: {" + CARD + "}}}",
    "prices/x.yaml": "{m: [" + TABLE + "}]}",
}
MISSPELT = [
    ("licences.yaml", "{MIT: {comercial: true, source: x}}", "comercial"),
    ("licences.yaml", "{MIT: {commercial: true}}", "source"),
    ("providers.yaml", X + ", quirks: {stream_usages: true}}", "stream_usages"),
    ("providers.yaml", X + ", quirk: {}}", "quirk"),
    ("providers.yaml", X + ", terms: {trains: false}}", "trains"),
    ("providers.yaml", X.replace("openai_compatible", "soap") + "}", "soap"),
    ("models/x.yaml", "{provider: x, models: {m: {" + CARD + ", contxt: 9}}}", "contxt"),
    ("models/x.yaml", "{provider: x, models: {m: {" + CARD + ", thinking: {level: 1}}}}", "level"),
    ("prices/x.yaml", "{m: [" + TABLE.replace("input", "inputs") + "}]}", "inputs"),
    ("prices/x.yaml", "{m: [" + TABLE + ", rules: [{tier: flex, times: 2}]}]}", "tier"),
    ("prices/x.yaml", "{m: [" + TABLE + ", rules: [{days: [monday], times: 2}]}]}", "monday"),
    ("prices/x.yaml", "{m: [" + TABLE + ', rules: [{hours: ["1-2"], times: 2}]}]}', "hours"),
    ("prices/x.yaml", "{}", "m is missing"),
]


@each_row("file, text, problem", MISSPELT)
def test_misspelt_and_missing_facts_are_refused(file: str, text: str, problem: str, tmp_path: Path) -> None:
    for name, sound in SOUND.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(sound)
    assert set(read(tmp_path).models) == {"x/m"}
    (tmp_path / file).write_text(text)
    with pytest.raises(ValueError, match=f"{file.removeprefix('models/')}: .*{problem}"):
        read(tmp_path)
