"""Where a provider says that it served a request: taken down, and believed against the policy's own word."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from adapters.anthropic import AnthropicAdapter
from router.decide.health import SUSPENSION_S, Health
from router.dispatch.attempt import MAX_REGION
from router.dispatch.http import HttpTransport
from router.dispatch.stream import OpenStream, WholeAnswer
from router.dispatch.tactics import run_plan
from router.errors import UpstreamFailure
from router.types.attempt import Attempt
from router.types.target import Target, Terms, Wire
from tests.dispatch.values import ANSWER, Clock, asking, at, dispatcher, job, with_transport
from tests.gateway.canned import canned
from tests.tables import data, each_row

HEADER, GEO = "header:X-Served-From", "usage.inference_geo"
CHUNK = {"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}
CHUNKS = json.dumps({"id": "c", "object": "chat.completion.chunk", "choices": [CHUNK]}).encode()
EVENTS = b"data: %b\n\ndata: [DONE]\n\n" % CHUNKS


def asked_for(place: Target, health: Health, *, stream: bool) -> Attempt:
    """What comes of one request, its stream read to the end."""

    async def ask(transport: HttpTransport) -> Attempt:
        adapter = AnthropicAdapter() if place.provider.wire is Wire.ANTHROPIC else None
        answer = await run_plan(dispatcher(transport, health, adapter), job(place, asked=asking(stream=stream)))
        if isinstance(answer, WholeAnswer):
            return answer.attempt
        assert isinstance(answer, OpenStream)
        async for piece in answer.response.chunks():
            answer.decoder.feed(piece)
        answer.response.close()
        return answer.record.streamed(answer.decoder)

    return with_transport(ask)


def message(geo: str | None, *, stream: bool) -> bytes:
    usage = {"input_tokens": 3, "output_tokens": 2} | ({} if geo is None else {"inference_geo": geo})
    head: dict[str, Any] = {"id": "m", "type": "message", "role": "assistant", "model": "c", "stop_reason": None}
    text = {"type": "text", "text": "Hi"}
    if not stream:
        return json.dumps({**head, "content": [text], "stop_reason": "end_turn", "usage": usage}).encode()
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**head, "content": [], "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": text},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]
    return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)


LONG = ("us", "x" * 1_000, "x" * MAX_REGION, True, False)


@each_row("stream", [False, True])
@each_row("wire", [Wire.OPENAI_COMPATIBLE, Wire.ANTHROPIC])
@each_row("region, stated, kept, verified, trusted", [*data(__file__, "stated_regions.yaml"), LONG])
def test_a_statement_in_a_header_or_among_the_counts_of_usage(
    region: str, stated: str | None, kept: str, verified: bool, trusted: bool, wire: Wire, stream: bool
) -> None:
    """That it is not available says something in usage only."""
    health, anthropic = Health(Clock()), wire is Wire.ANTHROPIC
    if stated == "not_available" and not anthropic:
        return
    headers = {} if stated is None or anthropic else {"x-served-from": stated}
    body = message(stated, stream=stream) if anthropic else EVENTS if stream else ANSWER
    with canned({"m": (200, body)}, headers) as server:
        url, terms = (f"{server.url}/m", GEO) if anthropic else (f"{server.url}/m/v1", HEADER)
        place = at(url, region=region, terms=Terms(verify=terms))
        place = replace(place, provider=replace(place.provider, wire=wire))
        attempt = asked_for(place, health, stream=stream)
    assert (attempt.region, attempt.region_verified) == (kept, verified)
    assert (health.resting("t") == 0) == trusted


@contextmanager
def elsewhere(status: int = 200, terms: str = HEADER) -> Iterator[Target]:
    """A target in the US that says that it is in the EU."""
    with canned({"m": (status, ANSWER)}, {"x-served-from": "eu"}) as server:
        yield at(f"{server.url}/m/v1", region="us", terms=Terms(verify=terms))


@each_row("verify", ["", GEO, "header:x-another"])
def test_a_statement_that_the_terms_do_not_name_is_not_believed(verify: str) -> None:
    health = Health(Clock())
    with elsewhere(terms=verify) as place:
        attempt = asked_for(place, health, stream=False)
    assert (attempt.region, attempt.region_verified, health.snapshot()) == ("us", False, {})


def test_an_error_from_elsewhere_counts_too() -> None:
    health = Health(Clock())
    with elsewhere(500) as place, pytest.raises(UpstreamFailure):
        asked_for(place, health, stream=False)
    assert health.snapshot()["t"] == "region mismatch"


def test_a_target_that_was_elsewhere_is_left_alone_for_an_hour() -> None:
    clock = Clock()
    health = Health(clock)
    with elsewhere() as place:
        assert asked_for(place, health, stream=False).outcome == "ok"
        with pytest.raises(UpstreamFailure):
            asked_for(place, health, stream=False)
        clock.now += SUSPENSION_S
        assert asked_for(place, health, stream=False).outcome == "ok"
