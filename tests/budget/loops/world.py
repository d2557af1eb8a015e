"""A clock, keys and a breaker: traffic is played to it as the gateway would."""

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

import msgspec
from msgspec import Raw

from router.budget.loops.breaker import Breaker
from router.budget.loops.loops import Loops, Tripped
from router.types.ids import new_id
from router.types.journal import Journal
from router.types.request import Caller, Endpoint, Limits, Request

Message = dict[str, Any]
SECOND, MINUTE, DAY = 1_000, 60_000, 86_400_000
COST = 200_000
"""nano-USD of an ordinary request."""


class Stopped(Exception):
    """The breaker refused a request."""

    def __init__(self, tripped: Tripped) -> None:
        super().__init__(tripped.reason)
        self.tripped = tripped


class World:
    def __init__(self, journal: Journal, loops: Loops, seed: int) -> None:
        self.random, self.now = Random(seed), 1_793_577_600_000  # noqa: S311
        self.journal, self.loops = journal, loops
        self.breaker = Breaker(loops, self.clock, journal)
        self.requests = self.characters = 0

    def clock(self) -> int:
        return self.now

    def wait(self, least: int, most: int | None = None) -> None:
        self.now += self.random.randint(least, most or least)

    def request(self, messages: Sequence[Message], session: str = "", endpoint: Endpoint = Endpoint.CHAT) -> Request:
        raw = Raw(msgspec.json.encode(messages))
        limits = Limits(session=session)
        return Request(
            id=new_id(),
            endpoint=endpoint,
            model="auto",
            body={"messages": raw},
            prompt_bytes=len(raw),
            limits=limits,
        )

    def ask(
        self,
        key: str,
        messages: Sequence[Message],
        *,
        session: str = "",
        answer: str | None = None,
        cost: int = COST,
        sent: bool = True,
        endpoint: Endpoint = Endpoint.CHAT,
    ) -> None:
        """One request and its end. Raises `Stopped`."""
        self.begin(key, messages, session=session, endpoint=endpoint)(cost, sent, answer)

    def begin(
        self, key: str, messages: Sequence[Message], *, session: str = "", endpoint: Endpoint = Endpoint.CHAT
    ) -> Callable[[int, bool, str | None], None]:
        """A request in progress; calling the result ends it."""
        request, caller = self.request(messages, session, endpoint), Caller(id=f"id-{key}", name=key)
        self.requests += 1
        self.characters += len(str(messages[-1]["content"]))
        tripped = self.breaker.check(request, caller, self.now)
        if tripped is not None:
            raise Stopped(tripped)
        return lambda cost, sent, answer: self.breaker.settled(request, caller, cost=cost, sent=sent, answer=answer)

    def together(self, key: str, prompts: Iterable[Sequence[Message]], *, session: str = "") -> None:
        """All of them are in progress at once."""
        ends = [self.begin(key, messages, session=session) for messages in prompts]
        for end in ends:
            end(COST, True, None)


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def system(text: str) -> Message:
    return {"role": "system", "content": text}


def call(name: str, arguments: str, number: int) -> list[Message]:
    """The model calls a tool; ids differ every time."""
    function = {"name": name, "arguments": arguments}
    return [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": f"call_{number:08x}", "type": "function", "function": function}],
        }
    ]


def result(text: str, number: int) -> Message:
    return {"role": "tool", "tool_call_id": f"call_{number:08x}", "content": text}
