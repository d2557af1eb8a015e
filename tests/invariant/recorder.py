"""One server that is every upstream and every webhook: it keeps each byte, and answers, fails, hangs or breaks off."""

from dataclasses import dataclass
from random import Random

from router.testing.upstream import Ask, Behaviour, Break, Page, Recorded, Upstream
from router.testing.upstream.behaviours import Framing
from router.testing.upstream.server import HttpConnection
from router.types.clock import now_ms
from tests.invariant.oracle import Seen

_BROKEN = (Break.CUT, Break.ERROR, Break.SILENCE, Break.HTML)
_FAULTS = (
    *(Behaviour(breaks=how) for how in _BROKEN),
    *(Behaviour(fault=name) for name in ("server", "rate", "context")),
)
_WELL = Behaviour(framing=Framing.MERGED)


@dataclass
class Arrival:
    """`world` and the place within it, from the address."""

    world: str
    seen: Seen


class Recorder(Upstream):
    """`/<world>/<place>/…`. `faulty` is the share of requests that fail."""

    def __init__(self, seed: int, faulty: float = 0.25) -> None:
        super().__init__()
        self._random, self._faulty = Random(seed), faulty  # noqa: S311 - repeatable
        self.arrived: list[Arrival] = []

    async def handle(self, connection: HttpConnection, request: Recorded) -> None:
        _, world, place, path = request.path.split("/", 3)
        head = str(request.headers).encode()
        # Headers are sent too: if they are more than the few that every request has, they are judged with the body.
        body = request.body + b"\n" + head if len(head) > 400 else request.body
        self.arrived.append(Arrival(world, Seen(place, now_ms(), body)))
        hook = place.startswith("hook-")
        request.path = "/hook" if hook else "/v1/messages" if path.endswith("messages") else f"/vllm/{path}"
        await super().handle(connection, request)

    def page(self, request: Recorded) -> Page | None:
        return Page((b"{}",), status=500 if self._fails() else 200) if request.path == "/hook" else None

    def behaviour(self, ask: Ask) -> Behaviour:
        return self._random.choice(_FAULTS) if self._fails() else _WELL

    def _fails(self) -> bool:
        return self._random.random() < self._faulty
