"""Gemini's counts → disjoint buckets. Cached input is inside the prompt, thoughts are outside the candidates.

The total is prompt + toolUsePrompt + candidates + thoughts, and checks the parts.
"""

from adapters.gemini.wire import Modality, Tokens
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
    )


def usage(tokens: Tokens) -> Usage:
    violations: list[str] = []
    prompt = _count(tokens.prompt_token_count, violations)
    cached = _count(tokens.cached_content_token_count, violations)
    tool_use = _count(tokens.tool_use_prompt_token_count, violations)
    candidates = _count(tokens.candidates_token_count, violations)
    thoughts, source = _thoughts(tokens, prompt + tool_use + candidates, violations)
    if cached > prompt:
        violations.append("cachedContentTokenCount exceeds promptTokenCount")
    output = candidates + (thoughts or 0)
    stated = output if tokens.total_token_count is None else tokens.total_token_count - prompt - tool_use
    if stated != output:
        violations.append("totalTokenCount is not the sum of its parts")
    audio_in = _audio_in(tokens, max(prompt - cached, 0), tool_use)
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


def _thoughts(tokens: Tokens, rest: int, violations: list[str]) -> tuple[int | None, Source]:
    """Where the count is left out, the total says how many thoughts there were: that is how it shows zero."""
    if tokens.thoughts_token_count is not None:
        return _count(tokens.thoughts_token_count, violations), Source.REPORTED
    if tokens.total_token_count is None:
        return None, Source.UNKNOWN
    return max(tokens.total_token_count - rest, 0), Source.DERIVED


def _audio_in(tokens: Tokens, uncached: int, tool_use: int) -> int:
    """Audio among the input that is not cached."""
    heard = _audio(tokens.prompt_tokens_details) - _audio(tokens.cache_tokens_details)
    return min(max(heard, 0), uncached) + min(_audio(tokens.tool_use_prompt_tokens_details), tool_use)


def _audio(details: list[Modality] | None) -> int:
    if not details:
        return 0
    return max(sum(detail.token_count for detail in details if detail.modality == "AUDIO"), 0)


def _count(value: int | None, violations: list[str]) -> int:
    if value is not None and value < 0:
        violations.append("negative count")
    return max(value or 0, 0)


def _larger(before: int | None, after: int | None) -> int | None:
    if before is None or after is None:
        return before if after is None else after
    return max(before, after)
