"""The usage report of OpenAI's family → the canonical `Usage`: disjoint buckets, whose sum is what the provider bills.

What a report contradicts is kept in its larger reading and named in `violations`.
"""

from math import ceil

from msgspec import structs

from adapters.usage_report import Count, Report, merge, read
from router.types.usage import Source, Usage

__all__ = ["Count", "Report", "canonical", "every_choice", "merge", "read", "told_apart"]


def canonical(report: Report) -> Usage:
    """Disjoint buckets; see the module's own words for contradictions."""
    violations: list[str] = []
    prompt, completion, source = _totals(report)
    uncached, cached, written = _input(report, prompt, violations)
    audio, image, video = _media(report, uncached)
    visible, output_audio, output_image = _output(report, prompt, completion, violations)
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
        units=_units(report),
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


def _units(report: Report) -> dict[str, int]:
    if not (report.searches or report.sources):
        return {}
    said = {"web_search": report.searches, "search_source": report.sources}
    return {unit: count for unit, count in said.items() if count}


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
