"""The loop that talks to upstreams, with the real transport and wire: probes, deadlines and connections."""

import asyncio

import pytest

from adapters.openai_compatible import OpenAICompatible
from router.decide.health import FIRST_REST_S, TRIP_AFTER, Health
from router.dispatch.connection import HIGH_WATER
from router.dispatch.errand import Errand
from router.dispatch.http import HttpTransport
from router.dispatch.opened import Answered, Opened
from router.dispatch.walk import Dispatcher
from router.errors import UpstreamFailure
from router.estimate.afford import Fit
from router.types.call import Call, UpstreamRequest
from router.types.clock import clock_ms
from router.types.target import Timeouts
from tests import upstream as scripted
from tests.dispatch.values import ANSWER, asking, at, dispatcher, errand, with_transport
from tests.gateway.canned import PAUSE, canned
from tests.gateway.running import until

STREAM = asking(stream=True)


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Crashing(OpenAICompatible):
    def encode(self, call: Call) -> UpstreamRequest:
        raise ZeroDivisionError


async def outcome(dispatcher: Dispatcher, what: Errand) -> str:
    try:
        answer = await dispatcher.walk(what)
    except UpstreamFailure as error:
        return error.failure.kind
    if isinstance(answer, Opened):
        answer.response.close()
    return "ok"


def tripped(clock: Clock) -> Health:
    health = Health(clock)
    for _ in range(TRIP_AFTER):
        health.failed("t", trips=True)
    clock.now += FIRST_REST_S
    return health


def test_of_many_requests_at_once_one_probes_a_half_open_target() -> None:
    with canned({"m": (200, PAUSE + ANSWER)}) as server:
        place, clock = at(f"{server.url}/m/v1"), Clock()

        async def crowd(transport: HttpTransport) -> list[str]:
            own = dispatcher(transport, tripped(clock))
            return await asyncio.gather(*(outcome(own, errand(place)) for _ in range(8)))

        assert sorted(with_transport(crowd)) == ["circuit_open"] * 7 + ["ok"]
        assert server.asked == ["m"]


def test_a_probe_that_crashes_in_our_own_code_is_given_back() -> None:
    clock = Clock()
    health = tripped(clock)

    async def crash(transport: HttpTransport) -> None:
        await dispatcher(transport, health, Crashing()).walk(errand(at("http://127.0.0.1:9/v1")))

    with pytest.raises(ZeroDivisionError):
        with_transport(crash)
    assert health.admit("t")


def test_a_stream_without_any_event_closes_the_circuit_too() -> None:
    with canned({"m": (200, b"data: [DONE]\n\n")}) as server:
        clock = Clock()
        health = tripped(clock)
        place = at(f"{server.url}/m/v1")
        assert with_transport(lambda t: outcome(dispatcher(t, health), errand(place, asked=STREAM))) == "ok"
    assert health.snapshot() == {}


def test_a_client_in_a_hurry_does_not_open_the_circuit_for_the_others(upstream: scripted.Upstream) -> None:
    health, place = Health(Clock()), at(upstream.base_url("openai"), "hang")

    async def hurry(transport: HttpTransport) -> list[str]:
        own = dispatcher(transport, health)
        return [await outcome(own, errand(place, deadline=clock_ms() + 30)) for _ in range(TRIP_AFTER + 1)]

    assert set(with_transport(hurry)) == {"timeout"}
    assert health.snapshot() == {}


def test_a_target_that_is_slower_than_its_own_limit_does(upstream: scripted.Upstream) -> None:
    health, place = Health(Clock()), at(upstream.base_url("openai"), "hang", timeouts=Timeouts(first=20))

    async def wait(transport: HttpTransport) -> list[str]:
        return [await outcome(dispatcher(transport, health), errand(place)) for _ in range(TRIP_AFTER + 1)]

    assert with_transport(wait) == ["timeout"] * TRIP_AFTER + ["circuit_open"]


def test_a_request_on_its_second_connection_can_be_cancelled(upstream: scripted.Upstream) -> None:
    """The kept connection is closed under it; the upstream must notice when the client leaves the fresh one."""
    base = upstream.base_url("openai")

    async def leave(transport: HttpTransport) -> None:
        own = dispatcher(transport, Health(Clock()))
        assert await outcome(own, errand(at(base, "close-under-next"))) == "ok"
        second = asyncio.ensure_future(outcome(own, errand(at(base, "hang"))))
        await asyncio.to_thread(until, lambda: len(upstream.requests) == 3)
        second.cancel()
        await asyncio.wait([second])
        assert await asyncio.to_thread(upstream.last.ended.wait, 5)

    with_transport(leave)
    assert upstream.last.client_gone
    assert upstream.last.connection != upstream.requests[0].connection


def test_kept_connections_are_used_again_and_survive_being_closed(upstream: scripted.Upstream) -> None:
    base = upstream.base_url("openai")
    names = ["normal", "normal", "close-keepalive", "normal", "close-under-next", "normal"]

    async def ask(transport: HttpTransport) -> list[str]:
        own = dispatcher(transport, Health(Clock()))
        return [await outcome(own, errand(at(base, name))) for name in names]

    assert with_transport(ask) == ["ok"] * len(names)
    first, second, *_ = (seen.connection for seen in upstream.requests)
    assert first == second


def test_a_slow_reader_is_not_the_upstream_s_fault(upstream: scripted.Upstream) -> None:
    """5 MB arrive faster than they are read: reading stops, and the pause counts against nobody."""
    place = at(upstream.base_url("openai"), "huge", timeouts=Timeouts(between=150))
    call = errand(place, asked=STREAM).call(errand(place).plan.steps[0], Fit())

    async def dawdle(transport: HttpTransport) -> int:
        asked = OpenAICompatible().encode(call)
        response = await transport.send(place.base_url, asked, place.timeouts)
        size = 0
        async for data in response.chunks():
            size += len(data)
            if size < 2_000_000:
                await asyncio.sleep(0.3 if size < 600_000 else 0)
        return size

    assert with_transport(dawdle) > 5_000_000


def test_a_connection_whose_last_bytes_filled_the_buffer_is_read_again() -> None:
    with canned({"large": (200, b"x" * (HIGH_WATER + 1))}) as server:
        place = at(f"{server.url}/large/v1", timeouts=Timeouts(first=2_000))
        request = OpenAICompatible().encode(errand(place).call(errand(place).plan.steps[0], Fit()))

        async def read_late(transport: HttpTransport) -> list[int]:
            sizes = []
            for _ in range(2):
                response = await transport.send(place.base_url, request, place.timeouts)
                await asyncio.sleep(0.2)
                sizes.append(sum([len(data) async for data in response.chunks()]))
            return sizes

        assert with_transport(read_late) == [HIGH_WATER + 1] * 2


def test_a_whole_answer_that_fills_the_buffer_before_it_is_read_arrives() -> None:
    """More than the kernel's own buffers hold, so that the upstream has to wait for us to read on."""
    size = 40 * HIGH_WATER
    with canned({"large": (200, b"x" * size)}) as server:
        place = at(f"{server.url}/large/v1", timeouts=Timeouts(first=5_000, between=5_000))
        request = OpenAICompatible().encode(errand(place).call(errand(place).plan.steps[0], Fit()))

        async def read_late(transport: HttpTransport) -> int:
            response = await transport.send(place.base_url, request, place.timeouts)
            await asyncio.sleep(0.2)
            return len(await response.read())

        assert with_transport(read_late) == size


def test_a_whole_answer_is_priced_from_what_came(upstream: scripted.Upstream) -> None:
    place = at(upstream.base_url("openai"), "missing-usage")

    async def ask(transport: HttpTransport) -> Answered | Opened:
        return await dispatcher(transport, Health(Clock())).walk(errand(place))

    answer = with_transport(ask)
    assert isinstance(answer, Answered)
    usage = answer.attempt.usage
    assert usage is not None
    assert (usage.source, usage.input_uncached) == ("estimated", answer.step.estimate.input_tokens)
    assert usage.output_visible > 0
