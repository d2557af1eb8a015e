"""Requests that the gateway asks of itself: read, judged and served as any client's are."""

from collections.abc import Awaitable, Callable

import msgspec
from msgspec import structs

from router.api.parse import parse
from router.outcomes.judge.judging import Ask
from router.types.ids import new_id
from router.types.request import Caller, Endpoint, Limits, Request
from router.types.served import Served


def asking(serve: Callable[[Request, Caller], Awaitable[Served]]) -> Ask:
    """`serve` raises for a request that is refused or fails."""

    async def ask(body: bytes, caller: Caller, limits: Limits) -> bytes:
        request = parse(Endpoint.CHAT, new_id(), body, ())
        # A key that is bound to routes may name no target, so no judge; one that is bound to targets only those.
        allowance = caller.allowance and structs.replace(caller.allowance, rpm=None, tpm=None, parallel=None)
        asks = structs.replace(caller, routes=frozenset(), allowance=allowance)
        served = await serve(structs.replace(request, limits=limits), asks)
        return msgspec.json.encode(served.body)

    return ask
