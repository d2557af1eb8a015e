"""How a judge is asked: as any client is, by the key whose answer it judges, so that everything binds it too."""

import msgspec
from msgspec import structs

from router.api.parse import parse
from router.pipeline import Pipeline
from router.types.ids import new_id
from router.types.request import Caller, Endpoint, Limits


class Judges:
    """`pipeline` is set once it exists: it needs whoever follows its answers."""

    pipeline: Pipeline

    async def ask(self, body: bytes, caller: Caller, limits: Limits) -> bytes:
        """Raises whatever keeps a client from an answer. A key that is bound to routes may still be judged, one that is
        bound to targets only by these."""
        request = structs.replace(parse(Endpoint.CHAT, new_id(), body, ()), limits=limits)
        caller = structs.replace(caller, routes=frozenset())
        served = await self.pipeline.serve(request, caller)
        return msgspec.json.encode(served.body)
