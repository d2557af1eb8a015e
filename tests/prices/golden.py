"""The golden table, read: its lists of prices, and its cases."""

from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from math import prod
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec import Raw, Struct

from adapters.anthropic import usage as anthropic
from adapters.anthropic import wire as anthropic_wire
from adapters.catalog import read
from adapters.catalog.tables import Loader
from adapters.gemini import usage as gemini
from adapters.gemini import wire as gemini_wire
from adapters.usage import canonical
from adapters.usage_report import read as read_report
from router.config.price_row import PriceRow
from router.types.price import Price
from router.types.usage import Usage

CATALOG = read()
EACH = "$"
_JSON = msgspec.json.Encoder(decimal_format="number")


class Case(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    price: str
    usage: dict[str, Any] | None = None
    wire: str = ""
    report: dict[str, Any] | None = None
    at: datetime
    took_ms: int = 0
    terms: str
    times: str = "1"
    nano: int
    stated: int | None = None
    flagged: bool = False

    @property
    def at_ms(self) -> int:
        return int(self.at.replace(tzinfo=UTC).timestamp() * 1000)

    @property
    def by_hand(self) -> int:
        """The terms in nano-USD."""
        terms = self.terms.split(" + ")
        tokens = sum(_product(term) for term in terms if not term.endswith(EACH)) * _product(self.times)
        units = sum(_product(term.removesuffix(EACH)) for term in terms if term.endswith(EACH))
        return int((tokens * 1_000 + units * 10**9).to_integral_value(ROUND_HALF_UP))

    def read(self) -> Usage:
        """The usage, or what the wire's reader makes of the report."""
        if self.usage is not None:
            return Usage(**self.usage)
        return READERS[self.wire](Raw(_JSON.encode(self.report)))


def _product(text: str) -> Decimal:
    return prod(map(Decimal, text.split("*")), start=Decimal(1))


def _openai(raw: Raw) -> Usage:
    found = read_report(raw)
    assert found is not None
    return canonical(found)


def _anthropic(raw: Raw) -> Usage:
    found = anthropic_wire.tokens(raw)
    assert found is not None
    return anthropic.usage(found)


def _gemini(raw: Raw) -> Usage:
    found = gemini_wire.tokens(raw)
    assert found is not None
    return gemini.usage(found)


READERS = {"openai": _openai, "anthropic": _anthropic, "gemini": _gemini}
_TABLE = yaml.load((Path(__file__).parent / "golden.yaml").read_text("utf-8"), Loader=Loader)  # noqa: S506
LISTS = {name: PriceRow.model_validate(row).price(f"golden {name}") for name, row in _TABLE["prices"].items()}
CASES = msgspec.convert(_TABLE["cases"], list[Case], strict=False)


def price(name: str) -> Price:
    if name in LISTS:
        return LISTS[name]
    found = CATALOG.models[name][0].price
    assert found is not None
    return found
