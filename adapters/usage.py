"""Usage as OpenAI's family reports it, under one set of names."""

from decimal import Decimal, InvalidOperation
from math import ceil
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct, structs

from adapters.failure import UNREADABLE
from router.types.attempt import Source, Usage
from router.types.price import NANO_PER_USD, nano_from_usd

# `read` flattens the names that providers use into a `Report`; in a stream the reports are folded with `merge`,
# counter by counter, which is right for cumulative and for split reports.

TICKS_PER_NANO = 10
"""xAI's `cost_in_usd_ticks`: 1 tick = 1e-10 USD (xai-sdk 1.21.0)."""
STANDARD = frozenset({"default", "standard", "auto", "on_demand"})
"""Words for the tier that has the list price."""

_NULL = Raw(b"null")

Count = Annotated[int, Meta(ge=0, lt=2**31)]
"""Below zero, or beyond what any model reads or writes, a count is no count, and its report is no report."""
_Ticks = Annotated[int, Meta(ge=0, lt=10**16)]
_MOST_USD = 1_000_000
"""Stated costs from here on are none: sums of them have to fit 64 bits of nano-USD."""


class _WritesByAge(Struct):
    """OpenAI's, Anthropic's and LiteLLM's names."""

    ttl_30m: Count | None = None
    ttl_12h: Count | None = None
    ephemeral_5m_input_tokens: Count | None = None
    ephemeral_1h_input_tokens: Count | None = None


_NO_AGES = _WritesByAge()
Counters = TypeVar("Counters", bound=Struct)


class _InputDetails(Struct):
    """With DashScope's names for caches that the request asked for, and LiteLLM's for what it translated."""

    cached_tokens: Count | None = None
    cache_type: str | None = None
    cache_write_tokens: Count | None = None
    cache_write_tokens_details: _WritesByAge | None = None
    cache_creation_tokens: Count | None = None
    cache_creation_token_details: _WritesByAge | None = None
    cache_creation_input_tokens: Count | None = None
    cache_creation: _WritesByAge | None = None
    audio_tokens: Count | None = None
    image_tokens: Count | None = None
    video_tokens: Count | None = None


class _OutputDetails(Struct):
    reasoning_tokens: Count | None = None
    audio_tokens: Count | None = None
    image_tokens: Count | None = None


class _CostDetails(Struct):
    upstream_inference_cost: Raw = _NULL


class _Stated(Struct):
    """Perplexity's: tokens, and the fee of a search."""

    total_cost: Decimal


class _ServerTools(Struct):
    web_search_requests: Count | None = None


class _Wire(Struct):
    """Chat and Responses names; DeepSeek's cache counters; Moonshot's `cached_tokens`; stated costs."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    total_tokens: Count | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    prompt_tokens_details: _InputDetails | None = None
    completion_tokens_details: _OutputDetails | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None
    prompt_cache_hit_tokens: Count | None = None
    prompt_cache_miss_tokens: Count | None = None
    cached_tokens: Count | None = None
    cost: Raw = _NULL
    is_byok: bool | None = None
    cost_details: _CostDetails | None = None
    cost_in_usd_ticks: _Ticks | None = None
    num_sources_used: Count | None = None
    """xAI's live search."""
    server_tool_use: _ServerTools | None = None
    """Anthropic's, as LiteLLM passes it on."""
    service_tier: str | None = None


class Report(Struct, frozen=True, kw_only=True):
    """A provider's counters as it counts them (nested, not disjoint); None is "not said". `cost` is nano-USD."""

    input: int | None = None
    output: int | None = None
    total: int | None = None
    cached: int | None = None
    missed: int | None = None
    written: int | None = None
    written_1h: int | None = None
    written_12h: int | None = None
    """Parts of `written` that are kept for longer than the default."""
    input_audio: int | None = None
    input_image: int | None = None
    input_video: int | None = None
    reasoning: int | None = None
    output_audio: int | None = None
    output_image: int | None = None
    searches: int | None = None
    sources: int | None = None
    cost: int | None = None
    explicit: bool = False
    """What was cached comes from a cache that the request asked for."""
    service_tier: str = ""
    """Empty for the standard one."""


_DECODER = msgspec.json.Decoder(_Wire)
_NO_INPUT, _NO_OUTPUT = _InputDetails(), _OutputDetails()


def read(raw: Raw | bytes, service_tier: str | None = None) -> Report | None:
    """The report in a JSON usage object; None when it is null, empty or unreadable: unknown, not zero.

    `service_tier` is what stands beside the object.
    """
    try:
        wire = _DECODER.decode(raw)
    except UNREADABLE:
        return None
    inputs = wire.prompt_tokens_details or wire.input_tokens_details or _NO_INPUT
    outputs = wire.completion_tokens_details or wire.output_tokens_details or _NO_OUTPUT
    ages = inputs.cache_write_tokens_details or inputs.cache_creation_token_details or inputs.cache_creation or _NO_AGES
    cached = wire.cached_tokens if wire.prompt_cache_hit_tokens is None else wire.prompt_cache_hit_tokens
    created = inputs.cache_creation_tokens
    created = inputs.cache_creation_input_tokens if created is None else created
    report = Report(
        input=wire.input_tokens if wire.prompt_tokens is None else wire.prompt_tokens,
        output=wire.output_tokens if wire.completion_tokens is None else wire.completion_tokens,
        total=wire.total_tokens,
        cached=cached if inputs.cached_tokens is None else inputs.cached_tokens,
        missed=wire.prompt_cache_miss_tokens,
        explicit=inputs.cache_type == "ephemeral",
        written=created if inputs.cache_write_tokens is None else inputs.cache_write_tokens,
        written_1h=ages.ephemeral_1h_input_tokens,
        written_12h=ages.ttl_12h,
        input_audio=inputs.audio_tokens,
        input_image=inputs.image_tokens,
        input_video=inputs.video_tokens,
        reasoning=outputs.reasoning_tokens,
        output_audio=outputs.audio_tokens,
        output_image=outputs.image_tokens,
        searches=wire.server_tool_use.web_search_requests if wire.server_tool_use else None,
        sources=wire.num_sources_used,
        cost=None if wire.cost is _NULL and wire.cost_in_usd_ticks is None else _cost(wire),
        service_tier=tier(service_tier or wire.service_tier) if service_tier or wire.service_tier else "",
    )
    return None if report.input is report.output is report.total is None else report


def tier(name: str | None) -> str:
    """A service tier as prices name it: empty for the standard one."""
    found = (name or "").lower()
    return "" if found in STANDARD else found


def merge(a: Report | None, b: Report | None) -> Report | None:
    """The maximum of each counter."""
    if a is None or b is None:
        return a or b
    return Report(**{name: larger(getattr(a, name), getattr(b, name)) for name in Report.__struct_fields__})


_STATED = msgspec.json.Decoder(_Stated)


def _cost(wire: _Wire) -> int | None:
    """nano-USD. With `is_byok` OpenRouter's `cost` is only its fee; what the key's owner pays upstream is added."""
    if wire.cost_in_usd_ticks is not None:
        return nano_from_usd(Decimal(wire.cost_in_usd_ticks) / (TICKS_PER_NANO * NANO_PER_USD))
    cost = _amount(wire.cost)
    if cost is None or not wire.is_byok:
        return cost
    upstream = _amount(wire.cost_details.upstream_inference_cost) if wire.cost_details else None
    return None if upstream is None else cost + upstream


def _amount(raw: Raw) -> int | None:
    """A JSON number in USD, or Perplexity's object with the total → nano-USD, exact; None for anything else."""
    data = bytes(raw)
    try:
        amount = _STATED.decode(data).total_cost if data.startswith(b"{") else Decimal(data.decode("ascii"))
    except (InvalidOperation, UnicodeDecodeError, msgspec.DecodeError):
        return None
    return nano_from_usd(amount) if 0 <= amount < _MOST_USD else None


def larger(a: Any, b: Any) -> Any:
    """Of two counts, each of which may be missing: counters only grow, in whichever event they come."""
    return a if b is None else b if a is None else max(a, b)


def later(before: Counters, after: Counters) -> Counters:
    """A cumulative report: the larger reading of every counter; of anything else the newer one that says something."""
    pairs = zip(structs.astuple(before), structs.astuple(after), strict=True)
    return type(after)(*[larger(a, b) if isinstance(a, int) or isinstance(b, int) else b or a for a, b in pairs])


def counters(decoder: msgspec.json.Decoder[Counters], usage: Raw) -> Counters | None:
    """None where the report is missing, empty or unreadable: the answer stands without it."""
    try:
        report = decoder.decode(usage)
    except UNREADABLE:
        return None
    return None if report == type(report)() else report


# The usage report of OpenAI's family → the canonical `Usage`: disjoint buckets, whose sum is what the provider bills.
#
# What a report contradicts is kept in its larger reading and named in `violations`.


def canonical(report: Report) -> Usage:
    """Disjoint buckets; see the module's own words for contradictions."""
    violations: list[str] = []
    prompt, completion, source = _totals(report)
    uncached, cached, written = _input(report, prompt, violations)
    media = report.input_audio or report.input_image or report.input_video
    audio, image, video = _media(report, uncached) if media else (0, 0, 0)
    visible, output_audio, output_image = _output(report, prompt, completion, violations)
    units = (("web_search", report.searches), ("search_source", report.sources))
    written_12h = min(report.written_12h or 0, written)
    written_1h = min(report.written_1h or 0, written - written_12h)
    return Usage(
        input_uncached=uncached - audio - image - video,
        cache_read=0 if report.explicit else cached,
        cache_read_explicit=cached if report.explicit else 0,
        cache_write=written - written_1h - written_12h,
        cache_write_1h=written_1h,
        cache_write_12h=written_12h,
        input_audio=audio,
        input_image=image,
        input_video=video,
        output_visible=visible,
        output_reasoning=report.reasoning,
        output_audio=output_audio,
        output_image=output_image,
        units={unit: count for unit, count in units if count},
        source=source,
        service_tier=report.service_tier,
        reasoning_source=Source.UNKNOWN if report.reasoning is None else Source.REPORTED,
        provider_cost=report.cost,
        violations=tuple(violations),
    )


def every_choice(usage: Usage, n: int) -> Usage:
    """For servers that count one of `n` choices only: the output times n, marked as estimated."""
    if n <= 1:
        return usage
    return structs.replace(
        usage,
        output_visible=usage.output_visible * n,
        output_reasoning=usage.output_reasoning and usage.output_reasoning * n,
        output_audio=usage.output_audio * n,
        output_image=usage.output_image * n,
        source=Source.ESTIMATED,
    )


def told_apart(usage: Usage, thoughts: int, said: int) -> Usage:
    """For servers that show all that they write and count it together: thoughts by their share of the characters."""
    if usage.output_reasoning is not None:
        return usage
    reasoning = ceil(usage.output_visible * min(thoughts / said, 1)) if said else 0
    return structs.replace(
        usage,
        output_visible=usage.output_visible - reasoning,
        output_reasoning=reasoning,
        reasoning_source=Source.ESTIMATED,
    )


def _totals(report: Report) -> tuple[int, int, Source]:
    """Input and output as stated, or what the total leaves for the one that is missing."""
    prompt, completion, total = report.input, report.output, report.total or 0
    if prompt is not None and completion is not None:
        return prompt, completion, Source.REPORTED
    if prompt is None:
        prompt = max(total - (completion or 0), 0)
        return prompt, completion or 0, Source.DERIVED
    return prompt, max(total - prompt, 0), Source.DERIVED if total > prompt else Source.REPORTED


def _input(report: Report, prompt: int, violations: list[str]) -> tuple[int, int, int]:
    """(uncached, cached, written). Cache counters that can't be inside the prompt are beside it."""
    cached = report.cached or 0
    aged = (report.written_1h or 0) + (report.written_12h or 0)
    written = max(report.written or 0, aged)
    if report.written is not None and aged > report.written:
        violations.append("more tokens written for long than written")
    if report.missed is not None and report.missed + cached != prompt:
        violations.append("cache hits and misses are not the prompt")
        prompt = max(prompt, report.missed + cached)
    uncached = prompt - cached - written
    if uncached < 0:
        violations.append("more tokens cached than sent")
        uncached = prompt
    return uncached, cached, written


def _media(report: Report, uncached: int) -> tuple[int, int, int]:
    """(audio, image, video) among the input that is not cached: the providers don't say how much of them was."""
    audio = min(report.input_audio or 0, uncached)
    image = min(report.input_image or 0, uncached - audio)
    return audio, image, min(report.input_video or 0, uncached - audio - image)


def _output(report: Report, prompt: int, completion: int, violations: list[str]) -> tuple[int, int, int]:
    """(visible, audio, image). Reasoning is inside the completion, unless the total says that it is beside it (xAI)."""
    reasoning, audio, image = report.reasoning or 0, report.output_audio or 0, report.output_image or 0
    beside = report.total == prompt + completion + reasoning
    if reasoning > completion and not beside:
        violations.append("more reasoning than output")
    output = completion + reasoning if beside or reasoning > completion else completion
    if report.total is not None and report.total != prompt + output:
        violations.append("total is not input plus output")
        output = max(output, report.total - prompt)
    visible = output - reasoning - audio - image
    if visible < 0:
        violations.append("more audio and images than output")
    return max(visible, 0), audio, image
