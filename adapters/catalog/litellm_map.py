"""The price map inside the package `litellm`, read as a file: importing that package takes seconds."""

import re
from collections.abc import Mapping
from decimal import Decimal
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import msgspec

from adapters.catalog.sheet import EACH, OFF_PEAK, REGION, Cell, Row, Sheet, plain
from router.types.pricelist import DAYS
from router.types.target import Model

PACKAGE = "litellm"
_FILE = "litellm/model_prices_and_context_window_backup.json"
_PREFIXES = {
    "openai": "",
    "anthropic": "",
    "gemini": "gemini/",
    "gemini_compatible": "gemini/",
    "deepseek": "deepseek/",
    "moonshot": "moonshot/",
    "dashscope": "dashscope/",
    "minimax": "minimax/",
    "xai": "xai/",
    "mistral": "mistral/",
    "groq": "groq/",
    "together": "together_ai/",
    "fireworks": "fireworks_ai/",
    "cerebras": "cerebras/",
    "cohere": "",
    "bedrock": "",
    "vertex": "",
}
"""Provider → how the map begins the names of its models."""
_RATES = {
    "input_cost_per_token": "input",
    "output_cost_per_token": "output",
    "output_cost_per_reasoning_token": "reasoning",
    "input_cost_per_token_cache_hit": "cache_read",
    "cache_read_input_token_cost": "cache_read",
    "explicit_cache_read_input_token_cost": "cache_read_explicit",
    "cache_read_input_audio_token_cost": "cache_read_audio",
    "cache_creation_input_token_cost": "cache_write",
    "cache_creation_input_token_cost_above_1hr": "cache_write_1h",
    "cache_creation_input_token_cost_above_12hr": "cache_write_12h",
    "input_cost_per_audio_token": "input_audio",
    "input_cost_per_image_token": "input_image",
    "input_cost_per_video_token": "input_video",
    "output_cost_per_audio_token": "output_audio",
    "output_cost_per_image_token": "output_image",
    "output_cost_per_video_token": "output_video",
}
_KEY = re.compile(r"(.+?)(?:_above_(\d+)k_tokens)?(?:_(batches|flex|priority|ultrafast|balanced))?")
_FACTORS = {
    "regional_processing_uplift_multiplier_eu": ("eu",),
    "regional_processing_uplift_multiplier_us": ("us",),
    "regional_endpoint_uplift_multiplier": ("us", "eu", "europe", "asia"),
}
_NANO = Decimal("1e-9")
"""Finer digits are residue of binary fractions."""


def load() -> Mapping[str, Any]:
    """The map by its own names; raises `PackageNotFoundError` where there is none."""
    path = Path(str(distribution(PACKAGE).locate_file(_FILE)))
    found: dict[str, Any] = msgspec.json.Decoder(float_hook=Decimal).decode(path.read_bytes())
    return found


def sheet(entries: Mapping[str, Any], model: Model, provider: str) -> Sheet | None:
    """What the map says of a model of the catalog; None where it does not have it."""
    if provider not in _PREFIXES:
        return None
    name = _PREFIXES[provider] + model.name.removeprefix("bedrock/").removeprefix("cohere/")
    entry = entries.get(name) or entries.get(name.removeprefix("vertex_ai/"))
    return None if entry is None else Sheet(plain(_cells(entry)), _windows(entry), entry.get("deprecation_date") or "")


def _cells(entry: Mapping[str, Any]) -> dict[Cell, Decimal]:
    cells: dict[Cell, Decimal] = {}
    for tier in entry.get("tiered_pricing") or ():
        cells |= {cell._replace(above=int(tier["range"][0])): rate for cell, rate in _rates(tier).items()}
    cells |= _rates(entry)
    off_peak = entry.get("off_peak_pricing") or {}
    cells |= {cell._replace(when=OFF_PEAK): rate for cell, rate in _rates(off_peak).items()}
    for key, regions in _FACTORS.items():
        cells |= {Cell("", "", 0, REGION + region): Decimal(entry[key]) for region in regions if key in entry}
    return cells | _searches(entry) | _special(entry, cells)


def _rates(entry: Mapping[str, Any]) -> dict[Cell, Decimal]:
    """USD per token → per million."""
    cells = {}
    for key, value in entry.items():
        found = _KEY.fullmatch(key)
        if found and found[1] in _RATES and value is not None:
            tier = "batch" if found[3] == "batches" else found[3] or ""
            rate = (Decimal(value) * 1_000_000).quantize(_NANO).normalize()
            cells[Cell("", tier, int(found[2] or 0) * 1_000, _RATES[found[1]])] = rate
    return cells


def _searches(entry: Mapping[str, Any]) -> dict[Cell, Decimal]:
    """Where the price depends on the size of what was found, the dearest."""
    sizes = entry.get("search_context_cost_per_query")
    return {Cell("", "", 0, EACH + "web_search"): max(map(Decimal, sizes.values()))} if sizes else {}


def _special(entry: Mapping[str, Any], cells: Mapping[Cell, Decimal]) -> dict[Cell, Decimal]:
    """Anthropic's factors: one for a place, one for its fast mode."""
    factors = entry.get("provider_specific_entry") or {}
    found = {Cell("", "", 0, REGION + "us"): Decimal(factors["us"])} if "us" in factors else {}
    if "fast" in factors:
        standard = {cell: rate for cell, rate in cells.items() if not cell.tier and not cell.when}
        found |= {cell._replace(tier="fast"): rate * Decimal(factors["fast"]) for cell, rate in standard.items()}
    return found


def _windows(entry: Mapping[str, Any]) -> tuple[Row, ...]:
    return tuple(
        {
            "hours": [hours] if isinstance(hours := window["hours_utc"], str) else list(hours),
            "days": [DAYS[day - 1] for day in window["weekdays"]],
        }
        for window in (entry.get("off_peak_pricing") or {}).get("windows", ())
    )
