"""The files of prices: each model's tables, the one in force first. Superseded ones stay: rows were charged at them."""

from collections.abc import Iterable, Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml
from msgspec import Meta, Struct, structs

from router.types.price import HOURS, RATES

HEADER = """\
# USD per million tokens. Written by `python -m adapters.catalog.regenerate`; how: docs/prices.md. A table is never
# changed once it has shipped: rows of ledgers name its version.
"""


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Numbers with a fraction become Decimals, from their text: money is exact."""


Loader.add_constructor("tag:yaml.org,2002:float", lambda loader, node: Decimal(node.value))


class _Rates(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    input: Decimal | None = None
    output: Decimal | None = None
    cache_read: Decimal | None = None
    cache_read_explicit: Decimal | None = None
    cache_read_audio: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None
    cache_write_12h: Decimal | None = None
    reasoning: Decimal | None = None
    input_audio: Decimal | None = None
    input_image: Decimal | None = None
    input_video: Decimal | None = None
    output_audio: Decimal | None = None
    output_image: Decimal | None = None
    output_video: Decimal | None = None


class _Rule(_Rates, frozen=True, kw_only=True, forbid_unknown_fields=True):
    above: int = 0
    service_tier: str = ""
    region: str = ""
    since: date | None = None
    until: date | None = None
    hours: tuple[Annotated[str, Meta(pattern=HOURS)], ...] = ()
    days: tuple[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"], ...] = ()
    zone: str = ""
    each: dict[str, Decimal] = {}
    times: Decimal | None = None


class Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One price of one model. `checked` is the day on which its sources last said the same."""

    version: str
    checked: date
    rates: _Rates
    each: dict[str, Decimal] = {}
    rules: tuple[_Rule, ...] = ()

    def row(self) -> dict[str, Any]:
        """As `router.types.price` reads it."""
        rules = [_stated(rule) for rule in self.rules]
        return _stated(self.rates) | {"each": self.each, "rules": rules}


def read_tables(path: Path) -> Mapping[str, list[Table]]:
    """Raises ValueError, naming the file, where data is not of its shape."""
    try:
        return msgspec.convert(yaml.load(path.read_text("utf-8"), Loader=Loader), dict[str, list[Table]])  # noqa: S506
    except msgspec.ValidationError as error:
        raise ValueError(f"prices/{path.name}: {error}") from None


def write_tables(path: Path, tables: Mapping[str, Iterable[Table]]) -> None:
    models = (f"{model}:\n" + "".join(map(_text, found)) for model, found in tables.items())
    path.write_text(HEADER + "".join(models), "utf-8")


def _text(table: Table) -> str:
    row = table.row()
    rules, each = row.pop("rules"), row.pop("each")
    version = f'"{table.version}"' if ":" in table.version else table.version
    lines = [f"- version: {version}", f"  checked: {table.checked}", f"  rates: {_flow(row)}"]
    lines += [f"  each: {_flow(each)}"] if each else []
    lines += ["  rules:", *(f"  - {_flow(rule)}" for rule in rules)] if rules else []
    return "\n".join(lines) + "\n"


def _flow(row: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{name}: {_value(value)}" for name, value in row.items()) + "}"


def _value(value: object) -> str:
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    if isinstance(value, dict):
        return _flow(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(f'"{item}"' if ":" in item else item for item in value) + "]"
    return str(value)


def _stated(row: Struct) -> dict[str, Any]:
    """Conditions first, then rates, `times` last."""
    given = structs.asdict(row)
    found = [name for name, value in given.items() if value is not None and (value or name in RATES)]
    return {name: given[name] for name in sorted(found, key=lambda name: (name == "times", name in RATES))}
