"""`/v1/route` decides without calling anyone, `/v1/decisions/{id}` explains."""

from fastapi import APIRouter, Request, Response
from msgspec import Raw

from router.api.asgi import read_body
from router.api.parse import parse
from router.api.rest import answer
from router.decide.explain import encode, explain
from router.decide.reason import with_reason
from router.errors import ClientError
from router.ledger.ledger import Ledger
from router.ledger.query import decision
from router.pipeline import Pipeline
from router.types.ids import new_id
from router.types.request import Endpoint


def routes(pipeline: Pipeline, ledger: Ledger) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/route")
    async def route(request: Request) -> Response:
        headers = request.scope["headers"]
        body = await read_body(dict(headers), request.receive)
        parsed = parse(Endpoint.CHAT, new_id(), body, headers)
        return answer(Raw(with_reason(encode(explain(await pipeline.route(parsed, request.state.caller))))))

    @router.get("/v1/decisions/{identifier}")
    def explained(identifier: str) -> Response:
        document = decision(ledger, identifier)
        if document is None:
            raise _unknown(identifier)
        return answer(Raw(with_reason(document)))

    return router


def _unknown(identifier: str) -> ClientError:
    message = f"There is no decision '{identifier}', or it has expired; answers carry theirs in x-lowpass-decision."
    return ClientError(404, "not_found", message, param="id")
