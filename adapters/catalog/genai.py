"""The prices inside the package `genai-prices`."""

from collections.abc import Iterable, Mapping
from datetime import date
from decimal import Decimal
from typing import Any

from adapters.catalog.sheet import EACH, OFF_PEAK, Cell, Sheet, plain
from router.types.target import Model

PACKAGE = "genai-prices"
_PROVIDERS = {
    "gemini": "google",
    "gemini_compatible": "google",
    "vertex": "google",
    "moonshot": "moonshotai",
    "xai": "x-ai",
    "bedrock": "aws",
}
"""Where its name for a provider is not ours."""
_UNITS = {
    "input_mtok": "input",
    "output_mtok": "output",
    "cache_read_mtok": "cache_read",
    "cache_audio_read_mtok": "cache_read_audio",
    "cache_write_mtok": "cache_write",
    "cache_write_1h_mtok": "cache_write_1h",
    "input_audio_mtok": "input_audio",
    "output_audio_mtok": "output_audio",
    "input_image_mtok": "input_image",
    "output_image_mtok": "output_image",
    "web_searches_kcount": EACH + "web_search",
    "storage_searches_kcount": EACH + "file_search",
}
_KILO = 1_000


def load() -> tuple[Any, ...]:
    """Its providers; raises ImportError where it is not installed."""
    from genai_prices.data import providers

    return tuple(providers)


def sheet(providers: Iterable[Any], model: Model, provider: str, today: date) -> Sheet | None:
    """What holds on that day, and what is announced; None where it does not have the model."""
    known = {one.id: one for one in providers}
    name = model.name.removeprefix("bedrock/").removeprefix("vertex_ai/").removeprefix("cohere/")
    place = known.get(_PROVIDERS.get(provider, provider))
    found = place.find_model(name, all_providers=list(known.values())) if place else None
    if found is None:
        return None
    cells = _dated(found.prices if isinstance(found.prices, list) else [found], "", today)
    variants: dict[str, list[Any]] = {}
    for variant in found.price_variants or ():
        variants.setdefault(_tier(variant.when), []).append(variant)
    for tier, rows in variants.items():
        if tier:
            cells |= _dated(rows, tier, today)
    return Sheet(plain(cells), retired="deprecated" if found.deprecated else "")


def _tier(when: Mapping[str, str]) -> str:
    """Which tier a variant is for; empty for the standard one."""
    word = next(iter(when.values()))
    return "" if word == "default" else word


def _dated(rows: Iterable[Any], tier: str, today: date) -> dict[Cell, Decimal]:
    """Of several begins the latest that has come; later ones under their date. Hours that are set apart are the dearer:
    then what is left of the day is off-peak."""
    begun: tuple[date, Any] | None = None
    peak: Any = None
    cells: dict[Cell, Decimal] = {}
    for row in rows:
        constraint = getattr(row, "constraint", None)
        start = getattr(constraint, "start_date", date.min)
        if hasattr(constraint, "start_time"):
            peak = row
        elif start > today:
            cells |= _cells(row.prices, start.isoformat(), tier)
        elif begun is None or start >= begun[0]:
            begun = start, row
    if begun is not None:
        cells |= _cells(begun[1].prices, OFF_PEAK if peak else "", tier)
    return cells | (_cells(peak.prices, "", tier) if peak else {})


def _cells(price: Any, when: str, tier: str) -> dict[Cell, Decimal]:
    cells = {}
    for unit, value in vars(price).items():
        if value is None or unit not in _UNITS:
            continue
        name = _UNITS[unit]
        if isinstance(value, Decimal):
            cells[Cell(when, tier, 0, name)] = value / _KILO if name.startswith(EACH) else value
        else:
            cells[Cell(when, tier, 0, name)] = value.base
            cells |= {Cell(when, tier, step.start, name): step.price for step in value.tiers}
    return cells
