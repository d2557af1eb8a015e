"""Requests to an engine with replicas: another one takes over from one that fails, and each is left exactly once."""

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from msgspec import Struct, structs

from adapters.openai_compatible import OpenAICompatible
from router.decide.health import TRIP_AFTER, Health
from router.dispatch.door import KeptIn
from router.dispatch.errand import Errand
from router.dispatch.http import HttpTransport
from router.dispatch.opened import Answered, Opened
from router.dispatch.seat import Seat
from router.dispatch.stream import forward
from router.dispatch.walk import Dispatcher
from router.engines.replicas import Replicas
from router.errors import UpstreamFailure
from router.refusals import stream_error
from router.types.attempt import Attempt
from router.types.call import Call, UpstreamRequest
from router.types.clock import clock_ms
from router.types.engine import EngineState, Load, Served, Status
from router.types.failure import Failure
from router.types.outcome import Asked, Verdict
from router.types.plan import Cascade, Hedge, Tactic, Vote
from router.types.request import Request
from router.types.target import Target, Timeouts
from tests.dispatch.mouths import Mouths, Said, mouths
from tests.dispatch.values import asking, at, dispatcher, errand

T = TypeVar("T")
OK, DOWN = Said("fine"), Said(status=500)
NAMES = ("a", "b", "c")


class Site(Struct):
    """Three replicas behind one target, and who asks them."""

    upstream: Mouths
    transport: HttpTransport
    health: Health
    replicas: Replicas
    dispatcher: Dispatcher
    target: Target

    @property
    def home(self) -> str:
        """The replica that these requests go to first."""
        url = self.replicas.pick(self.target, asking())
        self.replicas.done(url)
        return url.split("/")[-2]

    def url(self, name: str) -> str:
        return f"{self.upstream.url}/{name}/v1"

    def says(self, home: Said, others: Said = OK) -> None:
        """From now on."""
        first = self.home
        self.upstream.scripts |= {name: [home if name == first else others] for name in NAMES}

    @property
    def taken(self) -> dict[str, int]:
        urls = [self.url(name) for name in NAMES]
        return {url: count for url in urls if (count := self.replicas.sent(url))}


def site(work: Callable[[Site], Awaitable[T]], **fields: Any) -> T:
    async def run() -> T:
        transport = HttpTransport()
        try:
            async with mouths({name: [OK] for name in NAMES}) as upstream:
                health, replicas = Health(lambda: clock_ms() / 1000), Replicas(b"secret")
                place = behind(upstream, NAMES, **fields)
                return await work(
                    Site(upstream, transport, health, replicas, dispatcher(transport, health, None, replicas), place)
                )
        finally:
            transport.close()
            await asyncio.sleep(0)

    return asyncio.run(run())


def behind(upstream: Mouths, names: tuple[str, ...], identity: str = "t", **fields: Any) -> Target:
    urls = tuple(f"{upstream.url}/{name}/v1" for name in names)
    return at(urls[0], identity=identity, engine=Served(name="e", urls=urls, slots=8), **fields)


class End:
    """Of a stream; `Ending`."""

    attempt: Attempt

    def settle(self, attempt: Attempt, error: str | None) -> bytes:
        self.attempt = attempt
        return b"null"

    def render(self, events: bytes) -> bytes:
        return events

    def closing(self, opened: Opened, usage: bytes) -> bytes:
        return opened.closing(usage)

    async def durable(self) -> None:
        """Nothing is kept."""

    def broken(self, failure: Failure) -> bytes:
        return stream_error(failure)


async def whole(here: Site, what: Errand, leaves_after: int = 1_000) -> bytes:
    """What the client gets: a body, or the events of a stream, of which it reads so many parts."""
    answer = await here.dispatcher.walk(what)
    if isinstance(answer, Answered):
        return b"".join(map(bytes, answer.reply.body.values()))
    got, events = b"", forward(answer, here.health, End())
    try:
        async for part in events:
            got += part
            leaves_after -= 1
            if leaves_after <= 0:
                break
    finally:
        await events.aclose()
    return got


async def collected(events: AsyncGenerator[bytes]) -> bytes:
    return b"".join([part async for part in events])


def outcomes(what: Errand) -> list[str]:
    return [attempt.outcome for attempt in what.purse.attempts]


@pytest.mark.parametrize(
    ("stream", "fails", "outcome"),
    [
        (False, DOWN, "server_error"),
        (True, DOWN, "server_error"),
        (False, Said(status=503), "overloaded"),
        (True, Said(status=503), "overloaded"),
        (False, Said("half", cut=True), "cut"),
        (True, Said("half", broken=0), "server_error"),
    ],
)
def test_another_replica_answers_at_once_for_one_that_fails(stream: bool, fails: Said, outcome: str) -> None:
    async def ask(here: Site) -> tuple[bytes, list[str], list[str], dict[str, int]]:
        here.says(fails)
        what = errand(here.target, asked=asking(stream=stream))
        return await whole(here, what), outcomes(what), here.upstream.asked, here.taken

    body, told, asked, taken = site(ask, retries=1)
    assert b"fine" in body
    assert told == [outcome]
    assert len(set(asked)) == 2
    assert taken == {}


def test_a_replica_that_takes_no_connection_costs_no_retry() -> None:
    async def ask(here: Site) -> tuple[list[bytes], dict[str, str]]:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            port = closed.getsockname()[1]
        urls = (f"http://127.0.0.1:{port}/v1", f"http://localhost:{port}/v1", here.url("a"))
        place = structs.replace(here.target, engine=Served(name="e", urls=urls, slots=8))
        texts = [f"Question {number}?" for number in range(2 * TRIP_AFTER)]
        return [await whole(here, errand(place, asked=asking(text))) for text in texts], here.health.snapshot()

    bodies, unhealthy = site(ask, retries=0)
    assert all(b"fine" in body for body in bodies)
    assert unhealthy == {}, "the target is well"


def test_one_that_is_full_is_passed_over_until_it_says_how_busy_it_is() -> None:
    async def ask(here: Site) -> tuple[list[bytes], list[bool], dict[str, str]]:
        first = here.home
        here.says(Said(status=503, kind="Service Unavailable"))
        bodies = [await whole(here, errand(here.target, asked=asking())) for _ in range(2)]
        load = Load(at_ms=1, running=1)
        here.replicas.hear([EngineState(name="e", model="m", status=Status.READY, url=here.url(first), load=load)])
        bodies.append(await whole(here, errand(here.target, asked=asking())))
        return bodies, [name == first for name in here.upstream.asked], here.health.snapshot()

    bodies, asked, unhealthy = site(ask, retries=0)
    assert all(b"fine" in body for body in bodies)
    assert asked == [True, False, False, True, False]
    assert unhealthy == {}


def test_the_target_rests_when_all_of_its_replicas_fail() -> None:
    async def ask(here: Site) -> list[str]:
        here.says(DOWN, DOWN)
        for _ in range(TRIP_AFTER + len(NAMES)):
            with pytest.raises(UpstreamFailure):
                await whole(here, errand(here.target, asked=asking()))
        return list(here.health.snapshot().values())

    assert site(ask, retries=0) == ["open"]


def test_one_failing_replica_never_closes_the_target() -> None:
    async def ask(here: Site) -> tuple[list[str], dict[str, str]]:
        here.says(DOWN)
        for number in range(4 * TRIP_AFTER):
            with suppress(UpstreamFailure):
                await whole(here, errand(here.target, asked=asking(f"Question {number}?")))
        return here.upstream.asked, here.health.snapshot()

    asked, unhealthy = site(ask, retries=0)
    assert unhealthy == {}
    assert sorted(Counter(asked).values())[0] == 1, "it rests"


@pytest.mark.parametrize("events", [0, 2], ids=["at once", "in the middle"])
def test_an_error_event_is_a_failure_though_a_regular_end_follows(events: int) -> None:
    async def ask(here: Site) -> tuple[bytes, list[str]]:
        here.upstream.scripts |= {name: [Said("half of it", broken=events)] for name in NAMES}
        here.upstream.scripts["else"] = [OK]
        other = at(here.url("else"), identity="other")
        what = errand(here.target, other, asked=asking(stream=True))
        return await whole(here, what), outcomes(what)

    got, told = site(ask)
    assert (b"fine" in got) == (events == 0), "nobody else may take over once something was sent"
    assert (b'"error"' in got) == (events > 0)
    assert b"[DONE]" not in got or events == 0, "never a clean end"
    assert told == (["server_error"] if events == 0 else []), "of a stream, it is told at its end"


def test_a_stream_of_an_engine_that_was_stopped_ends_with_an_error_at_once() -> None:
    """Some keep the connection open, and say nothing any more."""

    async def ask(here: Site) -> tuple[bytes, list[str], dict[str, int]]:
        here.says(Said("half of it", silent=2))
        stopped = EngineState(name="e", model="m", status=Status.STOPPED, url=here.url(here.home))
        answer = await here.dispatcher.walk(errand(here.target, asked=asking(stream=True)))
        assert isinstance(answer, Opened)
        events = forward(answer, here.health, End())
        begun = await anext(events)
        assert here.taken == {stopped.url: 1}
        here.transport.end(here.replicas.hear([stopped]))
        rest = await asyncio.wait_for(collected(events), 10)
        return begun + rest, here.upstream.asked, here.taken

    got, asked, taken = site(ask, timeouts=Timeouts(between=60_000))
    assert b"half" in got
    assert b'"error"' in got
    assert b"[DONE]" not in got
    assert len(asked) == 1
    assert taken == {}


def test_what_a_stopped_engine_had_not_begun_is_asked_elsewhere() -> None:
    async def ask(here: Site) -> tuple[bytes, list[str]]:
        here.says(Said("late", after_s=60))
        stopped = EngineState(name="e", model="m", status=Status.RESTARTING, url=here.url(here.home))
        asked = asyncio.ensure_future(whole(here, errand(here.target, asked=asking())))
        await here.upstream.heard.wait()
        here.transport.end(here.replicas.hear([stopped]))
        return await asyncio.wait_for(asked, 10), here.upstream.asked

    body, asked = site(ask, retries=1)
    assert b"fine" in body
    assert len(asked) == 2


def test_a_draining_replica_finishes_what_it_has_and_gets_nothing_new() -> None:
    async def ask(here: Site) -> tuple[bytes, bytes, str, list[str]]:
        first = here.home
        here.says(Said("slowly", after_s=0.3))
        running = asyncio.ensure_future(whole(here, errand(here.target, asked=asking())))
        await here.upstream.heard.wait()
        draining = EngineState(name="e", model="m", status=Status.DRAINING, url=here.url(first))
        here.transport.end(here.replicas.hear([draining]))
        new = await whole(here, errand(here.target, asked=asking()))
        return await running, new, first, here.upstream.asked

    old, new, first, asked = site(ask)
    assert b"slowly" in old
    assert b"fine" in new
    assert [name == first for name in asked] == [True, False]


def test_nothing_goes_to_an_address_that_is_not_the_target_s() -> None:
    async def ask(here: Site) -> list[str]:
        class Astray(Replicas):
            def pick(self, target: Target, request: Request | None, tried: object = ()) -> str:
                return here.url("c")

        lost = dispatcher(here.transport, here.health, None, Astray())
        with pytest.raises(KeptIn, match="address"):
            await lost.walk(errand(behind(here.upstream, ("a", "b"))))
        return here.upstream.asked

    assert site(ask) == []


SAID = some.sampled_from(
    [
        *(OK, Said("Hello there"), Said("late", after_s=0.03)),
        *(DOWN, Said(status=400), Said("half", cut=True), Said("half", broken=0), Said("half of it", broken=2)),
        *(Said("half", silent=2), Said("never", after_s=30)),
    ]
)
TACTICS: list[Tactic | None] = [None, Hedge(10), Cascade(2), Vote(2)]


class Course(Struct, frozen=True):
    """A request: what two targets of two replicas each say, how they are asked, when the client leaves."""

    said: Mapping[str, list[Said]]
    tactic: Tactic | None
    stream: bool
    retries: int
    leaves_s: float | None
    leaves_after: int


COURSES = some.builds(
    Course,
    said=some.fixed_dictionaries({name: some.lists(SAID, min_size=1, max_size=2) for name in ("a", "b", "c", "d")}),
    tactic=some.sampled_from(TACTICS),
    stream=some.booleans(),
    retries=some.integers(0, 1),
    leaves_s=some.sampled_from([None, None, 0.0, 0.005, 0.02]),
    leaves_after=some.sampled_from([1, 2, 1_000]),
)


async def _rejects(asked: Asked) -> list[Verdict]:
    return [Verdict("test", 0.0 if answer.text == "fine" else 1.0) for answer in asked.answers]


async def _run(here: Site, course: Course) -> int:
    """How many attempts there were."""
    here.upstream.scripts = {name: list(said) for name, said in course.said.items()}
    few = Timeouts(first=150, between=100, total=400)
    places = [
        behind(here.upstream, names, identity=identity, retries=course.retries, timeouts=few)
        for identity, names in (("first", ("a", "b")), ("second", ("c", "d")))
    ]
    plain = errand(*places, asked=asking(stream=course.stream), deadline=clock_ms() + 1_000)
    what = structs.replace(plain, plan=structs.replace(plain.plan, tactic=course.tactic), verify=_rejects)
    with suppress(UpstreamFailure, KeptIn, TimeoutError):
        await asyncio.wait_for(whole(here, what, course.leaves_after), course.leaves_s)
    urls = [url for place in places if place.engine for url in place.engine.urls]
    assert [here.replicas.sent(url) for url in urls] == [0, 0, 0, 0]
    return len(what.purse.attempts)


@settings(max_examples=15, deadline=None)
@given(some.lists(COURSES, min_size=3, max_size=6))
def test_however_requests_end_every_replica_is_left_once(courses: list[Course]) -> None:
    async def all_of(here: Site) -> None:
        for course in courses:
            await _run(here, course)

    site(all_of)


def test_a_crash_of_our_own_leaves_the_replica() -> None:
    class Crashing(OpenAICompatible):
        def encode(self, call: Call) -> UpstreamRequest:
            raise ZeroDivisionError

    async def crash(here: Site) -> dict[str, int]:
        broken = dispatcher(here.transport, here.health, Crashing(), here.replicas)
        with pytest.raises(ZeroDivisionError):
            await broken.walk(errand(here.target))
        return here.taken

    assert site(crash) == {}


def test_a_seat_is_left_once() -> None:
    async def leave(here: Site) -> list[int]:
        seats = [Seat(here.replicas, here.target, asking(), []) for _ in range(2)]
        counts = []
        for seat in (seats[0], seats[0], seats[1]):
            counts.append(sum(here.taken.values()))
            seat.leave()
        return [*counts, sum(here.taken.values())]

    assert site(leave) == [2, 1, 1, 0]
