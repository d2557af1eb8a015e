"""Is it alive, is it ready, what has it counted."""

from collections.abc import Awaitable, Callable, Mapping

from fastapi import APIRouter, Response

from router.api.rest import answer
from router.telemetry import Values, page


def routes(state: Callable[[], Mapping[str, object]]) -> APIRouter:
    """`state()["ready"]` decides between 200 and 503."""
    router = APIRouter()

    @router.get("/health/live")
    def live() -> Response:
        return answer({"status": "ok"})

    @router.get("/health/ready")
    def ready() -> Response:
        current = state()
        return answer(current, 200 if current["ready"] else 503)

    return router


def metrics(values: Callable[[], Awaitable[Values]]) -> APIRouter:
    router = APIRouter()

    @router.get("/metrics")
    async def counted() -> Response:
        return Response(page(await values()), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router
