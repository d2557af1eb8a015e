"""Verifiers with what they need of the world: the door for those that are asked over HTTP, children for the others."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence

import msgspec
from msgspec import Struct

from router.dispatch.door import Door, KeptIn, Parcel
from router.errors import UpstreamFailure
from router.outcomes.child.pool import Crashed, Nonsense, Pool
from router.outcomes.verifiers import Http, Verifier
from router.outcomes.verify import Became, KeptAway, Ports, verify_all, works
from router.types.call import UpstreamRequest
from router.types.failure import ErrorKind
from router.types.guard import Guard
from router.types.outcome import Asked, Verdict, Verify
from router.types.target import Timeouts

LARGEST = 65_536
"""Bytes of what a verifier says, which is a number."""
_HEADERS = (("content-type", "application/json"), ("accept", "application/json"), ("user-agent", "lowpass"))


class _Reply(Struct):
    score: float | None = None
    passed: bool | None = None


_reply = msgspec.json.Decoder(_Reply)


class Verifiers:
    """Use inside one running event loop; `close()` at the end. `count` hears what became of each verifier."""

    def __init__(self, door: Door, count: Callable[[str, Became], object]) -> None:
        self._door, self._count, self._pool = door, count, Pool()

    def adopt(self, every: Iterable[Verifier]) -> None:
        """All that the policy in force declares: their children are started, all others ended."""
        self._pool.keep(works(every))

    def of(self, verifiers: Sequence[Verifier], guard: Guard) -> Verify:
        """`guard`: of the policy under which the request was decided."""

        async def post(verifier: Http, asked: Asked, body: bytes) -> float | None:
            return await self._post(guard, verifier, asked, body)

        ports = Ports(post, self._pool, self._count)

        async def verify(asked: Asked) -> Sequence[Verdict]:
            return await verify_all(verifiers, asked, ports)

        return verify

    async def close(self) -> None:
        await self._pool.close()

    async def _post(self, guard: Guard, verifier: Http, asked: Asked, body: bytes) -> float | None:
        request = UpstreamRequest("POST", verifier.path, _headers(verifier), body)
        # All classes bind, as nothing was replaced: the answer has its values again.
        parcel = Parcel(guard, verifier.place, request, asked.classes, region=asked.request.limits.region)
        try:
            response = await self._door.send(parcel, _within(verifier.timeout_ms), _unnoted)
            try:
                if response.status != 200:
                    raise Crashed(f"status {response.status}")
                return _score(await _short(response.chunks()))
            finally:
                response.close()
        except KeptIn:
            raise KeptAway from None
        except UpstreamFailure as error:
            if error.failure.kind is ErrorKind.TIMEOUT:
                raise TimeoutError from None
            raise Crashed(error.failure.kind) from None


def _within(limit_ms: int) -> Timeouts:
    return Timeouts(connect=limit_ms, first=limit_ms, between=limit_ms, total=limit_ms)


def _headers(verifier: Http) -> tuple[tuple[str, str], ...]:
    if verifier.api_key is None:
        return _HEADERS
    return (*_HEADERS, ("authorization", f"Bearer {verifier.api_key.get_secret_value()}"))


async def _short(chunks: AsyncIterator[bytes]) -> bytes:
    found = b""
    async for chunk in chunks:
        found += chunk
        if len(found) > LARGEST:
            raise Nonsense
    return found


def _score(body: bytes) -> float | None:
    """`{"score": 0.5}`, `{"passed": true}`, or null in their place: nothing can be said."""
    try:
        said = _reply.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Nonsense from None
    score = float(said.passed) if said.score is None and said.passed is not None else said.score
    if score is not None and not 0 <= score <= 1:
        raise Nonsense
    return score


def _unnoted(classes: frozenset[str]) -> None:
    """No row of the ledger: nothing is charged."""
