"""The catalog of providers, licences, models and prices; models and prices have one file per prefix of their ids.

Models in `models/*.yaml` were written from the provider's pages; those in `listed/*.json` were imported from price
lists (`python -m tools.catalog`). No model is in both.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml
from msgspec import Meta, Struct, structs

from router.types.price import HOURS, SERVED, Price, RatesOf, priced
from router.types.target import SNAPSHOT, Benchmark, Capability, Licence, Model, Provider, Thinking

_FOLDER = Path(__file__).parent


# Price files, in USD per million tokens: a list of tables for each model, the current one first.
#
# `python -m tools.catalog` writes them (docs/prices.md). A table never changes after its release, and superseded tables
# are kept, because ledger rows refer to their versions.


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A YAML loader that reads numbers with a fraction as Decimals, so that prices are exact."""


Loader.add_constructor("tag:yaml.org,2002:float", lambda loader, node: Decimal(node.value))


class _CatalogRates(RatesOf[Decimal], frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    pass


class _CatalogPriceRule(_CatalogRates, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    above: int = 0
    service_tier: str = ""
    region: str = ""
    since: date | None = None
    until: date | None = None
    hours: tuple[Annotated[str, Meta(pattern=HOURS)], ...] = ()
    days: tuple[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"], ...] = ()
    zone: str = ""
    each: dict[str, Decimal] = msgspec.field(default_factory=dict)
    times: Decimal | None = None


class PriceTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One price of one model. `checked` is the last day on which its sources were seen to state this price."""

    version: str
    checked: date
    rates: _CatalogRates
    each: dict[str, Decimal] = {}
    rules: tuple[_CatalogPriceRule, ...] = ()

    def row(self) -> dict[str, Any]:
        """Returns the table in the form that `router.types.price.priced` reads."""
        rates, plain = (msgspec.to_builtins(part, builtin_types=(Decimal, date)) for part in (self.rates, self))
        return {**rates, **plain}


def read_tables(path: Path) -> dict[str, list[PriceTable]]:
    """Reads a price file. Raises ValueError, naming the file, if its data is malformed."""
    tables: dict[str, list[PriceTable]] = _read(path, dict[str, list[PriceTable]])
    return tables


# Providers, licences and models.


class _Provider(Provider, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str = ""
    strict: bool = False
    """Whether the provider refuses unknown fields, such as those of foreign.yaml."""
    knows: tuple[str, ...] = ()
    """Fields of foreign.yaml that a strict provider accepts."""


class _Encodings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    providers: tuple[str, ...]
    encodings: dict[str, tuple[str, ...]]


class _Licence(Licence, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str = ""
    source: str
    """Where and when the licence terms were read."""


class ModelCard(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    name: str = ""
    """Provider's name for the model, if it differs from the last part of the id."""
    context: int
    max_output: int
    capabilities: frozenset[Capability]
    thinking: Thinking = Thinking()
    licence: str = ""
    parameters_b: float | None = None
    active_b: float | None = None
    scores: dict[Benchmark, Annotated[float, Meta(ge=0, le=1)]] = {}


class CardFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    provider: str
    licence: str = "proprietary"
    """Licence of the models that name none."""
    models: dict[str, ModelCard]


class ModelCatalog(Struct, frozen=True):
    """Providers and licences by id, and models by id, each model with the id of its provider."""

    providers: Mapping[str, Provider]
    licences: Mapping[str, Licence]
    models: Mapping[str, tuple[Model, str]]
    prices: Mapping[str, Mapping[str, Price]]
    """All prices that each model has had in a catalog, by version: older ledger rows refer to them."""
    listed: frozenset[str]
    """Ids of the models that were imported from price lists."""


@cache
def shipped() -> ModelCatalog:
    """Returns the catalog that ships with lowpass; it is read once per process."""
    return read(_FOLDER)


def in_force() -> dict[str, PriceTable]:
    """Returns each model's current price table, by model id."""
    return {name: tables[0] for name, tables in _tables(_FOLDER).items()}


def _tables(folder: Path) -> dict[str, list[PriceTable]]:
    files = sorted((folder / "prices").glob("*.json"))
    return {f"{path.stem}/{short}": tables for path in files for short, tables in read_tables(path).items()}


def read(folder: Path) -> ModelCatalog:
    """Reads the catalog in a folder. Raises ValueError, naming the file, if its data is malformed."""
    rows: dict[str, _Provider] = _read(folder / "providers.yaml", dict[str, _Provider])
    foreign = sum(_read(folder / "foreign.yaml", dict[str, tuple[str, ...]]).values(), ())
    licences = {
        name: Licence(id=name, **{field: getattr(row, field) for field in Licence.__struct_fields__[1:]})
        for name, row in _read(folder / "licences.yaml", dict[str, _Licence]).items()
    }
    prices = {
        name: {table.version: priced(table.row(), table.version) for table in tables}
        for name, tables in _tables(folder).items()
    }
    written, listed = (
        dict(card for path in sorted(paths) for card in _cards(path.stem, _read(path, CardFile), prices, licences))
        for paths in ((folder / "models").glob("*.yaml"), (folder / "listed").glob("*.json"))
    )
    known = {_bare(model.name): (model.scores, model.thinking) for model, _ in written.values() if model.scores}
    rest = _read(folder / "scores.yaml", dict[str, dict[Benchmark, Annotated[float, Meta(ge=0, le=1)]]])
    models = {
        name: (model if model.scores else structs.replace(model, scores=scores, scored=thinking), provider)
        for name, (model, provider) in (written | listed | written).items()
        for scores, thinking in [known.get(_bare(model.name), (rest.get(_bare(model.name), {}), None))]
    }
    counts: _Encodings = _read(folder / "encodings.yaml", _Encodings)
    encodings = {pattern: name for name, patterns in counts.encodings.items() for pattern in patterns}
    providers = {
        name: _provider(name, row, models, foreign, encodings if name in counts.providers else {})
        for name, row in rows.items()
    }
    return ModelCatalog(providers, licences, models, prices, frozenset(listed))


def _bare(name: str) -> str:
    """Returns a model's name without maker, date and dots, so that it is the same at all providers."""
    return re.sub(r"^.*(/|anthropic\.)|[-@]20\d\d-?\d\d-?\d\d|-v1:0$", "", name).replace(".", "-")


def _cards(
    prefix: str, file: CardFile, prices: Mapping[str, Mapping[str, Price]], licences: Mapping[str, Licence]
) -> Iterator[tuple[str, tuple[Model, str]]]:
    for short, card in file.models.items():
        identifier = f"{prefix}/{short}"
        facts = {name: value for name, value in structs.asdict(card).items() if name != "name"}
        if not prices.get(identifier):
            raise ValueError(f"prices/{prefix}.json: {short} is missing")
        facts["licence"] = licences.get(licence := card.licence or file.licence, Licence(id=licence))
        price = next(iter(prices[identifier].values()))
        yield identifier, (Model(id=identifier, name=card.name or short, price=price, **facts), file.provider)


def _provider(
    identifier: str,
    row: _Provider,
    models: Mapping[str, tuple[Model, str]],
    foreign: Sequence[str],
    encodings: Mapping[str, str],
) -> Provider:
    """Builds a provider. A dated snapshot with the price of its undated model gets no price of its own."""
    served = {model.name: model for model, place in models.values() if place == identifier and not row.local}
    prices = {}
    for name, model in served.items():
        plain = served.get(SNAPSHOT.sub("", name), model)
        if model.price is not None and (plain is model or not model.price.equals(plain.price)):
            prices[name] = structs.replace(model.price, version=f"{SERVED}{model.id}, {model.price.version}")
    unknown = set(foreign) - set(row.knows) if row.strict else set()
    quirks = structs.replace(row.quirks, refuses=row.quirks.refuses | unknown)
    facts = {name: value for name, value in structs.asdict(row).items() if name not in ("strict", "knows")}
    facts |= {"quirks": quirks, "prices": prices, "encodings": encodings}
    return Provider(**facts | {"id": identifier})


def _read(path: Path, kind: type[Any]) -> Any:
    try:
        if path.suffix == ".json":
            return msgspec.json.decode(path.read_bytes(), type=kind)
        return msgspec.convert(yaml.load(path.read_text("utf-8"), Loader=Loader), kind)  # noqa: S506
    except msgspec.DecodeError as error:
        raise ValueError(f"{path.parent.name}/{path.name}: {error}") from None
