"""Requests to an engine with replicas: another one takes over from one that fails, and each is left exactly once."""

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from msgspec import Struct, structs

from router.decide.health import AT_FIRST, Health, run_limit
from router.decide.replicas import Replicas
from router.dispatch.dispatch import DispatchJob
from router.dispatch.egress import EgressDenied
from router.dispatch.hold import ReplicaLease
from router.dispatch.http import HttpTransport
from router.dispatch.stream import OpenStream, WholeAnswer
from router.dispatch.tactics import run_plan
from router.errors import UpstreamFailure
from router.testing import until
from router.testing.upstream import Break
from router.types.attempt import Verdict, VerifierRequest
from router.types.clock import clock_ms
from router.types.decision import Cascade, Hedge, Tactic, Vote
from router.types.request import Request
from router.types.target import EngineState, Load, ServedEngine, Status, Target, Timeouts
from tests.dispatch.scripted import Reply, Scripted, after, never
from tests.dispatch.test_walk import Crashing
from tests.dispatch.values import AsyncTest, Test, asking, at, dispatcher, job, on_loop, streamed, transport
from tests.tables import each_row

OK, DOWN = Reply("fine"), Reply(status=500)
NAMES = ("a", "b", "c")
TRIPS = run_limit(AT_FIRST)
"""Failures in a row that open the circuit of a target that is new."""


class Site:
    """Three replicas behind one target, and who asks them."""

    def __init__(self, upstream: Scripted, transport: HttpTransport, **fields: Any) -> None:
        self.upstream, self.transport = upstream, transport
        self.health, self.replicas = Health(lambda: clock_ms() / 1000), Replicas(b"secret")
        self.dispatcher = dispatcher(transport, self.health, None, self.replicas)
        self.target = self.behind(*NAMES, **fields)

    def behind(self, *names: str, identity: str = "t", **fields: Any) -> Target:
        urls = tuple(map(self.url, names))
        return at(urls[0], identity=identity, engine=ServedEngine(name="e", urls=urls, slots=8), **fields)

    @property
    def home(self) -> str:
        """The replica that these requests go to first."""
        url = self.replicas.pick(self.target, asking())
        self.replicas.done(url)
        return url.split("/")[-2]

    def url(self, name: str) -> str:
        return f"{self.upstream.url}/{name}/v1"

    def answers(self, home: Reply, others: Reply = OK) -> None:
        first = self.home
        self.upstream.scripts |= {name: [home if name == first else others] for name in NAMES}

    def state(self, name: str, status: Status, load: Load | None = None) -> EngineState:
        return EngineState(name="e", model="m", status=status, url=self.url(name), load=load)

    @property
    def taken(self) -> dict[str, int]:
        urls = [self.url(name) for name in NAMES]
        return {url: count for url in urls if (count := self.replicas.sent(url))}

    async def whole(self, task: DispatchJob | None = None, leaves_after: int = 1_000) -> bytes:
        """What the client gets: a body, or the events of a stream, of which it reads so many parts."""
        answer = await run_plan(self.dispatcher, task or job(self.target))
        if isinstance(answer, WholeAnswer):
            return b"".join(map(bytes, answer.reply.body.values()))
        got, events = b"", streamed(answer, self.health)
        try:
            async for part in events:
                self.upstream.context = True
                got += part
                leaves_after -= 1
                if leaves_after <= 0:
                    break
        finally:
            await events.aclose()
        return got


@asynccontextmanager
async def site(**fields: Any) -> AsyncGenerator[Site]:
    with Scripted({name: [OK] for name in NAMES}) as upstream:
        async with transport() as own:
            yield Site(upstream, own, **fields)


def on_site(**fields: Any) -> Callable[[AsyncTest], Test]:
    """The first argument of a test is a site whose target has these `fields`."""
    return on_loop(lambda: site(**fields))


def outcomes(task: DispatchJob) -> list[str]:
    return [attempt.outcome for attempt in task.budget.attempts]


@each_row(
    "stream, fails, outcome",
    [
        *((stream, DOWN, "server_error") for stream in (False, True)),
        *((stream, Reply(status=503), "overloaded") for stream in (False, True)),
        *[(False, Reply("half", breaks=Break.CUT), "cut"), (True, Reply(dies=True), "server_error")],
    ],
)
@on_site(retries=1)
async def test_another_replica_answers_at_once_for_one_that_fails(
    here: Site, stream: bool, fails: Reply, outcome: str
) -> None:
    here.answers(fails)
    task = job(here.target, asked=asking(stream=stream))
    assert b"fine" in await here.whole(task)
    assert outcomes(task) == [outcome]
    assert len(set(here.upstream.asked)) == 2
    assert here.taken == {}


@on_site(retries=0)
async def test_a_replica_that_takes_no_connection_costs_no_retry(here: Site) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        urls = (f"http://127.0.0.1:{port}/v1", f"http://localhost:{port}/v1", here.url("a"))
        place = structs.replace(here.target, engine=ServedEngine(name="e", urls=urls, slots=8))
        for number in range(2 * TRIPS):
            assert b"fine" in await here.whole(job(place, asked=asking(f"Question {number}?")))
    assert here.health.snapshot() == {}, "the target is well"


@on_site(retries=0)
async def test_one_that_is_full_is_passed_over_until_it_says_how_busy_it_is(here: Site) -> None:
    first = here.home
    here.answers(Reply(status=503, kind="Service Unavailable"))
    for _ in range(2):
        assert b"fine" in await here.whole()
    here.replicas.hear([here.state(first, Status.READY, Load(at_ms=1, running=1))])
    assert b"fine" in await here.whole()
    assert [name == first for name in here.upstream.asked] == [True, False, False, True, False]
    assert here.health.snapshot() == {}


@on_site(retries=0)
async def test_the_target_rests_when_all_of_its_replicas_fail(here: Site) -> None:
    here.answers(DOWN, DOWN)
    for _ in range(TRIPS + len(NAMES)):
        with pytest.raises(UpstreamFailure):
            await here.whole()
    assert list(here.health.snapshot().values()) == ["open"]


@on_site(retries=0)
async def test_one_failing_replica_never_closes_the_target(here: Site) -> None:
    here.answers(DOWN)
    for number in range(4 * TRIPS):
        with suppress(UpstreamFailure):
            await here.whole(job(here.target, asked=asking(f"Question {number}?")))
    assert here.health.snapshot() == {}
    assert min(Counter(here.upstream.asked).values()) == 1, "it rests"


@each_row("reply", [Reply(dies=True), Reply("half of it", breaks=Break.ERROR)])
@on_site()
async def test_an_error_event_is_a_failure_though_a_regular_end_follows(here: Site, reply: Reply) -> None:
    here.upstream.scripts |= {name: [reply] for name in NAMES} | {"else": [OK]}
    here.upstream.context = False
    task = job(here.target, at(here.url("else"), identity="other"), asked=asking(stream=True))
    got = await here.whole(task)
    assert (b"fine" in got) == reply.dies, "no other may take over once something was sent"
    assert (b'"error"' in got) != reply.dies
    assert b"[DONE]" not in got or reply.dies, "never a clean end"
    assert outcomes(task) == (["server_error"] if reply.dies else []), "of a stream, it is told at its end"


@on_site(timeouts=Timeouts(between=600_000))
async def test_a_stream_of_an_engine_that_was_stopped_ends_with_an_error_at_once(here: Site) -> None:
    """Some keep the connection open, and say nothing any more."""
    here.answers(Reply("half of it", breaks=Break.HANG))
    stopped = here.state(here.home, Status.STOPPED)
    answer = await run_plan(here.dispatcher, job(here.target, asked=asking(stream=True)))
    assert isinstance(answer, OpenStream)
    events = streamed(answer, here.health)
    begun = b""
    while b"half" not in begun:
        begun += await anext(events)
    assert here.taken == {stopped.url: 1}
    here.transport.end(here.replicas.hear([stopped]))
    got = b"".join([part async for part in events])
    assert b'"error"' in got
    assert b"[DONE]" not in got
    assert len(here.upstream.asked) == 1
    assert here.taken == {}


@on_site(retries=1)
async def test_a_request_that_a_stopped_engine_had_not_begun_is_asked_elsewhere(here: Site) -> None:
    here.answers(Reply("late", when=never))
    stopped = here.state(here.home, Status.RESTARTING)
    running = asyncio.ensure_future(here.whole())
    await asyncio.to_thread(until, lambda: here.upstream.asked)
    here.transport.end(here.replicas.hear([stopped]))
    assert b"fine" in await running
    assert len(here.upstream.asked) == 2


@on_site()
async def test_a_draining_replica_finishes_its_requests_and_gets_no_new_one(here: Site) -> None:
    first = here.home
    here.answers(Reply("slowly", when=after(2)))
    running = asyncio.ensure_future(here.whole())
    await asyncio.to_thread(until, lambda: here.upstream.asked)
    here.transport.end(here.replicas.hear([here.state(first, Status.DRAINING)]))
    assert b"fine" in await here.whole()
    assert b"slowly" in await running
    assert [name == first for name in here.upstream.asked] == [True, False]


@on_site()
async def test_nothing_goes_to_an_address_that_is_not_the_target_s(here: Site) -> None:
    class Astray(Replicas):
        def pick(self, target: Target, request: Request | None, tried: object = ()) -> str:
            return here.url("c")

    lost = dispatcher(here.transport, here.health, None, Astray())
    with pytest.raises(EgressDenied, match="address"):
        await run_plan(lost, job(here.behind("a", "b")))
    assert here.upstream.asked == []


class Course(Struct, frozen=True):
    """A request: what two targets of two replicas each say, how they are asked, when the client leaves."""

    replies: Mapping[str, list[Reply]]
    tactic: Tactic | None
    stream: bool
    retries: int
    leaves_s: float | None
    leaves_after: int


BROKEN = [Reply("half of it", breaks=how) for how in (Break.CUT, Break.ERROR, Break.HANG)]
REPLIES = some.sampled_from(
    [OK, Reply("late", when=after(2)), Reply("never", when=never), DOWN, Reply(status=400), Reply(dies=True), *BROKEN]
)
COURSES = some.builds(
    Course,
    replies=some.fixed_dictionaries({name: some.lists(REPLIES, min_size=1, max_size=2) for name in "abcd"}),
    tactic=some.sampled_from([None, Hedge(10), Cascade(2), Vote(2)]),
    stream=some.booleans(),
    retries=some.integers(0, 1),
    leaves_s=some.sampled_from([None, None, 0.0, 0.005, 0.02]),
    leaves_after=some.sampled_from([1, 2, 1_000]),
)


async def _rejects(asked: VerifierRequest) -> list[Verdict]:
    return [Verdict("test", 0.0 if answer.text == "fine" else 1.0) for answer in asked.answers]


@settings(max_examples=15, deadline=None)
@given(courses=some.lists(COURSES, min_size=3, max_size=6))
@on_site()
async def test_however_requests_end_every_replica_is_left_once(here: Site, courses: list[Course]) -> None:
    for loop in courses:
        here.upstream.scripts = {name: list(replies) for name, replies in loop.replies.items()}
        here.upstream.asked.clear()
        fields: dict[str, Any] = {"retries": loop.retries, "timeouts": Timeouts(first=150, between=100, total=400)}
        places = here.behind("a", "b", **fields), here.behind("c", "d", identity="second", **fields)
        asked = asking(stream=loop.stream)
        deadline = clock_ms() + 1_000
        task = job(*places, asked=asked, deadline=deadline, verify=_rejects, tactic=loop.tactic)
        with suppress(UpstreamFailure, EgressDenied, TimeoutError):
            await asyncio.wait_for(here.whole(task, loop.leaves_after), loop.leaves_s)
        assert [here.replicas.sent(here.url(name)) for name in "abcd"] == [0, 0, 0, 0]


@on_site()
async def test_a_crash_of_our_own_leaves_the_replica(here: Site) -> None:
    with pytest.raises(ZeroDivisionError):
        await run_plan(dispatcher(here.transport, here.health, Crashing(), here.replicas), job(here.target))
    assert here.taken == {}


@on_site()
async def test_a_seat_is_left_once(here: Site) -> None:
    seats = [ReplicaLease(here.replicas, here.target, asking(), []) for _ in range(2)]
    for lease, left in ((seats[0], 1), (seats[0], 1), (seats[1], 0)):
        lease.leave()
        assert sum(here.taken.values()) == left
