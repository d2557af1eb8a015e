"""Whom a second opinion reaches: a local engine through the egress filter, and no other whatever a policy says."""

import asyncio
from pathlib import Path

import uvloop
from msgspec.structs import replace

from local_serving.spec import read
from router.classify.detector import DoubtfulValue
from router.classify.second_opinion import Opinion, OpinionQuestion
from router.decide.eligibility import ClassGuard, Requirements
from router.decide.health import LONGEST_RUN, Health
from router.decide.replicas import Replicas
from router.dispatch.http import HttpTransport
from router.dispatch.side_calls import SecondOpinions, SideCall
from router.types.target import ServedEngine, Target
from tests.dispatch.values import at, at_home, completion, dispatcher, with_transport
from tests.gateway.canned import canned
from tests.local_serving.supervised import started

DOUBT = DoubtfulValue("identifiers.phone", "pii", "0171 2345678")
QUESTIONS = (OpinionQuestion(DOUBT, "close ticket ", ", please"),)
CALLED = {("identifiers.phone", "pii"): "a telephone number"}
ANYWHERE = ClassGuard({"internal": Requirements(), "pii": Requirements()}, lambda *body: frozenset())
NO = completion('{"1": "no"}')
CLOSED = "http://127.0.0.1:9/v1"


class Second:
    """Asks for opinions, and keeps their verdicts."""

    def __init__(self, transport: HttpTransport, health: Health | None = None) -> None:
        self.verdicts, self.replicas = list[Opinion](), Replicas()
        to = dispatcher(transport, health or Health(lambda: 0.0), replicas=self.replicas)
        self._opinions = SecondOpinions(to, self.verdicts.append)

    async def denied(self, place: Target, count: int = 1) -> frozenset[DoubtfulValue]:
        classes = frozenset({"internal", "pii"})
        inquiry = SideCall(place, ANYWHERE, classes, QUESTIONS * count, CALLED, 600_000, "r")
        return await self._opinions.denied(inquiry)


def opinion(
    place: Target, health: Health | None = None, times: int = 1
) -> tuple[frozenset[DoubtfulValue], list[Opinion]]:
    async def ask(transport: HttpTransport) -> tuple[frozenset[DoubtfulValue], list[Opinion]]:
        second = Second(transport, health)
        denied = [await second.denied(place) for _ in range(times)]
        assert second.replicas.sent(place.base_url) == 0
        return denied[-1], second.verdicts

    return with_transport(ask)


def test_a_local_engine_is_asked_and_no_other() -> None:
    """The policy of this test lets the class go anywhere."""
    with canned({"engine": (200, NO)}) as server:
        engine = at(f"{server.url}/engine/v1")
        assert opinion(engine) == (frozenset(), [Opinion.NONE])
        assert server.asked == []
        assert opinion(at_home(engine)) == (frozenset({DOUBT}), [Opinion.NO])
        assert server.asked == ["engine"]


def test_an_engine_that_is_gone_has_not_said_no() -> None:
    assert opinion(at_home(at(CLOSED))) == (frozenset(), [Opinion.NONE])


def test_a_replica_that_is_gone_is_asked_once() -> None:
    with canned({"engine": (200, NO)}) as server:
        pair = ServedEngine(name="e", urls=(CLOSED, f"{server.url}/engine/v1"))
        assert opinion(replace(at_home(at(CLOSED)), engine=pair), times=3)[1] == [Opinion.NONE, Opinion.NO, Opinion.NO]


def test_an_engine_that_rests_after_failures_is_left_alone() -> None:
    health = Health(lambda: 0.0)
    with canned({"engine": (200, NO)}) as server:
        engine = at_home(at(f"{server.url}/engine/v1"))
        for _ in range(LONGEST_RUN):
            health.failed(engine.id, trips=True)
        assert opinion(engine, health) == (frozenset(), [Opinion.NONE])
        assert server.asked == []


def test_the_engine_that_comes_with_lowpass_says_yes_or_no(tmp_path: Path) -> None:
    """Not more is asked of it: it is too small to judge."""
    spec = read("smollm2").model_copy(update={"threads": 1})

    async def scenario() -> list[Opinion]:
        transport = HttpTransport()
        async with started(tmp_path, spec) as supervisor:
            second, engine = Second(transport), at_home(at(supervisor.served["smollm2"].urls[0], spec.model))
            await second.denied(engine)
            await second.denied(engine, 5)
            transport.close()
            await asyncio.sleep(0)
        return second.verdicts

    verdicts = uvloop.run(scenario())
    assert len(verdicts) == 1 + 5
    assert set(verdicts) <= {Opinion.YES, Opinion.NO}
