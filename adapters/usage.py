"""Usage reports of OpenAI-compatible providers: read under one set of names, and converted to the canonical `Usage`."""

from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from math import ceil
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct, defstruct, structs

from adapters.failure import UNREADABLE
from router.types.attempt import CACHED_BESIDE, THOUGHT_BESIDE, UNREADABLE_USAGE, CountSource, Usage
from router.types.price import NANO_PER_USD, nano_from_usd
from router.types.yaml_file import load_data

# `read` maps the names that providers use (usage.yaml) to a `UsageReport`. The reports of one stream are combined with
# `merge`, counter by counter, which is right both for cumulative reports and for split ones.

_TICKS_PER_NANO = 10
"""Ticks per nano-USD of xAI's `cost_in_usd_ticks`: 1 tick = 1e-10 USD (xai-sdk 1.21.0)."""
_NULL = Raw(b"null")
_MAX_USD = 1_000_000
"""Limit, in USD, from which on a stated cost is ignored, so that sums of costs fit in 64 bits of nano-USD."""
_TABLE: dict[str, Any] = load_data(__file__, "usage.yaml")
_COUNTER_PATHS = tuple(
    (name, first, tuple(rest))
    for name, paths in (*_TABLE["counts"].items(), *_TABLE["words"].items())
    for first, *rest in (path.split(".") for path in reversed(paths))
)
"""(counter, first member, further members) of each path in usage.yaml. Preferred paths come last and override."""

Count = Annotated[int, Meta(ge=0, lt=2**31)]
"""A token count. A negative value, or one that no model reaches, makes the whole report unreadable."""
Counters = TypeVar("Counters", bound=Struct)


class _CostDetails(Struct):
    upstream_inference_cost: Raw = _NULL


class _Charged(Struct):
    """Values that providers report next to their token counts: costs and the service tier."""

    cost: Raw = _NULL
    is_byok: bool | None = None
    cost_details: _CostDetails | None = None
    cost_in_usd_ticks: Annotated[int, Meta(ge=0, lt=10**16)] | None = None
    service_tier: str | None = None


class _TotalCost(Struct):
    """Perplexity's cost object; `total_cost`, in USD, covers tokens and search fees."""

    total_cost: Decimal


def _shape(paths: Iterable[Sequence[str]], base: type[Struct] = Struct) -> Any:
    """Returns a msgspec type, derived from `base`, with a typed field for each of the paths."""
    inner: dict[str, list[Sequence[str]]] = {}
    for first, *rest in paths:
        inner.setdefault(first, []).append(rest)
    leaves = {name: str if name in _TABLE["words"] else Count for name, rests in inner.items() if rests == [[]]}
    kinds = {name: leaves.get(name) or _shape(rests) for name, rests in inner.items()}
    return defstruct("Reported", [(name, kind | None, None) for name, kind in kinds.items()], bases=(base,))


_DECODER = msgspec.json.Decoder(_shape(((first, *rest) for _, first, rest in _COUNTER_PATHS), _Charged))
_TOTAL_COST = msgspec.json.Decoder(_TotalCost)


class UsageReport(Struct, frozen=True):
    """A provider's counters as reported: nested, not disjoint. None means not reported. `cost` is in nano-USD."""

    input: int | None = None
    output: int | None = None
    total: int | None = None
    cached: int | None = None
    missed: int | None = None
    written: int | None = None
    written_1h: int | None = None
    written_12h: int | None = None
    """Parts of `written` that are cached for longer than the provider's default time."""
    input_audio: int | None = None
    input_image: int | None = None
    input_video: int | None = None
    reasoning: int | None = None
    output_audio: int | None = None
    output_image: int | None = None
    searches: int | None = None
    sources: int | None = None
    cost: int | None = None
    cache_type: str | None = None
    service_tier: str = ""
    """Service tier; empty for the standard tier."""
    unreadable: bool = False


def read(raw: Raw | bytes, service_tier: str | None = None) -> UsageReport | None:
    """Reads a JSON usage object. Returns None if it is null or has no token counts: usage is unknown then, not zero.

    `service_tier` is the tier that the answer states outside the usage object.
    """
    try:
        wire = _DECODER.decode(raw)
    except UNREADABLE:
        return None if bytes(raw) == b"null" else UsageReport(unreadable=True)
    counts: dict[str, Any] = {}
    for name, first, rest in _COUNTER_PATHS:
        if (value := getattr(wire, first)) is not None:
            for part in rest:
                value = getattr(value, part, None)
            if value is not None:
                counts[name] = value
    if not counts.keys() & {"input", "output", "total"}:
        return None
    cost = None if wire.cost is _NULL and wire.cost_in_usd_ticks is None else _cost(wire)
    tier_name = service_tier or wire.service_tier
    return UsageReport(**counts, cost=cost, service_tier=tier(tier_name) if tier_name else "")


@lru_cache(64)
def tier(name: str | None) -> str:
    """Returns the name of a service tier as prices use it; empty for the standard tier."""
    served = (name or "").lower()
    return "" if served in _TABLE["standard_tiers"] else served


def merge(a: UsageReport | None, b: UsageReport | None) -> UsageReport | None:
    """Combines two reports by taking the maximum of each counter."""
    return later(a, b) if a and b else a or b


def _cost(wire: _Charged) -> int | None:
    """Returns the cost in nano-USD. With `is_byok` OpenRouter's `cost` is only its fee: the upstream cost is added."""
    if wire.cost_in_usd_ticks is not None:
        return nano_from_usd(Decimal(wire.cost_in_usd_ticks) / (_TICKS_PER_NANO * NANO_PER_USD))
    cost = _amount(wire.cost)
    if cost is None or not wire.is_byok:
        return cost
    upstream = _amount(wire.cost_details.upstream_inference_cost) if wire.cost_details else None
    return None if upstream is None else cost + upstream


def _amount(raw: Raw) -> int | None:
    """Converts a JSON number in USD, or Perplexity's cost object, to exact nano-USD; None for anything else."""
    data = bytes(raw)
    try:
        amount = _TOTAL_COST.decode(data).total_cost if data.startswith(b"{") else Decimal(data.decode("ascii"))
    except (InvalidOperation, UnicodeDecodeError, msgspec.DecodeError):
        return None
    return nano_from_usd(amount) if 0 <= amount < _MAX_USD else None


def larger(a: Any, b: Any) -> Any:
    """Returns the larger of two counts, each of which may be None: counters only grow, in any order of events."""
    return a if b is None else b if a is None else max(a, b)


def later(before: Counters, after: Counters) -> Counters:
    """Merges two cumulative reports: the larger value of each counter; of other fields the newer value that is set."""
    pairs = zip(structs.astuple(before), structs.astuple(after), strict=True)
    return type(after)(*[larger(a, b) if isinstance(a, int) or isinstance(b, int) else b or a for a, b in pairs])


def counters(decoder: msgspec.json.Decoder[Counters], usage: Raw) -> Counters | None:
    """Decodes a usage object. Returns None if it is null or empty, and an `unreadable` report if it is malformed."""
    try:
        report = decoder.decode(usage)
    except UNREADABLE:
        return None if bytes(usage) == b"null" else decoder.decode(b'{"unreadable":true}')
    return None if report == type(report)() else report


# Conversion to the canonical `Usage`. Where counters contradict each other, the larger reading is used.


def canonical(report: UsageReport) -> Usage:
    """Converts a report to disjoint buckets, whose sum is billed; `violations` names contradictory counters."""
    violations = [UNREADABLE_USAGE] if report.unreadable else []
    prompt, completion, source = report.input, report.output, CountSource.REPORTED
    if prompt is None or completion is None:
        prompt, completion, source = _derived(report)
    uncached, cached, written = _input(report, prompt, violations)
    # Providers don't report how much of the audio and images was cached.
    audio = min(report.input_audio or 0, uncached)
    image = min(report.input_image or 0, uncached - audio)
    video = min(report.input_video or 0, uncached - audio - image)
    explicit = report.cache_type == "ephemeral"
    visible, output_audio, output_image = _output(report, prompt, completion, violations)
    units = (("web_search", report.searches), ("search_source", report.sources))
    written_12h = min(report.written_12h or 0, written)
    written_1h = min(report.written_1h or 0, written - written_12h)
    return Usage(
        input_uncached=uncached - audio - image - video,
        cache_read=0 if explicit else cached,
        cache_read_explicit=cached if explicit else 0,
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
        units={unit: count for unit, count in units if count} if report.searches or report.sources else {},
        source=source,
        service_tier=report.service_tier,
        reasoning_source=CountSource.UNKNOWN if report.reasoning is None else CountSource.REPORTED,
        provider_cost=report.cost,
        violations=tuple(violations),
    )


def every_choice(usage: Usage, n: int) -> Usage:
    """Multiplies the output by `n` and marks it as estimated, for servers that count only one of `n` choices."""
    if n <= 1:
        return usage
    return structs.replace(
        usage,
        output_visible=usage.output_visible * n,
        output_reasoning=usage.output_reasoning and usage.output_reasoning * n,
        output_audio=usage.output_audio * n,
        output_image=usage.output_image * n,
        source=CountSource.ESTIMATED,
    )


def with_thoughts(usage: Usage, thoughts: int, written: int) -> Usage:
    """Estimates thinking tokens by their share of characters, for servers that show thoughts but don't count them."""
    if usage.output_reasoning is not None:
        return usage
    reasoning = ceil(usage.output_visible * min(thoughts / written, 1)) if written else 0
    return structs.replace(
        usage,
        output_visible=usage.output_visible - reasoning,
        output_reasoning=reasoning,
        reasoning_source=CountSource.ESTIMATED,
    )


def _derived(report: UsageReport) -> tuple[int, int, CountSource]:
    """Returns the input and output tokens and their source; a missing count is derived from the total."""
    prompt, completion, total = report.input, report.output, report.total or 0
    if prompt is None:
        prompt = max(total - (completion or 0), 0)
        return prompt, completion or 0, CountSource.DERIVED
    return prompt, max(total - prompt, 0), CountSource.DERIVED if total > prompt else CountSource.REPORTED


def _input(report: UsageReport, prompt: int, violations: list[str]) -> tuple[int, int, int]:
    """Returns (uncached, cached, written) input tokens; cache counters that exceed the prompt count are added to it."""
    cached = report.cached or 0
    written_for_long = (report.written_1h or 0) + (report.written_12h or 0)
    written = max(report.written or 0, written_for_long)
    if report.written is not None and written_for_long > report.written:
        violations.append("more tokens written for long than written")
    if report.missed is not None and report.missed + cached != prompt:
        violations.append(CACHED_BESIDE)
        prompt = max(prompt, report.missed + cached)
    uncached = prompt - cached - written
    if uncached < 0:
        violations.append(CACHED_BESIDE)
        uncached = prompt
    return uncached, cached, written


def _output(report: UsageReport, prompt: int, completion: int, violations: list[str]) -> tuple[int, int, int]:
    """Returns (visible, audio, image). Reasoning is within the completion unless the total shows otherwise (xAI)."""
    reasoning, audio, image = report.reasoning or 0, report.output_audio or 0, report.output_image or 0
    is_separate = report.total == prompt + completion + reasoning
    if reasoning > completion and not is_separate:
        violations.append(THOUGHT_BESIDE)
    output = completion + reasoning if is_separate or reasoning > completion else completion
    if report.total is not None and report.total != prompt + output:
        violations.append("total is not input plus output")
        output = max(output, report.total - prompt)
    visible = output - reasoning - audio - image
    if visible < 0:
        violations.append("more audio and images than output")
    return max(visible, 0), audio, image
