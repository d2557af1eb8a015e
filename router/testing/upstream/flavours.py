"""How each OpenAI-compatible provider departs from OpenAI's chat wire, as data: usage, thinking text, key order."""

from collections.abc import Callable

import msgspec
from msgspec import Struct

from router.tables import table
from router.testing.upstream import errors
from router.testing.upstream.behaviours import BEHAVIOURS, Ask, Json, Reports, Tokens
from router.testing.upstream.errors import Fault

OPENROUTER_COST_USD = 0.000123
"""`usage.cost` of every OpenRouter reply."""
OPENROUTER_COST_NANO = 123_000


class Flavour(Struct, frozen=True, kw_only=True):
    """`reported` is what the provider tells of the true counts; `usage` writes exactly that."""

    name: str
    usage: Callable[[Tokens], Json]
    splits_reasoning: bool = True
    cache_read: bool = True
    cache_write: bool = False
    reasoning_field: str = ""
    """Where the thinking text stands; empty: it is not shown."""
    thinking_parts: bool = False
    """Content is a list with thinking parts."""
    usage_place: str = "chunk"
    """Of a stream: "chunk" (a last one, without choices), "finish" (beside it), "choice" (in it), "x_groq"."""
    always_usage: bool = False
    usage_null: bool = False
    """Until the last chunk says `usage: null`, where usage was asked for."""
    one_choice: bool = False
    """With n > 1 the usage counts one choice only."""
    responses: bool = False
    ignores_tools: bool = False
    fields: frozenset[str] = frozenset()
    """Those of a chat that it knows, where it refuses others."""
    served: str = "{model}-2026-01-01"
    """What the provider calls the model that served."""
    comment: str = ""
    """Sent before the first event of each stream."""
    dress: Callable[[Json], Json]
    """The last touch on a whole reply and on each chunk."""
    error: Callable[[Fault], tuple[int, object]]

    def name_of(self, ask: Ask) -> str:
        """Of the model that served."""
        return ask.served or self.served.format(model=ask.model)

    def reported(self, tokens: Tokens) -> Tokens:
        """`tokens` with every bucket that this provider does not split folded into its plain neighbour."""
        if not self.splits_reasoning:
            tokens = msgspec.structs.replace(tokens, visible=tokens.output, reasoning=None)
        written = tokens.cache_write + tokens.cache_write_1h
        tokens = msgspec.structs.replace(tokens, cache_write=written, cache_write_1h=0)
        if not self.cache_write:
            tokens = msgspec.structs.replace(tokens, uncached=tokens.uncached + written, cache_write=0)
        if not self.cache_read:
            tokens = msgspec.structs.replace(tokens, uncached=tokens.uncached + tokens.cache_read, cache_read=0)
        return tokens


def _counts(tokens: Tokens) -> Json:
    total = tokens.input + tokens.output
    return {"prompt_tokens": tokens.input, "completion_tokens": tokens.output, "total_tokens": total}


def _openai(tokens: Tokens) -> Json:
    cached = {"cached_tokens": tokens.cache_read, "cache_write_tokens": tokens.cache_write, "audio_tokens": 0}
    prediction = {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
    detail = {"reasoning_tokens": tokens.reasoning, "audio_tokens": 0, **prediction}
    return {**_counts(tokens), "prompt_tokens_details": cached, "completion_tokens_details": detail}


def _deepseek(tokens: Tokens) -> Json:
    hit, miss = tokens.cache_read, tokens.input - tokens.cache_read
    return {
        **_counts(tokens),
        "prompt_tokens_details": {"cached_tokens": hit},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "prompt_cache_hit_tokens": hit,
        "prompt_cache_miss_tokens": miss,
    }


def _xai(tokens: Tokens) -> Json:
    """`completion_tokens` leaves the thinking out; `total_tokens` has it."""
    text = {"text_tokens": tokens.input, "audio_tokens": 0, "image_tokens": 0, "cached_tokens": tokens.cache_read}
    detail = {"reasoning_tokens": tokens.reasoning, "audio_tokens": 0}
    counts = {**_counts(tokens), "completion_tokens": tokens.visible}
    return {**counts, "prompt_tokens_details": text, "completion_tokens_details": detail, "num_sources_used": 0}


def _openrouter(tokens: Tokens) -> Json:
    upstream = {"upstream_inference_cost": None, "upstream_inference_prompt_cost": 0.00001}
    return {
        **_counts(tokens),
        "cost": OPENROUTER_COST_USD,
        "is_byok": False,
        "cost_details": upstream,
        "prompt_tokens_details": {"cached_tokens": tokens.cache_read, "cache_write_tokens": tokens.cache_write},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
    }


def _vllm(tokens: Tokens) -> Json:
    cached = {"cached_tokens": tokens.cache_read, "created_cache_tokens": None, "multimodal_tokens": None}
    counts = _counts(tokens)
    counts["prompt_tokens_details"] = cached
    counts["completion_tokens_details"] = {"reasoning_tokens": tokens.reasoning}
    return counts


def _llamacpp(tokens: Tokens) -> Json:
    counts = _counts(tokens)
    order = ("completion_tokens", "prompt_tokens", "total_tokens")
    cached = {"prompt_tokens_details": {"cached_tokens": tokens.cache_read}}
    return {**{name: counts[name] for name in order}, **cached}


def _groq(tokens: Tokens) -> Json:
    times = {"queue_time": 0.01, "prompt_time": 0.002, "completion_time": 0.1, "total_time": 0.112}
    detail = {"reasoning_tokens": tokens.reasoning}
    cached = {"cached_tokens": tokens.cache_read}
    return {**times, **_counts(tokens), "prompt_tokens_details": cached, "completion_tokens_details": detail}


def _dress_llamacpp(reply: Json) -> Json:
    """llama.cpp writes `choices` first and ends with its timings."""
    order = ("choices", "created", "model", "system_fingerprint", "object", "usage", "id")
    known = {name: reply[name] for name in order if name in reply}
    timings = {"timings": {"cache_n": 0, "prompt_n": 20, "prompt_ms": 1.5, "predicted_n": 10, "predicted_ms": 9.1}}
    return {**known, **(timings if "usage" in reply else {})}


def _moonshot(tokens: Tokens) -> Json:
    return {**_counts(tokens), "cached_tokens": tokens.cache_read}


_USAGE = {
    "counts": _counts,
    "openai": _openai,
    "deepseek": _deepseek,
    "xai": _xai,
    "openrouter": _openrouter,
    "vllm": _vllm,
    "llamacpp": _llamacpp,
    "groq": _groq,
    "moonshot": _moonshot,
}
_DRESS: dict[str, Callable[[Json], Json]] = {
    "": lambda reply: reply,
    "openrouter": lambda reply: {**reply, "provider": "Scripted"},
    "llamacpp": _dress_llamacpp,
}


def _flavour(name: str, row: Json) -> Flavour:
    """A row of `flavours.yaml`."""
    dress, error = _DRESS[row.pop("dress", "")], getattr(errors, row.pop("error", "openai"))
    fields = frozenset(table("testing/upstream/fields.yaml").get(name, ()))
    return Flavour(name=name, usage=_USAGE[row.pop("usage")], dress=dress, error=error, fields=fields, **row)


FLAVOURS = {name: _flavour(name, dict(row)) for name, row in table("testing/upstream/flavours.yaml").items()}


def reported(wire: str, behaviour: str, n: int = 1) -> Tokens | None:
    """Disjoint buckets as the provider reports them, or None where it reports nothing.

    `wire` is a flavour of `FLAVOURS`, "anthropic" or "gemini".
    """
    row = BEHAVIOURS[behaviour]
    if row.reports is Reports.MISSING:
        return None
    if wire == "anthropic":
        return row.tokens
    if wire == "gemini":
        # Writes to the cache are plain input here; thoughts of nothing are not mentioned.
        tokens = row.tokens.choices(n)
        uncached = tokens.uncached + tokens.cache_write + tokens.cache_write_1h
        plain = msgspec.structs.replace(tokens, uncached=uncached, cache_write=0, cache_write_1h=0)
        return msgspec.structs.replace(plain, reasoning=plain.reasoning or None)
    flavour = FLAVOURS[wire]
    return flavour.reported(row.tokens.choices(1 if flavour.one_choice else n))
