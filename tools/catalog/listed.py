"""Cards of models that the installed price lists have and no file of `models/` has; and why the others have none."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

from adapters.catalog import ModelCard
from router.types.target import Capability, Contract, Model, Thinking

Entries = Mapping[str, Mapping[str, Any]]
PLACES: Mapping[str, tuple[str, str, str]] = {
    "openai": ("openai", "", ""),
    "text-completion-openai": ("openai", "", ""),
    "azure": ("azure", "azure/", ""),
    "anthropic": ("anthropic", "", ""),
    "gemini": ("gemini", "gemini/", ""),
    "deepseek": ("deepseek", "deepseek/", ""),
    "moonshot": ("moonshot", "moonshot/", ""),
    "dashscope": ("dashscope", "dashscope/", ""),
    "minimax": ("minimax", "minimax/", ""),
    "xai": ("xai", "xai/", ""),
    "mistral": ("mistral", "mistral/", ""),
    "groq": ("groq", "groq/", ""),
    "together_ai": ("together", "together_ai/", ""),
    "fireworks_ai": ("fireworks", "fireworks_ai/", ""),
    "cerebras": ("cerebras", "cerebras/", ""),
    "cohere": ("cohere", "cohere/", "cohere/"),
    "cohere_chat": ("cohere", "", "cohere/"),
    "bedrock": ("bedrock", "bedrock/", "bedrock/"),
    "bedrock_converse": ("bedrock", "bedrock/", "bedrock/"),
    "zai": ("zai", "zai/", ""),
    "perplexity": ("perplexity", "perplexity/", ""),
}
"""LiteLLM's name of a provider → ours, how its map begins the provider's models, and how their names begin here."""
_VERTEX = ("vertex", "vertex_ai/", "vertex_ai/")
_MAKERS = {
    "openai": "",
    "anthropic": "",
    "google": "gemini/",
    "deepseek": "deepseek/",
    "moonshotai": "moonshot/",
    "qwen": "dashscope/",
    "x-ai": "xai/",
    "mistralai": "mistral/",
    "z-ai": "zai/",
    "minimax": "minimax/",
}
"""OpenRouter's name of a maker → how LiteLLM's map begins its models."""
_LICENCES = {
    "openai": "OpenAI-Services-Agreement",
    "azure": "OpenAI-Services-Agreement",
    "anthropic": "Anthropic-Commercial-Terms",
    "gemini": "Gemini-API-Terms",
}
_MODES = ("chat", "completion", "embedding")
_REGIONAL = re.compile(r"(?:azure|bedrock)/[^/]+/")
_EFFORTS = ("openai", "azure", "xai", "groq", "cerebras")
"""Providers whose thinking models take a word for how much to think."""
_TOKENS = {"none": 0, "minimal": 512, "low": 1_024, "medium": 8_192, "high": 24_576, "xhigh": 32_768, "max": 32_768}


class Listed(NamedTuple):
    provider: str
    short: str
    card: ModelCard

    @property
    def model(self) -> Model:
        facts = {name: getattr(self.card, name) for name in ("context", "max_output", "capabilities")}
        return Model(id=f"{self.provider}/{self.short}", name=self.card.name or self.short, **facts)


def from_map(entries: Entries, written: frozenset[tuple[str, str]], today: date) -> Iterator[tuple[str, Listed | str]]:
    """Each entry of LiteLLM's map at a provider of the catalog, with its card or why it has none.

    `written`: providers and names of the models of `models/`.
    """
    listed: set[tuple[str, str]] = set()
    for key, entry in entries.items():
        place = _place(entry)
        if place is None:
            continue
        provider, before, named = place
        name = named + key.removeprefix(before)
        reason = _reason(key, entry, today)
        if (provider, name) in written:
            reason = "written by hand"
        elif not reason and (provider, name) in listed:
            reason = "listed under another key"
        if not reason:
            listed.add((provider, name))
        yield key, reason or Listed(provider, _short(name), _card(provider, name, entry))


def _place(entry: Mapping[str, Any]) -> tuple[str, str, str] | None:
    provider = entry.get("litellm_provider", "")
    return _VERTEX if provider.startswith("vertex_ai") else PLACES.get(provider)


def _short(name: str) -> str:
    return re.sub(r"^(?:bedrock|vertex_ai|cohere|accounts/fireworks/models)/", "", name)


def _reason(key: str, entry: Mapping[str, Any], today: date) -> str:
    """Why an entry gets no card; empty where it gets one."""
    if entry.get("mode") == "responses":
        return "served by the Responses endpoint only"
    if entry.get("mode") not in _MODES:
        return "no text and no embeddings"
    if key.startswith("ft:") or "/ft:" in key:
        return "a template of fine-tuned models"
    if _REGIONAL.match(key):
        return "the price of a region or a commitment, not of a model"
    if (entry.get("deprecation_date") or "9") <= today.isoformat():
        return "retired"
    if not entry.get("input_cost_per_token") or not (
        entry.get("output_cost_per_token") or entry["mode"] == "embedding"
    ):
        return "free, or not priced by tokens"
    return "" if _context(entry) else "its context is not known"


def _context(entry: Mapping[str, Any]) -> int:
    return int(entry.get("max_input_tokens") or entry.get("max_tokens") or 0)


def _card(provider: str, name: str, entry: Mapping[str, Any]) -> ModelCard:
    context, short = _context(entry), _short(name)
    embeds = entry["mode"] == "embedding"
    most = 0 if embeds else min(int(entry.get("max_output_tokens") or entry.get("max_tokens") or context), context)
    return ModelCard(
        name="" if name == short else name,
        context=context,
        max_output=most,
        capabilities=frozenset(_capabilities(provider, entry)),
        thinking=_thinking(provider, short, entry),
        licence=_LICENCES.get(provider, "unknown"),
    )


def _capabilities(provider: str, entry: Mapping[str, Any]) -> Iterator[Capability]:
    if entry["mode"] != "chat":
        yield Capability.EMBEDDINGS if entry["mode"] == "embedding" else Capability.COMPLETIONS
        return
    yield Capability.CHAT
    for flag, capability in (
        ("supports_function_calling", Capability.TOOLS),
        ("supports_response_schema", Capability.JSON_SCHEMA),
        ("supports_vision", Capability.VISION),
        ("supports_audio_input", Capability.AUDIO),
    ):
        if entry.get(flag):
            yield capability
    if provider in ("openai", "azure"):
        yield Capability.N


def _thinking(provider: str, short: str, entry: Mapping[str, Any]) -> Thinking:
    """Thinking that a list says no more of than that it happens can't be controlled, and is held for as the longest."""
    if not entry.get("supports_reasoning"):
        return Thinking()
    if provider in _EFFORTS or (entry.get("supports_adaptive_thinking") and "claude" in short):
        optional = {word for word in _TOKENS if entry.get(f"supports_{word}_reasoning_effort")}
        optional |= {"none"} if "claude" in short else set()
        return _levels(Contract.LEVEL, [word for word in _TOKENS if word in optional or word in _USUAL])
    if "claude" in short:
        return _levels(Contract.TARGET, ["none", *_USUAL], minimum=1_024)
    if short.startswith("gemini-"):
        return _levels(Contract.TARGET, _USUAL, minimum=512) if "-2.5-" in short else _levels(Contract.LEVEL, _USUAL)
    return _levels(Contract.ALWAYS_ON, ["high"])


_USUAL = ("low", "medium", "high")


def _levels(contract: Contract, levels: Sequence[str], minimum: int = 0) -> Thinking:
    tokens = tuple(map(_TOKENS.__getitem__, levels))
    return Thinking(contract=contract, levels=tuple(levels), tokens=tokens, minimum=minimum)


def from_openrouter(models: Iterable[Any], entries: Entries) -> Iterator[tuple[str, Listed | str]]:
    """Each of its models in genai-prices, with its card or why it has none. What a model can do is said by its maker's
    entry of LiteLLM's map, else by one of its name elsewhere; without either, it can chat."""
    elsewhere = {
        key.rpartition("/")[2].lower(): entry
        for key, entry in entries.items()
        if entry.get("mode") == "chat" and _context(entry)
    }
    for model in models:
        maker, _, name = model.id.partition("/")
        entry = dict(entries.get(_MAKERS.get(maker, "-") + name) or elsewhere.get(name) or {})
        context = model.context_window or _context(entry)
        if ":" in model.id or model.id.startswith("~"):
            yield model.id, "a variant of a model by its suffix"
        elif model.deprecated:
            yield model.id, "retired"
        elif not context:
            yield model.id, "its context is not known"
        else:
            entry |= {"mode": "chat", "max_input_tokens": context}
            yield model.id, Listed("openrouter", model.id, _card("openrouter", model.id, entry))
