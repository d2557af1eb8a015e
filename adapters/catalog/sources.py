"""The maintained price lists that are installed: what they say of the catalog's models. Nothing is ever downloaded."""

from collections.abc import Mapping
from datetime import date
from importlib.metadata import PackageNotFoundError, version

from msgspec import Struct

from adapters.catalog import genai, litellm_map
from adapters.catalog.sheet import Sheet
from router.types.target import Model


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
    if release := package_version(litellm_map.PACKAGE):
        entries = litellm_map.load()
        sheets = {name: litellm_map.sheet(entries, *card) for name, card in models.items()}
        found.append(_source(litellm_map.PACKAGE, release, sheets))
    if release := package_version(genai.PACKAGE):
        providers = genai.load()
        sheets = {name: genai.sheet(providers, *card, today) for name, card in models.items()}
        found.append(_source(genai.PACKAGE, release, sheets))
    return found


def package_version(name: str) -> str:
    """Empty where the package is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _source(name: str, release: str, sheets: Mapping[str, Sheet | None]) -> Source:
    return Source(name, release, {model: sheet for model, sheet in sheets.items() if sheet is not None})
