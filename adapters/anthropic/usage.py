"""Anthropic's counts → disjoint buckets. Its input counters are disjoint; thinking is inside `output_tokens`."""

from collections.abc import Iterable

from adapters.anthropic.wire import CacheCreation, OutputDetails, ServerTools, Tokens
from adapters.usage_report import tier
from router.types.usage import Source, Usage

_NOWHERE = "not_available"
_SUMMED = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")


def latest(before: Tokens, after: Tokens) -> Tokens:
    """The larger reading of every counter: right for the placeholders of `message_start` and for cumulative reports."""
    return Tokens(
        _max(before.input_tokens, after.input_tokens),
        _max(before.cache_read_input_tokens, after.cache_read_input_tokens),
        _max(before.cache_creation_input_tokens, after.cache_creation_input_tokens),
        after.cache_creation or before.cache_creation,
        _max(before.output_tokens, after.output_tokens),
        OutputDetails(_max(_thinking(before), _thinking(after))),
        after.iterations or before.iterations,
        after.server_tool_use or before.server_tool_use,
        after.service_tier or before.service_tier,
        after.speed or before.speed,
        after.inference_geo or before.inference_geo,
    )


def usage(tokens: Tokens) -> Usage:
    """With `iterations` (server-side fallback, compaction) each counter is their sum, or the top level if larger."""
    violations: list[str] = []
    if tokens.iterations:
        tokens = _summed(tokens, tokens.iterations, violations)
    written = tokens.cache_creation or CacheCreation()
    write_1h = written.ephemeral_1h_input_tokens or 0
    write_total = tokens.cache_creation_input_tokens or 0
    split = write_1h + (written.ephemeral_5m_input_tokens or 0)
    if tokens.cache_creation_input_tokens is not None and split > write_total:
        violations.append("cache_creation exceeds cache_creation_input_tokens")
    thinking = _thinking(tokens)
    output = tokens.output_tokens or 0
    if thinking is not None and thinking > output:
        violations.append("thinking_tokens exceed output_tokens")
    return Usage(
        input_uncached=tokens.input_tokens or 0,
        cache_read=tokens.cache_read_input_tokens or 0,
        cache_write=max(write_total, split) - write_1h,
        cache_write_1h=write_1h,
        output_visible=max(output - (thinking or 0), 0),
        output_reasoning=thinking,
        units=_units(tokens.server_tool_use),
        reasoning_source=Source.UNKNOWN if thinking is None else Source.REPORTED,
        service_tier=tier(tokens.speed) or tier(tokens.service_tier),
        region_served="" if tokens.inference_geo in (None, _NOWHERE) else tokens.inference_geo,
        violations=tuple(violations),
    )


def _units(tools: ServerTools | None) -> dict[str, int]:
    """What it charges for besides tokens: fetching pages is free."""
    return {"web_search": tools.web_search_requests} if tools is not None and tools.web_search_requests else {}


def _summed(top: Tokens, iterations: list[Tokens], violations: list[str]) -> Tokens:
    """Only the top level has the thinking count. Less in sum than at the top means that an iteration is missing."""
    creations = [iteration.cache_creation for iteration in iterations if iteration.cache_creation]
    total = Tokens(
        _sum(iteration.input_tokens for iteration in iterations),
        _sum(iteration.cache_read_input_tokens for iteration in iterations),
        _sum(iteration.cache_creation_input_tokens for iteration in iterations),
        CacheCreation(
            _sum(creation.ephemeral_5m_input_tokens for creation in creations),
            _sum(creation.ephemeral_1h_input_tokens for creation in creations),
        )
        if creations
        else None,
        _sum(iteration.output_tokens for iteration in iterations),
    )
    short = (name for name in _SUMMED if getattr(total, name) < (getattr(top, name) or 0))
    violations += [f"iterations sum to less than {name}" for name in short]
    return latest(top, total)


def _thinking(tokens: Tokens) -> int | None:
    return tokens.output_tokens_details.thinking_tokens if tokens.output_tokens_details else None


def _sum(counts: Iterable[int | None]) -> int:
    return sum(count or 0 for count in counts)


def _max(before: int | None, after: int | None) -> int | None:
    if before is None or after is None:
        return before if after is None else after
    return max(before, after)
