"""`GET /v1/models`: what a client may send as `model`: routes first, then targets."""

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request, Response

from router.api.rest import answer
from router.choose import Rules
from router.refusals import unknown_model
from router.types.request import Caller


def routes(rules: Callable[[], Rules], started: int) -> APIRouter:
    """`started` is the Unix time in s that every card shows as `created`."""
    router = APIRouter()

    def cards(caller: Caller) -> dict[str, dict[str, Any]]:
        current = rules()
        ids = [name for name in (*current.config.routes, *current.config.targets) if _may(caller, name, current)]
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


def _may(caller: Caller, name: str, rules: Rules) -> bool:
    allowed = caller.routes if name in rules.config.routes else caller.targets
    return name in allowed if allowed or caller.routes else True


def _card(name: str, rules: Rules, started: int) -> dict[str, Any]:
    target = rules.config.targets.get(name)
    owner = target.provider.id if target is not None else "lowpass"
    return {"id": name, "object": "model", "created": started, "owned_by": owner}
