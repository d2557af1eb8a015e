"""The usage report of OpenAI's family → the canonical `Usage`, in two steps.

`read` flattens the names that providers use into a `Report`; in a stream the reports are folded with `merge`, counter
by counter, which is right for cumulative and for split reports. `canonical` then makes disjoint buckets of it. What a
report contradicts is kept in its larger reading and named in `violations`.
"""

from decimal import Decimal, InvalidOperation
from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct, structs

from adapters.failure import UNREADABLE
from router.types.money import NANO_PER_USD, nano_from_usd
from router.types.usage import Source, Usage

TICKS_PER_NANO = 10
"""xAI's `cost_in_usd_ticks`: 1 tick = 1e-10 USD (xai-sdk 1.21.0)."""

_NULL = Raw(b"null")

Count = Annotated[int, Meta(ge=-(2**53), le=2**53)]
"""Beyond what JSON numbers hold exactly a count is no count."""


class _WritesByAge(Struct):
    ttl_30m: Count | None = None
    ttl_12h: Count | None = None


class _InputDetails(Struct):
    cached_tokens: Count | None = None
    cache_write_tokens: Count | None = None
    cache_write_tokens_details: _WritesByAge | None = None
    audio_tokens: Count | None = None


class _OutputDetails(Struct):
    reasoning_tokens: Count | None = None
    audio_tokens: Count | None = None


class _CostDetails(Struct):
    upstream_inference_cost: Raw = _NULL


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
    cost_in_usd_ticks: Count | None = None


class Report(Struct, frozen=True, kw_only=True):
    """A provider's counters as it counts them (nested, not disjoint); None is "not said". `cost` is nano-USD."""

    input: int | None = None
    output: int | None = None
    total: int | None = None
    cached: int | None = None
    missed: int | None = None
    written: int | None = None
    written_long: int | None = None
    """Part of `written` that is kept for longer than the default."""
    input_audio: int | None = None
    reasoning: int | None = None
    output_audio: int | None = None
    cost: int | None = None


_DECODER = msgspec.json.Decoder(_Wire)
_NO_INPUT, _NO_OUTPUT = _InputDetails(), _OutputDetails()


def read(raw: Raw | bytes) -> Report | None:
    """The report in a JSON usage object; None when it is null, empty or unreadable: unknown, not zero."""
    try:
        wire = _DECODER.decode(raw)
    except UNREADABLE:
        return None
    inputs = wire.prompt_tokens_details or wire.input_tokens_details or _NO_INPUT
    outputs = wire.completion_tokens_details or wire.output_tokens_details or _NO_OUTPUT
    by_age = inputs.cache_write_tokens_details
    report = Report(
        input=_stated(wire.prompt_tokens, wire.input_tokens),
        output=_stated(wire.completion_tokens, wire.output_tokens),
        total=wire.total_tokens,
        cached=_stated(inputs.cached_tokens, _stated(wire.prompt_cache_hit_tokens, wire.cached_tokens)),
        missed=wire.prompt_cache_miss_tokens,
        written=inputs.cache_write_tokens,
        written_long=by_age.ttl_12h if by_age else None,
        input_audio=inputs.audio_tokens,
        reasoning=outputs.reasoning_tokens,
        output_audio=outputs.audio_tokens,
        cost=_cost(wire),
    )
    return None if report.input is report.output is report.total is None else report


def merge(a: Report | None, b: Report | None) -> Report | None:
    """The maximum of each counter."""
    if a is None or b is None:
        return a or b
    return Report(**{name: _maximum(getattr(a, name), getattr(b, name)) for name in Report.__struct_fields__})


def canonical(report: Report) -> Usage:
    """Disjoint buckets; see the module's own words for contradictions."""
    violations: list[str] = []
    if min(filter(None, structs.astuple(report)), default=0) < 0:
        report = _without_negatives(report, violations)
    prompt, completion, source = _totals(report)
    uncached, cached, written, audio = _input(report, prompt, violations)
    visible, output_audio = _output(report, prompt, completion, violations)
    long = min(report.written_long or 0, written)
    return Usage(
        input_uncached=uncached,
        cache_read=cached,
        cache_write=written - long,
        cache_write_1h=long,
        input_audio=audio,
        output_visible=visible,
        output_reasoning=report.reasoning,
        output_audio=output_audio,
        source=source,
        reasoning_source=Source.UNKNOWN if report.reasoning is None else Source.REPORTED,
        provider_cost=report.cost,
        violations=tuple(violations),
    )


def _without_negatives(report: Report, violations: list[str]) -> Report:
    negative = [name for name, count in structs.asdict(report).items() if count is not None and count < 0]
    violations += [f"{name} is negative" for name in negative]
    return structs.replace(report, **dict.fromkeys(negative))


def every_choice(usage: Usage, n: int) -> Usage:
    """For servers that count one of `n` choices only: the output times n, marked as estimated."""
    if n <= 1:
        return usage
    return structs.replace(
        usage,
        output_visible=usage.output_visible * n,
        output_reasoning=usage.output_reasoning and usage.output_reasoning * n,
        output_audio=usage.output_audio * n,
        source=Source.ESTIMATED,
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


def _input(report: Report, prompt: int, violations: list[str]) -> tuple[int, int, int, int]:
    """(uncached, cached, written, audio). Cache counters that can't be inside the prompt are beside it."""
    cached, written, audio = report.cached or 0, report.written or 0, report.input_audio or 0
    if report.missed is not None and report.missed + cached != prompt:
        violations.append("cache hits and misses are not the prompt")
        prompt = max(prompt, report.missed + cached)
    uncached = prompt - cached - written
    if uncached < 0:
        violations.append("more tokens cached than sent")
        uncached = prompt
    audio = min(audio, uncached)
    return uncached - audio, cached, written, audio


def _output(report: Report, prompt: int, completion: int, violations: list[str]) -> tuple[int, int]:
    """(visible, audio). Reasoning is inside the completion, except where the total says that it is beside it (xAI)."""
    reasoning, audio = report.reasoning or 0, report.output_audio or 0
    beside = report.total == prompt + completion + reasoning
    if reasoning > completion and not beside:
        violations.append("more reasoning than output")
    output = completion + reasoning if beside or reasoning > completion else completion
    if report.total is not None and report.total != prompt + output:
        violations.append("total is not input plus output")
        output = max(output, report.total - prompt)
    visible = output - reasoning - audio
    if visible < 0:
        violations.append("more audio than output")
    return max(visible, 0), audio


def _cost(wire: _Wire) -> int | None:
    """nano-USD. With `is_byok` OpenRouter's `cost` is only its fee; what the key's owner pays upstream is added."""
    if wire.cost is _NULL and wire.cost_in_usd_ticks is None:
        return None
    if wire.cost_in_usd_ticks is not None:
        return nano_from_usd(Decimal(wire.cost_in_usd_ticks) / (TICKS_PER_NANO * NANO_PER_USD))
    cost = _amount(wire.cost)
    if cost is None or not wire.is_byok:
        return cost
    upstream = _amount(wire.cost_details.upstream_inference_cost) if wire.cost_details else None
    return None if upstream is None else cost + upstream


def _amount(raw: Raw) -> int | None:
    """A JSON number in USD → nano-USD, exact; None for anything else."""
    try:
        amount = Decimal(bytes(raw).decode("ascii"))
    except (InvalidOperation, UnicodeDecodeError):
        return None
    return nano_from_usd(amount) if abs(amount) < NANO_PER_USD else None


def _stated(a: int | None, b: int | None) -> int | None:
    return b if a is None else a


def _maximum(a: int | None, b: int | None) -> int | None:
    return a if b is None else b if a is None else max(a, b)
