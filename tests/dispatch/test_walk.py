"""The loop that talks to upstreams, with the real transport and wire: probes, deadlines and connections."""

import asyncio
import socket
import time
from contextlib import ExitStack, suppress

import pytest

from adapters.openai import OpenAICompatible
from bench.framing import differences
from router.decide.health import AT_FIRST, FIRST_REST_S, Health, run_limit
from router.dispatch.dispatch import Dispatcher, DispatchJob
from router.dispatch.http import HIGH_WATER, PIECE, SWEEP_S, Exchange, HttpTransport
from router.dispatch.stream import OpenStream
from router.dispatch.tactics import run_plan
from router.errors import UpstreamFailure
from router.testing.upstream import Upstream
from router.types.attempt import Call, UpstreamRequest
from router.types.clock import clock_ms
from router.types.decision import FittedRequest
from router.types.request import Redacted
from router.types.target import Target, Timeouts
from tests.dispatch.values import ANSWER, Clock, asking, at, budget, dispatcher, job, on_loop, streamed, transport
from tests.gateway.canned import canned
from tests.gateway.running import until

STREAM = asking(stream=True)
TRIPS = run_limit(AT_FIRST)
"""Failures in a row that open the circuit of a target that is new."""


class Crashing(OpenAICompatible):
    def encode(self, call: Call) -> UpstreamRequest:
        raise ZeroDivisionError


async def outcome(dispatcher: Dispatcher, task: DispatchJob) -> str:
    try:
        answer = await run_plan(dispatcher, task)
    except UpstreamFailure as error:
        return error.failure.kind
    if isinstance(answer, OpenStream):
        answer.response.close()
    return "ok"


def tripped() -> Health:
    clock = Clock()
    health = Health(clock)
    for _ in range(TRIPS):
        health.failed("t", trips=True)
    clock.now += FIRST_REST_S
    return health


@on_loop(transport)
async def test_of_many_requests_at_once_those_probe_a_half_open_target_that_may_succeed(own: HttpTransport) -> None:
    with canned({"m": (200, ANSWER)}) as server:
        dispatch, place = dispatcher(own, tripped()), at(f"{server.url}/m/v1")
        outcomes = await asyncio.gather(*(outcome(dispatch, job(place)) for _ in range(8)))
        assert sorted(outcomes) == ["circuit_open"] * 4 + ["ok"] * 4
        assert len(server.asked) == 4


@on_loop(transport)
async def test_a_probe_that_crashes_in_our_own_code_is_given_back(own: HttpTransport) -> None:
    health = tripped()
    with pytest.raises(ZeroDivisionError):
        await run_plan(dispatcher(own, health, Crashing()), job(at("http://127.0.0.1:9/v1")))
    assert health.admit("t")


SILENT = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'


@on_loop(transport)
async def test_a_stream_without_any_text_closes_the_circuit_too(own: HttpTransport) -> None:
    health = tripped()
    with canned({"m": (200, SILENT)}) as server:
        answer = await run_plan(dispatcher(own, health), job(at(f"{server.url}/m/v1"), asked=STREAM))
        assert isinstance(answer, OpenStream)
        assert health.admit("t"), "it has begun to answer"
        assert [events async for events in streamed(answer, health)]
    assert health.snapshot() == {"t": "degraded"}


@on_loop(transport)
async def test_a_client_in_a_hurry_does_not_open_the_circuit_for_the_others(
    own: HttpTransport, upstream: Upstream
) -> None:
    health, place = Health(Clock()), at(upstream.base_url("openai"), "hang")
    for _ in range(TRIPS + 1):
        assert await outcome(dispatcher(own, health), job(place, deadline=clock_ms() + 30)) in ("timeout", "connect")
    assert health.snapshot() == {}


@on_loop(transport)
async def test_no_connection_is_kept_to_an_upstream_that_answers_twice(own: HttpTransport) -> None:
    connections = 0

    async def twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with suppress(ConnectionError):
            while await reader.read(65_536):
                for _ in range(2):
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER))
                    await asyncio.sleep(0.05)
        writer.close()

    async with await asyncio.start_server(twice, "127.0.0.1", 0) as server:
        place = at(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        for pause_s in (0.1, 0.03, 0.03, 0.03):
            assert await outcome(dispatcher(own, Health(Clock())), job(place)) == "ok"
            await asyncio.sleep(pause_s)
        own.close()
        await asyncio.sleep(0.1)
    assert connections == 4


@on_loop(transport)
async def test_a_target_that_hangs_leaves_its_fallback_the_time_that_it_usually_needs(
    own: HttpTransport, upstream: Upstream
) -> None:
    base, pays, dispatch = upstream.base_url("openai"), budget(asking()), dispatcher(own, Health(Clock()))
    places = [at(base, "say-40", name) for name in ("t", "u")]
    for _ in range(8):
        assert [await outcome(dispatch, job(place, pays=pays)) for place in places] == ["ok", "ok"]
    hung = job(at(base, "hang"), places[1], pays=pays, deadline=clock_ms() + 2_000)
    assert await outcome(dispatch, hung) == "ok"


@on_loop(transport)
async def test_a_target_that_is_slower_than_its_own_limit_does(own: HttpTransport, upstream: Upstream) -> None:
    health, place = Health(Clock()), at(upstream.base_url("openai"), "hang", timeouts=Timeouts(first=20))
    outcomes = [await outcome(dispatcher(own, health), job(place)) for _ in range(TRIPS + 1)]
    assert outcomes == ["timeout"] * TRIPS + ["circuit_open"]


@on_loop(transport)
async def test_a_request_on_its_second_connection_can_be_cancelled(own: HttpTransport, upstream: Upstream) -> None:
    """The kept connection is closed under it; the upstream must notice when the client leaves the fresh one."""
    base, dispatch, own.quiet_s = upstream.base_url("openai"), dispatcher(own, Health(Clock())), 0
    assert await outcome(dispatch, job(at(base, "close-under-next"))) == "ok"
    second = asyncio.ensure_future(outcome(dispatch, job(at(base, "hang"))))
    await asyncio.to_thread(until, lambda: len(upstream.requests) == 3, 60)
    second.cancel()
    await asyncio.wait([second])
    assert await asyncio.to_thread(upstream.last.ended.wait, 60)
    assert upstream.last.client_gone
    assert upstream.last.connection != upstream.requests[0].connection


@on_loop(transport)
async def test_kept_connections_are_used_again_and_survive_being_closed(own: HttpTransport, upstream: Upstream) -> None:
    base, dispatch = upstream.base_url("openai"), dispatcher(own, Health(Clock()))
    for name in ("normal", "normal", "normal", "close-keepalive", "normal", "close-under-next", "normal"):
        own.quiet_s = 60 if len(upstream.requests) == 1 else 0
        assert await outcome(dispatch, job(at(base, name))) == "ok"
    first, second, third, *_ = (request.connection for request in upstream.requests)
    assert first != second == third


async def sent(own: HttpTransport, place: Target, *, stream: bool = False) -> Exchange:
    task = job(place, asked=STREAM if stream else None)
    step = task.plan.steps[0]
    request = OpenAICompatible().encode(task.call(step, FittedRequest(), Redacted(task.request, frozenset(), {})))
    return await own.send(place.base_url, request, place.timeouts)


async def crowded(response: Exchange) -> None:
    """Waits until as much has arrived unread as is taken: reading has stopped."""
    while not response._paused:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0)


@on_loop(transport)
async def test_a_slow_reader_is_not_the_upstream_s_fault(
    own: HttpTransport, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """5 MB arrive faster than they are read: reading stops, and hours of a pause count against no target."""
    response = await sent(own, at(upstream.base_url("openai"), "huge", timeouts=Timeouts(total=10**9)), stream=True)
    size = 0
    for hours in range(1, 4):
        await crowded(response)
        ahead = hours * 3_600
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda ahead=ahead: time.monotonic() + ahead)
        await asyncio.sleep(2 * SWEEP_S)
        while response._paused:
            size += len(await anext(response))
    pieces = [len(data) async for data in response.chunks()]
    assert (size + sum(pieces) > 5_000_000, max(pieces)) == (True, PIECE), "other requests have their turn between them"


@on_loop(transport)
async def test_answers_that_fill_the_buffer_before_they_are_read_arrive(own: HttpTransport) -> None:
    """Twice on one connection. The second is more than the kernel's buffers hold: the upstream has to wait for us."""
    sizes = {"large": HIGH_WATER + 1, "larger": 40 * HIGH_WATER}
    with canned({name: (200, b"x" * size) for name, size in sizes.items()}) as server:
        for name in ("large", "large", "larger"):
            response = await sent(own, at(f"{server.url}/{name}/v1"))
            await crowded(response)
            chunks = [await response.read()] if name == "larger" else [data async for data in response.chunks()]
            assert sum(map(len, chunks)) == sizes[name]


@on_loop(transport)
async def test_an_upstream_that_takes_no_connection_is_given_up(own: HttpTransport) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, ExitStack() as queue:
        for _ in range(4):
            waiting = queue.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        place = at(f"http://127.0.0.1:{server.getsockname()[1]}/v1", timeouts=Timeouts(connect=20))
        assert await outcome(dispatcher(own, Health(Clock())), job(place)) == "connect"


@pytest.mark.parametrize("cases", [500, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_what_h11_refuses_or_reads_in_another_way_is_never_an_answer(cases: int) -> None:
    assert [row for row in asyncio.run(differences(range(cases))) if not row.harmless] == []
