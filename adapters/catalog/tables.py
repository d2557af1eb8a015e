"""The files of prices, in USD per million tokens: each model's tables, the one in force first.

They are written by `python -m tools.catalog` (docs/prices.md). A table is never changed once it has shipped, and
superseded ones stay: rows of ledgers name its version.
"""

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml
from msgspec import Meta, Struct, structs

from router.types.price import HOURS, RATES


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Numbers with a fraction become Decimals, from their text: money is exact."""


Loader.add_constructor("tag:yaml.org,2002:float", lambda loader, node: Decimal(node.value))


class _Rates(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
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


class _Rule(_Rates, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
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


class Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
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


def read_tables(path: Path) -> dict[str, list[Table]]:
    """Raises ValueError, naming the file, where data is not of its shape."""
    try:
        return _DECODER.decode(path.read_bytes())
    except msgspec.DecodeError as error:
        raise ValueError(f"prices/{path.name}: {error}") from None


_DECODER = msgspec.json.Decoder(dict[str, list[Table]])


def _stated(row: Struct) -> dict[str, Any]:
    """Conditions first, then rates, `times` last."""
    given = structs.asdict(row)
    found = [name for name, value in given.items() if value is not None and (value or name in RATES)]
    return {name: given[name] for name in sorted(found, key=lambda name: (name == "times", name in RATES))}
