"""Requests that come all at once, each on a connection of its own, and what became of them."""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import cast

import httptools
import msgspec
import uvloop
from msgspec import Struct

from router.types.price import nano_from_usd

PATH = "/v1/chat/completions"
LIMIT_S = 60.0
"""No request may take longer; the gateway itself lets one wait for room for 10 s."""
_COST = re.compile(rb'"cost": ?([0-9.eE+-]+)')
_WORDS = (
    "sensor filter amplifier drift voltage resistor sample window phase noise ground cable ferrite clock beat mains "
    "board firmware second order delay hertz compressor thermocouple reading average panel harbour orchard violin "
    "glacier ledger pepper saddle lantern marble thistle copper meadow engine ribbon walnut canvas anchor"
)


class Ask(Struct, frozen=True):
    """One chat request. `cut`: the client hangs up after so many bytes of the answer; `leaves_s`: after so long."""

    port: int
    key: str
    route: str
    ticket: int
    stream: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    cut: int | None = None
    leaves_s: float = LIMIT_S
    n: int = 1

    @property
    def text(self) -> str:
        """Every ticket has its own words: what is measured is no loop."""
        draw = random.Random(self.ticket)  # noqa: S311 - the same prompt each time
        return f"Ticket {self.ticket:08d}: {' '.join(draw.choices(_WORDS.split(), k=60))}"

    def encoded(self) -> bytes:
        """As HTTP/1.1."""
        body: dict[str, object] = {"model": self.route, "messages": [{"role": "user", "content": self.text}]}
        if self.n > 1:
            body["n"] = self.n
        if self.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        data = msgspec.json.encode(body)
        lines = [f"POST {PATH} HTTP/1.1", "host: 127.0.0.1", f"authorization: Bearer {self.key}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        lines += ["content-type: application/json", f"content-length: {len(data)}", "", ""]
        return "\r\n".join(lines).encode() + data


class Answer(Struct, frozen=True):
    """`status` 0: none came. `whole`: it came to its proper end."""

    status: int
    request_id: str
    body: bytes
    whole: bool
    stream: bool

    @property
    def answered(self) -> bool:
        return self.status == 200 and self.whole and (not self.stream or self.body.endswith(b"data: [DONE]\n\n"))

    @property
    def refused(self) -> bool:
        """By a budget that it names."""
        return self.status == 402 and b'"budget":{' in self.body

    @property
    def shortened(self) -> bool:
        return b'"finish_reason":"length"' in self.body

    @property
    def cost(self) -> int | None:
        """nano-USD, as the answer itself says."""
        found = _COST.findall(self.body)
        return nano_from_usd(Decimal(found[-1].decode())) if found else None

    @property
    def wanted(self) -> tuple[str, int]:
        """Of a refused request: the pot that it did not fit, and the nano-USD that it needed at least."""
        budget = msgspec.json.decode(self.body, type=_Refusal).error.budget
        return f"{budget.id}|{budget.value}" if budget.value else budget.id, nano_from_usd(budget.needed)


class _Budget(Struct, frozen=True):
    id: str
    value: str | None
    needed: Decimal


class _Error(Struct, frozen=True):
    budget: _Budget


class _Refusal(Struct, frozen=True):
    error: _Error


class _Call(asyncio.Protocol):
    def __init__(self, ask: Ask) -> None:
        self._ask, self._parser = ask, httptools.HttpResponseParser(self)
        self._id, self._body, self._size = "", list[bytes](), 0
        self.done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._ask.encoded())

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(whole=False)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"x-request-id":
            self._id = value.decode()

    def on_body(self, data: bytes) -> None:
        self._body.append(data)
        self._size += len(data)
        if self._ask.cut is not None and self._size >= self._ask.cut:
            self._end(whole=False)

    def on_message_complete(self) -> None:
        self._end(whole=True)

    def give_up(self) -> None:
        self._end(whole=False)

    def _end(self, whole: bool) -> None:
        self._transport.abort()
        if not self.done.done():
            status = self._parser.get_status_code() if self._id else 0
            self.done.set_result(Answer(status, self._id, b"".join(self._body), whole, self._ask.stream))


async def answer(ask: Ask) -> Answer:
    """Never raises for what a gateway does, killed ones included."""
    loop = asyncio.get_running_loop()
    try:
        _, call = await loop.create_connection(lambda: _Call(ask), "127.0.0.1", ask.port)
    except OSError:
        return Answer(0, "", b"", whole=False, stream=ask.stream)
    timer = loop.call_later(ask.leaves_s, call.give_up)
    try:
        return await call.done
    finally:
        timer.cancel()


def at_once(asks: Iterable[Ask]) -> list[Answer]:
    """All of them in the same moment."""

    async def run() -> list[Answer]:
        return await asyncio.gather(*map(answer, asks))

    return uvloop.run(run())


def in_turns(asks: Sequence[Ask], lanes: int) -> list[Answer]:
    """A few at a time."""

    async def lane(number: int) -> list[Answer]:
        return [await answer(ask) for ask in asks[number::lanes]]

    async def run() -> list[Answer]:
        return [one for part in await asyncio.gather(*map(lane, range(lanes))) for one in part]

    return uvloop.run(run())


def others(answers: Iterable[Answer]) -> dict[str, int]:
    """What neither answered nor refused: status, how often. Nothing is expected to be here."""
    odd = [one for one in answers if not one.answered and not one.refused]
    return dict(Counter(str(one.status) for one in odd))
