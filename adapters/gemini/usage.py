"""Gemini's counts → disjoint buckets. Cached input is inside the prompt, thoughts are outside the candidates.

The total is prompt + toolUsePrompt + candidates + thoughts, and checks the parts.
"""

import msgspec

from adapters.gemini.wire import Modality, Tokens
from router.types.usage import Source, Usage


def latest(before: Tokens | None, after: Tokens) -> Tokens:
    """The larger reading of every counter of a cumulative report."""
    if before is None:
        return after
    larger = {name: _larger(getattr(before, name), getattr(after, name)) for name in Tokens.__struct_fields__}
    return msgspec.structs.replace(after, **larger)


def usage(tokens: Tokens) -> Usage:
    violations = [f"negative {name}" for name in _COUNTERS if (getattr(tokens, name) or 0) < 0]
    prompt, cached, tool_use, candidates = (max(getattr(tokens, name) or 0, 0) for name in _COUNTERS[:4])
    thoughts, source = _thoughts(tokens, prompt + tool_use + candidates)
    if cached > prompt:
        violations.append("cachedContentTokenCount exceeds promptTokenCount")
    output = candidates + (thoughts or 0)
    stated = output if tokens.total_token_count is None else tokens.total_token_count - prompt - tool_use
    if stated != output:
        violations.append("totalTokenCount is not the sum of its parts")
    heard = _audio(tokens.prompt_tokens_details) - _audio(tokens.cache_tokens_details)
    audio_in = min(max(heard, 0), max(prompt - cached, 0)) + min(
        _audio(tokens.tool_use_prompt_tokens_details), tool_use
    )
    audio_out = min(_audio(tokens.candidates_tokens_details), candidates)
    return Usage(
        input_uncached=max(prompt - cached, 0) + tool_use - audio_in,
        cache_read=cached,
        input_audio=audio_in,
        output_visible=max(stated, output) - (thoughts or 0) - audio_out,
        output_reasoning=thoughts,
        output_audio=audio_out,
        reasoning_source=source,
        violations=tuple(violations),
    )


_COUNTERS = (
    "prompt_token_count",
    "cached_content_token_count",
    "tool_use_prompt_token_count",
    "candidates_token_count",
    "thoughts_token_count",
    "total_token_count",
)


def _thoughts(tokens: Tokens, rest: int) -> tuple[int | None, Source]:
    """Where the count is left out, the total says how many thoughts there were: that is how it shows zero."""
    if tokens.thoughts_token_count is not None:
        return max(tokens.thoughts_token_count, 0), Source.REPORTED
    if tokens.total_token_count is None:
        return None, Source.UNKNOWN
    return max(tokens.total_token_count - rest, 0), Source.DERIVED


def _audio_in(tokens: Tokens, uncached: int, tool_use: int) -> int:
    """Audio among the input that is not cached."""
    heard = _audio(tokens.prompt_tokens_details) - _audio(tokens.cache_tokens_details)
    return min(max(heard, 0), uncached) + min(_audio(tokens.tool_use_prompt_tokens_details), tool_use)


def _audio(details: list[Modality] | None) -> int:
    return max(sum(detail.token_count for detail in details or () if detail.modality == "AUDIO"), 0)


def _larger(before: object, after: object) -> object:
    if isinstance(before, int) and isinstance(after, int):
        return max(before, after)
    return before if after is None else after
