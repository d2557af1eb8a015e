"""`GET /v1/models`: what a client may send as `model`: routes first, then targets."""

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request, Response

from router.api.rest import answer
from router.choose import Rules, may_name
from router.refusals import unknown_model
from router.types.request import Caller


def routes(rules: Callable[[], Rules], started: int) -> APIRouter:
    """`started` is the Unix time in s that every card shows as `created`."""
    router = APIRouter()

    def cards(caller: Caller) -> dict[str, dict[str, Any]]:
        current = rules()
        ids = [name for name in current.routes if may_name(current, caller, name)]
        return {name: _card(name, current, started) for name in ids}

    @router.get("/v1/models")
    def every(request: Request) -> Response:
        return answer({"object": "list", "data": list(cards(request.state.caller).values())})

    @router.get("/v1/models/{model:path}")
    def one(request: Request, model: str) -> Response:
        known = cards(request.state.caller)
        if model not in known:
            raise unknown_model(model, known)
        return answer(known[model])

    return router


def _card(name: str, rules: Rules, started: int) -> dict[str, Any]:
    target = rules.config.targets.get(name)
    owner = target.provider.id if target is not None else "lowpass"
    return {"id": name, "object": "model", "created": started, "owned_by": owner}
