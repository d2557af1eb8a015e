"""Whom a second opinion reaches: a local engine through the door, and nobody else whatever a policy says."""

import asyncio
import json
from pathlib import Path

import pytest
import uvloop
from msgspec.structs import replace

from adapters.openai_compatible import OpenAICompatible
from local_serving.launch.supervisor import Supervisor
from local_serving.spec import read
from router.classify.deep.second import Question, Verdict
from router.classify.detector import Doubt
from router.decide.guard import ClassGuard
from router.decide.health import Health
from router.decide.requirements import Requirements
from router.dispatch.door import Door
from router.dispatch.http import HttpTransport
from router.dispatch.opinion import Inquiry, Opinions
from router.engines.replicas import Replicas
from router.types.engine import Served
from router.types.target import Target, Wire
from tests.decide.values import LOCAL
from tests.dispatch.values import at, with_transport
from tests.gateway.canned import Canned, canned

DOUBT = Doubt("identifiers.phone", "pii", "0171 2345678")
QUESTIONS = (Question(DOUBT, "close ticket ", ", please"),)
CALLED = {("identifiers.phone", "pii"): "a telephone number"}
ANYWHERE = ClassGuard({"internal": Requirements(), "pii": Requirements()}, lambda body: frozenset())
NO = json.dumps(
    {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": '{"1": "no"}'}, "finish_reason": "stop"}],
    }
).encode()


def inquiry(target: Target, timeout_ms: int = 2_000) -> Inquiry:
    return Inquiry(target, ANYWHERE, frozenset({"internal", "pii"}), QUESTIONS, CALLED, timeout_ms, "r")


def at_home(target: Target) -> Target:
    return replace(target, provider=replace(LOCAL, base_url=target.base_url))


def opinion(target: Target, health: Health | None = None, times: int = 1) -> tuple[frozenset[Doubt], list[Verdict]]:
    heard: list[Verdict] = []

    async def ask(transport: HttpTransport) -> frozenset[Doubt]:
        door = Door({Wire.OPENAI_COMPATIBLE: transport})
        adapters = {Wire.OPENAI_COMPATIBLE: OpenAICompatible()}
        replicas = Replicas()
        opinions = Opinions(adapters, door, health or Health(lambda: 0.0), replicas, heard.append)
        for _ in range(times - 1):
            await opinions.denied(inquiry(target))
        found = await opinions.denied(inquiry(target))
        assert replicas.sent(target.base_url) == 0
        return found

    return with_transport(ask), heard


def reached(server: Canned) -> list[str]:
    return server.asked


def test_a_local_engine_is_asked() -> None:
    with canned({"engine": (200, NO)}) as server:
        assert opinion(at_home(at(f"{server.url}/engine/v1"))) == (frozenset({DOUBT}), [Verdict.NO])
        assert reached(server) == ["engine"]


def test_nobody_else_is_whatever_the_policy_says() -> None:
    """The policy of this test lets the class go anywhere."""
    with canned({"provider": (200, NO)}) as server:
        assert opinion(at(f"{server.url}/provider/v1")) == (frozenset(), [Verdict.NONE])
        assert reached(server) == []


def test_an_engine_that_is_gone_has_not_said_no() -> None:
    assert opinion(at_home(at("http://127.0.0.1:9/v1"))) == (frozenset(), [Verdict.NONE])


def test_a_replica_that_is_gone_is_asked_once() -> None:
    with canned({"engine": (200, NO)}) as server:
        urls = ("http://127.0.0.1:9/v1", f"{server.url}/engine/v1")
        pair = replace(at_home(at(urls[0])), engine=Served(name="e", urls=urls))
        assert opinion(pair, times=3)[1] == [Verdict.NONE, Verdict.NO, Verdict.NO]


def test_an_engine_that_rests_after_failures_is_left_alone() -> None:
    health = Health(lambda: 0.0)
    with canned({"engine": (200, NO)}) as server:
        engine = at_home(at(f"{server.url}/engine/v1"))
        for _ in range(5):
            health.failed(engine.id, trips=True)
        assert opinion(engine, health) == (frozenset(), [Verdict.NONE])
        assert reached(server) == []


@pytest.mark.parametrize("count", [1, 5])
def test_the_engine_that_comes_with_lowpass_says_yes_or_no(tmp_path: Path, count: int) -> None:
    """Not more is asked of it: it is too small to judge."""
    spec = replace(read("smollm2"), threads=1)
    heard: list[Verdict] = []

    async def scenario() -> None:
        supervisor, transport = Supervisor([spec], tmp_path), HttpTransport()
        await supervisor.start()
        place = at_home(at(supervisor.served["smollm2"].urls[0], spec.model))
        opinions = Opinions(
            {Wire.OPENAI_COMPATIBLE: OpenAICompatible()},
            Door({Wire.OPENAI_COMPATIBLE: transport}),
            Health(lambda: 0.0),
            Replicas(),
            heard.append,
        )
        try:
            await opinions.denied(replace(inquiry(place, 30_000), questions=QUESTIONS * count))
        finally:
            transport.close()
            await asyncio.sleep(0)
            await supervisor.stop()

    uvloop.run(scenario())
    assert len(heard) == count
    assert set(heard) <= {Verdict.YES, Verdict.NO}
