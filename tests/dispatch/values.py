"""Errands as small as the dispatcher allows, and a dispatcher with the real door, wire and transport."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from adapters.openai_compatible import OpenAICompatible
from router.decide.eligible import Gate
from router.decide.health import Health
from router.dispatch.door import Door
from router.dispatch.errand import Errand
from router.dispatch.http import HttpTransport
from router.dispatch.purse import Purse
from router.dispatch.room import Room
from router.dispatch.walk import Dispatcher
from router.engines.replicas import Replicas
from router.estimate.estimate import estimate
from router.estimate.learn import Learned
from router.types.account import Bound
from router.types.call import Adapter
from router.types.plan import Candidate, Plan
from router.types.request import Request
from router.types.store import BudgetStore
from router.types.target import Target, Wire
from tests.decide.values import REMOTE, gate, request, target

T = TypeVar("T")
ANSWER = json.dumps(
    {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
    }
).encode()


def asking(text: str = "Hi", *, model: str = "m", stream: bool = False, **fields: Any) -> Request:
    body = {"model": model, "messages": [{"role": "user", "content": text}], "stream": stream}
    raw = {name: msgspec.Raw(json.dumps(value).encode()) for name, value in body.items()}
    return request(body=raw, stream=stream, model=model, text=text, **fields)


def errand(
    *places: Target,
    asked: Request | None = None,
    own: Gate | None = None,
    redacted: bool = False,
    deadline: float | None = None,
) -> Errand:
    """Asks all of `places` in order, whether they may be asked or not."""
    asked = asked or asking(model=places[0].model.name)
    learned = Learned()
    steps = tuple(Candidate(place, estimate(place, asked, learned), redacted) for place in places)
    purse = Purse(cast(BudgetStore, None), learned, Room(), asked, Bound())  # nothing binds: no store is asked
    plan = Plan(route="auto", strategy="ordered", steps=steps)
    return Errand(asked, plan, own or gate(asked=asked), purse, deadline)


def at(base_url: str, name: str = "m", identity: str = "t", **fields: Any) -> Target:
    place = target(identity, provider=replace(REMOTE, base_url=base_url))
    return replace(place, model=replace(place.model, name=name), **{"retries": 0, **fields})


def with_transport(work: Callable[[HttpTransport], Awaitable[T]]) -> T:
    async def run() -> T:
        transport = HttpTransport()
        try:
            return await work(transport)
        finally:
            transport.close()
            await asyncio.sleep(0)

    return asyncio.run(run())


def dispatcher(
    transport: HttpTransport, health: Health, adapter: Adapter | None = None, replicas: Replicas | None = None
) -> Dispatcher:
    wires = (Wire.OPENAI_COMPATIBLE, Wire.ANTHROPIC)
    adapters, door = dict.fromkeys(wires, adapter or OpenAICompatible()), Door(dict.fromkeys(wires, transport))
    return Dispatcher(adapters, door, health, replicas or Replicas())
