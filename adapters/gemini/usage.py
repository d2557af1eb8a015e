"""Gemini's counts → disjoint buckets. Cached input is inside the prompt, thoughts are outside the candidates.

The total is prompt + toolUsePrompt + candidates + thoughts, and checks the parts.
"""

from adapters.gemini.wire import Modality, Tokens
from adapters.usage_report import tier
from router.types.usage import Source, Usage


def latest(before: Tokens | None, after: Tokens) -> Tokens:
    """The larger reading of every counter of a cumulative report."""
    if before is None:
        return after
    return Tokens(
        _larger(before.prompt_token_count, after.prompt_token_count),
        _larger(before.cached_content_token_count, after.cached_content_token_count),
        _larger(before.tool_use_prompt_token_count, after.tool_use_prompt_token_count),
        _larger(before.candidates_token_count, after.candidates_token_count),
        _larger(before.thoughts_token_count, after.thoughts_token_count),
        _larger(before.total_token_count, after.total_token_count),
        after.prompt_tokens_details or before.prompt_tokens_details,
        after.cache_tokens_details or before.cache_tokens_details,
        after.tool_use_prompt_tokens_details or before.tool_use_prompt_tokens_details,
        after.candidates_tokens_details or before.candidates_tokens_details,
        after.traffic_type or before.traffic_type,
    )


def usage(tokens: Tokens) -> Usage:
    violations: list[str] = []
    prompt = tokens.prompt_token_count or 0
    cached = tokens.cached_content_token_count or 0
    tool_use = tokens.tool_use_prompt_token_count or 0
    candidates = tokens.candidates_token_count or 0
    thoughts, source = _thoughts(tokens, prompt + tool_use + candidates)
    if cached > prompt:
        violations.append("cachedContentTokenCount exceeds promptTokenCount")
    output = candidates + (thoughts or 0)
    stated = output if tokens.total_token_count is None else tokens.total_token_count - prompt - tool_use
    if stated != output:
        violations.append("totalTokenCount is not the sum of its parts")
    cached_audio = min(_of(tokens.cache_tokens_details, "AUDIO"), cached)
    uncached = max(prompt - cached, 0) + tool_use
    audio, image, video = _media(tokens, uncached)
    audio_out = min(_of(tokens.candidates_tokens_details, "AUDIO"), candidates)
    image_out = min(_of(tokens.candidates_tokens_details, "IMAGE"), candidates - audio_out)
    return Usage(
        input_uncached=uncached - audio - image - video,
        cache_read=cached - cached_audio,
        cache_read_audio=cached_audio,
        input_audio=audio,
        input_image=image,
        input_video=video,
        output_visible=max(stated, output) - (thoughts or 0) - audio_out - image_out,
        output_reasoning=thoughts,
        output_audio=audio_out,
        output_image=image_out,
        reasoning_source=source,
        service_tier=_tier(tokens.traffic_type),
        violations=tuple(violations),
    )


def _thoughts(tokens: Tokens, rest: int) -> tuple[int | None, Source]:
    """Where the count is left out, the total says how many thoughts there were: that is how it shows zero."""
    if tokens.thoughts_token_count is not None:
        return tokens.thoughts_token_count, Source.REPORTED
    if tokens.total_token_count is None:
        return None, Source.UNKNOWN
    return max(tokens.total_token_count - rest, 0), Source.DERIVED


def _media(tokens: Tokens, uncached: int) -> tuple[int, int, int]:
    """(audio, image, video) among the input that is not cached."""
    found: list[int] = []
    for modality in ("AUDIO", "IMAGE", "VIDEO"):
        sent = _of(tokens.prompt_tokens_details, modality) - _of(tokens.cache_tokens_details, modality)
        found.append(min(max(sent, 0) + _of(tokens.tool_use_prompt_tokens_details, modality), uncached - sum(found)))
    return found[0], found[1], found[2]


def _of(details: list[Modality] | None, modality: str) -> int:
    if not details:
        return 0
    return sum(detail.token_count for detail in details if detail.modality == modality)


def _tier(traffic: str) -> str:
    """Vertex: ON_DEMAND, ON_DEMAND_PRIORITY, ON_DEMAND_FLEX, PROVISIONED_THROUGHPUT."""
    return tier(traffic.removeprefix("ON_DEMAND").lstrip("_"))


def _larger(before: int | None, after: int | None) -> int | None:
    if before is None or after is None:
        return before if after is None else after
    return max(before, after)
