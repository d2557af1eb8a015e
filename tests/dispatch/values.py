"""Errands as small as the dispatcher allows, and a dispatcher with the real egress, wire and transport."""

import asyncio
import inspect
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Container
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from adapters.openai import OpenAICompatible
from router.decide.eligibility import Gate
from router.decide.health import Health
from router.decide.replicas import Replicas
from router.dispatch.dispatch import Dispatcher, DispatchJob
from router.dispatch.egress import EgressFilter
from router.dispatch.hold import BudgetHold, BudgetRoom
from router.dispatch.http import HttpTransport
from router.dispatch.stream import OpenStream, forward
from router.estimate.learn import TargetStats
from router.types.account import UNBOUND, BudgetBound, BudgetStore
from router.types.attempt import Adapter, Verify
from router.types.decision import Candidate, Plan
from router.types.request import Request
from router.types.target import Target, Wire
from tests.decide.values import BILLS_ALL, LOCAL, estimate, gate, request, target

T = TypeVar("T")
Test = Callable[..., None]
AsyncTest = Callable[..., Awaitable[None]]


def completion(content: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return json.dumps(answer).encode()


ANSWER = completion("Hi")


class Clock:
    """Seconds, as `Health` counts them."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def asking(text: str = "Hi", *, model: str = "m", stream: bool = False, **fields: Any) -> Request:
    body = {"model": model, "messages": [{"role": "user", "content": text}], "stream": stream}
    raw = {name: msgspec.Raw(json.dumps(value).encode()) for name, value in body.items()}
    return request(body=raw, stream=stream, model=model, text=text, **fields)


def budget(asked: Request, *, bound: BudgetBound = UNBOUND, store: BudgetStore | None = None) -> BudgetHold:
    """Where nothing binds, no store is asked."""
    return BudgetHold(cast(BudgetStore, store), TargetStats(), BudgetRoom(), asked, bound=bound)


def job(
    *places: Target,
    asked: Request | None = None,
    own: Gate | None = None,
    hidden: Container[str] = (),
    deadline: float | None = None,
    pays: BudgetHold | None = None,
    verify: Verify | None = None,
    **plan: Any,
) -> DispatchJob:
    """Asks all of `places` in order, whether they may be asked or not; those in `hidden` see the redacted form."""
    asked = asked or asking(model=places[0].model.name)
    pays = pays or budget(asked)
    steps = tuple(Candidate(place, estimate(place, asked, pays.learned), place.id in hidden) for place in places)
    plans = Plan(route="auto", strategy="ordered", steps=steps, **plan)
    return DispatchJob(asked, plans, own or gate(asked=asked), pays, deadline, verify)


def at(base_url: str, name: str = "m", identity: str = "t", **fields: Any) -> Target:
    place = target(identity, provider=replace(BILLS_ALL, base_url=base_url))
    return replace(place, model=replace(place.model, name=name), **{"retries": 0, **fields})


def at_home(place: Target) -> Target:
    return replace(place, provider=replace(LOCAL, base_url=place.base_url))


@asynccontextmanager
async def transport() -> AsyncGenerator[HttpTransport]:
    own = HttpTransport()
    try:
        yield own
    finally:
        own.close()
        await asyncio.sleep(0)


def on_loop(make: Callable[[], AbstractAsyncContextManager[Any]]) -> Callable[[AsyncTest], Test]:
    """The first argument of an async test is what `make` opens, in an event loop of the test's own."""

    def decorate(test: AsyncTest) -> Test:
        async def work(*values: Any, **row: Any) -> None:
            async with make() as own:
                await test(own, *values, **row)

        def run(*values: Any, **row: Any) -> None:
            asyncio.run(work(*values, **row))

        signature = inspect.signature(test)
        run.__signature__ = signature.replace(parameters=[*signature.parameters.values()][1:])  # type: ignore[attr-defined]
        return run

    return decorate


def with_transport(work: Callable[[HttpTransport], Awaitable[T]]) -> T:
    async def run() -> T:
        async with transport() as own:
            return await work(own)

    return asyncio.run(run())


def dispatcher(
    transport: HttpTransport, health: Health, adapter: Adapter | None = None, replicas: Replicas | None = None
) -> Dispatcher:
    wires = (Wire.OPENAI_COMPATIBLE, Wire.ANTHROPIC)
    adapters, egress = dict.fromkeys(wires, adapter or OpenAICompatible()), dict.fromkeys(wires, transport)
    return Dispatcher(adapters, EgressFilter(egress), health, replicas or Replicas())


def streamed(answer: OpenStream, health: Health) -> AsyncGenerator[bytes]:
    """Its events as its client gets them; nothing is kept."""
    return forward(answer, health, lambda attempt, error, rest: b"null", lambda: asyncio.sleep(0))
