"""What a provider is told about keeping, training and place, and what it says of the place itself."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from adapters import catalog
from adapters.anthropic import AnthropicAdapter
from adapters.openai_compatible import OpenAICompatible
from router.types.call import Call
from router.types.request import Endpoint
from router.types.target import Quirks, Terms, Wire
from tests.adapters import compatible, translated

VERIFY = "usage.inference_geo"
ENDPOINTS = tuple(Endpoint)
CLAUDE = AnthropicAdapter()


def quirks(provider: str) -> Quirks:
    return catalog.read().providers[provider].quirks


def sent(body: dict[str, Any], provider: str, endpoint: Endpoint, *, private: bool) -> dict[str, Any]:
    asked = compatible.call({**compatible.HI, **body}, quirks=quirks(provider), endpoint=endpoint, private=private)
    return translated.sent(OpenAICompatible(), asked)


@pytest.mark.parametrize("provider", ["openai", "azure"])
@pytest.mark.parametrize("body", [{}, {"store": True}, {"store": None}])
def test_a_private_chat_is_not_stored(provider: str, body: dict[str, Any]) -> None:
    assert sent(body, provider, Endpoint.CHAT, private=True)["store"] is False
    assert sent(body, provider, Endpoint.CHAT, private=False).get("store") == body.get("store")


@pytest.mark.parametrize("endpoint", [Endpoint.COMPLETIONS, Endpoint.EMBEDDINGS])
def test_where_nothing_can_be_stored_nothing_is_said(endpoint: Endpoint) -> None:
    assert "store" not in sent({}, "openai", endpoint, private=True)


def test_a_longer_cache_is_a_longer_memory() -> None:
    body = {"prompt_cache_retention": "24h"}
    assert sent(body, "openai", Endpoint.CHAT, private=False).items() >= body.items()
    assert "prompt_cache_retention" not in sent(body, "openai", Endpoint.CHAT, private=True)


@pytest.mark.parametrize("endpoint", [Endpoint.CHAT, Endpoint.COMPLETIONS, Endpoint.EMBEDDINGS])
@pytest.mark.parametrize(
    ("own", "joined"),
    [
        (None, {}),
        ("anything", {}),
        ({"order": ["a"], "zdr": False}, {"order": ["a"]}),
        ({"data_collection": "allow", "only": ["b"]}, {"only": ["b"]}),
    ],
)
def test_openrouter_is_asked_for_providers_that_keep_nothing(
    endpoint: Endpoint, own: object, joined: dict[str, Any]
) -> None:
    """The client's own wishes stay, unless they loosen ours."""
    body = {} if own is None else {"provider": own}
    strict = {**joined, "data_collection": "deny", "zdr": True}
    assert sent(body, "openrouter", endpoint, private=True)["provider"] == strict
    assert sent(body, "openrouter", endpoint, private=False).get("provider") == own


def claude(region: str, verify: str = VERIFY, body: dict[str, Any] | None = None) -> Call:
    asked = translated.call(Wire.ANTHROPIC, body)
    return replace(asked, target=replace(asked.target, region=region, terms=Terms(verify=verify)))


@pytest.mark.parametrize(
    ("region", "verify", "own", "geo"),
    [
        ("us", VERIFY, None, "us"),
        ("US", VERIFY, "global", "us"),
        ("", VERIFY, None, None),
        ("", VERIFY, "us", "us"),
        ("us", "", None, None),
        ("us", "", "global", None),
    ],
)
def test_claude_is_asked_for_the_region_that_its_answer_will_state(
    region: str, verify: str, own: str | None, geo: str | None
) -> None:
    """A client can't move a target that stands in a region."""
    body = {} if own is None else {"inference_geo": own}
    assert translated.sent(CLAUDE, claude(region, verify, body)).get("inference_geo") == geo


@pytest.mark.parametrize(("stated", "region"), [("us", "us"), ("global", "global"), ("not_available", ""), (None, "")])
def test_claude_s_word_on_the_region_is_read(stated: str | None, region: str) -> None:
    usage = {"input_tokens": 3, "output_tokens": 2} | ({} if stated is None else {"inference_geo": stated})
    head = {"id": "m", "type": "message", "role": "assistant", "model": "c", "stop_reason": "end_turn"}
    whole = {**head, "content": [{"type": "text", "text": "Hi"}], "usage": usage}
    assert CLAUDE.decode(claude("us"), msgspec.json.encode(whole)).region_served == region

    decoder = CLAUDE.stream(claude("us"))
    start = {"type": "message_start", "message": {**head, "content": [], "usage": usage}}
    decoder.feed(b"data: %b\n\n" % msgspec.json.encode(start))
    assert decoder.region_served == region
    delta = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}}
    decoder.feed(b"data: %b\n\n" % msgspec.json.encode(delta))
    assert decoder.region_served == region


def test_claude_s_last_word_counts() -> None:
    decoder = CLAUDE.stream(claude("us"))
    usage = {"output_tokens": 5, "inference_geo": "eu"}
    delta = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}
    decoder.feed(b"data: %b\n\n" % msgspec.json.encode(delta))
    assert decoder.region_served == "eu"
