"""Usage reports of OpenAI's family: disjoint buckets, their sum what the provider bills, contradictions named."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from adapters.anthropic import TOKENS as ANTHROPIC_TOKENS
from adapters.anthropic import AnthropicTokens
from adapters.anthropic import usage as anthropic_usage
from adapters.gemini import TOKENS as GEMINI_TOKENS
from adapters.gemini import GeminiTokens, ModalityCount
from adapters.gemini import usage as gemini_usage
from adapters.usage import UsageReport, canonical, counters, merge, read
from router.types.attempt import Usage
from tests.tables import data, each_row


def usage(**report: Any) -> Usage:
    counts = read(msgspec.json.encode(report))
    assert counts is not None
    return canonical(counts)


@each_row("row", data(__file__, "usage.yaml"), ids=lambda row: row["name"])
def test_buckets(row: dict[str, Any]) -> None:
    counted, report = usage(**row["report"]), row["report"]
    assert counted == msgspec.convert(row["buckets"], Usage)
    if "total_tokens" in report and not counted.violations:
        assert counted.totals.input + counted.totals.output == report["total_tokens"]


NONE = [b"null", b"{}", b"[]", b"7", b'{"prompt_tokens":"many"}', b"{", b'{"total_tokens":1e999}']
"""No reports; nor is one with a negative count, or with counts whose sum is no number."""
NONE += [b'{"prompt_tokens": 10, "completion_tokens": -5, "total_tokens": 5}']
NONE += [b'{"prompt_tokens": 9, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": -1}}']
NONE += [b'{"prompt_tokens": 9, "completion_tokens": 9000000000000000}']


@each_row("raw", NONE)
def test_what_is_no_report_is_unknown(raw: bytes) -> None:
    """And so is what is left of it: the answer is charged as one without a report, and marked where one was there."""
    assert read(raw) in (None, UsageReport(unreadable=True))
    counts = counters(ANTHROPIC_TOKENS, Raw(b'{"input_tokens": 10, "output_tokens": -5}'))
    assert counts == AnthropicTokens(unreadable=True)
    assert counters(GEMINI_TOKENS, Raw(b'{"promptTokenCount": -1}')) == GeminiTokens(unreadable=True)


COUNTS = st.none() | st.integers(0, 10**6)


@given(prompt=COUNTS, completion=COUNTS, total=COUNTS, cached=COUNTS, written=COUNTS, reasoning=COUNTS, audio=COUNTS)
def test_no_bucket_is_negative_and_nothing_stated_is_lost(**given: int | None) -> None:
    prompt, completion, total, reasoning = (given[name] for name in ("prompt", "completion", "total", "reasoning"))
    inside = {"cached_tokens": given["cached"], "cache_write_tokens": given["written"]}
    outside = {"reasoning_tokens": reasoning, "audio_tokens": given["audio"]}
    report = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}
    counts = read(msgspec.json.encode(report | {"prompt_tokens_details": inside, "completion_tokens_details": outside}))
    if counts is None:
        assert prompt is completion is total is None
        return
    made = canonical(counts)
    assert min(value for value in msgspec.structs.astuple(made) if isinstance(value, int)) >= 0
    assert made.totals.input >= (prompt or 0)
    assert made.totals.output >= max(completion or 0, reasoning or 0)
    assert made.totals.input + made.totals.output >= (total or 0)
    assert (made.output_reasoning is None) == (reasoning is None)


@each_row("stated, nano", data(__file__, "costs.yaml"))
def test_a_stated_cost_is_exact(stated: str, nano: int | None) -> None:
    counts = read(b'{"prompt_tokens":1,"completion_tokens":1,%b}' % stated.encode())
    assert counts is not None
    assert canonical(counts).provider_cost == nano


def test_in_a_stream_the_largest_of_each_counter_counts_and_the_tier_beside_it() -> None:
    first = read(b'{"prompt_tokens":100,"completion_tokens":1,"total_tokens":101}', "priority")
    split = read(b'{"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":80}}')
    last = read(b'{"prompt_tokens":100,"completion_tokens":5,"total_tokens":107}')
    whole = merge(merge(merge(None, first), split), last)
    assert whole is not None
    assert canonical(whole) == Usage(input_uncached=20, cache_read=80, output_visible=7, service_tier="priority")


@given(st.fixed_dictionaries({name: COUNTS for name in ("input_tokens", "output_tokens", "cache_read_input_tokens")}))
def test_anthropic_s_buckets_are_its_counters(report: dict[str, int | None]) -> None:
    counted = anthropic_usage(msgspec.convert(report, AnthropicTokens))
    assert counted.totals.input == (report["input_tokens"] or 0) + (report["cache_read_input_tokens"] or 0)
    assert counted.totals.output == (report["output_tokens"] or 0)


@given(prompt=COUNTS, cached=COUNTS, tools=COUNTS, candidates=COUNTS, thoughts=COUNTS, total=COUNTS, image=COUNTS)
def test_gemini_s_buckets_lose_nothing(**given: int | None) -> None:
    images = ModalityCount("IMAGE", given.pop("image") or 0)
    names = {"cached": "cached_content", "tools": "tool_use_prompt"}
    report: dict[str, Any] = {f"{names.get(name, name)}_token_count": count for name, count in given.items()}
    report |= {"prompt_tokens_details": [images, ModalityCount("AUDIO", 7)], "candidates_tokens_details": [images]}
    counted = gemini_usage(GeminiTokens(**report))
    assert min(value for value in msgspec.structs.astuple(counted) if isinstance(value, int)) >= 0
    assert counted.totals.input >= (given["prompt"] or 0) + (given["tools"] or 0)
    assert counted.totals.output >= (given["candidates"] or 0) + (given["thoughts"] or 0)
    assert counted.totals.input + counted.totals.output >= (given["total"] or 0)


def test_anthropic_states_tools_tier_and_place() -> None:
    tools = {"web_search_requests": 3, "web_fetch_requests": 0}
    report = {"input_tokens": 10, "output_tokens": 5, "service_tier": "standard", "speed": "fast"}
    raw = Raw(msgspec.json.encode({**report, "inference_geo": "us", "server_tool_use": tools}))
    counted = anthropic_usage(counters(ANTHROPIC_TOKENS, raw) or AnthropicTokens())
    assert (counted.units, counted.service_tier, counted.region_served) == ({"web_search": 3}, "fast", "us")
