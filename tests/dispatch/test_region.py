"""Where a provider says that it served a request: taken down, and believed against the policy's own word."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from adapters.anthropic import AnthropicAdapter
from router.decide.health import SUSPENSION_S, Health
from router.dispatch.http import HttpTransport
from router.dispatch.opened import Answered, Opened
from router.dispatch.region import LONGEST
from router.errors import UpstreamFailure
from router.types.attempt import Attempt
from router.types.target import Target, Terms, Wire
from tests.dispatch.values import ANSWER, asking, at, dispatcher, errand, with_transport
from tests.gateway.canned import canned

HEADER = "header:X-Served-From"
GEO = "usage.inference_geo"
HEAD: dict[str, Any] = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "c",
    "content": [],
    "stop_reason": None,
}
CHUNK = {"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}
EVENTS = (
    b"data: %b\n\ndata: [DONE]\n\n"
    % json.dumps({"id": "c", "object": "chat.completion.chunk", "choices": [CHUNK]}).encode()
)


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def asked_for(place: Target, health: Health, *, stream: bool) -> Attempt:
    """What comes of one request, its stream read to the end."""

    async def ask(transport: HttpTransport) -> Attempt:
        adapter = AnthropicAdapter() if place.provider.wire is Wire.ANTHROPIC else None
        answer = await dispatcher(transport, health, adapter).walk(errand(place, asked=asking(stream=stream)))
        if isinstance(answer, Answered):
            return answer.attempt
        assert isinstance(answer, Opened)
        async for data in answer.response.chunks():
            answer.decoder.feed(data)
        answer.response.close()
        return answer.trial.streamed(answer.decoder)

    return with_transport(ask)


def message(geo: str | None, *, stream: bool) -> bytes:
    usage = {"input_tokens": 3, "output_tokens": 2} | ({} if geo is None else {"inference_geo": geo})
    if not stream:
        said = {**HEAD, "content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn", "usage": usage}
        return json.dumps(said).encode()
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**HEAD, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hi"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]
    return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)


# What the target states, what the provider states → what is written down, who says so, whether it is trusted on.
STATED = [
    ("us", "us", "us", True, True),
    ("US", "us", "US", True, True),
    ("us", "eu", "eu", True, False),
    ("us", "global", "global", True, False),
    ("us", "x" * 1_000, "x" * LONGEST, True, False),
    ("us", None, "us", False, True),
    ("", "eu", "eu", False, True),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("region", "stated", "kept", "verified", "trusted"), STATED)
def test_a_header(region: str, stated: str | None, kept: str, verified: bool, trusted: bool, stream: bool) -> None:
    health = Health(Clock())
    with canned(
        {"m": (200, EVENTS if stream else ANSWER)}, {} if stated is None else {"x-served-from": stated}
    ) as server:
        place = at(f"{server.url}/m/v1", region=region, terms=Terms(verify=HEADER))
        attempt = asked_for(place, health, stream=stream)
    assert (attempt.region, attempt.region_verified) == (kept, verified)
    assert (health.resting("t") == 0) == trusted


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("region", "stated", "kept", "verified", "trusted"),
    [*STATED[:4], *STATED[5:], ("us", "not_available", "us", False, True)],
)
def test_a_count_of_usage(
    region: str, stated: str | None, kept: str, verified: bool, trusted: bool, stream: bool
) -> None:
    health = Health(Clock())
    with canned({"m": (200, message(stated, stream=stream))}) as server:
        place = at(f"{server.url}/m", region=region, terms=Terms(verify=GEO))
        place = replace(place, provider=replace(place.provider, wire=Wire.ANTHROPIC))
        attempt = asked_for(place, health, stream=stream)
    assert (attempt.region, attempt.region_verified) == (kept, verified)
    assert (health.resting("t") == 0) == trusted


@pytest.mark.parametrize("verify", ["", GEO, "header:x-another"])
def test_what_the_terms_do_not_name_is_not_believed(verify: str) -> None:
    health = Health(Clock())
    with canned({"m": (200, ANSWER)}, {"x-served-from": "eu"}) as server:
        attempt = asked_for(at(f"{server.url}/m/v1", region="us", terms=Terms(verify=verify)), health, stream=False)
    assert (attempt.region, attempt.region_verified) == ("us", False)
    assert health.snapshot() == {}


def test_an_error_from_elsewhere_counts_too() -> None:
    """The request was there."""
    health = Health(Clock())
    with canned({"m": (500, b"{}")}, {"x-served-from": "eu"}) as server:
        place = at(f"{server.url}/m/v1", region="us", terms=Terms(verify=HEADER))
        with pytest.raises(UpstreamFailure):
            asked_for(place, health, stream=False)
    assert health.snapshot()["t"] == "region mismatch"


def test_a_target_that_was_elsewhere_is_left_alone_for_an_hour() -> None:
    clock = Clock()
    health = Health(clock)
    with canned({"m": (200, ANSWER)}, {"x-served-from": "eu"}) as server:
        place = at(f"{server.url}/m/v1", region="us", terms=Terms(verify=HEADER))
        assert asked_for(place, health, stream=False).outcome == "ok"
        with pytest.raises(UpstreamFailure):
            asked_for(place, health, stream=False)
        clock.now += SUSPENSION_S
        assert asked_for(place, health, stream=False).outcome == "ok"
        assert server.asked == ["m", "m"]
