"""What a provider is told about keeping, training and place, and what it says of the place itself."""

from typing import Any

import msgspec
from msgspec.structs import replace

from adapters import catalog
from router.types.call import Call
from router.types.request import Endpoint
from router.types.target import Terms, Wire
from tests.adapters import calls
from tests.adapters.calls import ADAPTERS, HI
from tests.tables import each_row

VERIFY = "usage.inference_geo"
CLAUDE = ADAPTERS[Wire.ANTHROPIC]
PROVIDERS = catalog.shipped().providers
E = Endpoint


def sent(body: dict[str, Any], provider: str, endpoint: Endpoint = E.CHAT, *, private: bool) -> dict[str, Any]:
    quirks = PROVIDERS[provider].quirks
    return calls.sent(calls.call({**HI, **body}, quirks=quirks, endpoint=endpoint, private=private))


@each_row("provider", ["openai", "azure"])
@each_row("body", [{}, {"store": True}, {"store": None}])
def test_a_private_chat_is_not_stored(provider: str, body: dict[str, Any]) -> None:
    assert sent(body, provider, private=True)["store"] is False
    assert sent(body, provider, private=False).get("store") == body.get("store")


@each_row("endpoint", [E.COMPLETIONS, E.EMBEDDINGS])
def test_where_nothing_can_be_stored_nothing_is_said(endpoint: Endpoint) -> None:
    assert "store" not in sent({}, "openai", endpoint, private=True)


def test_a_longer_cache_is_a_longer_memory() -> None:
    body = {"prompt_cache_retention": "24h"}
    assert sent(body, "openai", private=False).items() >= body.items()
    assert "prompt_cache_retention" not in sent(body, "openai", private=True)


@each_row("endpoint", [E.CHAT, E.COMPLETIONS, E.EMBEDDINGS])
@each_row(
    "own, joined",
    [
        (None, {}),
        ("anything", {}),
        ({"order": ["a"], "zdr": False}, {"order": ["a"]}),
        ({"data_collection": "allow", "only": ["b"]}, {"only": ["b"]}),
    ],
)
def test_openrouter_is_asked_for_providers_that_keep_nothing(endpoint: Endpoint, own: object, joined: Any) -> None:
    """The client's own wishes stay, unless they loosen ours."""
    body = {} if own is None else {"provider": own}
    strict = {**joined, "data_collection": "deny", "zdr": True}
    assert sent(body, "openrouter", endpoint, private=True)["provider"] == strict
    assert sent(body, "openrouter", endpoint, private=False).get("provider") == own


def claude(region: str, verify: str = VERIFY, body: dict[str, Any] | None = None) -> Call:
    asked = calls.call({**HI, **(body or {})}, wire=Wire.ANTHROPIC)
    return replace(asked, target=replace(asked.target, region=region, terms=Terms(verify=verify)))


@each_row(
    "region, verify, own, geo",
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
    assert calls.sent(claude(region, verify, body)).get("inference_geo") == geo


def last(usage: dict[str, Any]) -> bytes:
    delta = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}
    return b"data: %b\n\n" % msgspec.json.encode(delta)


@each_row("stated, region", [("us", "us"), ("global", "global"), ("not_available", ""), (None, "")])
def test_claude_s_word_on_the_region_is_read(stated: str | None, region: str) -> None:
    usage = {"input_tokens": 3, "output_tokens": 2} | ({} if stated is None else {"inference_geo": stated})
    whole = {"id": "m", "model": "c", "stop_reason": "end_turn", "content": [], "usage": usage}
    assert CLAUDE.decode(claude("us"), msgspec.json.encode(whole)).region_served == region

    decoder = CLAUDE.stream(claude("us"))
    decoder.feed(b"data: %b\n\n" % msgspec.json.encode({"type": "message_start", "message": whole}))
    assert decoder.region_served == region
    decoder.feed(last({"output_tokens": 5}))
    assert decoder.region_served == region
    decoder.feed(last({"output_tokens": 5, "inference_geo": "eu"}))
    assert decoder.region_served == "eu", "the last word counts"
