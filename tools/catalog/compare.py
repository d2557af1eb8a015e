"""The catalog's prices compared with the price lists of installed packages."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from fnmatch import fnmatchcase
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml
from msgspec import Struct

from adapters import catalog
from adapters.catalog import Loader, PriceTable, in_force, shipped
from router.types.price import DAYS, RATES
from router.types.target import Model

# A price as a flat table of cells, in which sources are merged and compared; and its way to and from the catalog.

OFF_PEAK = "off_peak"
EACH, REGION = "each ", "region "
"""Prefixes of the names of cells that hold the price of one unit, and the factor of a region."""


class Cell(NamedTuple):
    """Where a figure holds. `when` is empty, "off_peak" or the date from which on it does."""

    when: str
    tier: str
    above: int
    name: str

    def __str__(self) -> str:
        size = f"above {self.above}" if self.above else ""
        return " ".join(part for part in (self.when, self.tier, size, self.name) if part)


Row = dict[str, Any]
Cells = Mapping[Cell, Decimal]


class Sheet(Struct, frozen=True):
    """What one source says of one model: USD per million tokens, per unit, or a factor; and when the model ends."""

    cells: Cells
    windows: tuple[Row, ...] = ()
    """`hours` and `days` of the off-peak cells."""
    retired: str = ""
    """The date on which it is, or "deprecated" where only that is known."""


def plain(cells: Cells) -> dict[Cell, Decimal]:
    """Without rates that say nothing: zero for what is not charged apart, and what their kin says already."""
    return {cell: value for cell, value in cells.items() if _says(cells, cell, value)}


def _says(cells: Cells, cell: Cell, value: Decimal) -> bool:
    if cell.name.startswith(EACH):
        return not cell.when or value != cells.get(cell._replace(when=""))
    lead = next((name for name in ("input", "output") if cell.name.startswith(name + "_")), "output")
    if cell.name == "reasoning" or cell.name.startswith(("input_", "output_")):
        return bool(value) and value != cells.get(cell._replace(name=lead))
    return bool(value) or (cell[:3] == ("", "", 0) and cell.name == "output") or cell.name not in RATES


def from_row(row: Mapping[str, Any]) -> dict[Cell, Decimal]:
    """The cells of a price of the catalog."""
    cells = dict(_figures(row, "", "", 0))
    for rule in row.get("rules") or ():
        tier, above = rule.get("service_tier") or "", rule.get("above") or 0
        when = OFF_PEAK if rule.get("hours") or rule.get("days") else str(rule.get("since") or "")
        cells |= _figures(rule, when, tier, above)
        times = rule.get("times")
        if times and rule.get("region"):
            cells[Cell("", "", 0, REGION + rule["region"])] = times
        elif times and tier:
            cells |= {
                cell._replace(tier=tier): value * times
                for cell, value in cells.items()
                if not cell.tier and cell.name in RATES
            }
    return cells


def _figures(row: Mapping[str, Any], when: str, tier: str, above: int) -> Iterator[tuple[Cell, Decimal]]:
    for name in RATES:
        if row.get(name) is not None:
            yield Cell(when, tier, above, name), Decimal(row[name])
    for unit, value in (row.get("each") or {}).items():
        yield Cell(when, tier, above, EACH + unit), Decimal(value)


# The prices inside the package `genai-prices`.

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


# The price map inside the package `litellm`, read as a file: importing that package takes seconds.

LITELLM_MAP_PACKAGE = "litellm"
_FILE = "litellm/model_prices_and_context_window_backup.json"
_PREFIXES = {
    **dict.fromkeys(("openai", "anthropic", "cohere", "bedrock", "vertex"), ""),
    **{
        name: f"{name}/"
        for name in ("gemini", "deepseek", "moonshot", "dashscope", "minimax", "xai", "mistral", "groq")
    },
    **{name: f"{name}/" for name in ("cerebras", "azure", "zai", "perplexity")},
    **{"gemini_compatible": "gemini/", "together": "together_ai/", "fireworks": "fireworks_ai/"},
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


def litellm_map_load() -> Mapping[str, Any]:
    """The map by its own names; raises `PackageNotFoundError` where there is none."""
    path = Path(str(distribution(LITELLM_MAP_PACKAGE).locate_file(_FILE)))
    found: dict[str, Any] = msgspec.json.Decoder(float_hook=Decimal).decode(path.read_bytes())
    return found


def litellm_map_sheet(entries: Mapping[str, Any], model: Model, provider: str) -> Sheet | None:
    """What the map says of a model of the catalog; None where it does not have it."""
    if provider not in _PREFIXES:
        return None
    name = _PREFIXES[provider] + model.name.removeprefix("bedrock/").removeprefix("cohere/")
    entry = entries.get(name) or entries.get(name.removeprefix("vertex_ai/"))
    return (
        None
        if entry is None
        else Sheet(plain(_litellm_map_cells(entry)), _windows(entry), entry.get("deprecation_date") or "")
    )


def _litellm_map_cells(entry: Mapping[str, Any]) -> dict[Cell, Decimal]:
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


# The maintained price lists that are installed: what they say of the catalog's models. Nothing is ever downloaded.


class Source(Struct, frozen=True):
    """One price list; `sheets` by the ids of the catalog's models."""

    name: str
    version: str
    sheets: Mapping[str, Sheet]

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def installed(models: Mapping[str, tuple[Model, str]], today: date) -> list[Source]:
    """LiteLLM's map and genai-prices, as far as their packages are there; prices as of that day."""
    found = []
    if release := package_version(LITELLM_MAP_PACKAGE):
        entries = litellm_map_load()
        sheets = {name: litellm_map_sheet(entries, *card) for name, card in models.items()}
        found.append(_source(LITELLM_MAP_PACKAGE, release, sheets))
    if release := package_version(PACKAGE):
        providers = load()
        sheets = {name: sheet(providers, *card, today) for name, card in models.items()}
        found.append(_source(PACKAGE, release, sheets))
    return found


def package_version(name: str) -> str:
    """Empty where the package is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _source(name: str, release: str, sheets: Mapping[str, Sheet | None]) -> Source:
    return Source(name, release, {model: sheet for model, sheet in sheets.items() if sheet is not None})


# The catalog's prices against the maintained lists: what disagrees and why, and what is stale.

FOLDER = Path(catalog.__file__).parent
STALE_DAYS = 90
"""A price that no source has confirmed for so long is listed."""


class Difference(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A known disagreement: patterns of the models and cells, which source is used there, and why."""

    models: str
    cells: str
    use: str
    why: str

    def covers(self, model: str, cell: Cell) -> bool:
        return fnmatchcase(model, self.models) and fnmatchcase(str(cell), self.cells)


class Disagreement(Struct, frozen=True):
    """One figure of one model: USD per million tokens, per unit, or a factor. None: the catalog has none."""

    model: str
    cell: str
    ours: Decimal | None
    source: str
    theirs: Decimal
    why: str
    """Empty: unexplained."""

    def __str__(self) -> str:
        ours = "nothing" if self.ours is None else f"{self.ours.normalize():f}"
        theirs = f"{self.theirs.normalize():f}"
        return f"{self.model}: {self.cell} is {ours}, {theirs} in {self.source}: {self.why or 'UNEXPLAINED'}"


class Stale(Struct, frozen=True):
    model: str
    why: str

    def __str__(self) -> str:
        return f"{self.model}: stale: {self.why}"


class Comparison(Struct, frozen=True):
    sources: tuple[str, ...]
    disagreements: tuple[Disagreement, ...]
    stale: tuple[Stale, ...]

    @property
    def unexplained(self) -> tuple[Disagreement, ...]:
        return tuple(found for found in self.disagreements if not found.why)

    def __str__(self) -> str:
        if not self.sources:
            return "no price list is installed to compare with: pip install genai-prices, or litellm"
        counts = f"{len(self.disagreements)} disagreements, {len(self.unexplained)} of them unexplained"
        return f"{counts}; {len(self.stale)} stale (against {' and '.join(self.sources)})"


def compare(today: date, stale_days: int = STALE_DAYS) -> Comparison:
    """Reads the catalog and the installed lists; nothing is downloaded."""
    sources = installed(shipped().models, today)
    known, tables = differences(), in_force()
    disagreements = tuple(
        found for source in sources for model, table in tables.items() for found in _told(source, model, table, known)
    )
    stale = tuple(
        found for model, table in tables.items() for found in _stale(model, table, sources, today, stale_days)
    )
    return Comparison(tuple(map(str, sources)), disagreements, stale)


def differences() -> list[Difference]:
    rows = yaml.load(Path(__file__).with_name("differences.yaml").read_text("utf-8"), Loader=Loader)
    return msgspec.convert(rows, list[Difference])


def _told(source: Source, model: str, table: PriceTable, known: Sequence[Difference]) -> Iterator[Disagreement]:
    sheet = source.sheets.get(model)
    ours = from_row(table.row())
    for cell, theirs in sorted(sheet.cells.items()) if sheet else ():
        if ours.get(cell) != theirs:
            why = _older(source, table) or next((one.why for one in known if one.covers(model, cell)), "")
            if not why and model in shipped().listed and (cell.when == OFF_PEAK or ours.get(cell, 0) > theirs):
                why = "of two lists' figures the dearer is taken"
            yield Disagreement(model, str(cell), ours.get(cell), str(source), theirs, why)


def _older(source: Source, table: PriceTable) -> str:
    """Why a list is behind the catalog: the price was read from a later release of it."""
    used = next((part for part in table.version.split(", ") if part.startswith(source.name + " ")), "")
    release = used.removeprefix(source.name + " ")
    if not used or _numbers(source.version) >= _numbers(release):
        return ""
    return f"the price was read from {used}, which is newer"


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split(".") if part.isdigit())


def _stale(model: str, table: PriceTable, sources: Sequence[Source], today: date, days: int) -> Iterator[Stale]:
    age = (today - table.checked).days
    if age > days:
        yield Stale(model, f"last confirmed {age} days ago, on {table.checked}")
    for source in sources:
        retired = source.sheets[model].retired if model in source.sheets else ""
        if retired == "deprecated" or (retired and retired <= today.isoformat()):
            yield Stale(model, f"retired according to {source}" + (f" on {retired}" if retired[0].isdigit() else ""))
