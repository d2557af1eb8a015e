"""The shipped facts are complete, consistent and dated."""

import re
from datetime import date
from itertools import pairwise
from pathlib import Path

import pytest

import adapters.catalog
from adapters.catalog import read
from adapters.thinking import WORDS
from router.types.target import Capability, Contract, Model, Provider, Wire

CATALOG = read()
FOLDER = Path(adapters.catalog.__file__).parent
MODELS = [model for model, _ in CATALOG.models.values()]
HOSTED = [(model, CATALOG.providers[provider]) for model, provider in CATALOG.models.values()]
PROVIDERS = list(CATALOG.providers.values())


def name(value: object) -> str:
    return value.id if isinstance(value, Model | Provider) else ""


def test_there_are_enough_models() -> None:
    assert len(MODELS) >= 60


def test_every_provider_exists() -> None:
    assert {provider for _, provider in CATALOG.models.values()} <= set(CATALOG.providers)


def test_ids_are_unique() -> None:
    """YAML keeps the last of two equal keys in silence."""
    for path in FOLDER.rglob("*.yaml"):
        keys = re.findall(r"^(?:  )?([a-z0-9][\w.-]*):", path.read_text("utf-8"), re.MULTILINE)
        keys = [key for key in keys if key not in Provider.__struct_fields__]
        assert len(keys) == len(set(keys)), path.name


@pytest.mark.parametrize("model", MODELS, ids=name)
def test_card(model: Model) -> None:
    assert model.name
    assert 0 <= model.max_output <= model.context
    assert model.capabilities & {Capability.CHAT, Capability.EMBEDDINGS}
    assert Capability.RESPONSES not in model.capabilities, "stated by the provider's quirks"
    assert (model.max_output > 0) == (Capability.CHAT in model.capabilities)
    assert model.licence
    assert (model.parameters_b or 0) >= (model.active_b or 0) >= 0


@pytest.mark.parametrize("model", MODELS, ids=name)
def test_thinking(model: Model) -> None:
    thinking = model.thinking
    assert len(thinking.levels) == len(thinking.tokens) == len(set(thinking.levels))
    assert bool(thinking.levels) == (thinking.contract is not Contract.NONE)
    assert set(thinking.levels) <= set(WORDS)
    assert all(less <= more for less, more in pairwise(thinking.tokens))
    assert sorted(thinking.levels, key=WORDS.index) == list(thinking.levels)


@pytest.mark.parametrize("model", MODELS, ids=name)
def test_price(model: Model) -> None:
    price = model.price
    assert price is not None
    rates = {field: getattr(price, field) for field in price.__struct_fields__ if field != "version"}
    if Capability.CHAT not in model.capabilities:
        assert rates.pop("output") == 0
    stated = [rate for rate in rates.values() if rate is not None]
    assert all(type(rate) is int and rate > 0 for rate in stated)
    assert price.cache_read is None or price.cache_read <= price.input
    source, _, day = price.version.rpartition(" ")
    assert source
    assert date(2025, 11, 21) <= date.fromisoformat(day) <= date(2026, 11, 21)


@pytest.mark.parametrize("provider", PROVIDERS, ids=name)
def test_provider(provider: Provider) -> None:
    assert provider.entity
    assert provider.local or provider.wire is Wire.LITELLM or provider.base_url.startswith("https://")
    assert not provider.base_url.endswith("/")
    assert re.fullmatch(r"|[A-Z]{2}", provider.jurisdiction)
    assert not (provider.local and (provider.key_env or provider.jurisdiction))
    assert re.fullmatch(r"|[A-Z][A-Z0-9_]+", provider.key_env)


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


ROW = "x: {wire: openai_compatible, base_url: https://x.example/v1, entity: X"
CARD = "context: 9, max_output: 9, capabilities: [chat], price: {input: 1, output: 1"


@pytest.mark.parametrize(
    ("providers", "models", "message"),
    [
        (ROW + ", quirks: {stream_usages: true}}", "", "providers.yaml: .*stream_usages"),
        (ROW + ", quirk: {}}", "", "providers.yaml: .*quirk"),
        (ROW.replace("openai_compatible", "soap") + "}", "", "providers.yaml: .*soap"),
        (ROW + "}", "{provider: x, priced: p, models: {m: {" + CARD + "}, contxt: 9}}}", "x.yaml: .*contxt"),
        (ROW + "}", "{provider: x, priced: p, models: {m: {" + CARD + ", cached: 1}}}}", "x.yaml: .*cached"),
        (ROW + "}", "{provider: x, priced: p, models: {m: {" + CARD + "}, thinking: {level: 1}}}}", "x.yaml: .*level"),
    ],
)
def test_misspelt_facts_are_refused(providers: str, models: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "providers.yaml").write_text(providers)
    (tmp_path / "models").mkdir()
    if models:
        (tmp_path / "models" / "x.yaml").write_text(models)
    with pytest.raises(ValueError, match=message):
        read(tmp_path)
