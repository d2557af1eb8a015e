"""Each OpenAI-compatible flavour tells its usage and its thinking the way that provider does."""

import json
from typing import Any

import pytest

from tests.upstream import FLAVOURS, OPENROUTER_COST_USD, REASONING, Upstream
from tests.upstream.probe import CHAT, chat, events, post, streamed

OPENROUTER_CACHE = {"cached_tokens": 40, "cache_write_tokens": 32}


def flavour_usage(upstream: Upstream, flavour: str, model: str, **more: object) -> tuple[Any, Any]:
    """The usage of a whole reply, and the last event of a stream."""
    path = f"/{flavour}{CHAT}"
    whole = json.loads(post(upstream, path, chat(model, **more))[2])
    return whole["usage"], events(post(upstream, path, streamed(model, **more))[2])[-1]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_flavours_place_their_usage_where_they_really_do(upstream: Upstream, flavour: str) -> None:
    usage, last = flavour_usage(upstream, flavour, "reasoning")
    place = FLAVOURS[flavour].usage_place
    (choice,) = last["choices"] or [{}]
    found = {"chunk": last, "finish": last, "choice": choice, "x_groq": last.get("x_groq", {})}[place]
    assert found["usage"] == usage
    assert bool(choice.get("finish_reason")) is (place != "chunk")
    assert b"prompt_tokens" not in post(upstream, f"/{flavour}{CHAT}", streamed("missing-usage"))[2]


@pytest.mark.parametrize(
    ("flavour", "expected"),
    [
        ("deepseek", {"prompt_tokens": 84, "prompt_cache_hit_tokens": 40, "prompt_cache_miss_tokens": 44}),
        ("xai", {"prompt_tokens": 84, "completion_tokens": 10, "total_tokens": 94}),
        ("mistral", {"prompt_tokens": 84, "completion_tokens": 10, "total_tokens": 94}),
        (
            "openrouter",
            {"cost": OPENROUTER_COST_USD, "prompt_tokens_details": OPENROUTER_CACHE},
        ),
        ("llamacpp", {"completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 40}}),
        ("moonshot", {"cached_tokens": 40}),
    ],
)
def test_flavours_count_the_cache_their_way(upstream: Upstream, flavour: str, expected: dict[str, object]) -> None:
    usage, _ = flavour_usage(upstream, flavour, "cached")
    assert {name: usage[name] for name in expected} == expected


def test_flavours_count_thinking_their_way(upstream: Upstream) -> None:
    usages = {
        flavour: flavour_usage(upstream, flavour, "reasoning")[0] for flavour in ("openai", "xai", "mistral", "vllm")
    }
    counts = {name: (usage["completion_tokens"], usage["total_tokens"]) for name, usage in usages.items()}
    assert counts == {"openai": (40, 60), "xai": (10, 60), "mistral": (40, 60), "vllm": (40, 60)}
    assert "completion_tokens_details" not in usages["mistral"]


@pytest.mark.parametrize(
    ("flavour", "field"),
    [
        ("deepseek", "reasoning_content"),
        ("vllm", "reasoning"),
        ("groq", "reasoning"),
        ("llamacpp", "reasoning_content"),
    ],
)
def test_flavours_show_the_thinking_text(upstream: Upstream, flavour: str, field: str) -> None:
    path = f"/{flavour}{CHAT}"
    message = json.loads(post(upstream, path, chat("reasoning"))[2])["choices"][0]["message"]
    deltas = [e["choices"][0]["delta"] for e in events(post(upstream, path, streamed("reasoning"))[2]) if e["choices"]]
    assert message[field] == "".join(delta.get(field) or "" for delta in deltas) == "".join(REASONING)


def test_mistral_thinks_in_content_parts(upstream: Upstream) -> None:
    message = json.loads(post(upstream, f"/mistral{CHAT}", chat("reasoning"))[2])["choices"][0]["message"]
    assert [part["type"] for part in message["content"]] == ["thinking", "text"]


def test_llamacpp_counts_one_choice_and_writes_choices_first(upstream: Upstream) -> None:
    body = post(upstream, f"/llamacpp{CHAT}", chat("many", n=3))[2]
    reply = json.loads(body)
    assert (len(reply["choices"]), reply["usage"]["completion_tokens"]) == (3, 10)
    assert (next(iter(reply)), list(reply)[-1]) == ("choices", "timings")
