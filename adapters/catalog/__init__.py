"""Providers and models that lowpass knows, as data: providers.yaml, and one file of models for each id prefix."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec import Struct

from router.types.money import nano_from_usd
from router.types.price import Price
from router.types.target import Capability, Model, Provider, Quirks, Thinking, Wire

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


class _Price(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """USD per million tokens."""

    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None
    reasoning: Decimal | None = None
    input_audio: Decimal | None = None
    output_audio: Decimal | None = None


class _Card(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str = ""
    """What the provider calls it, where that is not the end of the id."""
    context: int
    max_output: int
    capabilities: frozenset[Capability]
    thinking: _Thinking = _Thinking()
    price: _Price
    priced: str = ""
    """Source and date of the price, where they differ from the file's."""
    licence: str = "proprietary"
    parameters_b: float | None = None
    active_b: float | None = None


class _File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    provider: str
    priced: str
    models: dict[str, _Card]


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Numbers with a fraction become Decimals, from their text: money is exact."""


_Loader.add_constructor("tag:yaml.org,2002:float", lambda loader, node: Decimal(node.value))


class Catalog(Struct, frozen=True):
    """All providers by id; all models by id, each with the id of the provider that serves it."""

    providers: Mapping[str, Provider]
    models: Mapping[str, tuple[Model, str]]


def read(folder: Path = _FOLDER) -> Catalog:
    """The catalog that ships with lowpass; raises ValueError, naming the file, where data is not of its shape."""
    rows: dict[str, _Provider] = _read(folder / "providers.yaml", dict[str, _Provider])
    files = sorted((folder / "models").glob("*.yaml"))
    return Catalog(
        {name: Provider(id=name, **_fields(row)) for name, row in rows.items()},
        dict(card for path in files for card in _cards(path.stem, _read(path, _File))),
    )


def _cards(prefix: str, file: _File) -> Iterator[tuple[str, tuple[Model, str]]]:
    for short, card in file.models.items():
        identifier = f"{prefix}/{short}"
        yield identifier, (_model(identifier, short, card, file), file.provider)


def _model(identifier: str, short: str, card: _Card, file: _File) -> Model:
    rates = {name: nano_from_usd(rate) for name, rate in _fields(card.price).items() if rate is not None}
    price = Price(version=card.priced or file.priced, **rates)
    facts = {name: value for name, value in _fields(card).items() if name not in ("priced", "name", "price")}
    return Model(id=identifier, name=card.name or short, price=price, **facts)


def _fields(row: Struct) -> dict[str, Any]:
    return msgspec.structs.asdict(row)


def _read(path: Path, kind: type[Any]) -> Any:
    try:
        return msgspec.convert(yaml.load(path.read_text("utf-8"), Loader=_Loader), kind)  # noqa: S506
    except msgspec.ValidationError as error:
        raise ValueError(f"{path.name}: {error}") from None
