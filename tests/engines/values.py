"""Engines with replicas, what they say of themselves, and requests for them."""

from collections.abc import Sequence

from msgspec import structs

from router.engines.replicas import Replicas
from router.types.engine import EngineState, Load, Served, Status
from router.types.request import Limits, Passage, Request
from router.types.target import Target
from tests.decide.values import request, target

SECRET = b"secret of a ledger"


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def urls(count: int) -> tuple[str, ...]:
    return tuple(f"http://127.0.0.1:{number}/v1" for number in range(1, count + 1))


def engine(addresses: Sequence[str], slots: int = 8) -> Target:
    served = Served(name="e", urls=tuple(addresses), slots=slots)
    return structs.replace(target("local"), base_url=served.urls[0], engine=served)


def said(*texts: tuple[str, str], session: str = "") -> Request:
    """Messages by role."""
    passages = [Passage(("messages", number, "content"), text, role) for number, (role, text) in enumerate(texts)]
    return request(passages=tuple(passages), limits=Limits(session=session))


def talk(number: int) -> Request:
    """The beginning of one of many, all under the same instructions."""
    return said(("system", "Be brief."), ("user", f"Question {number}?"))


def state(url: str, status: Status = Status.READY, *, running: int | None = None, at_ms: int = 1) -> EngineState:
    load = None if running is None else Load(at_ms=at_ms, running=running)
    return EngineState(name="e", model="m", status=status, url=url, load=load)


def picked(replicas: Replicas, place: Target, asked: Request) -> str:
    """Of a request that is over at once."""
    url = replicas.pick(place, asked)
    replicas.done(url)
    return url
