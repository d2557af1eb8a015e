"""Providers, models and prices that lowpass knows, as data: providers.yaml, and two files for each id prefix."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec import Struct

from adapters.catalog.tables import Loader, read_tables
from router.types.price import Price
from router.types.pricelist import priced
from router.types.target import Capability, Licence, Model, Provider, Quirks, Thinking, Wire

_FOLDER = Path(__file__).parent


class _Quirks(Quirks, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A misspelt quirk must not be a quirk without effect."""


class _Provider(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    wire: Wire
    base_url: str
    key_env: str = ""
    entity: str = ""
    jurisdiction: str = ""
    local: bool = False
    quirks: _Quirks = _Quirks()


class _Thinking(Thinking, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class _Card(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str = ""
    """What the provider calls it, where that is not the end of the id."""
    context: int
    max_output: int
    capabilities: frozenset[Capability]
    thinking: _Thinking = _Thinking()
    licence: str = "proprietary"
    parameters_b: float | None = None
    active_b: float | None = None


class _File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    provider: str
    models: dict[str, _Card]


class Catalog(Struct, frozen=True):
    """All providers by id; all models by id, each with the id of the provider that serves it."""

    providers: Mapping[str, Provider]
    models: Mapping[str, tuple[Model, str]]
    prices: Mapping[str, Mapping[str, Price]]
    """Every price that a model has had in a catalog, by its version: what old rows of a ledger were charged at."""


def read(folder: Path = _FOLDER) -> Catalog:
    """The catalog that ships with lowpass; raises ValueError, naming the file, where data is not of its shape."""
    rows: dict[str, _Provider] = _read(folder / "providers.yaml", dict[str, _Provider])
    files = sorted((folder / "models").glob("*.yaml"))
    prices = {identifier: dict(found) for path in files for identifier, found in _prices(folder, path.stem)}
    return Catalog(
        {name: Provider(id=name, **_fields(row)) for name, row in rows.items()},
        dict(card for path in files for card in _cards(path.stem, _read(path, _File), prices)),
        prices,
    )


def _cards(
    prefix: str, file: _File, prices: Mapping[str, Mapping[str, Price]]
) -> Iterator[tuple[str, tuple[Model, str]]]:
    for short, card in file.models.items():
        identifier = f"{prefix}/{short}"
        facts = {name: value for name, value in _fields(card).items() if name != "name"}
        if not prices.get(identifier):
            raise ValueError(f"prices/{prefix}.yaml: {short} is missing")
        facts["licence"] = Licence(id=card.licence)
        price = next(iter(prices[identifier].values()))
        yield identifier, (Model(id=identifier, name=card.name or short, price=price, **facts), file.provider)


def _prices(folder: Path, prefix: str) -> Iterator[tuple[str, Iterator[tuple[str, Price]]]]:
    """Each model's tables by version, the one in force first."""
    path = folder / "prices" / f"{prefix}.yaml"
    for short, tables in (read_tables(path) if path.exists() else {}).items():
        yield f"{prefix}/{short}", ((table.version, priced(table.row(), table.version)) for table in tables)


def _fields(row: Struct) -> dict[str, Any]:
    return msgspec.structs.asdict(row)


def _read(path: Path, kind: type[Any]) -> Any:
    try:
        return msgspec.convert(yaml.load(path.read_text("utf-8"), Loader=Loader), kind)  # noqa: S506
    except msgspec.ValidationError as error:
        raise ValueError(f"{path.name}: {error}") from None
