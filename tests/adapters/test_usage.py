"""Usage reports of OpenAI's family: disjoint buckets, their sum what the provider bills, contradictions named."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, convert

from adapters.anthropic.usage import usage as anthropic_usage
from adapters.anthropic.wire import Tokens as AnthropicTokens
from adapters.anthropic.wire import tokens as anthropic_tokens
from adapters.gemini.usage import usage as gemini_usage
from adapters.gemini.wire import Modality
from adapters.gemini.wire import Tokens as GeminiTokens
from adapters.usage import canonical, every_choice, merge, read
from router.types.usage import Source, Usage


def usage(**report: Any) -> Usage:
    found = read(msgspec.json.encode(report))
    assert found is not None
    return canonical(found)


OPENAI = {
    "prompt_tokens": 100,
    "completion_tokens": 50,
    "total_tokens": 150,
    "prompt_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 20, "audio_tokens": 5},
    "completion_tokens_details": {"reasoning_tokens": 40, "audio_tokens": 3, "accepted_prediction_tokens": 2},
}
RESPONSES = {
    "input_tokens": 100,
    "output_tokens": 50,
    "total_tokens": 150,
    "input_tokens_details": {
        "cached_tokens": 30,
        "cache_write_tokens": 20,
        "cache_write_tokens_details": {"ttl_30m": 5, "ttl_12h": 15},
    },
    "output_tokens_details": {"reasoning_tokens": 0},
}


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (
            OPENAI,
            {"input_uncached": 45, "cache_read": 30, "cache_write": 20, "input_audio": 5, "output_visible": 7}
            | {"output_reasoning": 40, "output_audio": 3, "reasoning_source": Source.REPORTED},
        ),
        (
            RESPONSES,
            {"input_uncached": 50, "cache_read": 30, "cache_write": 5, "cache_write_12h": 15, "output_visible": 50}
            | {"output_reasoning": 0, "reasoning_source": Source.REPORTED},
        ),
        # DeepSeek
        (
            {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}
            | {"prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36},
            {"input_uncached": 36, "cache_read": 64, "output_visible": 5},
        ),
        # Moonshot
        (
            {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11, "cached_tokens": 4},
            {"input_uncached": 5, "cache_read": 4, "output_visible": 2},
        ),
        # xAI: reasoning beside the completion
        (
            {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 130}
            | {"completion_tokens_details": {"reasoning_tokens": 100}},
            {"input_uncached": 10, "output_visible": 20, "output_reasoning": 100, "reasoning_source": Source.REPORTED},
        ),
        # the same words, reasoning inside
        (
            {"prompt_tokens": 10, "completion_tokens": 120, "total_tokens": 130}
            | {"completion_tokens_details": {"reasoning_tokens": 100}},
            {"input_uncached": 10, "output_visible": 20, "output_reasoning": 100, "reasoning_source": Source.REPORTED},
        ),
        # vLLM without a reasoning parser, Mistral: unknown is not 0
        (
            {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7, "completion_tokens_details": None},
            {"input_uncached": 3, "output_visible": 4},
        ),
        # embeddings
        ({"prompt_tokens": 6, "total_tokens": 6}, {"input_uncached": 6}),
        # zero is a fact
        ({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, {}),
        # only a total
        ({"total_tokens": 6}, {"input_uncached": 6, "source": Source.DERIVED}),
        (
            {"prompt_tokens": 4, "total_tokens": 6},
            {"input_uncached": 4, "output_visible": 2, "source": Source.DERIVED},
        ),
    ],
)
def test_buckets(report: dict[str, Any], expected: dict[str, Any]) -> None:
    found = usage(**report)
    assert found == Usage(**expected)
    assert found.input_total + found.output_total == report["total_tokens"]


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        # the total is larger than its parts, as where Google leaves thoughts out of the completion
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 40},
            {"input_uncached": 10, "output_visible": 30, "violations": ("total is not input plus output",)},
        ),
        # the total is smaller
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 3},
            {"input_uncached": 10, "output_visible": 5, "violations": ("total is not input plus output",)},
        ),
        # more cached than sent: the cache must be beside
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 90}},
            {"input_uncached": 10, "cache_read": 90, "output_visible": 5}
            | {"violations": ("more tokens cached than sent",)},
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 50}},
            {"input_uncached": 10, "output_visible": 5, "output_reasoning": 50, "reasoning_source": Source.REPORTED}
            | {"violations": ("more reasoning than output",)},
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "prompt_cache_hit_tokens": 8, "prompt_cache_miss_tokens": 8},
            {"input_uncached": 8, "cache_read": 8, "output_visible": 5}
            | {"violations": ("cache hits and misses are not the prompt",)},
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": -5, "cost": -1},
            {"input_uncached": 10, "violations": ("output is negative", "cost is negative")},
        ),
    ],
)
def test_a_contradiction_is_named_and_the_larger_reading_kept(report: dict[str, Any], expected: dict[str, Any]) -> None:
    assert usage(**report) == Usage(**expected)


COUNTS = st.none() | st.integers(0, 10**6)


@given(prompt=COUNTS, completion=COUNTS, total=COUNTS, cached=COUNTS, written=COUNTS, reasoning=COUNTS, audio=COUNTS)
def test_no_bucket_is_negative_and_nothing_stated_is_lost(**said: int | None) -> None:
    found = read(
        msgspec.json.encode(
            {
                "prompt_tokens": said["prompt"],
                "completion_tokens": said["completion"],
                "total_tokens": said["total"],
                "prompt_tokens_details": {"cached_tokens": said["cached"], "cache_write_tokens": said["written"]},
                "completion_tokens_details": {"reasoning_tokens": said["reasoning"], "audio_tokens": said["audio"]},
            }
        )
    )
    if found is None:
        assert said["prompt"] is said["completion"] is said["total"] is None
        return
    made = canonical(found)
    buckets = [value for value in msgspec.structs.astuple(made) if isinstance(value, int)]
    assert min(buckets) >= 0
    assert made.input_total >= (said["prompt"] or 0)
    assert made.output_total >= max(said["completion"] or 0, said["reasoning"] or 0)
    assert made.input_total + made.output_total >= (said["total"] or 0)
    assert (made.output_reasoning is None) == (said["reasoning"] is None)


@pytest.mark.parametrize(
    "raw", [b"null", b"{}", b"[]", b"7", b'{"prompt_tokens":"many"}', b"{", b'{"total_tokens":1e999}']
)
def test_what_is_no_report_is_unknown(raw: bytes) -> None:
    assert read(raw) is None


@pytest.mark.parametrize(
    ("stated", "nano"),
    [
        (b'"cost":0.000123456789', 123_457),
        (b'"cost":1e-9', 1),
        (b'"cost":0', 0),
        (b'"cost":null', None),
        (b'"cost":{"total_cost":1}', None),
        (b'"cost":0.1', 100_000_000),
        (b'"cost":0.01,"is_byok":true,"cost_details":{"upstream_inference_cost":0.2}', 210_000_000),
        (b'"cost":0.01,"is_byok":true', None),
        (b'"cost_in_usd_ticks":12345675', 1_234_568),
    ],
)
def test_a_stated_cost_is_exact(stated: bytes, nano: int | None) -> None:
    found = read(b'{"prompt_tokens":1,"completion_tokens":1,' + stated + b"}")
    assert found is not None
    assert canonical(found).provider_cost == nano


def test_in_a_stream_the_largest_of_each_counter_counts() -> None:
    first = read(b'{"prompt_tokens":100,"completion_tokens":1,"total_tokens":101}')
    split = read(b'{"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":80}}')
    last = read(b'{"prompt_tokens":100,"completion_tokens":5,"total_tokens":107}')
    whole = merge(merge(merge(None, first), split), last)
    assert whole is not None
    assert canonical(whole) == Usage(input_uncached=20, cache_read=80, output_visible=7)


def test_a_report_of_one_choice_is_multiplied_and_marked() -> None:
    one = usage(prompt_tokens=10, completion_tokens=5, completion_tokens_details={"reasoning_tokens": 2})
    assert every_choice(one, 1) == one
    three = every_choice(one, 3)
    assert (three.input_total, three.output_total, three.output_reasoning) == (10, 15, 6)
    assert three.source is Source.ESTIMATED


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        # OpenAI: images in the input
        (
            {"prompt_tokens": 900, "completion_tokens": 5, "prompt_tokens_details": {"image_tokens": 800}},
            {"input_uncached": 100, "input_image": 800, "output_visible": 5},
        ),
        # DashScope: a cache that the request asked for
        (
            {"prompt_tokens": 2_000, "completion_tokens": 5, "total_tokens": 2_005}
            | {"prompt_tokens_details": {"cached_tokens": 1_500, "cache_type": "ephemeral"}},
            {"input_uncached": 500, "cache_read_explicit": 1_500, "output_visible": 5},
        ),
        # LiteLLM's form of Claude on Bedrock: both cache counters inside the prompt
        (
            {"prompt_tokens": 1_000, "completion_tokens": 5, "server_tool_use": {"web_search_requests": 2}}
            | {
                "prompt_tokens_details": {
                    "cached_tokens": 300,
                    "cache_creation_tokens": 600,
                    "cache_creation_token_details": {
                        "ephemeral_5m_input_tokens": 100,
                        "ephemeral_1h_input_tokens": 500,
                    },
                }
            },
            {"input_uncached": 100, "cache_read": 300, "cache_write": 100, "cache_write_1h": 500, "output_visible": 5}
            | {"units": {"web_search": 2}},
        ),
        # xAI: sources of its live search; Mistral: the tier in the usage
        (
            {"prompt_tokens": 1, "completion_tokens": 1, "num_sources_used": 4},
            {"input_uncached": 1, "output_visible": 1, "units": {"search_source": 4}},
        ),
        (
            {"prompt_tokens": 1, "completion_tokens": 1, "service_tier": "Flex"},
            {"input_uncached": 1, "output_visible": 1, "service_tier": "flex"},
        ),
        (
            {"prompt_tokens": 1, "completion_tokens": 1, "service_tier": "default"},
            {"input_uncached": 1, "output_visible": 1},
        ),
    ],
)
def test_what_few_reports_say(report: dict[str, Any], expected: dict[str, Any]) -> None:
    assert usage(**report) == Usage(**expected)


def test_the_tier_beside_the_report_counts_in_a_stream_too() -> None:
    early = read(b'{"prompt_tokens":1,"completion_tokens":0}', "priority")
    late = read(b'{"prompt_tokens":1,"completion_tokens":2}')
    merged = merge(early, late)
    assert merged is not None
    assert canonical(merged).service_tier == "priority"


@given(st.fixed_dictionaries({name: COUNTS for name in ("input_tokens", "output_tokens", "cache_read_input_tokens")}))
def test_anthropic_s_buckets_are_its_counters(said: dict[str, int | None]) -> None:
    found = anthropic_usage(convert(said, AnthropicTokens))
    assert found.input_total == (said["input_tokens"] or 0) + (said["cache_read_input_tokens"] or 0)
    assert found.output_total == (said["output_tokens"] or 0)


@given(
    prompt=COUNTS, cached=COUNTS, tools=COUNTS, candidates=COUNTS, thoughts=COUNTS, total=COUNTS, image=COUNTS
)  # fmt: skip
def test_gemini_s_buckets_lose_nothing(**said: int | None) -> None:
    found = gemini_usage(
        GeminiTokens(
            prompt_token_count=said["prompt"],
            cached_content_token_count=said["cached"],
            tool_use_prompt_token_count=said["tools"],
            candidates_token_count=said["candidates"],
            thoughts_token_count=said["thoughts"],
            total_token_count=said["total"],
            prompt_tokens_details=[Modality("IMAGE", said["image"] or 0), Modality("AUDIO", 7)],
            candidates_tokens_details=[Modality("IMAGE", said["image"] or 0)],
        )
    )
    assert min(value for value in msgspec.structs.astuple(found) if isinstance(value, int)) >= 0
    assert found.input_total >= (said["prompt"] or 0) + (said["tools"] or 0)
    assert found.output_total >= (said["candidates"] or 0) + (said["thoughts"] or 0)
    assert found.input_total + found.output_total >= (said["total"] or 0)


def test_what_anthropic_says_of_tools_tier_and_place() -> None:
    raw = Raw(
        b'{"input_tokens":10,"output_tokens":5,"service_tier":"standard","speed":"fast","inference_geo":"us",'
        b'"server_tool_use":{"web_search_requests":3,"web_fetch_requests":0}}'
    )
    report = anthropic_tokens(raw)
    assert report is not None
    found = anthropic_usage(report)
    assert (found.units, found.service_tier, found.region_served) == ({"web_search": 3}, "fast", "us")
